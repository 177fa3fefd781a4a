"""Hears news of sessions on a connection of its own, and comes back when that is lost."""

from __future__ import annotations

import asyncio
import logging
from abc import ABC, abstractmethod

from backstory.stores.remote.loops import end
from backstory.stores.remote.waking import Wakes

logger = logging.getLogger("backstory.stores")

SILENCE = 15.0
"""Seconds without news after which the connection is asked whether it is still there."""
_PAUSE = 1.0


class Listener(ABC):
    """Whatever is heard wakes those who wait in `wakes`. Made in the event loop that it listens in."""

    def __init__(self, wakes: Wakes) -> None:
        self.wakes = wakes
        self._listening = asyncio.Event()
        self._task = asyncio.get_running_loop().create_task(self._run())

    @abstractmethod
    async def listen(self) -> None:
        """Connect, call `heard`, and then wake whoever is concerned, until the connection is lost."""

    @abstractmethod
    async def let_go(self) -> None:
        """Close the connection, where there is one."""

    @abstractmethod
    def failures(self) -> tuple[type[Exception], ...]:
        """What `listen` raises when the connection is lost or cannot be had."""

    def heard(self) -> None:
        """From now on nothing is missed; what was before may have been."""
        self._listening.set()
        self.wakes.wake_all()

    async def ready(self) -> None:
        """Return once it listens; or at once where the server cannot be reached: then a slow look must do."""
        await self._listening.wait()

    async def _run(self) -> None:
        failures: tuple[type[Exception], ...] = (*self.failures(), OSError, TimeoutError)
        while True:
            try:
                await self.listen()
            except failures as error:
                logger.warning("no news from the server for now (%s); looking every few seconds", error)
            finally:
                self._listening.set()
                await self.let_go()
            await asyncio.sleep(_PAUSE)

    async def close(self) -> None:
        await end(self._task)
        self._listening.set()
