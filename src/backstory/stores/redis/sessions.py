"""The way to the server: looks at sessions, and changes of one that are applied only if it is as it was seen."""

from __future__ import annotations

import asyncio
import random
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from hashlib import sha1
from typing import Any, TypeVar

from backstory.errors import StoreError
from backstory.records import Record
from backstory.stores.clock import Clock
from backstory.stores.redis.engine import RedisEngine
from backstory.stores.redis.keys import Keys
from backstory.stores.redis.scripts import CHANGE, LOOK
from backstory.stores.redis.state import Commands, State, entry_field, entry_of, state_of
from backstory.stores.remote import rows
from backstory.stores.remote.clock import ServerClock
from backstory.stores.remote.loops import PerLoop
from backstory.stores.remote.naming import batch_needle
from backstory.stores.remote.retrying import Lost, Try, persist
from backstory.stores.values import Entry, SessionId

T = TypeVar("T")

_KNOWN = 4096
"""So many sessions are remembered as this store last left them."""
_LOOK = (sha1(LOOK.encode(), usedforsecurity=False).hexdigest(), LOOK)
_CHANGE = (sha1(CHANGE.encode(), usedforsecurity=False).hexdigest(), CHANGE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Batch:
    """What an append is recognised by: `mark`, and the caller's own `id` where there is one."""

    mark: bytes
    id: str | None


@dataclass(kw_only=True, slots=True)
class Sight:
    """What a change is decided on: `state` may be changed; `earlier` are the records of the same batch."""

    state: State
    earlier: list[Record]
    entry: Entry | None = None


Change = Callable[[Sight, Commands, Try], T]


class Sessions:
    """For `RedisStore`, which see for the arguments."""

    def __init__(
        self,
        engines: PerLoop[RedisEngine],
        keys: Keys,
        *,
        injected: Clock | None,
        server: ServerClock,
        timeout: float,
        place: str,
    ) -> None:
        self._engines = engines
        self._keys = keys
        self._injected = injected
        self._server = server
        self._timeout = timeout
        self._place = place
        self._known: OrderedDict[SessionId, State] = OrderedDict()
        self.warnings: tuple[str, ...] = ()

    async def engine(self) -> RedisEngine:
        engine = await self._engines.get()
        self.warnings = engine.persistence.warnings
        return engine

    async def _try(self, call: Callable[[RedisEngine, Try], Awaitable[T]]) -> T:
        self._engines.check_open()

        async def attempt(attempt: Try) -> T:
            return await call(await self.engine(), attempt)

        return await persist(attempt, within=self._timeout, place=self._place)

    async def command(self, *parts: Any, lasts: bool = False) -> Any:
        """One command that is safe to repeat; `lasts`: it writes what must survive."""

        async def call(engine: RedisEngine, attempt: Try) -> Any:
            if lasts:
                return await engine.write(attempt, lambda client: client.execute_command(*parts))
            return await engine.command(attempt, *parts)

        return await self._try(call)

    async def commands(self, *each: tuple[Any, ...]) -> list[Any]:
        """Several in one round trip."""

        async def call(engine: RedisEngine, attempt: Try) -> list[Any]:
            return await engine.commands(attempt, *each)

        return await self._try(call)

    def _tick(self, seconds: bytes, microseconds: bytes) -> int:
        """The time of an answer, in microseconds."""
        tick = int(seconds) * 1_000_000 + int(microseconds)
        self._server.observe(tick / 1_000_000)
        return tick

    def _now(self, tick: int) -> float:
        """The time that leases go by."""
        return self._injected.now() if self._injected is not None else tick / 1_000_000

    async def look(self, session: SessionId) -> State:
        """How a session stands."""
        return await self._try(lambda engine, attempt: self._look_once(engine, attempt, session))

    async def _look_once(self, engine: RedisEngine, attempt: Try, session: SessionId) -> State:
        return (await self._see(engine, attempt, session, None, None)).state

    async def _see(
        self, engine: RedisEngine, attempt: Try, session: SessionId, batch: Batch | None, entry: str | None
    ) -> Sight:
        keys = self._keys.session(session)
        # An append without a batch id can only be known if this is not its first try.
        sought = batch is not None and (batch.id is not None or attempt.number > 0)
        mark = batch.mark if batch is not None and sought else b""
        needle = batch_needle(batch.id) if batch is not None and batch.id is not None else b""
        seconds, micro, meta, lines, waiting = await engine.script(
            attempt,
            _LOOK,
            (keys.meta, keys.log, keys.batches, keys.inbox, keys.attempts),
            (mark, needle, entry_field(entry) if entry is not None else b""),
            lasts=False,
        )
        tick = self._tick(seconds, micro)
        return Sight(
            state=state_of(session, meta, now=self._now(tick), tick=tick),
            earlier=rows.read(session, lines),
            entry=entry_of(waiting) if waiting else None,
        )

    async def change(
        self,
        session: SessionId,
        change: Change[T],
        *,
        batch: Batch | None = None,
        entry: str | None = None,
        prepare: Callable[[], Awaitable[None]] | None = None,
        guess: Callable[[State], bool] | None = None,
        lasts: bool = True,
    ) -> T:
        """What `change` returns, once the commands that it made were applied to the very state that it saw.

        It is called anew for each look. `prepare` reads what else it needs, after the look. Where `guess`
        says so of the state that this store left behind, that is tried first: the change itself confirms or refuses it.
        """

        async def call(engine: RedisEngine, attempt: Try) -> T:
            async with engine.turnstile.through(session, attempt):
                return await self._change(
                    engine, attempt, session, change, batch, entry, prepare, guess, lasts
                )

        return await self._try(call)

    async def _change(
        self,
        engine: RedisEngine,
        attempt: Try,
        session: SessionId,
        change: Change[T],
        batch: Batch | None,
        entry: str | None,
        prepare: Callable[[], Awaitable[None]] | None,
        guess: Callable[[State], bool] | None,
        lasts: bool,
    ) -> T:
        known = self._known.get(session) if guess is not None and attempt.number == 0 else None
        if known is not None and guess is not None and guess(known):
            tick = int(self._server.now() * 1_000_000)
            try:
                done = await self._apply(
                    engine,
                    attempt,
                    Sight(state=replace(known, now=self._now(tick), tick=tick), earlier=[]),
                    change,
                    batch,
                    lasts,
                    guessed=True,
                )
            except StoreError:  # perhaps only because the state was old: the look below decides
                self._known.pop(session, None)
            else:
                if done:
                    return done[0]
        for number in range(1000):
            sight = await self._see(engine, attempt, session, batch, entry)
            if prepare is not None:
                await prepare()
            done = await self._apply(engine, attempt, sight, change, batch, lasts, guessed=False)
            if done:
                return done[0]
            if number > 2:  # other processes write here too
                await asyncio.sleep(random.uniform(0, 0.002 * min(number, 20)))
        raise Lost("others change this session all the time")

    async def _apply(
        self,
        engine: RedisEngine,
        attempt: Try,
        sight: Sight,
        change: Change[T],
        batch: Batch | None,
        lasts: bool,
        *,
        guessed: bool,
    ) -> list[T]:
        """The result in a list, or nothing where the session has changed."""
        session, version = sight.state.session, sight.state.version
        keys = self._keys.session(session)
        commands = Commands(keys=keys)
        result = change(sight, commands, attempt)
        if not commands.sent:
            return [result]
        mark = batch.mark if batch is not None and batch.id is not None and guessed else b""
        args = (version, mark, commands.version, *commands.sent)
        self._known.pop(session, None)
        applied, seconds, micro = await engine.script(attempt, _CHANGE, keys.all, args, lasts=lasts)
        self._tick(seconds, micro)
        if not applied:
            return []
        if commands.version:
            self._known[session] = replace(sight.state, version=commands.version)
            if len(self._known) > _KNOWN:
                self._known.popitem(last=False)
        if commands.news:
            engine.wakes.wake(keys.name)
        return [result]
