"""Waiting for news of a session: woken by the server's notification, with a slow look in case one was lost."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from backstory.stores.clock import Clock

SLOW_LOOK = 5.0
"""Seconds between two looks without any news: notifications are lost with their connection, and only then."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Seen:
    """What a look found: whether the wait is over, and the seconds until a lease in the way expires."""

    done: bool
    expires_in: float | None = None


class Wakes:
    """Who waits for which session, within one event loop. `name` is whatever the server's notifications carry."""

    def __init__(self) -> None:
        self._waiting: dict[str, set[asyncio.Event]] = {}

    def wake(self, name: str) -> None:
        for event in self._waiting.get(name, ()):
            event.set()

    def wake_all(self) -> None:
        """The connection was new, or is gone: anything may have happened meanwhile."""
        for name in self._waiting:
            self.wake(name)

    async def wait(
        self,
        name: str,
        look: Callable[[], Awaitable[Seen]],
        *,
        clock: Clock,
        within: float,
        look_every: float = SLOW_LOOK,
    ) -> bool:
        """True once `look` says so, false after `within` seconds. Looks when there is news, and rarely otherwise."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        event = asyncio.Event()
        self._waiting.setdefault(name, set()).add(event)
        try:
            while True:
                event.clear()
                seen = await look()
                if seen.done:
                    return True
                left = deadline - loop.time()
                if left <= 0:
                    return False
                await _first(event, clock, seen.expires_in, min(left, look_every))
        finally:
            waiters = self._waiting[name]
            waiters.discard(event)
            if not waiters:
                del self._waiting[name]


async def _first(event: asyncio.Event, clock: Clock, expires_in: float | None, within: float) -> None:
    """Return at the event, when `expires_in` has passed on the clock, or after `within` seconds."""
    if expires_in is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                await event.wait()
        return
    waits = [asyncio.ensure_future(event.wait()), asyncio.ensure_future(clock.sleep(expires_in))]
    try:
        await asyncio.wait(waits, timeout=within, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for waiting in waits:
            waiting.cancel()
