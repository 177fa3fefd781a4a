"""The time of a server, as its clients know it from what it last said."""

from __future__ import annotations

import asyncio
import time


class ServerClock:
    """A server's clock: each of its answers that holds the time sets it, and it runs on between them.

    Leases are decided by the time in the answer itself. This is for estimates: how long to sleep until a lease ends,
    and the stamps that people read. Before the first answer it is this machine's time.
    """

    def __init__(self) -> None:
        self._ahead = time.time() - time.monotonic()

    def observe(self, now: float) -> None:
        """The server said that it is `now` (seconds since 1970)."""
        self._ahead = now - time.monotonic()

    def now(self) -> float:
        return time.monotonic() + self._ahead

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(max(0.0, seconds))
