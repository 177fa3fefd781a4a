"""Our stores keep the contract that third parties are held to."""

import pytest

from backstory.stores import Durability, FilesStore, InMemoryStore
from backstory.stores.conformance import StoreContract


class TestInMemory(StoreContract):
    lasting = False

    @pytest.fixture
    async def make_store(self):
        return lambda clock: InMemoryStore(clock=clock)


class TestFiles(StoreContract):
    durability: Durability = "power"

    @pytest.fixture
    async def make_store(self, tmp_path):
        stores = []

        def make(clock):
            stores.append(FilesStore(tmp_path / "workspace", clock=clock, durability=self.durability))
            return stores[-1]

        yield make
        for store in stores:
            await store.close()


class TestFilesWithoutSync(TestFiles):
    durability = "process"
