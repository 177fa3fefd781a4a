"""Idle compaction: sessions that nobody wrote to for a while are compacted, so that who returns waits for nothing.

Shortly before the provider forgets a silent session's prefix (`Compaction.prepare_at`), a summary is prepared where
the first request after that earns it back: reading the prefix from the cache is a tenth of what it costs once it is
cold. A session in which it does not pay then is left alone until somebody speaks in it: later it pays even less.

Later the provider has forgotten the prefix, so that a new one costs nothing more: what is prepared is put into force,
and a session that nobody looked at in time is compacted. A timer of its own looks at the index of last activity. A
process takes the sessions whose last turn it ran; those of others it takes later, when whoever ran them did not, since
it is gone. The model is asked while nobody holds the session: a user who comes back goes first.
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
from backstory.upkeep.compactor import Compactor, keep
from backstory.upkeep.spans import Frame
from backstory.upkeep.summarise import Prefix

logger = logging.getLogger("backstory.upkeep")

EVERY = 60.0
"""Seconds between two looks at the index."""

OFTEN = 0.05
"""Of the time that the provider keeps a prefix: between two looks for those that it is about to forget."""

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
    """See the module. `frame` gives what a compaction has to know of a session, `sent` what the provider has of it in
    its cache for `model`, which writes the summaries."""

    def __init__(
        self,
        sessions: Sessions,
        compactor: Compactor,
        frame: Callable[[Session], Awaitable[Frame]],
        model: Model | None,
        *,
        sent: Callable[[Session], Awaitable[Prefix | None]],
    ) -> None:
        self._sessions = sessions
        self._compactor = compactor
        self._frame = frame
        self._model = model
        self._sent = sent
        # Whose prefix was not looked at since its last turn.
        self._warm: OrderedDict[SessionId, None] = OrderedDict()
        self._mine: OrderedDict[SessionId, None] = OrderedDict()
        self._seen: OrderedDict[SessionId, float] = (
            OrderedDict()
        )  # of which activity a session was dealt with
        self._timer: asyncio.Task[None] | None = None

    def touched(self, id: SessionId) -> None:
        """A turn of this process ended in a session: it is ours to look after. The first one starts the timer."""
        settings = self._compactor.settings
        keep(self._mine, id, None, _REMEMBERED)
        if settings.prepare_at is not None:
            keep(self._warm, id, None, _REMEMBERED)
        if self._timer is None and (settings.idle_after is not None or settings.prepare_at is not None):
            self._timer = asyncio.create_task(self._run(), name="idle compaction")

    async def _run(self) -> None:
        clock, settings = self._sessions.store.clock, self._compactor.settings
        pause = EVERY if settings.prepare_at is None else min(EVERY, OFTEN * settings.cache_ttl)
        looked = clock.now()
        while True:
            await clock.sleep(pause)
            try:
                await self.keep_up()
                if clock.now() - looked >= EVERY:
                    looked = clock.now()
                    await self.look()
            except StoreError as error:
                logger.warning("idle sessions are looked for again later: %s", error)

    # --- before the provider forgets ---------------------------------------------------------

    async def keep_up(self) -> list[SessionId]:
        """Prepare a summary for each session whose prefix the provider is about to forget, where that pays; which.

        Raises nothing: one that fails is told of in the log.
        """
        settings, due = self._compactor.settings, []
        if settings.prepare_at is None:
            return []
        for place in list(self._warm):
            silence = self._compactor.silence(place)
            if silence is not None and silence < settings.prepare_at * settings.cache_ttl:
                continue
            del self._warm[place]
            if silence is not None and silence < settings.cache_ttl:  # else it is too late
                due.append(place)
        return await _each(due, self._prepare)

    async def _prepare(self, place: SessionId) -> bool:
        """Whether a summary is on its way. Never while a turn runs, here or elsewhere."""
        compactor = self._compactor
        if self._sessions.peek(place)[1] or await self._sessions.store.lease(place) is not None:
            return False
        try:
            async with self._sessions.hold(place) as session:
                view = await session.refresh()
                if view.turn is not None or view.active == view.head or compactor.is_taken(place):
                    return False
                frame = await self._frame(session)
                if frame.budget.tokens is None:
                    return False
                ours = compactor.model_of(self._model) is self._model
                sent = await self._sent(session) if ours else None
                if ours and sent is None:
                    return False  # what it has in its cache is not known: as good later
                return await compactor.prepare(session, frame, self._model, prefix=sent, paying=True)
        except (SessionError, LeaseHeld, HeadMoved, StoreError) as error:
            logger.info("silent session %r is left alone: %s", str(place), error)
            return False

    # --- once it has forgotten -----------------------------------------------------------------

    async def look(self) -> list[SessionId]:
        """One look at the index: those that were compacted. Raises the store's errors."""
        due = [info async for info in self._due()]
        for info in due:
            keep(self._seen, info.session, info.active, _REMEMBERED)
        return await _each([info.session for info in due], self._compact)

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
                        and self._is_cold(info.session)
                    ):
                        count += 1
                        yield info
                else:
                    cursor = page.cursor
                    if cursor is not None:
                        continue
                break

    def _is_cold(self, id: SessionId) -> bool:
        """Whether the provider has forgotten its prefix, which a summary read a while ago may have kept warm."""
        silence = self._compactor.silence(id)
        return silence is None or silence >= self._compactor.settings.cache_ttl

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
                if compactor.is_unpaid(session):
                    return False  # it did not pay while the provider had the prefix
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


async def _each(places: list[SessionId], work: Callable[[SessionId], Awaitable[bool]]) -> list[SessionId]:
    """Those for which it is done; so many at a time, each on its own."""
    limit = asyncio.Semaphore(AT_ONCE)

    async def one(place: SessionId) -> bool:
        async with limit:
            return await work(place)

    done: list[SessionId] = []
    for place, found in zip(
        places, await asyncio.gather(*map(one, places), return_exceptions=True), strict=True
    ):
        if isinstance(found, BaseException):
            # Somebody's own section or model: the other sessions go on, and the timer.
            logger.error("the idle session %r was not compacted", str(place), exc_info=found)
        elif found:
            done.append(place)
    return done
