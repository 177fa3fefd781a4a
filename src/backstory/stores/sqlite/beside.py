"""Statements over what lies beside the logs: leases, inboxes, drafts, blobs, and the lists of sessions. Blocking."""

from __future__ import annotations

import json
import math
import sqlite3
import uuid
from collections.abc import Collection

from backstory.errors import InvalidInput, StaleLease, StoreDamaged
from backstory.records import encode_json
from backstory.stores import rules
from backstory.stores.clock import timestamp
from backstory.stores.sqlite.log import as_bytes, find, granted, hold, make
from backstory.stores.sqlite.schema import SHIFT, from_sql, to_sql
from backstory.stores.values import (
    Draft,
    Entry,
    Lease,
    LeaseRequest,
    NewEntry,
    Posted,
    SessionId,
    SessionInfo,
    SessionPage,
)

# --- leases


def acquire(connection: sqlite3.Connection, session: SessionId, request: LeaseRequest, now: float) -> Lease:
    row = make(connection, session, find(connection, session))
    lease = granted(row, session, request, now=now)
    hold(connection, row, lease)
    return lease


def renew(connection: sqlite3.Connection, lease: Lease, ttl: float, now: float) -> Lease:
    row = find(connection, lease.session)
    renewed = rules.extend(lease, row.lease(lease.session), ttl, now=now)
    hold(connection, row, renewed)
    return renewed


def release(connection: sqlite3.Connection, lease: Lease) -> None:
    row = find(connection, lease.session)
    if row.owner is not None and row.fence == lease.fence:
        hold(connection, row, None)


def lease_of(connection: sqlite3.Connection, session: SessionId) -> Lease | None:
    """Expired or not."""
    return find(connection, session).lease(session)


# --- the inbox

_ENTRIES = "SELECT place, id, at, kind, data FROM inbox WHERE place BETWEEN ? AND ? ORDER BY place"


def entries(connection: sqlite3.Connection, session: SessionId) -> list[Entry]:
    return _entries(connection, find(connection, session).number)


def _entries(connection: sqlite3.Connection, number: int) -> list[Entry]:
    base = number << SHIFT
    found = connection.execute(_ENTRIES, (base + 1, base + (1 << SHIFT) - 1)) if number else ()
    return [
        Entry(id=from_sql(name), position=place - base, at=at, kind=from_sql(kind), data=json.loads(data))
        for place, name, at, kind, data in found
    ]


def post(connection: sqlite3.Connection, session: SessionId, entry: NewEntry, now: float) -> Posted:
    row = make(connection, session, find(connection, session))
    waiting = rules.posted_before(_entries(connection, row.number), entry) if entry.id is not None else None
    if waiting is not None:  # the first time may have been cut short before its sync: write, to have one now
        connection.execute("UPDATE sessions SET position = position WHERE number = ?", (row.number,))
        return Posted(entry=waiting, repeated=True)
    made = Entry(
        id=entry.id or uuid.uuid4().hex,
        position=row.position + 1,
        at=timestamp(now),
        kind=entry.kind,
        data=entry.data,
    )
    connection.execute(
        "INSERT INTO inbox (place, id, at, kind, data) VALUES (?, ?, ?, ?, ?)",
        (
            (row.number << SHIFT) + made.position,
            to_sql(made.id),
            made.at,
            to_sql(made.kind),
            encode_json(made.data),
        ),
    )
    connection.execute("UPDATE sessions SET position = ? WHERE number = ?", (made.position, row.number))
    return Posted(entry=made)


def take(
    connection: sqlite3.Connection, session: SessionId, ids: Collection[str], fence: int | None, now: float
) -> None:
    row = find(connection, session)
    rules.check_fence(session, row.lease(session), fence, now=now)
    base = row.number << SHIFT
    gone = [(base + entry.position,) for entry in _entries(connection, row.number) if entry.id in ids]
    if gone:
        connection.executemany("DELETE FROM inbox WHERE place = ?", gone)


# --- drafts


def put_draft(
    connection: sqlite3.Connection,
    session: SessionId,
    data: bytes | None,
    after: int,
    fence: int,
    now: float,
) -> None:
    row = find(connection, session)
    rules.check_fence(session, row.lease(session), fence, now=now)
    if not row.number:
        raise StaleLease(f"lease {fence} of session {str(session)!r} was never given")
    if data is None:
        connection.execute("DELETE FROM drafts WHERE number = ?", (row.number,))
    else:
        connection.execute(
            "INSERT OR REPLACE INTO drafts (number, after, fence, data) VALUES (?, ?, ?, ?)",
            (row.number, after, fence, data),
        )


_DRAFT = (
    "SELECT d.after, d.fence, d.data FROM sessions AS s JOIN drafts AS d ON d.number = s.number "
    "WHERE s.scope = ? AND s.key = ? AND d.after = s.head"
)


def draft(connection: sqlite3.Connection, session: SessionId) -> Draft | None:
    found = connection.execute(_DRAFT, (to_sql(session.scope), to_sql(session.key))).fetchone()
    if found is None:
        return None
    after, fence, data = found
    return Draft(after=after, fence=fence, data=json.loads(data))


# --- blobs


def put_blob(connection: sqlite3.Connection, scope: str, digest: str, data: bytes, now: float) -> None:
    """A blob that is there already is new again: garbage is told by its age as well. A damaged one is mended."""
    connection.execute(
        "INSERT INTO blobs (scope, digest, at, data) VALUES (?, ?, ?, ?) "
        "ON CONFLICT (scope, digest) DO UPDATE SET at = excluded.at, data = excluded.data",
        (to_sql(scope), digest, now, data),
    )


def get_blob(connection: sqlite3.Connection, scope: str, handle: str) -> bytes:
    found = connection.execute(
        "SELECT data FROM blobs WHERE scope = ? AND digest = ?", (to_sql(scope), rules.blob_digest(handle))
    ).fetchone()
    if found is None:
        raise StoreDamaged(f"blob {handle} is not there")
    data = as_bytes(found[0])
    rules.check_blob(handle, data)
    return data


def delete_blob(connection: sqlite3.Connection, scope: str, digest: str, before: float | None) -> bool:
    gone = connection.execute(
        "DELETE FROM blobs WHERE scope = ? AND digest = ? AND at < ?",
        (to_sql(scope), digest, math.inf if before is None else before),
    ).rowcount
    return gone > 0


def old_blobs(connection: sqlite3.Connection, scope: str, before: float, after: str, limit: int) -> list[str]:
    found = connection.execute(
        "SELECT digest FROM blobs WHERE scope = ? AND digest > ? AND at < ? ORDER BY digest LIMIT ?",
        (to_sql(scope), after.removeprefix(rules.SHA256), before, limit),
    )
    return [rules.SHA256 + digest for (digest,) in found]


def blob_scopes(connection: sqlite3.Connection) -> list[str]:
    return sorted(from_sql(scope) for (scope,) in connection.execute("SELECT DISTINCT scope FROM blobs"))


# --- lists

_LIST = (
    "SELECT key, active, activity FROM sessions WHERE scope = ? AND activity IS NOT NULL AND activity < ? "
    "ORDER BY activity DESC LIMIT ?"
)
_ALL = (1 << 63) - 1


def sessions(connection: sqlite3.Connection, scope: str, limit: int, cursor: str | None) -> SessionPage:
    below = _ALL if cursor is None else int(cursor) if cursor.isdecimal() else -1
    if not 0 <= below <= _ALL:
        raise InvalidInput(f"not a cursor of this store: {cursor!r}")
    limit = min(max(1, limit), 1 << 31)
    found = connection.execute(_LIST, (to_sql(scope), below, limit + 1)).fetchall()
    page = found[:limit]
    return SessionPage(
        sessions=tuple(
            SessionInfo(session=SessionId(scope=scope, key=from_sql(key)), active=active)
            for key, active, _ in page
        ),
        cursor=str(page[-1][2]) if len(found) > limit else None,
    )


def scopes(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute("SELECT DISTINCT scope FROM sessions WHERE activity IS NOT NULL")
    return sorted(from_sql(scope) for (scope,) in found)
