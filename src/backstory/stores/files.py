"""The store in a workspace folder: logs that a person can open, grep and put under git.

::

    sessions/telegram=12345.jsonl          one log a session; other scopes below sessions/@scope/
    blobs/ab/abcd….bin                     large bytes, by scope and SHA-256
    quarantine/telegram=12345/             torn tails, and copies from before a repair
    .backstory/{leases,inbox,drafts}/      what is only of use while somebody talks

This module is the asynchronous face: it brings each call to its thread, waits for locks that others hold, and turns the
system's errors into ours. What happens on disk is in `session_files` and below it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections import OrderedDict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeVar

from backstory.errors import ConfigurationError, StoreUnavailable
from backstory.records import NewRecord, Record, encode_json
from backstory.stores import rules
from backstory.stores.base import Durability
from backstory.stores.blob_files import BlobFiles
from backstory.stores.clock import Clock, SystemClock, timestamp
from backstory.stores.disk import Disk, explained
from backstory.stores.listing import list_scopes, list_sessions
from backstory.stores.locks import LockBusy, StaleLock
from backstory.stores.session_files import STATE, SessionFiles, log_path
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
from backstory.stores.workers import Paces, Workers

T = TypeVar("T")
logger = logging.getLogger("backstory.stores")

_THREADS = 4
_OPEN_SESSIONS = 24
"""Whose files (two each) stay open, for each thread: macOS allows a process 256."""
_FEW, _SMALL = 256, 1 << 16
"""So many records are read, and so many bytes written, in no time."""
_POLL = 0.05
"""Seconds between two looks at what only another process can have changed."""


class FilesStore:
    """See `backstory.stores.base.Store`.

    `root` is the workspace folder; it is made with the first write. `durability` ``"process"`` leaves out every
    sync. `clock` is the time of leases: processes that share a workspace share it too (one machine's, as a rule).
    `on_damage` hears, on a thread of the store's, of whatever reading finds damaged or cuts off; it is logged in
    any case. `patience` is how many seconds a lock may be held by others before a call gives up; after a third of
    them without a sign of life from its holder, whose lease has run out, the lock is taken from it.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        *,
        durability: Durability = "power",
        clock: Clock | None = None,
        on_damage: Callable[[SessionId, Damage], None] | None = None,
        patience: float = 10.0,
        disk: Disk | None = None,
    ) -> None:
        if durability not in ("power", "process"):
            raise ConfigurationError(f"durability is 'power' or 'process', not {durability!r}")
        self.root = os.path.abspath(os.fspath(root))
        self.clock: Clock = clock or SystemClock()
        self._disk = disk or Disk(durable=durability == "power")
        self._on_damage = on_damage
        self._patience = patience
        self._workers = Workers(_THREADS, "backstory-files")
        self._open: list[OrderedDict[SessionId, SessionFiles]] = [OrderedDict() for _ in range(_THREADS)]
        self._waiting: dict[SessionId, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._blobs = BlobFiles(self._disk, self.root, os.path.join(self.root, STATE, "incoming"), self.clock)
        self._paces = Paces(
            expected=(SessionFiles.look, SessionFiles.read, SessionFiles.waiting, BlobFiles.get)
        )
        self._told: set[tuple[SessionId, Damage]] = set()

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
        done = await self._run(
            session, SessionFiles.append, records, expected, fence, batch, acquire, release
        )
        if release:
            self._wake(session)
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
        files = self._open[self._workers.slot(session)].get(session)
        brief = (limit is not None and limit <= _FEW) or (
            files is not None and files.journal.head.seq - after <= _FEW
        )
        return await self._run(session, SessionFiles.read, after, before, limit, newest_first, brief=brief)

    async def head(self, session: SessionId) -> Head:
        files = self._open[self._workers.slot(session)].get(session)
        if files is not None and (known := files.journal.known) is not None:
            try:  # one look at the file: cheaper than the way to another thread
                stat = self._disk.stat(files.journal.path)
            except OSError:
                pass  # the long way says what is wrong
            else:
                if known[0] == (stat.st_ino, stat.st_size, stat.st_mtime_ns):
                    return known[1]
        return await self._run(session, SessionFiles.look)

    async def sessions(self, scope: str, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        return await self._call(scope, list_sessions, self._disk, self.root, scope, limit, cursor)

    async def scopes(self) -> list[str]:
        return await self._call("", list_scopes, self._disk, self.root)

    async def rewrite(
        self,
        session: SessionId,
        replacements: Sequence[Replacement],
        *,
        expected: int,
        fence: int | None = None,
        purge: bool = False,
    ) -> Head:
        return await self._run(
            session, SessionFiles.rewrite, replacements, expected, fence, purge, brief=False
        )

    async def delete(self, session: SessionId, *, fence: int | None = None) -> bool:
        gone = await self._run(session, SessionFiles.delete, fence, brief=False)
        self._wake(session)
        return gone

    async def verify(self, session: SessionId) -> Report:
        return await self._run(session, SessionFiles.verify, brief=False)

    async def repair(self, session: SessionId, *, fence: int | None = None) -> Report:
        return await self._run(session, SessionFiles.repair, fence, brief=False)

    # --- leases

    async def acquire(self, session: SessionId, request: LeaseRequest) -> Lease:
        return await self._run(session, SessionFiles.acquire, request)

    async def renew(self, lease: Lease, ttl: float) -> Lease:
        return await self._run(lease.session, SessionFiles.renew, lease, ttl)

    async def release(self, lease: Lease) -> None:
        await self._run(lease.session, SessionFiles.release, lease)
        self._wake(lease.session)

    async def lease(self, session: SessionId) -> Lease | None:
        return await self._run(session, SessionFiles.holder)

    # --- the inbox

    async def post(self, session: SessionId, entry: NewEntry) -> Posted:
        encode_json(entry.data)

        def call(files: SessionFiles) -> Posted:
            while True:
                try:
                    return files.mailbox.post(entry, at=timestamp(self.clock.now()))
                except StaleLock:
                    continue  # broken while this process stood still; posting knows an id that is there

        posted = await self._run(session, call, breaks=lambda files: files.mailbox.break_lock())
        self._wake(session)
        return posted

    async def inbox(self, session: SessionId) -> list[Entry]:
        return await self._run(session, SessionFiles.waiting)

    async def take(self, session: SessionId, ids: Collection[str], *, fence: int | None = None) -> None:
        await self._run(session, SessionFiles.take, frozenset(ids), fence)

    async def wait(
        self, session: SessionId, *, free: bool = False, mail_after: int | None = None, within: float
    ) -> bool:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        waiter = (loop, asyncio.Event())
        self._waiting.setdefault(session, set()).add(waiter)
        try:
            while True:
                waiter[1].clear()
                if free and await self.lease(session) is None:
                    return True
                if mail_after is not None and any(
                    entry.position > mail_after for entry in await self.inbox(session)
                ):
                    return True
                left = deadline - loop.time()
                if left <= 0:
                    return False
                await _within(min(left, _POLL), waiter[1])
        finally:
            waiters = self._waiting[session]
            waiters.discard(waiter)
            if not waiters:
                del self._waiting[session]

    def _wake(self, session: SessionId) -> None:
        for loop, event in tuple(self._waiting.get(session, ())):
            with suppress(RuntimeError):  # that event loop is closed
                loop.call_soon_threadsafe(event.set)

    # --- drafts and blobs

    async def put_draft(
        self, session: SessionId, data: Mapping[str, Any] | None, *, after: int, fence: int
    ) -> None:
        if data is not None:
            encode_json(data)
        await self._run(session, SessionFiles.put_draft, data, after, fence)

    async def draft(self, session: SessionId) -> Draft | None:
        return await self._run(session, SessionFiles.draft)

    async def put_blob(self, scope: str, data: bytes) -> str:
        brief = len(data) <= _SMALL
        return await self._call(scope, self._blobs.put, scope, bytes(data), brief=brief)

    async def get_blob(self, scope: str, handle: str) -> bytes:
        rules.blob_digest(handle)
        return await self._call(scope, self._blobs.get, scope, handle, brief=True)

    async def delete_blob(self, scope: str, handle: str, *, before: float | None = None) -> bool:
        rules.blob_digest(handle)
        return await self._call(scope, self._blobs.delete, scope, handle, before)

    async def old_blobs(self, scope: str, *, before: float, after: str = "", limit: int = 1000) -> list[str]:
        return await self._call(scope, self._blobs.old, scope, before, after, limit)

    async def blob_scopes(self) -> list[str]:
        return await self._call("", self._blobs.scopes)

    async def close(self) -> None:
        await self._workers.close(self._close_slot)

    # --- the way to the disk

    async def _run(
        self,
        session: SessionId,
        call: Callable[..., T],
        *args: Any,
        breaks: Callable[[SessionFiles], None] = SessionFiles.break_lock,
        brief: bool = True,
    ) -> T:
        """`call(files, *args)`, one at a time a session; waits where another process holds the lock.

        The way to a thread and back costs more CPU than an append. So as long as the disk answers within
        milliseconds, and no other call is under way, a `brief` call is made on the event loop itself.
        """
        slot = self._workers.slot(session)
        try:
            brief = brief and self._paces.is_brief(call)
            return await self._workers.run(slot, self._with_files, slot, session, call, args, brief=brief)
        except OSError as error:
            raise explained(error, f"session {str(session)!r}") from error
        except LockBusy:
            pass
        try:
            return await self._patiently(slot, session, call, args, breaks)
        except OSError as error:
            raise explained(error, f"session {str(session)!r}") from error

    async def _patiently(
        self,
        slot: int,
        session: SessionId,
        call: Callable[..., T],
        args: tuple[Any, ...],
        breaks: Callable[[SessionFiles], None],
    ) -> T:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._patience
        pulse, since, delay = None, loop.time(), 0.0005
        while True:
            await asyncio.sleep(delay)
            delay = min(delay * 1.5, 0.02)
            try:
                return await self._workers.run(slot, self._with_files, slot, session, call, args)
            except LockBusy as busy:
                now = loop.time()
                if now > deadline:
                    raise StoreUnavailable(
                        f"another process holds the lock of session {str(session)!r} ({busy}) for more than "
                        f"{self._patience:g} s, and its lease has not run out"
                    ) from busy
            seen = await self._workers.run(slot, self._with_files, slot, session, SessionFiles.pulse, ())
            if seen != pulse:
                pulse, since = seen, now
            elif now - since > self._patience / 3:
                since = now
                try:
                    await self._workers.run(slot, self._with_files, slot, session, breaks, ())
                except LockBusy:
                    continue
                logger.warning(
                    "the lock of session %r was taken from a process that stands still", str(session)
                )

    def _with_files(self, slot: int, session: SessionId, call: Callable[..., T], args: tuple[Any, ...]) -> T:
        held = self._open[slot]
        files = held.get(session)
        if files is None:
            self._disk.check_inside(self.root, os.path.dirname(log_path(self.root, session)))
            files = held[session] = SessionFiles(
                self.root,
                session,
                disk=self._disk,
                clock=self.clock,
                report=lambda damage: self._report(session, damage),
            )
            if len(held) > _OPEN_SESSIONS:
                held.popitem(last=False)[1].close()
        else:
            held.move_to_end(session)
        return self._paces.timed(call, files, *args)

    async def _call(self, key: str, call: Callable[..., T], *args: Any, brief: bool = False) -> T:
        """A call that is not about one session."""
        try:
            brief = brief and self._paces.is_brief(call)
            return await self._workers.run(
                self._workers.slot(key), self._paces.timed, call, *args, brief=brief
            )
        except OSError as error:
            raise explained(error, "the workspace") from error

    def _close_slot(self, slot: int) -> None:
        for files in self._open[slot].values():
            files.close()
        self._open[slot].clear()

    def _report(self, session: SessionId, damage: Damage) -> None:
        """Tell of each damage once."""
        if (session, damage) in self._told:
            return
        if len(self._told) >= 10_000:
            self._told.clear()
        self._told.add((session, damage))
        logger.warning(
            "session %r: %s at byte %d (%d bytes): %s%s",
            str(session),
            damage.kind,
            damage.offset,
            damage.length,
            damage.detail,
            f"; kept in {damage.kept}" if damage.kept else "",
        )
        if self._on_damage is not None:
            self._on_damage(session, damage)


async def _within(seconds: float, event: asyncio.Event) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
