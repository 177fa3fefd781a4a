"""The store in one SQLite file: the embedded default of servers and of `backstory.open("sqlite:///chat.db")`.

This module is the asynchronous face: it checks arguments, encodes, and brings each call to the one connection that
writes (`writer`, group commit) or to those that read (`reader`). What happens in the file is in `log`, `beside` and
`rewriting`; the tables are in `schema`.

Several processes may use one file on one machine; not a file on a network share, where SQLite's locks do not hold
(https://www.sqlite.org/wal.html). One that is stopped in the middle of a write, which takes a millisecond or so, holds
up all writers of the file until it goes on; to take a file's lock from a process is in nobody's power.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from time import monotonic
from typing import Any, TypeVar

from backstory.errors import ConfigurationError
from backstory.records import NewRecord, Record, encode_json
from backstory.stores import rules
from backstory.stores.base import Durability
from backstory.stores.clock import Clock, SystemClock
from backstory.stores.lines import Line, damaged
from backstory.stores.sqlite import beside, log, pages, rewriting
from backstory.stores.sqlite.database import Database, file_of
from backstory.stores.sqlite.reader import Reader
from backstory.stores.sqlite.watch import Watch
from backstory.stores.sqlite.writer import Writer
from backstory.stores.values import (
    Appended,
    Damage,
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
logger = logging.getLogger("backstory.stores")

_FEW = 64
"""So many records are read in no time."""
_LARGE = 1 << 18
"""Bytes from which on a write is not brief."""

_SOUND = 30.0
"""Seconds for which a check of the whole file is good enough for the next session."""


class SqliteStore:
    """See `backstory.stores.base.Store`.

    `location` is a path, or a URL such as ``sqlite:///chat.db``; the file is made with the first call. `durability`
    ``"process"`` leaves out the sync of each commit. `clock` is the time of leases: processes that share a file share
    it too. `patience` is how many seconds a call waits for other processes before it raises `StoreUnavailable`.
    `on_damage` hears of records that reading finds damaged; they are logged in any case. `factory` is the class of
    SQLite's connections, for tests.
    """

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        clock: Clock | None = None,
        on_damage: Callable[[SessionId, Damage], None] | None = None,
        patience: float = 10.0,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        if durability not in ("power", "process"):
            raise ConfigurationError(f"durability is 'power' or 'process', not {durability!r}")
        self.path = file_of(location)
        self.clock: Clock = clock or SystemClock()
        self._database = Database(
            self.path, durable=durability == "power", patience=patience, factory=factory
        )
        self._writer = Writer(self._database)
        self._reader = Reader(self._database)
        self._watch = Watch(self._reader, self.clock)
        self._on_damage = on_damage
        self._told: set[tuple[SessionId, int]] = set()
        self._broken: list[str] = []
        self._sound_until = 0.0

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
        records = tuple(records)
        size = sum(len(record.body) for record in records)

        def call(connection: sqlite3.Connection) -> Appended:
            return log.append(
                connection,
                session,
                records,
                expected,
                fence,
                batch,
                acquire,
                release,
                self.clock.now(),
            )

        done = await self._writer.do(call, size=size, brief=size < _LARGE)
        if release:
            self._watch.wake(session)
        return done

    async def read(
        self,
        session: SessionId,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        low = min(max(after, 0), log.SEQ)
        high = log.SEQ if before is None else min(max(before, 0), log.SEQ)
        most = max(0, high - low if limit is None else min(limit, high - low))
        first = min(most, _FEW)
        found, bad = await self._reader.do(
            session, lambda connection: log.read(connection, session, low, high, first, newest_first)
        )
        if len(found) == first < most:  # there may be more: all of it in one look, in a thread
            found, bad = await self._reader.do(
                session,
                lambda connection: log.read(connection, session, low, high, most, newest_first),
                brief=False,
            )
        for place, line in bad:
            self._report(session, place, line)
        return found

    async def head(self, session: SessionId) -> Head:
        return await self._reader.do(session, lambda connection: log.find(connection, session).ends())

    async def sessions(self, scope: str, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        return await self._reader.do(
            scope, lambda connection: beside.sessions(connection, scope, limit, cursor), brief=limit <= _FEW
        )

    async def scopes(self) -> list[str]:
        return await self._reader.do("", beside.scopes, brief=False)

    async def rewrite(
        self,
        session: SessionId,
        replacements: Sequence[Replacement],
        *,
        expected: int,
        fence: int | None = None,
        purge: bool = False,
    ) -> Head:
        spans = tuple(replacements)

        def call(connection: sqlite3.Connection) -> Head:
            return rewriting.rewrite(connection, session, spans, expected, fence, purge, self.clock.now())

        head = await self._writer.do(call, brief=False)
        if purge:
            await self._forget()
        return head

    async def delete(self, session: SessionId, *, fence: int | None = None) -> bool:
        gone = await self._writer.do(
            lambda connection: rewriting.delete(connection, session, fence, self.clock.now()), brief=False
        )
        if gone:
            await self._forget()
        self._watch.wake(session)
        return gone

    async def _forget(self) -> None:
        """What was erased also leaves SQLite's own log, and the copies of the whole file."""
        await self._reader.do("", lambda connection: pages.forget(connection, self._database), brief=False)

    async def verify(self, session: SessionId) -> Report:
        broken = await self._faults()
        return await self._reader.do(
            session, lambda connection: pages.verify(connection, session, broken), brief=False
        )

    async def _faults(self) -> list[str]:
        """What is wrong with the file; not looked for anew for each of many sessions."""
        if self._sound_until < monotonic():
            self._broken = await self._reader.do("", pages.faults, brief=False)
            self._sound_until = monotonic() + _SOUND
        return self._broken

    async def repair(self, session: SessionId, *, fence: int | None = None) -> Report:
        """See `Log.repair`. Where pages of the file are damaged, the whole file is built anew from what can be read;
        the file as it was is kept beside it, and named in the report.
        """
        self._sound_until = 0.0
        found, copy = await self.verify(session), None
        if self._broken:
            rules.check_fence(session, await self.lease(session), fence, now=self.clock.now())
            copy = await self._reader.do("", lambda _: pages.salvage(self._database), brief=False)
            self._sound_until = 0.0
        mended = await self._writer.do(
            lambda connection: rewriting.repair(connection, session, fence, self.clock.now()), brief=False
        )
        return mended if copy is None else pages.with_copy(mended, found, copy)

    # --- leases

    async def acquire(self, session: SessionId, request: LeaseRequest) -> Lease:
        return await self._write(lambda c: beside.acquire(c, session, request, self.clock.now()))

    async def renew(self, lease: Lease, ttl: float) -> Lease:
        return await self._write(lambda c: beside.renew(c, lease, ttl, self.clock.now()))

    async def release(self, lease: Lease) -> None:
        await self._write(lambda c: beside.release(c, lease))
        self._watch.wake(lease.session)

    async def lease(self, session: SessionId) -> Lease | None:
        lease = await self._reader.do(session, lambda connection: beside.lease_of(connection, session))
        return lease if rules.in_force(lease, self.clock.now()) else None

    # --- the inbox

    async def post(self, session: SessionId, entry: NewEntry) -> Posted:
        size = len(encode_json(entry.data))
        posted = await self._writer.do(
            lambda connection: beside.post(connection, session, entry, self.clock.now()),
            size=size,
            brief=size < _LARGE,
        )
        self._watch.wake(session)
        return posted

    async def inbox(self, session: SessionId) -> list[Entry]:
        return await self._reader.do(session, lambda connection: beside.entries(connection, session))

    async def take(self, session: SessionId, ids: Collection[str], *, fence: int | None = None) -> None:
        taken = frozenset(ids)
        await self._write(lambda c: beside.take(c, session, taken, fence, self.clock.now()))

    async def wait(
        self, session: SessionId, *, free: bool = False, mail_after: int | None = None, within: float
    ) -> bool:
        return await self._watch.wait(
            session,
            partial(self.lease, session),
            partial(self.inbox, session),
            free=free,
            mail_after=mail_after,
            within=within,
        )

    # --- drafts and blobs

    async def put_draft(
        self, session: SessionId, data: Mapping[str, Any] | None, *, after: int, fence: int
    ) -> None:
        encoded = encode_json(data) if data is not None else None
        await self._write(
            lambda c: beside.put_draft(c, session, encoded, after, fence, self.clock.now()),
            size=len(encoded or b""),
        )

    async def draft(self, session: SessionId) -> Draft | None:
        return await self._reader.do(session, lambda connection: beside.draft(connection, session))

    async def put_blob(self, scope: str, data: bytes) -> str:
        data = bytes(data)
        handle = rules.blob_handle(data)
        digest = rules.blob_digest(handle)
        await self._writer.do(
            lambda connection: beside.put_blob(connection, scope, digest, data, self.clock.now()),
            size=len(data),
            brief=len(data) < _LARGE,
        )
        return handle

    async def get_blob(self, scope: str, handle: str) -> bytes:
        rules.blob_digest(handle)
        return await self._reader.do(
            scope, lambda connection: beside.get_blob(connection, scope, handle), brief=False
        )

    async def delete_blob(self, scope: str, handle: str, *, before: float | None = None) -> bool:
        digest = rules.blob_digest(handle)
        gone = await self._writer.do(
            lambda connection: beside.delete_blob(connection, scope, digest, before), brief=False
        )
        if gone:
            await self._forget()
        return gone

    async def old_blobs(self, scope: str, *, before: float, after: str = "", limit: int = 1000) -> list[str]:
        return await self._reader.do(
            scope, lambda connection: beside.old_blobs(connection, scope, before, after, limit), brief=False
        )

    async def blob_scopes(self) -> list[str]:
        return await self._reader.do("", beside.blob_scopes, brief=False)

    async def close(self) -> None:
        await self._writer.close()
        await self._reader.close()

    # ---

    async def _write(self, call: Callable[[sqlite3.Connection], T], *, size: int = 0) -> T:
        """What need not survive the loss of power: after one, nobody holds a lease or streams a text."""
        return await self._writer.do(call, sync=False, size=size)

    def _report(self, session: SessionId, place: int, line: bytes) -> None:
        """Tell of each damage once."""
        if (session, place) in self._told:
            return
        if len(self._told) >= 10_000:
            self._told.clear()
        self._told.add((session, place))
        detail = f"the row of record {place} holds no record of that place"
        damage = damaged(Line(0, line), after=place - 1, detail=detail)
        logger.warning("session %r: %s", str(session), damage.detail)
        if self._on_damage is not None:
            self._on_damage(session, damage)
