"""The contract of a store as a pytest suite, for ours and for anybody's.

Derive one class, say how a store is made, and let pytest collect it::

    from backstory.stores.conformance import StoreContract

    class TestMyStore(StoreContract):
        @pytest.fixture
        async def make_store(self, tmp_path):
            stores = []
            def make(clock):                      # called again: another process's view of the same data
                stores.append(MyStore(tmp_path, clock=clock))
                return stores[-1]
            yield make
            for store in stores:
                await store.close()

`lasting` says whether a second store from `make_store` sees what the first one wrote; where it is false, the tests that
reopen are skipped. Needs pytest and pytest-asyncio in auto mode, and is the only package that imports them.
"""

from backstory.stores.conformance.contract import StoreContract
from backstory.stores.conformance.given import HOSTILE, MakeStore, S, note, places, texts

__all__ = ["HOSTILE", "MakeStore", "S", "StoreContract", "note", "places", "texts"]
