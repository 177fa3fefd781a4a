"""Lines of a file from either end, in blocks, and the record in each. Knows nothing of heads, locks or writing.

What cannot be read as a record is a `Damage` with its place; reading goes on with the next line.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from backstory.errors import StoreDamaged
from backstory.records import Record, from_line
from backstory.stores.values import Damage, DamageKind

ReadAt = Callable[[int, int], bytes]
"""``read_at(length, offset)``: at most that many bytes from there; fewer only at the end of the file."""

_BLOCK = 1 << 16
_MOST = 1 << 22
_SEQ = re.compile(rb'\{"seq":(\d+)[,}]')


@dataclass(frozen=True, slots=True)
class Line:
    """Bytes without their line break; `ended`: there was one. `offset` is of the first byte."""

    offset: int
    data: bytes
    ended: bool = True

    @property
    def end(self) -> int:
        return self.offset + len(self.data) + self.ended


def forwards(read_at: ReadAt, start: int, end: int, *, block: int = _BLOCK) -> Iterator[Line]:
    """From `start`, which begins a line, to `end`."""
    offset, pending = start, [b""]
    position = start
    while position < end:
        chunk = read_at(min(block, end - position), position)
        if not chunk:
            break
        position += len(chunk)
        block = min(block * 2, _MOST)
        *whole, rest = chunk.split(b"\n")
        for piece in whole:
            data = b"".join([*pending, piece])
            pending = []
            yield Line(offset, data)
            offset += len(data) + 1
        pending.append(rest)
    data = b"".join(pending)
    if data:
        yield Line(offset, data, ended=False)


def backwards(read_at: ReadAt, start: int, end: int, *, block: int = _BLOCK) -> Iterator[Line]:
    """From `end` down to `start`, which begins a line."""
    position, ended = end, False
    pending: list[bytes] = []  # the end of a line whose beginning is not read yet, last piece first
    while position > start:
        size = min(block, position - start)
        position -= size
        block = min(block * 2, _MOST)
        rest, *pieces = read_at(size, position).split(b"\n")
        offset = position + size
        for piece in reversed(pieces):
            offset -= len(piece)
            data = b"".join([piece, *reversed(pending)])
            pending = []
            if data or ended:
                yield Line(offset, data, ended)
            ended = True
            offset -= 1
        pending.append(rest)
    data = b"".join(reversed(pending))
    if data or ended:
        yield Line(position, data, ended)


def seek(read_at: ReadAt, start: int, end: int, seq: int) -> tuple[int, int]:
    """Where the records above `seq` begin, by bisection.

    Returns two offsets of lines: all lines before the first hold at most `seq`, all from the second on hold more.
    """
    low, high, top = start, end, end
    while high - low > _BLOCK:
        middle = (low + high) // 2
        found = _record_after(read_at, middle, high)
        if found is None:
            high = middle
        elif found[1] > seq:
            high, top = middle, found[0]
        else:
            low = found[0]
    return low, top


def _record_after(read_at: ReadAt, start: int, end: int) -> tuple[int, int] | None:
    """The first line that begins in ``start + 1 … end`` and looks like a record: its offset and place."""
    skipped = False
    for line in forwards(read_at, start, end, block=1 << 12):
        if skipped and (found := _SEQ.match(line.data)):
            return line.offset, int(found[1])
        skipped = True
    return None


def read_record(line: Line, *, after: int) -> Record | Damage:
    """The record of a line, or what is wrong with it; `after` is the last good place before it."""
    try:
        return from_line(line.data)
    except StoreDamaged as error:
        return damaged(line, after=after, detail=str(error))


def damaged(line: Line, *, after: int, detail: str) -> Damage:
    """Which kind of damage a line that is no record has."""
    kind: DamageKind = "json"
    if b"\0" in line.data:
        kind, detail = "zeros", "zero bytes, as an interrupted write may leave them"
    else:
        try:
            line.data.decode()
        except UnicodeDecodeError:
            kind, detail = "encoding", "not UTF-8"
    return Damage(kind=kind, offset=line.offset, length=line.end - line.offset, after=after, detail=detail)
