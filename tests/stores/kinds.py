"""The stores behind a connection, in one shape for tests of what connections do."""

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from backstory.stores import Store
from backstory.stores.postgres.store import PostgresStore
from backstory.stores.redis.store import RedisStore
from tests.servers import PostgresServer, RedisServer, running_postgres, running_redis

names = itertools.count(1)


@dataclass
class Kind:
    """One kind of store: its server, and how a store over it is made. `quick` are time-outs of a second or so."""

    server: Any
    make: Callable[..., Store]
    prefix: str

    def store(self, port: int | None = None, **options: Any) -> Store:
        return self.make(self.server.url(port), self.prefix, **options)


def postgres(url: str, prefix: str, *, quick: bool = False, **options: Any) -> Store:
    times = {"timeout": 2.0, "connect_timeout": 1.0} if quick else {}
    return PostgresStore(url, schema=prefix, **{**times, **options})


def redis(url: str, prefix: str, *, quick: bool = False, **options: Any) -> Store:
    times = {"timeout": 2.0, "connect_timeout": 1.0, "command_timeout": 1.0} if quick else {}
    return RedisStore(url, prefix=prefix, **{**times, **options})


MAKERS: dict[str, tuple[Callable[..., Store], Callable[[], Any]]] = {
    "postgres": (postgres, running_postgres),
    "redis": (redis, running_redis),
}


def connections(server: PostgresServer | RedisServer) -> int:
    """How many clients the server has, the one that asks not counted."""
    if isinstance(server, PostgresServer):
        import psycopg

        with psycopg.connect(server.url()) as conn:
            row = conn.execute(
                "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' "
                "AND pid <> pg_backend_pid()"
            ).fetchone()
            assert row is not None
            return int(row[0])
    from redis import Redis

    with Redis.from_url(server.url()) as client:
        return len(client.client_list()) - 1


def clients(server: PostgresServer | RedisServer) -> list[Any]:
    """Who they are, for whoever has to find out where one comes from."""
    if isinstance(server, PostgresServer):
        import psycopg

        with psycopg.connect(server.url()) as conn:
            return conn.execute(
                "SELECT application_name, state, backend_start, state_change, query FROM pg_stat_activity "
                "WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()"
            ).fetchall()
    from redis import Redis

    with Redis.from_url(server.url()) as client:
        return list(client.client_list())


@pytest.fixture(params=list(MAKERS))
def kind(request: pytest.FixtureRequest) -> Kind:
    server = request.getfixturevalue(f"{request.param}_server")
    return Kind(server=server, make=MAKERS[request.param][0], prefix=f"faults{next(names)}")


@pytest.fixture(params=list(MAKERS))
def own(request: pytest.FixtureRequest) -> Iterator[Kind]:
    """The same with a server of the test's own, which it may stop."""
    make, running = MAKERS[request.param]
    with running() as server:
        yield Kind(server=server, make=make, prefix="own")
