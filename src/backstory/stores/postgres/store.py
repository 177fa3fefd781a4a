"""Sessions in PostgreSQL, for many processes on many machines.

One transaction a write, on the session's own row, whose lock is the order of its writers: sessions do not wait for one
another. What `rules` decides is decided there and not in SQL. Lease time is the database's (`clock_timestamp()`). A
lost connection is made again within the caller's time, and the call repeated: a batch, a message, a lease is found by
its id when an earlier try took effect after all.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

from backstory.errors import ConfigurationError, InvalidInput, StoreDamaged
from backstory.records import NewRecord, Record, encode_json
from backstory.stores import rules
from backstory.stores.base import Durability
from backstory.stores.clock import Clock
from backstory.stores.postgres import beside, logs
from backstory.stores.postgres.database import Database
from backstory.stores.postgres.engine import Settings, require
from backstory.stores.postgres.locked import Locked, state_of
from backstory.stores.postgres.schema import Statements
from backstory.stores.remote import naming, rows
from backstory.stores.remote.clock import ServerClock
from backstory.stores.remote.retrying import Try
from backstory.stores.remote.waking import Seen
from backstory.stores.values import (
    Appended,
    Draft,
    Entry,
    Head,
    Lease,
    LeaseRequest,
    NewEntry,
    Posted,
    Replacement,
    Report,
    SessionId,
    SessionInfo,
    SessionPage,
)

T = TypeVar("T")
_END = (1 << 63) - 1


class PostgresStore:
    """See `backstory.stores.base.Store`. Needs the extra ``backstory[postgres]`` and PostgreSQL 12 or later.

    `url` is libpq's (https://www.postgresql.org/docs/current/libpq-connect.html#LIBPQ-CONNSTRING), with what it says
    of TLS, passwords and several hosts (``target_session_attrs=read-write`` finds the primary after a failover).
    `schema` is made at the first use. Each event loop that uses the store has up to `max_size` connections, and one
    that listens. `durability` ``"process"`` does not wait for the disk at a commit.

    Times are in seconds: `timeout` is how long any call may take with all its tries, then `StoreUnavailable` comes;
    `connect_timeout`, `statement_timeout` and `lock_timeout` are for each try. With an injected `clock` leases go by
    that one, which all processes must then share.
    """

    def __init__(
        self,
        url: str,
        *,
        schema: str = "backstory",
        durability: Durability = "power",
        min_size: int = 1,
        max_size: int = 10,
        timeout: float = 15.0,
        connect_timeout: float = 5.0,
        statement_timeout: float = 10.0,
        lock_timeout: float = 10.0,
        clock: Clock | None = None,
    ) -> None:
        require()
        if durability not in ("power", "process"):
            raise ConfigurationError(f"durability is 'power' or 'process', not {durability!r}")
        if not 1 <= len(schema.encode()) <= 63 or "\0" in schema:
            raise ConfigurationError(f"a schema's name has 1 to 63 bytes, not {schema!r}")
        if not 0 <= min_size <= max_size or max_size < 1:
            raise ConfigurationError(f"a pool has {min_size} to {max_size} connections: that makes no sense")
        if min(timeout, connect_timeout, statement_timeout, lock_timeout) <= 0:
            raise ConfigurationError("time-outs are seconds above 0")
        server = ServerClock()
        self.clock: Clock = clock or server
        self._sql = Statements(schema)
        settings = Settings(
            url=url,
            schema=schema,
            durability=durability,
            min_size=min_size,
            max_size=max_size,
            timeout=timeout,
            connect_timeout=connect_timeout,
            statement_timeout=statement_timeout,
            lock_timeout=lock_timeout,
        )
        self._database = Database(settings, self._sql, injected=clock, server=server)

    # --- the log

    async def append(
        self,
        session: SessionId,
        records: Sequence[NewRecord],
        *,
        expected: int | None = None,
        fence: int | None = None,
        batch: str | None = None,
        acquire: LeaseRequest | None = None,
        release: bool = False,
    ) -> Appended:
        rules.check_request(records, fence=fence, acquire=acquire, release=release)
        mark = naming.digest(batch)[:16] if batch is not None else uuid.uuid4().bytes

        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[Appended]]:
            return await logs.append(
                locked,
                records,
                expected=expected,
                fence=fence,
                batch=batch,
                mark=mark,
                acquire=acquire,
                release=release,
                again=attempt.number > 0,
            )

        return await self._database.write(session, change, create=True, batch=mark)

    async def read(
        self,
        session: SessionId,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        statement = self._sql.read_newest if newest_first else self._sql.read
        most = _END if limit is None else max(0, limit)
        bounds = (min(max(after, 0), _END), _END if before is None else min(max(before, 0), _END))
        found = await self._database.fetch(statement, naming.session_digest(session), *bounds, most)
        return rows.read(session, (line for (line,) in found))

    async def head(self, session: SessionId) -> Head:
        found = await self._database.fetch(self._sql.head, naming.session_digest(session))
        if not found or not found[0][0]:
            return Head()
        seq, generation, at = found[0]
        return Head(seq=seq, generation=generation, at=at)

    async def sessions(self, scope: str, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        if cursor is not None and not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 19):
            raise InvalidInput(f"not a cursor of this store: {cursor!r}")
        below = int(cursor) if cursor is not None else _END
        limit = max(1, limit)
        found = await self._database.fetch(self._sql.list, naming.digest(scope), below, min(limit + 1, _END))
        page = found[:limit]
        return SessionPage(
            sessions=tuple(
                SessionInfo(session=SessionId(scope=scope, key=naming.held(key)), active=active)
                for key, active, _ in page
            ),
            cursor=str(page[-1][2]) if len(found) > limit else None,
        )

    async def scopes(self) -> list[str]:
        return sorted(naming.held(scope) for (scope,) in await self._database.fetch(self._sql.scopes))

    async def rewrite(
        self,
        session: SessionId,
        replacements: Sequence[Replacement],
        *,
        expected: int,
        fence: int | None = None,
        purge: bool = False,
    ) -> Head:
        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[Head]]:
            return await logs.rewrite(locked, replacements, expected=expected, fence=fence, purge=purge)

        return await self._database.write(session, change)

    async def delete(self, session: SessionId, *, fence: int | None = None) -> bool:
        known: list[tuple[int, bool]] = []  # what an earlier try found, and perhaps removed

        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[bool]]:
            state = locked.state
            if known and known[0][0] != state.id:
                return _returns(known[0][1])
            state.check(fence)
            if state.id:
                known[:] = [(state.id, state.seq > 0)]
                for statement in self._sql.forget:
                    await locked.run(statement, (state.id,))
                locked.news = True
            return _returns(state.seq > 0)

        return await self._database.write(session, change)

    async def verify(self, session: SessionId) -> Report:
        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[Report]]:
            return _returns(await logs.verify(locked))

        return await self._database.write(session, change)

    async def repair(self, session: SessionId, *, fence: int | None = None) -> Report:
        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[Report]]:
            return await logs.repair(locked, fence=fence)

        return await self._database.write(session, change)

    # --- leases

    async def acquire(self, session: SessionId, request: LeaseRequest) -> Lease:
        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[Lease]]:
            lease = locked.state.grant(request)
            await locked.hold()
            return _returns(lease)

        return await self._database.write(session, change, create=True)

    async def renew(self, lease: Lease, ttl: float) -> Lease:
        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[Lease]]:
            renewed = rules.extend(lease, locked.state.lease, ttl, now=locked.state.now)
            locked.state.hold(renewed)
            await locked.hold()
            return _returns(renewed)

        return await self._database.write(lease.session, change)

    async def release(self, lease: Lease) -> None:
        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[None]]:
            state = locked.state
            if state.owner is not None and state.fence == lease.fence:
                state.free()
                await locked.hold()
            locked.news = True  # also where an earlier try gave it back and its news were lost
            return _returns(None)

        await self._database.write(lease.session, change)

    async def lease(self, session: SessionId) -> Lease | None:
        found = await self._database.fetch(self._sql.look, naming.session_digest(session))
        if not found:
            return None
        state = state_of(session, found[0], self._database.injected_now())
        return state.lease if rules.in_force(state.lease, state.now) else None

    # --- what waits beside the log

    async def post(self, session: SessionId, entry: NewEntry) -> Posted:
        data = encode_json(entry.data)
        made = (
            entry if entry.id is not None else NewEntry(kind=entry.kind, data=entry.data, id=uuid.uuid4().hex)
        )

        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[Posted]]:
            return await beside.post(locked, made, data, again=attempt.number > 0)

        return await self._database.write(session, change, create=True)

    async def inbox(self, session: SessionId) -> list[Entry]:
        found = await self._database.fetch(self._sql.inbox, naming.session_digest(session))
        return [beside.entry(row) for row in found]

    async def take(self, session: SessionId, ids: Collection[str], *, fence: int | None = None) -> None:
        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[None]]:
            locked.state.check(fence)
            await locked.run(self._sql.take, (locked.state.id, [naming.digest(one) for one in ids]))
            return _returns(None)

        await self._database.write(session, change)

    async def wait(
        self, session: SessionId, *, free: bool = False, mail_after: int | None = None, within: float
    ) -> bool:
        name = naming.session_digest(session)

        async def look() -> Seen:
            found = await self._database.fetch(self._sql.news, name)
            now = self._database.injected_now()
            return beside.seen(found, now=now, free=free, mail_after=mail_after)

        self._database.check_open()
        if (await look()).done:
            return True
        engine = await self._database.engine()
        await engine.listen()
        return await engine.wakes.wait(name.hex(), look, clock=self.clock, within=within)

    async def put_draft(
        self, session: SessionId, data: Mapping[str, Any] | None, *, after: int, fence: int
    ) -> None:
        encoded = encode_json(data) if data is not None else None

        async def change(locked: Locked, attempt: Try) -> Callable[[], Awaitable[None]]:
            locked.state.check(fence)
            if encoded is None:
                await locked.run(self._sql.drop_draft, (locked.state.id,))
            else:
                await locked.run(self._sql.put_draft, (locked.state.id, after, fence, encoded))
            return _returns(None)

        await self._database.write(session, change, lightly=True)

    async def draft(self, session: SessionId) -> Draft | None:
        found = await self._database.fetch(self._sql.draft, naming.session_digest(session))
        return beside.draft(found[0]) if found else None

    async def put_blob(self, scope: str, data: bytes) -> str:
        handle = rules.blob_handle(data)
        digest = bytes.fromhex(rules.blob_digest(handle))
        await self._database.fetch(
            self._sql.put_blob,
            naming.digest(scope),
            digest,
            naming.holdable(scope),
            bytes(data),
            self.clock.now(),
        )
        return handle

    async def get_blob(self, scope: str, handle: str) -> bytes:
        digest = bytes.fromhex(rules.blob_digest(handle))
        found = await self._database.fetch(self._sql.get_blob, naming.digest(scope), digest)
        if not found:
            raise StoreDamaged(f"blob {handle} is not there")
        data = bytes(found[0][0])
        rules.check_blob(handle, data)
        return data

    async def delete_blob(self, scope: str, handle: str, *, before: float | None = None) -> bool:
        digest = bytes.fromhex(rules.blob_digest(handle))
        (count,) = await self._database.fetch(
            self._sql.delete_blob, naming.digest(scope), digest, math.inf if before is None else before
        )
        return bool(count)

    async def old_blobs(self, scope: str, *, before: float, after: str = "", limit: int = 1000) -> list[str]:
        found = await self._database.fetch(
            self._sql.old_blobs,
            naming.digest(scope),
            before,
            bytes.fromhex(rules.blob_digest(after)) if after else b"",
            limit,
        )
        return [rules.SHA256 + bytes(digest).hex() for (digest,) in found]

    async def blob_scopes(self) -> list[str]:
        return sorted(naming.held(scope) for (scope,) in await self._database.fetch(self._sql.blob_scopes))

    async def close(self) -> None:
        await self._database.close()


def _returns(value: T) -> Callable[[], Awaitable[T]]:
    async def result() -> T:
        return value

    return result
