"""What changes a log other than at its end: archive and erase, deletion, checks and repair. Blocking.

Each is given a connection; the writing ones run inside a transaction of the writer's. What is wrong with a log, and how
it is mended, is decided in `stores/mending`; here the table is given the shape of a journal.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from dataclasses import replace

from backstory.records import NewRecord, Record, stamp
from backstory.stores import rules
from backstory.stores.clock import timestamp
from backstory.stores.lines import Line, read_record
from backstory.stores.mending import check, mended
from backstory.stores.sqlite.log import SEQ, Row, as_bytes, find
from backstory.stores.sqlite.schema import SHIFT, to_sql
from backstory.stores.values import Damage, Head, Replacement, Report, SessionId

_RANGE = "SELECT place, line FROM records WHERE place BETWEEN ? AND ? ORDER BY place"
_LOST = NewRecord(kind="erased", data={"reason": "damaged"})


class RowLines:
    """A session's rows as the lines of a file, from place `first` to `last`. See `stores/mending.Lines`."""

    def __init__(self, connection: sqlite3.Connection, row: Row, first: int = 1, last: int = SEQ) -> None:
        self._connection = connection
        self._row = row
        self._span = (row.number << SHIFT) + first, (row.number << SHIFT) + last

    def lines(self) -> Iterator[Line]:
        """A row that holds the record of another place is no line of it."""
        offset = 0
        for place, raw in self._connection.execute(_RANGE, self._span):
            data = as_bytes(raw)
            line = Line(offset, data)
            offset = line.end
            if not data.startswith(b'{"seq":%d,' % (place & SEQ)):
                record = read_record(line, after=0)
                if isinstance(record, Record) and record.seq != place & SEQ:
                    line = replace(line, data=b" " * len(data))
            yield line

    def faults(self) -> list[Damage]:
        """The end of the log that is missing."""
        last, size = self._connection.execute(
            "SELECT max(place), coalesce(sum(length(line) + 1), 0) FROM records WHERE place BETWEEN ? AND ?",
            self._span,
        ).fetchone()
        end = (last or 0) & SEQ
        if end >= self._row.head:
            return []
        detail = f"the log ends at {self._row.head}, and the last record is {end}"
        return [Damage(kind="gap", offset=size, length=0, after=end, detail=detail)]


def verify(connection: sqlite3.Connection, session: SessionId) -> Report:
    """The records alone; pages are `pages.py`'s business."""
    row = find(connection, session)
    count, damage = check(RowLines(connection, row)) if row.number else (0, [])
    return Report(
        session=session,
        head=row.ends(),
        records=count,
        damage=tuple(damage),
        kept=_kept(connection, row),
    )


def _kept(connection: sqlite3.Connection, row: Row) -> tuple[str, ...]:
    found = connection.execute("SELECT id FROM kept WHERE number = ? ORDER BY id", (row.number,))
    return tuple(f"kept:{number}" for (number,) in found)


def repair(connection: sqlite3.Connection, session: SessionId, fence: int | None, now: float) -> Report:
    row = find(connection, session)
    rules.check_fence(session, row.lease(session), fence, now=now)
    found = verify(connection, session)
    if found.sound:
        return found
    name = _mend(connection, row, keep=True, now=now)
    after = verify(connection, session)
    return replace(
        found,
        head=after.head,
        damage=tuple(replace(one, kept=name) for one in found.damage),
        kept=after.kept,
    )


def _mend(connection: sqlite3.Connection, row: Row, *, keep: bool, now: float) -> str | None:
    """Put sound lines in the place of damaged ones; the original is kept whole, and its name returned."""
    base, at = row.number << SHIFT, timestamp(now)
    rows = RowLines(connection, row)
    name = None
    if keep:
        original = b"".join(as_bytes(line) + b"\n" for _, line in connection.execute(_RANGE, rows._span))
        made = connection.execute(
            "INSERT INTO kept (number, at, lines) VALUES (?, ?, ?)", (row.number, at, original)
        )
        name = f"kept:{made.lastrowid}"
    records = list(mended(rows, at=at))
    last = records[-1].seq if records else 0
    if last < row.head:
        records += stamp([_LOST], seq=row.head, at=at, first=last + 1)
    connection.execute("DELETE FROM records WHERE place BETWEEN ? AND ?", rows._span)
    _insert(connection, base, records)
    row.generation += 1
    connection.execute("UPDATE sessions SET generation = ? WHERE number = ?", (row.generation, row.number))
    return name


def _insert(connection: sqlite3.Connection, base: int, records: Sequence[Record]) -> None:
    rows = [
        (base + record.seq, to_sql(record.batch) if record.batch is not None else None, record.line)
        for record in records
    ]
    connection.executemany("INSERT INTO records (place, batch, line) VALUES (?, ?, ?)", rows)


def rewrite(
    connection: sqlite3.Connection,
    session: SessionId,
    replacements: Sequence[Replacement],
    expected: int,
    fence: int | None,
    purge: bool,
    now: float,
) -> Head:
    row = find(connection, session)
    rules.check_fence(session, row.lease(session), fence, now=now)
    rules.check_head(session, expected, row.head)
    if not row.number:
        return Head()
    if check(RowLines(connection, row))[1]:
        _mend(connection, row, keep=not purge, now=now)
    base = row.number << SHIFT
    if replacements:
        first, last = min(one.first for one in replacements), max(one.last for one in replacements)
        # The record behind the last span as well: it may be an older replacement that the span cuts through.
        behind = connection.execute(
            "SELECT min(place) FROM records WHERE place > ? AND place <= ?", (base + last, base + SEQ)
        ).fetchone()[0]
        end = behind & SEQ if behind is not None else SEQ
        lines = RowLines(connection, row, max(first, 0), end).lines()
        before = [record for line in lines if isinstance(record := read_record(line, after=0), Record)]
        after = list(rules.replaced(before, replacements, head=row.head, at=timestamp(now)))
        known = {record.seq: record for record in before}
        for one in replacements:
            connection.execute(
                "DELETE FROM records WHERE place BETWEEN ? AND ?", (base + one.first, base + one.last)
            )
        new = [record for record in after if known.get(record.seq) is not record]
        _insert(connection, base, new)
        if new and new[-1].seq == row.head:
            row.at = new[-1].at
    connection.execute(
        "UPDATE sessions SET generation = ?, at = ? WHERE number = ?",
        (row.generation + 1, row.at, row.number),
    )
    if purge:
        connection.execute("DELETE FROM kept WHERE number = ?", (row.number,))
        connection.execute("DELETE FROM drafts WHERE number = ?", (row.number,))
    row.generation += 1
    return row.ends()


def delete(connection: sqlite3.Connection, session: SessionId, fence: int | None, now: float) -> bool:
    row = find(connection, session)
    rules.check_fence(session, row.lease(session), fence, now=now)
    if not row.number:
        return False
    base = row.number << SHIFT
    for table in ("records", "inbox"):
        connection.execute(f"DELETE FROM {table} WHERE place BETWEEN ? AND ?", (base, base + SEQ))
    for table in ("drafts", "kept", "sessions"):
        connection.execute(f"DELETE FROM {table} WHERE number = ?", (row.number,))
    connection.execute("UPDATE highest SET gone = max(gone, ?)", (max(row.fence, row.generation),))
    return row.head > 0
