"""A log kept as rows, each a place and a line: read, checked, mended, and rewritten. Pure functions.

The lines are those of `backstory.records`, the same bytes as in every store. Nothing here does I/O.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from backstory.errors import StoreDamaged
from backstory.records import NewRecord, Record, from_line, restored, stamp
from backstory.stores import rules
from backstory.stores.values import Damage, DamageKind, Head, Replacement, Report, SessionId

logger = logging.getLogger("backstory.stores")

Row = tuple[int, bytes]
_LOST = NewRecord(kind="erased", data={"reason": "damaged"})


def read(session: SessionId, lines: Iterable[bytes]) -> list[Record]:
    """The records; a line that is none is left out and reported."""
    found: list[Record] = []
    for line in lines:
        try:
            found.append(from_line(line))
        except StoreDamaged as error:
            logger.warning("session %r: %s; `verify` says where", str(session), error)
    return found


def _scan(rows: Iterable[Row]) -> Iterator[tuple[Row, int, int, Record | tuple[DamageKind, str]]]:
    """Each row with its offset, the last good place before it, and its record or what is wrong with it."""
    last = offset = 0
    for place, line in rows:
        what: Record | tuple[DamageKind, str]
        try:
            what = from_line(line)
        except StoreDamaged as error:
            what = ("json", str(error))
        else:
            if what.seq != place or what.first <= last:
                what = ("order", f"record {what.seq} stands at place {place}, after record {last}")
        yield (place, line), offset, last, what
        if isinstance(what, Record):
            last = what.seq
        offset += len(line) + 1


def check(session: SessionId, head: Head, rows: Iterable[Row], kept: Sequence[str] = ()) -> Report:
    """What is wrong with a whole log. `kept` names what was put aside before."""
    damage: list[Damage] = []
    count = end = offset = 0
    explained = False

    def report(kind: DamageKind, at: int, length: int, after: int, detail: str) -> None:
        damage.append(Damage(kind=kind, offset=at, length=length, after=after, detail=detail))

    for (_, line), offset, last, what in _scan(rows):
        if not isinstance(what, Record):
            report(what[0], offset, len(line), last, what[1])
            explained = True
            continue
        if what.first > last + 1 and not explained:
            report("gap", offset, 0, last, f"record {last} is followed by record {what.first}")
        if not what.intact:
            report("checksum", offset, len(line), last, f"record {what.seq} is not what was written")
        end, count, explained = what.seq, count + 1, False
    if end != head.seq and not explained:
        report("gap", offset, 0, end, f"the log ends at {end}, and should at {head.seq}")
    return Report(session=session, head=head, records=count, damage=tuple(damage), kept=tuple(kept))


@dataclass(frozen=True, kw_only=True, slots=True)
class Change:
    """What a rewrite does to the rows: spans of places to remove, then records to put in."""

    removed: tuple[tuple[int, int], ...]
    written: tuple[Record, ...]


def mended(rows: Sequence[Row], *, head: int, at: str) -> Change:
    """The change after which `check` finds nothing: damaged rows go, and what is missing gets a tombstone."""
    written: list[Record] = []
    removed: list[tuple[int, int]] = []
    last = 0

    def fill(until: int) -> None:
        if until > last:
            written.extend(stamp([_LOST], seq=until, at=at, first=last + 1))

    for (place, _), _, _, what in _scan(rows):
        if not isinstance(what, Record):
            removed.append((place, place))
            continue
        fill(what.first - 1)
        if not what.intact:
            removed.append((place, place))
            written.append(restored(what))
        last = what.seq
    fill(head)
    return Change(removed=tuple(removed), written=tuple(written))


def changed(records: Sequence[Record], replacements: Sequence[Replacement], *, head: int, at: str) -> Change:
    """The change that `replacements` ask for.

    `records` are, in order, at least the first from each span's beginning on and the first from its end on: whether
    a span cuts through an older one shows at its ends. Raises `InvalidInput` as `rules.replaced` does.
    """
    before = {id(record) for record in records}
    after = list(rules.replaced(records, replacements, head=head, at=at))
    return Change(
        removed=tuple((span.first, span.last) for span in replacements),
        written=tuple(record for record in after if id(record) not in before),
    )
