"""One set of connections an event loop: sockets belong to the loop that opened them, a store may be called from any."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from backstory.errors import StoreUnavailable


class Engine(Protocol):
    """The connections of one loop."""

    async def open(self) -> None:
        """Called once, in the loop, before anything else; again where it raised."""
        ...

    async def close(self) -> None: ...

    def abandon(self) -> None:
        """Close what can be closed without the loop, which has ended."""
        ...


E = TypeVar("E", bound=Engine)


class PerLoop(Generic[E]):
    """Makes an engine for each loop that asks, and lets go of those whose loop was closed."""

    def __init__(self, make: Callable[[], E]) -> None:
        self._make = make
        self._engines: dict[asyncio.AbstractEventLoop, tuple[E, asyncio.Lock]] = {}
        self._ready: dict[asyncio.AbstractEventLoop, E] = {}
        self._lock = threading.Lock()
        self._closed = False

    def check_open(self) -> None:
        """Raises `StoreUnavailable` once the store was closed."""
        if self._closed:
            raise StoreUnavailable("the store was closed")

    async def get(self) -> E:
        """The running loop's engine, opened."""
        self.check_open()
        loop = asyncio.get_running_loop()
        ready = self._ready.get(loop)
        if ready is not None:
            return ready
        with self._lock:
            for other in [other for other in self._engines if other.is_closed()]:
                self._engines.pop(other)[0].abandon()
                self._ready.pop(other, None)
            if loop not in self._engines:
                self._engines[loop] = (self._make(), asyncio.Lock())
            engine, opening = self._engines[loop]
        async with opening:
            if loop not in self._ready:
                await engine.open()
                if self._closed:
                    await engine.close()
                self.check_open()
                self._ready[loop] = engine
        return engine

    async def close(self) -> None:
        """Close every engine, in its own loop where that still runs. Nothing is left behind."""
        with self._lock:
            self._closed = True
            engines, self._engines = self._engines, {}
            self._ready = {}
        here = asyncio.get_running_loop()
        for loop, (engine, _) in engines.items():
            if loop is here:
                await engine.close()
            elif loop.is_running():
                await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(engine.close(), loop))
            else:
                engine.abandon()


_AGAIN_AFTER = 0.2


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task that runs for ever, and return once it has ended.

    One cancellation may be lost: until Python 3.12 `asyncio.wait_for`, which drivers use, returns the result that came
    at that very moment (https://github.com/python/cpython/issues/86296).
    """
    while not task.done():
        task.cancel()
        await asyncio.wait([task], timeout=_AGAIN_AFTER)
