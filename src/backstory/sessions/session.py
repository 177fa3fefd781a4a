"""A session in hand: the only gate through which anything is written to its log, and its view kept up to date.

One `Session` may be used by one task at a time; `Sessions` hands out the same one for the same id, under a lock that is
first come, first served. The cached view is good as long as the store's head is where it was.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import logging
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from backstory.errors import StoreDamaged
from backstory.records import NewRecord, Record
from backstory.sessions.archive import read_through
from backstory.sessions.view import View, fold
from backstory.stores.base import Store
from backstory.stores.large_parts import with_large_parts
from backstory.stores.values import Appended, Lease, LeaseRequest, SessionId

logger = logging.getLogger("backstory.sessions")

PAGE = 64
LARGEST_PAGE = 4096
"""Records of the first page that is read; each further one is twice as long, up to the largest."""

FAR_BEHIND = 1024
"""Records behind the log from which on it is cheaper to open anew than to read all that came."""


class Session:
    """See the module. `view` is its state, `lease` the lease under which it writes."""

    def __init__(self, store: Store, id: SessionId) -> None:
        self.store = with_large_parts(store)
        self.id = id
        self.view = View()
        self.lease: Lease | None = None
        self.state: dict[str, Any] | None = None  # of the last request, while this process made it
        self.frozen: Any = None  # what the epoch froze, kept by who froze it, and the place of its record
        self.frozen_seq = 0
        self._generation = -1
        self._writer = uuid.uuid4().hex[:8]
        self._batches = 0

    async def refresh(self) -> View:
        """Bring the view up to date with the log, reading what is new, or all that is needed.

        May be called while a turn of this process runs: nothing is folded twice.
        """
        head = await self.store.head(self.id)
        view = self.view
        new = head.seq - view.head
        if head.generation == self._generation and 0 <= new <= FAR_BEHIND:
            if new:
                self._fold(await self.store.read(self.id, after=view.head), view)
                self.state = None
        else:
            opened = await self._open(head.generation)
            if self.view is view and (opened.head >= view.head or head.generation != self._generation):
                self.view = opened
                self.state = None
        self._generation = head.generation
        return self.view

    def _fold(self, records: Sequence[Record], view: View) -> None:
        for record in records:
            if record.seq > view.head:
                view.apply(record)

    async def _open(self, generation: int) -> View:
        """Fold from the newest snapshot on, reading backwards until one is met. What was read beyond it is kept."""
        newest_first: list[Record] = []
        older: list[Record] = []
        begun: View | None = None
        page = PAGE
        before: int | None = None
        while True:
            found = await self.store.read(self.id, before=before, limit=page, newest_first=True)
            snapshots = ((i, _from_snapshot(record)) for i, record in enumerate(found))
            snapshot, begun = next(
                ((i, view) for i, view in snapshots if view is not None), (len(found), None)
            )
            if begun is not None:
                newest_first += found[:snapshot]
                older = found[snapshot + 1 :]
                break
            newest_first += found
            if len(found) < page:
                if (
                    newest_first and newest_first[-1].first > 1
                ):  # a gap, or older pages were archived meanwhile
                    now = (await self.store.head(self.id)).generation
                    if now != generation:
                        return await self._open(now)
                break
            before, page = found[-1].first, min(page * 2, LARGEST_PAGE)
        view = fold(reversed(newest_first), begun)
        if view.loaded > view.start:
            live = itertools.takewhile(lambda r: r.seq >= view.start and r.kind != "archived", older)
            view.load(list(live)[::-1])
        return view

    async def load(self, tokens: int | None, count: Callable[[Record], int] = lambda _: 0) -> None:
        """Make sure that the view holds the messages that a window of `tokens` needs; all live ones for `None`.

        It holds whole turns then, so that what is replayed never begins inside one for want of a reading. `count` gives
        the tokens of a message; what is stored with a record is used as it is.
        """
        view = self.view
        if view.loaded <= view.start:
            return
        page = PAGE
        while view.loaded > view.start and (tokens is None or not _holds(view, tokens, count)):
            found = await self.store.read(
                self.id, after=view.start - 1, before=view.loaded, limit=page, newest_first=True
            )
            if not found:
                view.loaded = view.start
                break
            view.load(await self._with_archived(found[::-1]))
            page = min(page * 2, LARGEST_PAGE)
        span = view.spans.get(view.messages[0].turn) if view.messages else None
        if span is not None and view.start < view.loaded and span.first < view.loaded:
            after = max(span.first, view.start) - 1
            view.load(await read_through(self.store, self.id, after=after, before=view.loaded))

    async def _with_archived(self, records: list[Record]) -> list[Record]:
        """Records from where replay begins on; an undo may have put that into the archive."""
        if not records or records[0].kind != "archived":
            return records
        after = self.view.start - 1
        return await read_through(self.store, self.id, after=after, before=records[-1].seq + 1)

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
        if view.snapshot_due:
            batch.insert(0, NewRecord(kind="snapshot", data=view.to_json()))
        self._batches += 1
        writing = functools.partial(
            self.store.append,
            self.id,
            batch,
            expected=view.head,
            fence=None if acquire is not None or self.lease is None else self.lease.fence,
            batch=f"{self._writer}-{self._batches}",
            acquire=acquire,
            release=release,
        )
        try:
            done = await writing()
        except asyncio.CancelledError:
            self._wrote(await _whatever(writing), view, release)
            raise
        self._wrote(done, view, release)
        return done.records[len(batch) - len(records) :]

    def _wrote(self, done: Appended, view: View, release: bool) -> None:
        if view.head == 0:
            self._generation = done.head.generation
        self._fold(done.records, view)
        self.lease = None if release else (done.lease or self.lease)

    def next_seq(self) -> int:
        """The place that the first record of the next batch will have, a snapshot that is due taken into account."""
        return self.view.head + (2 if self.view.snapshot_due else 1)


def _holds(view: View, tokens: int, count: Callable[[Record], int]) -> bool:
    """Whether more than so many tokens are loaded. Looks no further back than it must."""
    held = 0
    for record in reversed(view.live()):
        held += count(record)
        if held > tokens:
            return True
    return False


def _from_snapshot(record: Record) -> View | None:
    """The view of a snapshot to fold from. One that is no good is passed over: it can be computed again."""
    if record.kind != "snapshot" or not record.intact:
        return None
    try:
        return View.from_snapshot(record)
    except StoreDamaged as error:
        logger.warning("a snapshot is passed over: %s", error)
        return None


async def _whatever(writing: Callable[[], Awaitable[Appended]]) -> Appended:
    """The outcome of a write whose caller was cancelled.

    That does not cancel a write that has begun, so the view has to learn what became of it: the same batch once more
    says so, and is there once in any case. Raises `CancelledError` where it cannot be written.
    """
    task = asyncio.ensure_future(writing())
    while not task.done():
        with contextlib.suppress(asyncio.CancelledError):  # we are cancelled already
            await asyncio.wait({task})
    if not task.cancelled() and (error := task.exception()) is not None:
        raise asyncio.CancelledError from error
    return task.result()


class Sessions:
    """The sessions that this process has in hand: at most `limit` idle ones are kept, the least used are let go."""

    def __init__(self, store: Store, *, limit: int = 512) -> None:
        self.store = with_large_parts(store)
        self._limit = limit
        self._held: OrderedDict[SessionId, _Held] = OrderedDict()

    @asynccontextmanager
    async def hold(self, id: SessionId) -> AsyncIterator[Session]:
        """The session, for one task alone, first come, first served; other sessions run on meanwhile."""
        held = self._entry(id)
        held.users += 1
        try:
            async with held.lock:
                yield held.session
        finally:
            held.users -= 1

    def peek(self, id: SessionId) -> tuple[Session, bool]:
        """The session without waiting, to look at, and whether a task of this process holds it or waits for it."""
        held = self._entry(id)
        return held.session, held.users > 0

    def forget(self, id: SessionId) -> None:
        """Let go of what is cached of a session that nobody holds."""
        held = self._held.get(id)
        if held is not None and not held.users:
            del self._held[id]

    def _entry(self, id: SessionId) -> _Held:
        held = self._held.get(id)
        if held is None:
            held = self._held[id] = _Held(Session(self.store, id))
            self._shrink()
        self._held.move_to_end(id)
        return held

    def _shrink(self) -> None:
        if len(self._held) <= self._limit:
            return
        *idle, _ = [
            key for key, held in self._held.items() if not held.users
        ]  # the last was asked for just now
        for key in idle[: len(self._held) - self._limit]:
            del self._held[key]


@dataclass(slots=True)
class _Held:
    """A session, its lock, and how many tasks hold it or wait for it: it must not be let go while there are any."""

    session: Session
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    users: int = 0
