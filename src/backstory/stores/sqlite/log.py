"""Statements over one session's row and its records: what an append does within its transaction, and what reads see.

Decisions (leases, heads, repeated batches) are `stores/rules`; here the state is fetched and written down. Blocking;
each function is given a connection, and the writing ones run inside a transaction of the writer's.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from backstory.errors import StoreDamaged
from backstory.records import NewRecord, Record, from_line, stamp
from backstory.stores import rules
from backstory.stores.clock import timestamp
from backstory.stores.sqlite.schema import SHIFT, from_sql, to_sql
from backstory.stores.values import Appended, Head, Lease, LeaseRequest, SessionId

SEQ = (1 << SHIFT) - 1
"""The bits of a place that are its `seq`, and the largest one."""

_NEWEST = "SELECT max(activity) FROM sessions WHERE scope = ?1 AND activity IS NOT NULL"
_ROW = (
    "SELECT number, head, generation, at, activity, owner, fence, expires, position FROM sessions "
    "WHERE scope = ?1 AND key = ?2"
)
_ROW_TO_APPEND = _ROW.replace(" FROM", f", ({_NEWEST}) FROM", 1)
_INSERT = "INSERT INTO records (place, batch, line) VALUES (?, ?, ?)"
_ADVANCE = (
    "UPDATE sessions SET head = ?, generation = ?, at = ?, active = ?, owner = ?, fence = ?, expires = ? "
    "WHERE number = ?"
)
_ADVANCE_FIRST = (
    "UPDATE sessions SET head = ?, generation = ?, at = ?, active = ?, owner = ?, fence = ?, expires = ?, "
    "activity = ? WHERE number = ?"
)
_HOLD = "UPDATE sessions SET owner = ?, fence = ?, expires = ? WHERE number = ?"
_BATCH = (
    f"SELECT line FROM records WHERE place >> {SHIFT} = ? AND batch = ? AND batch IS NOT NULL ORDER BY place"
)


@dataclass(slots=True)
class Row:
    """What the table of sessions says of one; `number` 0: it is not there. `fence` is the last one given."""

    number: int = 0
    head: int = 0
    generation: int = 0
    at: str | None = None
    activity: int | None = None
    owner: str | bytes | None = None
    fence: int = 0
    expires: float = 0.0
    position: int = 0
    newest: int | None = None
    """The activity of the first in its scope's list, where that was asked for."""

    def lease(self, session: SessionId) -> Lease | None:
        if self.owner is None:
            return None
        return Lease(session=session, owner=from_sql(self.owner), fence=self.fence, expires=self.expires)

    def ends(self) -> Head:
        return Head(seq=self.head, generation=self.generation, at=self.at) if self.head else Head()


def find(connection: sqlite3.Connection, session: SessionId, sql: str = _ROW) -> Row:
    found = connection.execute(sql, (to_sql(session.scope), to_sql(session.key))).fetchone()
    return Row(*found) if found is not None else Row()


def make(connection: sqlite3.Connection, session: SessionId, row: Row) -> Row:
    """The same row, in the table from now on."""
    if not row.number:
        made = connection.execute(
            "INSERT INTO sessions (scope, key) VALUES (?, ?)", (to_sql(session.scope), to_sql(session.key))
        )
        row.number = made.lastrowid or 0
        row.fence = highest(connection)  # a session of that name may have been deleted
    return row


def highest(connection: sqlite3.Connection) -> int:
    """The largest fence or generation that went with a deleted session."""
    return int(connection.execute("SELECT gone FROM highest").fetchone()[0])


def granted(row: Row, session: SessionId, request: LeaseRequest, *, now: float) -> Lease:
    """Raises `LeaseHeld`. Writes nothing."""
    return rules.grant(session, row.lease(session), request, now=now, last_fence=row.fence)


def hold(connection: sqlite3.Connection, row: Row, lease: Lease | None) -> None:
    """Write down who holds it; the last fence given stays with the row."""
    _held(row, lease)
    connection.execute(_HOLD, (row.owner, row.fence, row.expires, row.number))


def _held(row: Row, lease: Lease | None) -> None:
    if lease is None:
        row.owner, row.expires = None, 0.0
    else:
        row.owner, row.fence, row.expires = to_sql(lease.owner), lease.fence, lease.expires


def append(
    connection: sqlite3.Connection,
    session: SessionId,
    records: Sequence[NewRecord],
    expected: int | None,
    fence: int | None,
    batch: str | None,
    acquire: LeaseRequest | None,
    release: bool,
    now: float,
) -> Appended:
    """See `Log.append`."""
    row = find(connection, session, _ROW_TO_APPEND)
    if batch is not None and row.number and (earlier := _batch(connection, row, batch)):
        rules.check_repeat(batch, earlier, records)
        return _acknowledged(connection, session, row, earlier, fence, acquire, release, now)
    if acquire is not None and not row.number:
        make(connection, session, row)  # undone with the rest where the head is another
    taken = granted(row, session, acquire, now=now) if acquire is not None else None
    if taken is None:
        rules.check_fence(session, row.lease(session), fence, now=now)
    rules.check_head(session, expected, row.head)
    stamped = stamp(records, seq=row.head + 1, at=timestamp(now), batch=batch)
    make(connection, session, row)
    if taken is not None:
        _held(row, taken)
    if release:
        _held(row, None)
    if stamped:
        _write(connection, session, row, stamped, batch, now)
    else:
        connection.execute(_HOLD, (row.owner, row.fence, row.expires, row.number))
    return Appended(head=row.ends(), records=tuple(stamped), lease=taken)


def _write(
    connection: sqlite3.Connection,
    session: SessionId,
    row: Row,
    stamped: list[Record],
    batch: str | None,
    now: float,
) -> None:
    base = row.number << SHIFT
    name = to_sql(batch) if batch is not None else None
    if len(stamped) == 1:
        connection.execute(_INSERT, (base + stamped[0].seq, name, stamped[0].line))
    else:
        connection.executemany(_INSERT, [(base + record.seq, name, record.line) for record in stamped])
    row.head, row.at = stamped[-1].seq, stamped[-1].at
    row.generation = row.generation or max(int(now * 1_000_000), highest(connection) + 1)
    values = (row.head, row.generation, row.at, now, row.owner, row.fence, row.expires)
    if row.activity is not None and row.activity == row.newest:  # first in its list already: the index stays
        connection.execute(_ADVANCE, (*values, row.number))
    else:
        newest = row.newest
        if newest is None:  # nobody knows: the session is new
            (newest,) = connection.execute(_NEWEST, (to_sql(session.scope),)).fetchone()
        row.activity = (newest or 0) + 1
        connection.execute(_ADVANCE_FIRST, (*values, row.activity, row.number))


def _batch(connection: sqlite3.Connection, row: Row, batch: str) -> list[Record]:
    found: list[Record] = []
    for (line,) in connection.execute(_BATCH, (row.number, to_sql(batch))):
        record = readable(line)
        if record is not None:
            found.append(record)
    return found


def _acknowledged(
    connection: sqlite3.Connection,
    session: SessionId,
    row: Row,
    earlier: list[Record],
    fence: int | None,
    acquire: LeaseRequest | None,
    release: bool,
    now: float,
) -> Appended:
    """A batch that is there already: only its lease is taken or given back, as far as that still applies.

    Something is written in any case: the first time may have been cut short before its sync.
    """
    lease = taken = granted(row, session, acquire, now=now) if acquire is not None else None
    if taken is None:
        lease = row.lease(session)
    if release and lease is not None and (taken is not None or lease.fence == fence):
        lease = None
    hold(connection, row, lease)
    return Appended(head=row.ends(), records=tuple(earlier), lease=taken, repeated=True)


def readable(line: object) -> Record | None:
    """The record of a line, `None` where it holds none."""
    try:
        return from_line(as_bytes(line))
    except StoreDamaged:
        return None


def as_bytes(line: object) -> bytes:
    """A line as the table gives it: somebody may have edited it as text."""
    if isinstance(line, str):
        return line.encode("utf-8", "surrogatepass")
    return line if isinstance(line, bytes) else b""


def read(
    connection: sqlite3.Connection,
    session: SessionId,
    after: int,
    before: int,
    limit: int,
    newest_first: bool,
) -> tuple[list[Record], list[tuple[int, bytes]]]:
    """Records with places above `after` and below `before`, and the lines in between that are none.

    The search is repeated behind lines that hold no record, until there are `limit` records.
    """
    sql = _NEWEST_FIRST if newest_first else _OLDEST_FIRST
    found: list[Record] = []
    bad: list[tuple[int, bytes]] = []
    scope, key = to_sql(session.scope), to_sql(session.key)
    while limit > len(found) and before - after > 1:
        rows = connection.execute(sql, (scope, key, after, before, limit - len(found))).fetchall()
        for place, line in rows:
            record = readable(line)
            if record is not None and record.seq == place & SEQ:
                found.append(record)
            else:
                bad.append((place & SEQ, as_bytes(line)))
        if not rows or not bad:
            break
        if newest_first:
            before = rows[-1][0] & SEQ
        else:
            after = rows[-1][0] & SEQ
    return found, bad


_OLDEST_FIRST = (
    "SELECT r.place, r.line FROM sessions AS s CROSS JOIN records AS r "
    f"WHERE s.scope = ? AND s.key = ? AND r.place > (s.number << {SHIFT}) + ? "
    f"AND r.place < (s.number << {SHIFT}) + ? ORDER BY r.place LIMIT ?"
)
_NEWEST_FIRST = _OLDEST_FIRST.replace("ORDER BY r.place", "ORDER BY r.place DESC")
