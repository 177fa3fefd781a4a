"""Hears of news by LISTEN, on one connection of its own, and comes back when that is lost."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

from backstory.errors import StoreError
from backstory.stores.postgres.schema import channel
from backstory.stores.remote.retrying import Lost
from backstory.stores.remote.waking import Wakes

logger = logging.getLogger("backstory.stores")

_SILENCE = 15.0
"""Seconds without news after which the connection is asked whether it is still there."""
_PAUSE = 1.0


class Listener:
    """`connect` opens a connection; whatever is heard wakes those who wait in `wakes`."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], schema: str, wakes: Wakes) -> None:
        self._connect = connect
        self._schema = schema
        self._wakes = wakes
        self._listening = asyncio.Event()
        self._conn: Any = None
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def ready(self) -> None:
        """Return once it listens; or at once where the server cannot be reached: then a slow look must do."""
        while not (self._listening.is_set() or self._task.done()):
            await self._listening.wait()

    async def _run(self) -> None:
        from psycopg import Error

        while True:
            try:
                self._conn = await self._connect()
                async with asyncio.timeout(_SILENCE):
                    await self._conn.execute(f"LISTEN {channel(self._schema)}", prepare=False)
                self._listening.set()
                self._wakes.wake_all()
                await self._hear(self._conn)
            except (Error, Lost, StoreError, TimeoutError) as error:
                logger.warning("no news from the database for now (%s); looking every few seconds", error)
            finally:
                self._listening.set()
                if self._conn is not None:
                    await self._conn.close()
                    self._conn = None
            await asyncio.sleep(_PAUSE)

    async def _hear(self, conn: Any) -> None:
        while True:
            async for news in conn.notifies(timeout=_SILENCE):
                self._wakes.wake(news.payload)
            async with asyncio.timeout(_SILENCE):
                await conn.execute("SELECT 1", prepare=False)

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task])

    def abandon(self) -> None:
        if self._conn is not None:
            self._conn.pgconn.finish()
