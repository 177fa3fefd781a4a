"""A session in hand: the only gate through which anything is written to its log, and its view kept up to date.

One `Session` may be used by one task at a time; `Sessions` hands out the same one for the same id, under a lock that is
first come, first served. The cached view is good as long as the store's head is where it was.
"""

from __future__ import annotations

import asyncio
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any

from backstory.errors import HeadMoved
from backstory.records import NewRecord, Record
from backstory.sessions.view import View, fold
from backstory.stores.base import Store
from backstory.stores.values import Lease, LeaseRequest, SessionId

SNAPSHOT_EVERY = 256
"""Records between two snapshots: what a cold open reads at most besides the window."""

PAGE = 64
"""Records of the first page that is read; each further one is twice as long."""


class Session:
    """See the module. `view` is its state, `lease` the lease under which it writes."""

    def __init__(self, store: Store, id: SessionId) -> None:
        self.store = store
        self.id = id
        self.view = View()
        self.lease: Lease | None = None
        self.state: dict[str, Any] | None = None  # of the last request, while this process made it
        self.frozen: Any = None  # what the epoch froze, kept by who froze it, and the place of its record
        self.frozen_seq = 0
        self._generation = -1

    async def refresh(self) -> View:
        """Bring the view up to date with the log, reading what is new, or all that is needed."""
        head = await self.store.head(self.id)
        if head.generation == self._generation and head.seq >= self.view.head:
            if head.seq > self.view.head:
                for record in await self.store.read(self.id, after=self.view.head):
                    self.view.apply(record)
                self.state = None
        else:
            self.view = await self._open()
            self.state = None
        self._generation = head.generation
        return self.view

    async def _open(self) -> View:
        """Fold from the newest snapshot on, reading backwards until one is met."""
        newest_first: list[Record] = []
        page = PAGE
        before: int | None = None
        while True:
            found = await self.store.read(self.id, before=before, limit=page, newest_first=True)
            snapshot = next((i for i, record in enumerate(found) if record.kind == "snapshot"), None)
            if snapshot is not None:
                newest_first += found[: snapshot + 1]
                break
            newest_first += found
            if len(found) < page:
                break
            before, page = found[-1].first, min(page * 2, 4096)
        return fold(reversed(newest_first))

    async def load(self, tokens: int | None, count: Any) -> None:
        """Make sure that the view holds the messages that a window of `tokens` needs; all live ones for `None`.

        `count` gives the tokens of a message; what is stored with a record is used as it is.
        """
        view = self.view
        held = sum(count(record) for record in view.live()) if tokens is not None else 0
        page = PAGE
        while view.loaded > view.start and (tokens is None or held <= tokens):
            found = await self.store.read(
                self.id, after=view.start - 1, before=view.loaded, limit=page, newest_first=True
            )
            if not found:
                view.loaded = view.start
                break
            older = found[::-1]
            view.load(older)
            held += sum(count(r) for r in older if r.kind == "message" and view.replayed(r.seq))
            page = min(page * 2, 4096)

    async def append(
        self,
        records: Sequence[NewRecord],
        *,
        acquire: LeaseRequest | None = None,
        release: bool = False,
    ) -> tuple[Record, ...]:
        """Write one batch after what the view knows, under the lease that is held; durable when this returns.

        A snapshot rides along when one is due. Raises `HeadMoved` where somebody else wrote meanwhile (refresh, and
        decide again), `StaleLease`, `LeaseHeld`, and the store's other errors.
        """
        batch = list(records)
        view = self.view
        if view.head - view.snapshot >= SNAPSHOT_EVERY:
            batch.insert(0, NewRecord(kind="snapshot", data=view.to_json()))
        try:
            done = await self.store.append(
                self.id,
                batch,
                expected=view.head,
                fence=None if acquire is not None or self.lease is None else self.lease.fence,
                acquire=acquire,
                release=release,
            )
        except HeadMoved:
            self._generation = -1
            raise
        for record in done.records:
            view.apply(record)
        if self._generation < 0 or view.head == len(done.records):
            self._generation = done.head.generation
        self.lease = None if release else (done.lease or self.lease)
        return done.records if len(batch) == len(records) else done.records[1:]

    def next_seq(self) -> int:
        """The place that the first record of the next batch will have, a snapshot that is due taken into account."""
        due = self.view.head - self.view.snapshot >= SNAPSHOT_EVERY
        return self.view.head + (2 if due else 1)


class Sessions:
    """The sessions that this process has in hand: at most `limit` idle ones are kept, the least used are let go."""

    def __init__(self, store: Store, *, limit: int = 512) -> None:
        self.store = store
        self._limit = limit
        self._held: OrderedDict[SessionId, tuple[Session, asyncio.Lock]] = OrderedDict()
        self.owner = f"{uuid.uuid4().hex[:12]}"

    @asynccontextmanager
    async def hold(self, id: SessionId) -> AsyncIterator[Session]:
        """The session, for one task alone, first come, first served; other sessions run on meanwhile."""
        session, lock = self._entry(id)
        async with lock:
            yield session

    def peek(self, id: SessionId) -> tuple[Session, bool]:
        """The session without waiting, to look at, and whether a task of this process holds it."""
        session, lock = self._entry(id)
        return session, lock.locked()

    def forget(self, id: SessionId) -> None:
        """Let go of what is cached of a session."""
        self._held.pop(id, None)

    def _entry(self, id: SessionId) -> tuple[Session, asyncio.Lock]:
        entry = self._held.get(id)
        if entry is None:
            entry = (Session(self.store, id), asyncio.Lock())
            self._held[id] = entry
            self._shrink()
        self._held.move_to_end(id)
        return entry

    def _shrink(self) -> None:
        if len(self._held) <= self._limit:
            return
        for held, (_, lock) in list(self._held.items()):
            if len(self._held) <= self._limit:
                return
            if not lock.locked():
                del self._held[held]
