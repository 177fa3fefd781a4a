"""The servers that migrations go to and from, one of each for the whole run."""

from tests.servers import postgres_server, redis_server

__all__ = ["postgres_server", "redis_server"]
