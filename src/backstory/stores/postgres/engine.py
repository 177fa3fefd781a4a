"""Connections to PostgreSQL: a pool and a listener an event loop, and what their failures mean.

The only modules that know psycopg are this one, `migrations` and `listener`. Every wait has an end: connecting and the
queue for a connection, statements and locks by the server's own time-outs, and whatever is left by closing the socket
under a call whose time is over, which also helps where packets vanish without a word.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

from backstory.errors import ConfigurationError, StoreDamaged, StoreError, StoreUnavailable
from backstory.stores.base import Durability
from backstory.stores.postgres.listener import PostgresListener
from backstory.stores.postgres.migrations import migrate
from backstory.stores.remote.retrying import Lost, Try
from backstory.stores.remote.turnstile import Turnstile
from backstory.stores.remote.waking import Wakes

_QUEUE_SLICE = 2.0
"""Seconds. The pool gives up connecting after so long, and tries again only for somebody who asks anew."""

# https://www.postgresql.org/docs/current/errcodes-appendix.html
_AGAIN = {
    "25006": "this server is read-only: a failover may be under way",
    "25P03": "the transaction stood idle for too long",
    "40001": "serialisation failed",
    "40P01": "deadlock",
    "53300": "too many connections",
    "57P01": "the server is shutting down",
    "57P02": "the server crashed",
    "57P03": "the server is starting",
    "57P05": "the session stood idle for too long",
}
_STATES = {"55P03": "a lock was not to be had in time", "57014": "the statement took too long"}


def require() -> None:
    """Raises `ConfigurationError` where the extra is not installed."""
    for package in ("psycopg", "psycopg_pool"):
        if find_spec(package) is None:
            raise ConfigurationError(
                f"the package {package!r} is not installed: pip install 'backstory[postgres]' adds it"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """How a store connects; see `PostgresStore`. Times are in seconds."""

    url: str
    schema: str
    durability: Durability
    min_size: int
    max_size: int
    timeout: float
    connect_timeout: float
    statement_timeout: float
    lock_timeout: float

    def options(self) -> dict[str, Any]:
        """What libpq is told beside the URL, which has the last word."""
        from psycopg.conninfo import conninfo_to_dict

        ours: dict[str, Any] = {
            "connect_timeout": max(2, round(self.connect_timeout)),  # libpq's least
            "application_name": "backstory",
            "keepalives_idle": 30,
            "keepalives_interval": 10,
            "keepalives_count": 3,
            "tcp_user_timeout": int(self.timeout * 1000),
        }
        told = conninfo_to_dict(self.url)
        return {name: value for name, value in ours.items() if name not in told}


class PostgresEngine:
    """What one event loop has: made unopened, see `remote.loops.Engine`."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.wakes = Wakes()
        self.turnstile = Turnstile()
        self._pool: Any = None
        self._listener: PostgresListener | None = None

    async def connect(self) -> Any:
        """A connection outside the pool. Raises `Lost` or a `StoreError`."""
        import psycopg

        try:
            async with asyncio.timeout(self.settings.connect_timeout + 1):
                conn = await psycopg.AsyncConnection.connect(
                    self.settings.url, autocommit=True, prepare_threshold=0, **self.settings.options()
                )
        except TimeoutError as error:
            raise Lost(f"no connection within {self.settings.connect_timeout:g} s") from error
        except psycopg.Error as error:
            raise understood(error, connecting=True) from error
        try:
            await self._configure(conn)
        except psycopg.Error as error:
            await conn.close()
            raise understood(error) from error
        except asyncio.CancelledError:  # nobody else knows of it yet
            await conn.close()
            raise
        return conn

    async def _configure(self, conn: Any) -> None:
        """Time-outs of the server's own, and nothing that weakens a commit which was asked to last."""
        commit = "off" if self.settings.durability == "process" else None
        await conn.execute(
            "SELECT set_config('statement_timeout', %s, false), set_config('lock_timeout', %s, false), "
            "set_config('idle_in_transaction_session_timeout', %s, false), set_config('synchronous_commit', "
            "coalesce(%s, CASE current_setting('synchronous_commit') WHEN 'off' THEN 'on' "
            "ELSE current_setting('synchronous_commit') END), false)",
            (
                f"{int(self.settings.statement_timeout * 1000)}ms",
                f"{int(self.settings.lock_timeout * 1000)}ms",
                f"{int(self.settings.timeout * 1000)}ms",
                commit,
            ),
            prepare=False,
        )

    async def open(self) -> None:
        """Connect once, so that what is wrong is said as it is; make or migrate the schema; open the pool."""
        from psycopg_pool import AsyncConnectionPool

        conn = await self.connect()
        watch = self._watch(conn, self.settings.timeout)
        try:
            await self._translated(migrate(conn, self.settings.schema), conn)
        finally:
            watch.cancel()
            await conn.close()
        self._pool = AsyncConnectionPool(
            self.settings.url,
            kwargs={"autocommit": True, "prepare_threshold": 0, **self.settings.options()},
            min_size=self.settings.min_size,
            max_size=self.settings.max_size,
            configure=self._configure,
            reconnect_timeout=_QUEUE_SLICE,
            open=False,
            name="backstory",
        )
        await self._pool.open()

    async def listen(self) -> None:
        """Have the news of sessions reach `wakes`. Returns once that is so."""
        if self._pool.closed:
            raise StoreUnavailable("the store was closed")
        if self._listener is None:
            self._listener = PostgresListener(self.connect, self.settings.schema, self.wakes)
        await self._listener.ready()

    @asynccontextmanager
    async def connection(self, attempt: Try) -> AsyncIterator[Any]:
        """A connection until the end of the try. Raises `Lost`, or the `StoreError` that a failure is."""
        from psycopg import Error
        from psycopg_pool import PoolClosed, PoolTimeout

        try:
            conn = await self._pool.getconn(timeout=min(attempt.left, _QUEUE_SLICE))
        except PoolTimeout as error:
            raise Lost("no connection was free, and none could be made") from error
        except PoolClosed as error:
            raise StoreUnavailable("the store was closed") from error
        watch = self._watch(conn, attempt.left)
        try:
            yield conn
        except Error as error:
            found = understood(error, broken=conn.closed)
            if isinstance(found, Lost):
                await conn.close()  # the pool makes another, perhaps to another server
            raise found from error
        finally:
            try:
                if not conn.closed:
                    with contextlib.suppress(Error):  # it is broken then, and the pool replaces it
                        await conn.rollback()
            finally:
                watch.cancel()
                await self._pool.putconn(conn)

    @staticmethod
    def _watch(conn: Any, seconds: float) -> asyncio.TimerHandle:
        return asyncio.get_running_loop().call_later(seconds, _cut, conn)

    @staticmethod
    async def _translated(call: Any, conn: Any) -> None:
        from psycopg import Error

        try:
            await call
        except Error as error:
            raise understood(error, broken=conn.closed) from error

    async def close(self) -> None:
        if self._pool is not None:
            await self._pool.close()
        if self._listener is not None:
            await self._listener.close()
            self._listener = None

    def abandon(self) -> None:
        if self._listener is not None:
            self._listener.abandon()
        if self._pool is not None:
            for conn in tuple(self._pool._pool):  # its loop is gone, so that nothing can be awaited on it
                conn.pgconn.finish()
            self._pool._pool.clear()


def _cut(conn: Any) -> None:
    """Close the connection's socket under whoever waits on it: they learn at once that it is lost."""
    with contextlib.suppress(OSError):
        found = socket.socket(fileno=socket.dup(conn.pgconn.socket))
        with contextlib.closing(found):
            found.shutdown(socket.SHUT_RDWR)


def understood(error: Any, *, broken: bool = False, connecting: bool = False) -> Lost | StoreError:
    """What a failure of psycopg's means: worth another try, or an error that the store's callers know."""
    state: str | None = error.sqlstate
    text = " ".join(str(error).split()) or type(error).__name__
    if state in _AGAIN:
        return Lost(f"{_AGAIN[state]}: {text}")
    if state in _STATES:
        return StoreUnavailable(f"{_STATES[state]}: {text}")
    if state is not None and state.startswith("XX00"):
        return StoreDamaged(f"the database is damaged: {text}")
    if state is None and connecting and not refused(text):
        return Lost(text)
    if (state is None and broken) or (state or "").startswith("08"):
        return Lost(text)
    return StoreUnavailable(f"the database refused: {text}")


def refused(text: str) -> bool:
    """Whether a failure to connect is a refusal that trying again will not change.

    psycopg gives no SQLSTATE for these (https://www.psycopg.org/psycopg3/docs/api/errors.html); libpq's own words are
    translated, the severity is not always.
    """
    return any(
        word in text
        for word in ("authentication failed", "no pg_hba.conf entry", "does not exist", "no password")
    )
