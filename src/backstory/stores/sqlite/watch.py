"""Waiting for a session to be free, or for mail: woken at once within the process, by a cheap look across processes.

``PRAGMA data_version`` changes with each commit of another connection
(https://www.sqlite.org/pragma.html#pragma_data_version). One look serves all that wait.
"""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import suppress

from backstory.stores.clock import Clock
from backstory.stores.sqlite.reader import Reader
from backstory.stores.values import Entry, Lease, SessionId

_POLL = 0.05
"""Seconds between two looks at what only another process can have changed."""


class Watch:
    """Who waits for which session."""

    def __init__(self, reader: Reader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._waiting: dict[SessionId, set[tuple[asyncio.AbstractEventLoop, asyncio.Event]]] = {}
        self._seen = (0.0, -1)

    def wake(self, session: SessionId) -> None:
        """Somebody in this process changed it."""
        for loop, event in tuple(self._waiting.get(session, ())):
            with suppress(RuntimeError):  # that event loop is closed
                loop.call_soon_threadsafe(event.set)

    async def wait(
        self,
        session: SessionId,
        lease: Callable[[], Awaitable[Lease | None]],
        inbox: Callable[[], Awaitable[list[Entry]]],
        *,
        free: bool,
        mail_after: int | None,
        within: float,
    ) -> bool:
        """See `Inboxes.wait`; `lease` and `inbox` look at the session."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + within
        waiter = (loop, asyncio.Event())
        self._waiting.setdefault(session, set()).add(waiter)
        try:
            while True:
                waiter[1].clear()
                version = await self._version(loop.time())
                held = await lease() if free else None
                if free and held is None:
                    return True
                if mail_after is not None and any(entry.position > mail_after for entry in await inbox()):
                    return True
                while True:
                    left = deadline - loop.time()
                    if left <= 0:
                        return False
                    if await _within(min(left, _POLL), waiter[1]):
                        break
                    if held is not None and held.expires <= self._clock.now():
                        break
                    if await self._version(loop.time()) != version:
                        break
        finally:
            waiters = self._waiting[session]
            waiters.discard(waiter)
            if not waiters:
                del self._waiting[session]

    async def _version(self, now: float) -> int:
        """Changes with every commit; looked up once for all that ask within half a poll."""
        if now - self._seen[0] > _POLL / 2 or now < self._seen[0]:
            self._seen = (now, await self._reader.do("", _data_version))
        return self._seen[1]


def _data_version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


async def _within(seconds: float, event: asyncio.Event) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
            return True
    return False
