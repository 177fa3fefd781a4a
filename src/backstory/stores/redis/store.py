"""Sessions in Redis or Valkey, for many processes on many machines.

A write is decided by `rules` on what the server said, and applied by one script if nothing has changed since: compare
and set by the session's version. The holder of a session's lease, its only writer, needs one round trip a batch,
others two. Lease time is the server's (TIME). A lost connection is made again within the caller's time, and the call
repeated: a batch, a message, a lease is found by its id when an earlier try took effect after all.

How durable "acknowledged" is depends on the server's settings: docs/stores.md.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any, TypeVar

from backstory.errors import ConfigurationError, StoreDamaged
from backstory.records import NewRecord, Record, encode_json
from backstory.stores import rules
from backstory.stores.base import Durability
from backstory.stores.clock import Clock, timestamp
from backstory.stores.redis import listing, logs, state
from backstory.stores.redis.engine import RedisEngine, Settings, require
from backstory.stores.redis.keys import Keys
from backstory.stores.redis.scripts import DROP_BLOB, PUT_BLOB
from backstory.stores.redis.sessions import Batch, Sessions, Sight
from backstory.stores.redis.state import Commands, State
from backstory.stores.remote import rows
from backstory.stores.remote.clock import ServerClock
from backstory.stores.remote.loops import PerLoop
from backstory.stores.remote.naming import digest
from backstory.stores.remote.places import shown
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
    SessionPage,
)

T = TypeVar("T")


class RedisStore:
    """See `backstory.stores.base.Store`. Needs the extra ``backstory[redis]`` and Redis 6.2 or later, or Valkey.

    `url` is redis-py's (``redis://user:password@host:port/db``, ``rediss://`` for TLS, ``unix://``). Every key begins
    with `prefix`. Each event loop that uses the store has up to `max_size` connections, and one that listens.
    `durability` ``"power"`` waits for the disk where the server can (WAITAOF); what the server's settings do not hold
    is logged as a warning at the start, and in `warnings`.

    Times are in seconds: `timeout` is how long any call may take with all its tries, then `StoreUnavailable` comes;
    `connect_timeout` and `command_timeout` are for each try. With an injected `clock` leases go by that one, which all
    processes must then share.
    """

    def __init__(
        self,
        url: str,
        *,
        prefix: str = "backstory",
        durability: Durability = "power",
        max_size: int = 10,
        timeout: float = 15.0,
        connect_timeout: float = 5.0,
        command_timeout: float = 5.0,
        clock: Clock | None = None,
    ) -> None:
        require()
        if durability not in ("power", "process"):
            raise ConfigurationError(f"durability is 'power' or 'process', not {durability!r}")
        if not prefix or set(prefix) & set("{}"):
            raise ConfigurationError(f"a prefix is not empty and holds no braces, not {prefix!r}")
        if max_size < 1:
            raise ConfigurationError(f"a pool has one connection at least, not {max_size}")
        if min(timeout, connect_timeout, command_timeout) <= 0:
            raise ConfigurationError("time-outs are seconds above 0")
        server = ServerClock()
        self.clock: Clock = clock or server
        self._keys = Keys(prefix)
        settings = Settings(
            url=url,
            keys=self._keys,
            durability=durability,
            max_size=max_size,
            timeout=timeout,
            connect_timeout=connect_timeout,
            command_timeout=command_timeout,
        )
        self._engines = PerLoop(lambda: RedisEngine(settings))
        self._sessions = Sessions(
            self._engines, self._keys, injected=clock, server=server, timeout=timeout, place=shown(url)
        )

    @property
    def warnings(self) -> tuple[str, ...]:
        """What the server's settings do not hold of the durability that was asked; known after the first call."""
        return self._sessions.warnings

    async def _command(self, *parts: Any, lasts: bool = False) -> Any:
        return await self._sessions.command(*parts, lasts=lasts)

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
        mark = digest(batch)[:16] if batch is not None else uuid.uuid4().hex.encode()
        asked = logs.Append(
            records=records,
            expected=expected,
            fence=fence,
            batch=batch,
            mark=mark,
            acquire=acquire,
            release=release,
        )

        def change(sight: Sight, commands: Commands, attempt: Try) -> Appended:
            return logs.append(sight, commands, asked, self._keys.news, again=attempt.number > 0)

        def timeless(known: State) -> bool:
            """Whether the time plays no part in it: then it may be decided on what is known from before."""
            return bool(records) and acquire is None and (fence is not None or known.owner is None)

        return await self._sessions.change(session, change, batch=Batch(mark=mark, id=batch), guess=timeless)

    async def read(
        self,
        session: SessionId,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        low, high = f"({max(after, 0)}", "+inf" if before is None else f"({max(before, 0)}"
        name, ends = ("ZREVRANGEBYSCORE", (high, low)) if newest_first else ("ZRANGEBYSCORE", (low, high))
        most = () if limit is None else ("LIMIT", 0, max(0, limit))
        lines = await self._command(name, self._keys.session(session).log, *ends, *most)
        return rows.read(session, lines)

    async def head(self, session: SessionId) -> Head:
        found = await self._command("HMGET", self._keys.session(session).meta, "seq", "generation", "at")
        seq, generation, at = found
        if not seq or seq == b"0":
            return Head()
        return Head(seq=int(seq), generation=int(generation), at=at.decode())

    async def sessions(self, scope: str, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        return await listing.page(
            self._command, self._keys.index(scope), scope, limit=max(1, limit), cursor=cursor
        )

    async def scopes(self) -> list[str]:
        found = await self._command("SMEMBERS", self._keys.scopes)
        return sorted(scope.decode("utf-8", "surrogatepass") for scope in found)

    async def rewrite(
        self,
        session: SessionId,
        replacements: Sequence[Replacement],
        *,
        expected: int,
        fence: int | None = None,
        purge: bool = False,
    ) -> Head:
        log = self._keys.session(session).log
        held: list[Record] = []

        async def prepare() -> None:
            held[:] = await logs.touched(self._command, log, session, replacements)

        def change(sight: Sight, commands: Commands, attempt: Try) -> Head:
            asked = logs.Rewrite(replacements=replacements, expected=expected, fence=fence, purge=purge)
            return logs.rewrite(sight, commands, asked, held)

        return await self._sessions.change(session, change, prepare=prepare)

    async def delete(self, session: SessionId, *, fence: int | None = None) -> bool:
        known: list[tuple[str, bool]] = []  # what an earlier try found, and perhaps removed

        def change(sight: Sight, commands: Commands, attempt: Try) -> bool:
            found = sight.state
            if known and known[0][0] != found.born:
                return known[0][1]
            found.check(fence)
            if found.version:
                known[:] = [(found.born, found.seq > 0)]
                commands.delete(session)
                commands.tell(self._keys.news)
            return found.seq > 0

        return await self._sessions.change(session, change)

    async def verify(self, session: SessionId) -> Report:
        keys = self._keys.session(session)
        return await logs.verify(self._command, keys, session, await self.head(session))

    async def repair(self, session: SessionId, *, fence: int | None = None) -> Report:
        keys = self._keys.session(session)
        found: list[tuple[Report, list[rows.Row]]] = []

        async def prepare() -> None:
            report = await self.verify(session)
            found[:] = [(report, [] if report.sound else await logs.everything(self._command, keys.log))]

        def change(sight: Sight, commands: Commands, attempt: Try) -> Report:
            sight.state.check(fence)
            return logs.repair(sight, commands, *found[0])

        return await self._sessions.change(session, change, prepare=prepare)

    # --- leases

    async def acquire(self, session: SessionId, request: LeaseRequest) -> Lease:
        def change(sight: Sight, commands: Commands, attempt: Try) -> Lease:
            lease = sight.state.grant(request)
            commands.remember(sight.state)
            return lease

        return await self._sessions.change(session, change)

    async def renew(self, lease: Lease, ttl: float) -> Lease:
        def change(sight: Sight, commands: Commands, attempt: Try) -> Lease:
            renewed = rules.extend(lease, sight.state.lease, ttl, now=sight.state.now)
            sight.state.hold(renewed)
            commands.remember(sight.state)
            return renewed

        return await self._sessions.change(lease.session, change)

    async def release(self, lease: Lease) -> None:
        def change(sight: Sight, commands: Commands, attempt: Try) -> None:
            held = sight.state
            if held.owner is not None and held.fence == lease.fence:
                held.owner = None
                commands.remember(held)
            commands.tell(self._keys.news)  # also where an earlier try gave it back

        await self._sessions.change(lease.session, change)

    async def lease(self, session: SessionId) -> Lease | None:
        found = await self._sessions.look(session)
        return found.lease if rules.in_force(found.lease, found.now) else None

    # --- what waits beside the log

    async def post(self, session: SessionId, entry: NewEntry) -> Posted:
        encode_json(entry.data)
        name = entry.id if entry.id is not None else uuid.uuid4().hex
        new = NewEntry(kind=entry.kind, data=entry.data, id=name)

        def change(sight: Sight, commands: Commands, attempt: Try) -> Posted:
            waiting = rules.posted_before([sight.entry] if sight.entry is not None else [], new)
            commands.tell(self._keys.news)
            if waiting is not None:
                return Posted(entry=waiting, repeated=attempt.number == 0)
            held = sight.state
            held.position = max(held.position + 1, held.tick)
            made = Entry(
                id=name, position=held.position, at=timestamp(held.now), kind=new.kind, data=new.data
            )
            commands.add("HSET", state.INBOX, state.entry_field(name), state.entry_line(made))
            commands.remember(held)
            return Posted(entry=made)

        return await self._sessions.change(session, change, entry=name)

    async def inbox(self, session: SessionId) -> list[Entry]:
        found = await self._command("HVALS", self._keys.session(session).inbox)
        return sorted(map(state.entry_of, found), key=lambda entry: entry.position)

    async def take(self, session: SessionId, ids: Collection[str], *, fence: int | None = None) -> None:
        def change(sight: Sight, commands: Commands, attempt: Try) -> None:
            sight.state.check(fence)
            commands.add_many("HDEL", state.INBOX, [state.entry_field(one) for one in ids])

        await self._sessions.change(session, change)

    async def wait(
        self, session: SessionId, *, free: bool = False, mail_after: int | None = None, within: float
    ) -> bool:
        async def look() -> Seen:
            found = await self._sessions.look(session) if free else None
            if found is not None and not rules.in_force(found.lease, found.now):
                return Seen(done=True)
            if mail_after is not None and any(one.position > mail_after for one in await self.inbox(session)):
                return Seen(done=True)
            return Seen(done=False, expires_in=found.expires - found.now if found is not None else None)

        self._engines.check_open()
        if (await look()).done:
            return True
        engine = await self._sessions.engine()
        await engine.listen()
        name = self._keys.session(session).name
        return await engine.wakes.wait(name, look, clock=self.clock, within=within)

    async def put_draft(
        self, session: SessionId, data: Mapping[str, Any] | None, *, after: int, fence: int
    ) -> None:
        line = encode_json({"after": after, "fence": fence, "data": data}) if data is not None else None

        def change(sight: Sight, commands: Commands, attempt: Try) -> None:
            sight.state.check(fence)
            if line is None:
                commands.add("UNLINK", state.DRAFT)
            else:
                commands.add("SET", state.DRAFT, line)

        await self._sessions.change(session, change, lasts=False)

    async def draft(self, session: SessionId) -> Draft | None:
        keys = self._keys.session(session)
        line, seq = await self._sessions.commands(("GET", keys.draft), ("HGET", keys.meta, "seq"))
        return state.draft_of(line, int(seq or 0)) if line is not None else None

    async def put_blob(self, scope: str, data: bytes) -> str:
        handle = rules.blob_handle(data)
        digest = rules.blob_digest(handle)
        now = repr(self.clock.now())
        await self._blob_script(PUT_BLOB, scope, digest, bytes(data), digest, now)
        return handle

    async def get_blob(self, scope: str, handle: str) -> bytes:
        data = await self._command("GET", self._keys.blob(scope, rules.blob_digest(handle)))
        if data is None:
            raise StoreDamaged(f"blob {handle} is not there")
        rules.check_blob(handle, data)
        return bytes(data)

    async def delete_blob(self, scope: str, handle: str, *, before: float | None = None) -> bool:
        digest = rules.blob_digest(handle)
        since = repr(before) if before is not None else ""
        return bool(await self._blob_script(DROP_BLOB, scope, digest, digest, since))

    async def old_blobs(self, scope: str, *, before: float, after: str = "", limit: int = 1000) -> list[str]:
        found = await self._command("ZRANGEBYSCORE", self._keys.blobs(scope), "-inf", f"({before!r}")
        return sorted(handle for digest in found if (handle := rules.SHA256 + digest.decode()) > after)[
            :limit
        ]

    async def blob_scopes(self) -> list[str]:
        found = await self._command("SMEMBERS", self._keys.blob_scopes)
        return sorted(scope.decode("utf-8", "surrogatepass") for scope in found)

    async def _blob_script(self, script: str, scope: str, digest: str, *args: str | bytes) -> Any:
        keys = (self._keys.blob(scope, digest), self._keys.blobs(scope), self._keys.blob_scopes)
        name = scope.encode("utf-8", "surrogatepass")
        return await self._command("EVAL", script, len(keys), *keys, *args, name, lasts=True)

    async def close(self) -> None:
        await self._engines.close()
