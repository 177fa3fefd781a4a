"""Hears of news by LISTEN (https://www.postgresql.org/docs/current/sql-listen.html)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from backstory.errors import StoreError
from backstory.stores.postgres.schema import channel
from backstory.stores.remote.listening import SILENCE, Listener
from backstory.stores.remote.retrying import Lost
from backstory.stores.remote.waking import Wakes


class PostgresListener(Listener):
    """`connect` opens a connection; sessions are named on the channel of `schema`."""

    def __init__(self, connect: Callable[[], Awaitable[Any]], schema: str, wakes: Wakes) -> None:
        self._connect = connect
        self._schema = schema
        self._conn: Any = None
        super().__init__(wakes)

    def failures(self) -> tuple[type[Exception], ...]:
        from psycopg import Error

        return (Error, Lost, StoreError)

    async def listen(self) -> None:
        conn = self._conn = await self._connect()
        async with asyncio.timeout(SILENCE):
            await conn.execute(f"LISTEN {channel(self._schema)}", prepare=False)
        self.heard()
        while True:
            async for news in conn.notifies(timeout=SILENCE):
                self.wakes.wake(news.payload)
            async with asyncio.timeout(SILENCE):
                await conn.execute("SELECT 1", prepare=False)

    async def let_go(self) -> None:
        conn, self._conn = self._conn, None
        if conn is not None:
            await conn.close()

    def abandon(self) -> None:
        if self._conn is not None:
            self._conn.pgconn.finish()
