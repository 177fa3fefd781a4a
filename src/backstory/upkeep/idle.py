"""Idle compaction: sessions that nobody wrote to for a while are compacted, so that who returns waits for nothing.

By then the provider has forgotten the prefix, so that a new one costs nothing more. A timer of its own looks at the
index of last activity. A process takes the sessions whose last turn it ran; those of others it takes later, when
whoever ran them did not, since it is gone. The model is asked while nobody holds the session: a user who comes back
goes first.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable

from backstory.errors import HeadMoved, LeaseHeld, SessionError, StoreError
from backstory.models.base import Model
from backstory.sessions.session import Session, Sessions
from backstory.stores.values import SessionId, SessionInfo
from backstory.upkeep.compactor import Compactor
from backstory.upkeep.spans import Frame

logger = logging.getLogger("backstory.upkeep")

EVERY = 60.0
"""Seconds between two looks at the index."""

AT_ONCE = 4
"""Sessions that are compacted side by side."""

A_LOOK = 64
"""Sessions that one look may take; the others come with the next."""

PATIENCE = 3.0
"""Times the idle time after which a session is taken whose last turn another process ran."""

GIVEN_UP = 86_400.0
"""Seconds after which nobody is expected back soon: such a session is compacted with its next request, if at all."""

_REMEMBERED = 4_096


class Idle:
    """See the module. `frame` gives what a compaction has to know of a session; `model` writes the summaries."""

    def __init__(
        self,
        sessions: Sessions,
        compactor: Compactor,
        frame: Callable[[Session], Awaitable[Frame]],
        model: Model | None,
    ) -> None:
        self._sessions = sessions
        self._compactor = compactor
        self._frame = frame
        self._model = model
        self._mine: OrderedDict[SessionId, None] = OrderedDict()
        self._seen: OrderedDict[SessionId, float] = (
            OrderedDict()
        )  # of which activity a session was dealt with
        self._timer: asyncio.Task[None] | None = None

    def touched(self, id: SessionId) -> None:
        """A turn of this process ended in a session: it is ours to look after. The first one starts the timer."""
        self._mine[id] = None
        self._mine.move_to_end(id)
        while len(self._mine) > _REMEMBERED:
            self._mine.popitem(last=False)
        if self._timer is None and self._compactor.settings.idle_after is not None:
            self._timer = asyncio.create_task(self._run(), name="idle compaction")

    async def _run(self) -> None:
        clock = self._sessions.store.clock
        while True:
            await clock.sleep(EVERY)
            try:
                await self.look()
            except StoreError as error:
                logger.warning("idle sessions are looked for again later: %s", error)

    async def look(self) -> list[SessionId]:
        """One look at the index: those that were compacted. Raises the store's errors."""
        due = [info async for info in self._due()]
        limit = asyncio.Semaphore(AT_ONCE)

        async def one(info: SessionInfo) -> SessionId | None:
            self._seen[info.session] = info.active
            self._seen.move_to_end(info.session)
            while len(self._seen) > _REMEMBERED:
                self._seen.popitem(last=False)
            async with limit:
                return info.session if await self._compact(info.session) else None

        done: list[SessionId] = []
        for info, found in zip(
            due, await asyncio.gather(*map(one, due), return_exceptions=True), strict=True
        ):
            if isinstance(found, SessionId):
                done.append(found)
            elif (
                found is not None
            ):  # somebody's own section or model: the other sessions go on, and the timer
                logger.error("the idle session %r was not compacted", str(info.session), exc_info=found)
        return done

    async def _due(self) -> AsyncIterator[SessionInfo]:
        """Sessions that are idle for long enough, and not given up; the latest first, so many at most."""
        settings = self._compactor.settings
        if settings.idle_after is None:
            return
        after = max(settings.idle_after, settings.cache_ttl)
        store, count = self._sessions.store, 0
        for scope in await store.scopes():
            cursor: str | None = None
            while True:
                page = await store.sessions(scope, cursor=cursor)
                for info in page.sessions:
                    age = store.clock.now() - info.active
                    if age > GIVEN_UP or count >= A_LOOK:
                        break
                    mine = info.session in self._mine
                    if (
                        age >= (after if mine else PATIENCE * after)
                        and self._seen.get(info.session) != info.active
                    ):
                        count += 1
                        yield info
                else:
                    cursor = page.cursor
                    if cursor is not None:
                        continue
                break

    async def _compact(self, id: SessionId) -> bool:
        """Whether a summary was put into force. Never while a turn runs, here or elsewhere."""
        compactor = self._compactor
        if self._sessions.peek(id)[1] or await self._sessions.store.lease(id) is not None:
            return False
        try:
            async with self._sessions.hold(id) as session:
                view = await session.refresh()
                if view.turn is not None or view.active == view.head:
                    return False  # nothing was said since it was compacted
                frame, head = await self._frame(session), view.head
                if frame.budget.tokens is None:
                    return False
                await compactor.prepare(session, frame, self._model)
            await compactor.settled(id)
            async with self._sessions.hold(id) as session:
                if (await session.refresh()).head != head:
                    return False  # somebody came back; what is prepared waits for its time
                if compactor.model_of(self._model) is None:
                    return await compactor.compact(session, frame, None, why="idle") is not None
                # Only what is prepared: here nobody waits for a model, and an extract can wait until it is needed.
                return await compactor.before_request(session, frame, None, "idle") is not None
        except (SessionError, LeaseHeld, HeadMoved, StoreError) as error:
            logger.info("idle session %r is left alone: %s", str(id), error)
            return False

    async def close(self) -> None:
        """End the timer, and what it is at."""
        if self._timer is not None:
            while not self._timer.done():
                self._timer.cancel()
                await asyncio.wait([self._timer], timeout=0.2)
