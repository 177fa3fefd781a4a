"""Redis keeps the contract that every store is held to."""

import itertools

import pytest

from backstory.stores.conformance import StoreContract
from backstory.stores.redis.store import RedisStore

prefixes = itertools.count(1)


class TestRedis(StoreContract):
    @pytest.fixture
    async def make_store(self, redis_server):
        stores = []
        prefix = f"many prefixes: *[{next(prefixes)}]"

        def make(clock):
            stores.append(RedisStore(redis_server.url(), prefix=prefix, clock=clock, max_size=4))
            return stores[-1]

        yield make
        for store in stores:
            await store.close()
