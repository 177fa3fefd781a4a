"""The servers of `tests.servers`, one of each for the whole run."""

from tests.servers import postgres_server, redis_server
from tests.stores.kinds import kind, own

__all__ = ["kind", "own", "postgres_server", "redis_server"]
