"""Hears of news by pub/sub (https://redis.io/docs/latest/develop/pubsub/)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from backstory.stores.remote.listening import SILENCE, Listener
from backstory.stores.remote.waking import Wakes


class RedisListener(Listener):
    """`connect` makes a client; sessions are named on `channel`."""

    def __init__(self, connect: Callable[[], Any], channel: str, wakes: Wakes) -> None:
        self._connect = connect
        self._channel = channel
        self._news: Any = None
        self.client: Any = None
        super().__init__(wakes)

    def failures(self) -> tuple[type[Exception], ...]:
        from redis.exceptions import RedisError

        return (RedisError,)

    async def listen(self) -> None:
        self.client = self._connect()
        self._news = self.client.pubsub()
        async with asyncio.timeout(SILENCE):
            await self._news.subscribe(self._channel)
            await self._news.get_message(timeout=SILENCE)
        self.heard()
        asked = False
        while True:
            message = await self._news.get_message(timeout=SILENCE)
            if message is None:
                if asked:
                    raise TimeoutError("the server is silent")
                await self._news.ping()
                asked = True
                continue
            asked = False
            if message["type"] == "message":
                self.wakes.wake(bytes(message["data"]).decode())

    async def let_go(self) -> None:
        if self._news is not None:
            await self._news.aclose()
            await self.client.connection_pool.disconnect()
