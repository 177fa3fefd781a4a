"""PostgreSQL keeps the contract that every store is held to."""

import itertools

import pytest

from backstory.stores.conformance import StoreContract
from backstory.stores.postgres.store import PostgresStore

schemas = itertools.count(1)


class TestPostgres(StoreContract):
    @pytest.fixture
    async def make_store(self, postgres_server):
        stores = []
        schema = f'so "many" schémas %s {next(schemas)}'

        def make(clock):
            stores.append(PostgresStore(postgres_server.url(), schema=schema, clock=clock, max_size=4))
            return stores[-1]

        yield make
        for store in stores:
            await store.close()
