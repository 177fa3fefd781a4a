"""Hears of news by pub/sub, on one connection of its own, and comes back when that is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Any

from backstory.stores.remote.waking import Wakes

logger = logging.getLogger("backstory.stores")

_SILENCE = 15.0
"""Seconds without news after which the connection is asked whether it is still there."""
_PAUSE = 1.0


class Listener:
    """`connect` makes a client; whatever is heard on `channel` wakes those who wait in `wakes`."""

    def __init__(self, connect: Callable[[], Any], channel: str, wakes: Wakes) -> None:
        self._connect = connect
        self._channel = channel
        self._wakes = wakes
        self._listening = asyncio.Event()
        self.client: Any = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def ready(self) -> None:
        """Return once it listens; or at once where the server cannot be reached: then a slow look must do."""
        while not (self._listening.is_set() or self._task.done()):
            await self._listening.wait()

    async def _run(self) -> None:
        from redis.exceptions import RedisError

        while True:
            self.client = self._connect()
            news = self.client.pubsub()
            try:
                async with asyncio.timeout(_SILENCE):
                    await news.subscribe(self._channel)
                    await news.get_message(timeout=_SILENCE)
                self._listening.set()
                self._wakes.wake_all()
                await self._hear(news)
            except (RedisError, OSError, TimeoutError) as error:
                logger.warning("no news from Redis for now (%s); looking every few seconds", error)
            finally:
                self._listening.set()
                await news.aclose()
                await self.client.connection_pool.disconnect()
            await asyncio.sleep(_PAUSE)

    async def _hear(self, news: Any) -> None:
        asked = False
        while True:
            message = await news.get_message(timeout=_SILENCE)
            if message is None:
                if asked:
                    raise TimeoutError("the server is silent")
                await news.ping()
                asked = True
                continue
            asked = False
            if message["type"] == "message":
                self._wakes.wake(bytes(message["data"]).decode())

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])
