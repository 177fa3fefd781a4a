"""What is wrong with a log, and the same log with nothing wrong. Reads its lines; writes nothing.

Nothing is guessed: a line that cannot be read leaves the log (its bytes are kept elsewhere), and a record of kind
``erased`` keeps the places that are missing, so that places stay dense.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Protocol

from backstory.records import NewRecord, Record, restored, stamp
from backstory.stores.lines import Line, read_record
from backstory.stores.values import Damage, DamageKind


class Lines(Protocol):
    """What is looked at: a journal, or what a store has in its place."""

    def lines(self) -> Iterator[Line]:
        """Every line that should hold a record."""
        ...

    def faults(self) -> Iterable[Damage]:
        """What is wrong besides the lines."""
        ...


def scan(journal: Lines) -> Iterator[tuple[Line, Record | Damage]]:
    """Every line with what it holds: records in rising order (perhaps not `intact`), or the damage that it is."""
    last = 0
    for line in journal.lines():
        record = read_record(line, after=last)
        if isinstance(record, Record) and record.first <= last:
            record = _damage("order", line, last, f"record {record.seq} stands after record {last}")
        elif isinstance(record, Record):
            last = record.seq
        yield line, record


def check(journal: Lines) -> tuple[int, list[Damage]]:
    """How many good records there are, and everything that is wrong. Call `refresh` first."""
    found = list(journal.faults())
    last = count = 0
    explained = False
    for line, record in scan(journal):
        if isinstance(record, Damage):
            found.append(record)
            explained = True
            continue
        if record.first > last + 1 and not explained:
            found.append(_damage("gap", line, last, f"record {last} is followed by record {record.first}", 0))
        if not record.intact:
            detail = f"record {record.seq} is not what was written: edited by hand, or damaged"
            found.append(_damage("checksum", line, last, detail))
        last, explained = record.seq, False
        count += 1
    return count, sorted(found, key=lambda damage: damage.offset)


def mended(journal: Lines, *, at: str) -> Iterator[Record]:
    """The log's records with sound checksums and dense places; `at` is the stamp of what fills gaps."""
    last = 0
    for _, record in scan(journal):
        if isinstance(record, Damage):
            continue
        if record.first > last + 1:
            yield from stamp([_LOST], seq=record.first - 1, at=at, first=last + 1)
        yield record if record.intact else restored(record)
        last = record.seq


_LOST = NewRecord(kind="erased", data={"reason": "damaged"})


def _damage(kind: DamageKind, line: Line, after: int, detail: str, length: int | None = None) -> Damage:
    return Damage(
        kind=kind,
        offset=line.offset,
        length=line.end - line.offset if length is None else length,
        after=after,
        detail=detail,
    )
