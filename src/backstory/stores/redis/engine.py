"""Connections to Redis: a pool and a listener an event loop, and what their failures mean.

The only modules that know redis-py are this one and `listener`. Its own retries are off: only the store knows what is
safe to repeat.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from backstory.errors import ConfigurationError, NewerFormat, StoreError, StoreUnavailable
from backstory.stores.base import Durability
from backstory.stores.redis.keys import Keys
from backstory.stores.redis.listener import RedisListener
from backstory.stores.redis.persistence import Persistence, persistence
from backstory.stores.remote.retrying import Lost, Try
from backstory.stores.remote.turnstile import Turnstile
from backstory.stores.remote.waking import Wakes

logger = logging.getLogger("backstory.stores")

FORMAT = 1
"""Of the keys and what they hold."""


def require() -> None:
    """Raises `ConfigurationError` where the extra is not installed."""
    if find_spec("redis") is None:
        raise ConfigurationError(
            "the package 'redis' is not installed: pip install 'backstory[redis]' adds it"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How a store connects; see `RedisStore`. Times are in seconds."""

    url: str
    keys: Keys
    durability: Durability
    max_size: int
    timeout: float
    connect_timeout: float
    command_timeout: float


class RedisEngine:
    """What one event loop has: made unopened, see `remote.loops.Engine`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.wakes = Wakes()
        self.persistence = Persistence()
        self.turnstile = Turnstile()
        self._client: Any = None
        self._under_way: set[asyncio.Timeout] = set()
        self._quiet = asyncio.Event()
        self._listener: RedisListener | None = None

    def client(self, size: int) -> Any:
        """A client with a pool of its own."""
        from redis.asyncio import BlockingConnectionPool, Redis
        from redis.asyncio.retry import Retry
        from redis.backoff import NoBackoff

        settings = self.settings
        try:
            pool = BlockingConnectionPool.from_url(
                settings.url,
                max_connections=size,
                timeout=settings.timeout,
                socket_timeout=settings.command_timeout,
                socket_connect_timeout=settings.connect_timeout,
                retry=Retry(NoBackoff(), 0),
                client_name="backstory",
            )
        except ValueError as error:
            raise ConfigurationError(f"not a URL of Redis ({error})") from error
        return Redis.from_pool(pool)

    async def open(self) -> None:
        """Look at the server once: what its settings mean for durability, and whether we know the format."""
        if self._client is None:
            self._client = self.client(self.settings.max_size)
        attempt = Try(number=0, deadline=asyncio.get_running_loop().time() + self.settings.timeout)
        async with self._understood(attempt) as client:
            self.persistence = await persistence(client, self.settings.durability)
            found = await client.get(self.settings.keys.format)
            if found is None:
                await client.set(self.settings.keys.format, FORMAT, nx=True)
            elif int(found) > FORMAT:
                raise NewerFormat(
                    f"the keys under {self.settings.keys.prefix!r} are of format {int(found)}, "
                    f"and this Backstory knows {FORMAT}: it must not touch them"
                )
        for warning in self.persistence.warnings:
            logger.warning("Redis: %s", warning)

    async def listen(self) -> None:
        """Have the news of sessions reach `wakes`. Returns once that is so."""
        if self._client is None:
            raise StoreUnavailable("the store was closed")
        if self._listener is None:
            self._listener = RedisListener(lambda: self.client(1), self.settings.keys.news, self.wakes)
        await self._listener.ready()

    async def command(self, attempt: Try, *parts: Any) -> Any:
        """The server's answer to one command. Raises `Lost`, or the `StoreError` that a failure is."""
        async with self._understood(attempt) as client:
            return await client.execute_command(*parts)

    async def commands(self, attempt: Try, *each: tuple[Any, ...]) -> list[Any]:
        """The answers to several commands, in one round trip; others may come in between."""
        async with self._understood(attempt) as client, client.pipeline(transaction=False) as pipe:
            for parts in each:
                pipe.execute_command(*parts)
            return list(await pipe.execute())

    async def script(
        self, attempt: Try, script: tuple[str, str], keys: Sequence[str], args: Sequence[Any], *, lasts: bool
    ) -> Any:
        """Run a script by its digest, or whole where the server has not seen it. `lasts`: see `write`."""
        digest, source = script

        async def call(client: Any) -> Any:
            from redis.exceptions import NoScriptError

            try:
                return await client.evalsha(digest, len(keys), *keys, *args)
            except NoScriptError:
                return await client.eval(source, len(keys), *keys, *args)

        return await self.write(attempt, call, lasts=lasts)

    async def write(self, attempt: Try, call: Any, *, lasts: bool = True) -> Any:
        """`call(client)`, and where it `lasts` and the server only syncs every second, wait until it has.

        WAITAOF (Redis 7.2) speaks of what its own connection wrote, so both go over one.
        https://redis.io/docs/latest/commands/waitaof/
        """
        async with self._understood(attempt) as client:
            if not (lasts and self.persistence.waits):
                return await call(client)
            async with client.client() as one:
                done = await call(one)
                within = max(1, int(min(attempt.left, self.settings.command_timeout * 0.9) * 1000))
                local, _ = await one.execute_command("WAITAOF", 1, 0, within)
                if local < 1:
                    raise Lost("written, and not on the server's disk in time")
                return done

    @asynccontextmanager
    async def _understood(self, attempt: Try) -> AsyncIterator[Any]:
        """The client, for a call that ends in time. Its errors become `Lost` or a `StoreError`."""
        from redis.exceptions import RedisError

        client = self._client
        if client is None:
            raise StoreUnavailable("the store was closed")
        try:
            async with asyncio.timeout(attempt.left) as ends:
                self._under_way.add(ends)
                try:
                    yield client
                finally:
                    self._under_way.discard(ends)
        except TimeoutError as error:
            raise Lost("no answer in time") from error
        except OSError as error:
            raise Lost(str(error)) from error
        except RedisError as error:
            raise understood(error) from error
        finally:
            if not self._under_way:
                self._quiet.set()

    async def close(self) -> None:
        """End the calls under way, each by its own time-out: redis-py does not expect to be disconnected under one."""
        client, self._client = self._client, None
        if self._listener is not None:
            await self._listener.close()
            self._listener = None
        if client is not None:
            now = asyncio.get_running_loop().time()
            for ends in self._under_way:
                if not ends.expired():
                    ends.reschedule(now)
            while self._under_way:
                self._quiet.clear()
                await self._quiet.wait()
            await client.connection_pool.disconnect()

    def abandon(self) -> None:
        for client in (self._client, self._listener.client if self._listener is not None else None):
            if client is not None:
                pool = client.connection_pool
                for connection in (*pool._available_connections, *pool._in_use_connections):
                    _abandon(connection)
        self._client = None


def _abandon(connection: Any) -> None:
    """Close the socket of a connection whose event loop is gone, so that nothing can be awaited on it."""
    writer, connection._writer, connection._reader = connection._writer, None, None
    if writer is None:
        return
    transport = writer.transport
    found = transport.get_extra_info("socket")
    with contextlib.suppress(RuntimeError):  # the loop says that it is closed, after it has let go
        transport.abort()
    if found is not None and getattr(transport, "_sock", None) is not None:
        transport._sock.close()
        transport._sock = None


def understood(error: Any) -> Lost | StoreError:
    """What a failure of redis-py's means: worth another try, or an error that the store's callers know."""
    from redis import exceptions

    text = " ".join(str(error).split()) or type(error).__name__
    refused = (exceptions.AuthenticationError, exceptions.AuthorizationError, exceptions.NoPermissionError)
    if isinstance(error, refused):
        return StoreUnavailable(f"Redis refused: {text}")
    again = (
        exceptions.ConnectionError,  # also while it loads, and where no connection was free
        exceptions.TimeoutError,
        exceptions.ReadOnlyError,  # a failover: this one is a replica now
        exceptions.MasterDownError,
        exceptions.ClusterDownError,
        exceptions.TryAgainError,
    )
    if isinstance(error, again):
        return Lost(text)
    if "CROSSSLOT" in text or "MOVED" in text:
        return StoreUnavailable(f"this is a node of a Redis Cluster, which is not supported yet: {text}")
    return StoreUnavailable(f"Redis refused: {text}")
