"""The way to the database: single statements, and transactions on one session, each with its retries."""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from backstory.stores.clock import Clock
from backstory.stores.postgres.engine import PostgresEngine, Settings
from backstory.stores.postgres.locked import Locked
from backstory.stores.postgres.schema import Statements
from backstory.stores.remote import naming
from backstory.stores.remote.clock import ServerClock
from backstory.stores.remote.loops import PerLoop
from backstory.stores.remote.places import shown
from backstory.stores.remote.retrying import Try, persist
from backstory.stores.values import SessionId

T = TypeVar("T")


class Database:
    """For `PostgresStore`, which see for the settings."""

    def __init__(
        self, settings: Settings, sql: Statements, *, injected: Clock | None, server: ServerClock
    ) -> None:
        self._settings = settings
        self._sql = sql
        self._injected = injected
        self._server = server
        self._place = shown(settings.url)
        self._engines = PerLoop(lambda: PostgresEngine(settings))

    def injected_now(self) -> float | None:
        """The time of an injected clock, which then stands for the database's."""
        return self._injected.now() if self._injected is not None else None

    def check_open(self) -> None:
        self._engines.check_open()

    async def engine(self) -> PostgresEngine:
        return await self._engines.get()

    async def close(self) -> None:
        await self._engines.close()

    async def _try(
        self, call: Callable[[PostgresEngine, Any, Try], Awaitable[T]], *, writes: SessionId | None = None
    ) -> T:
        """`call(engine, connection, try)`, again while the connection is at fault."""
        self._engines.check_open()

        async def attempt(attempt: Try) -> T:
            engine = await self._engines.get()
            async with contextlib.AsyncExitStack() as stack:
                if writes is not None:
                    await stack.enter_async_context(engine.turnstile.through(writes, attempt))
                conn = await stack.enter_async_context(engine.connection(attempt))
                return await call(engine, conn, attempt)

        return await persist(attempt, within=self._settings.timeout, place=self._place)

    async def fetch(self, statement: str, *parameters: Any) -> list[Any]:
        """The rows of one statement by itself."""

        async def call(engine: PostgresEngine, conn: Any, attempt: Try) -> list[Any]:
            cursor = await conn.execute(statement, parameters, binary=True)
            return list(await cursor.fetchall()) if cursor.description is not None else [cursor.rowcount]

        return await self._try(call)

    async def write(
        self,
        session: SessionId,
        change: Callable[[Locked, Try], Awaitable[Callable[[], Awaitable[T]]]],
        *,
        create: bool = False,
        batch: bytes | None = None,
        lightly: bool = False,
    ) -> T:
        """One transaction: `change` decides and sends, and what it returns reads the result after the commit."""
        name = naming.session_digest(session)

        async def call(engine: PostgresEngine, conn: Any, attempt: Try) -> T:
            locked = Locked(conn, self._sql, name)
            async with conn.pipeline():
                now = self.injected_now()
                await locked.begin(session, now=now, create=create, batch=batch, lightly=lightly)
                if now is None:
                    self._server.observe(locked.state.now)
                result = await change(locked, attempt)
                await locked.commit()
            done = await result()
            if locked.news:
                engine.wakes.wake(name.hex())
            return done

        return await self._try(call, writes=session)
