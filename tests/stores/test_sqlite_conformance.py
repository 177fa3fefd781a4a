"""The SQLite store keeps the contract, and so does the rule-based machine over it."""

import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from backstory.stores import Durability
from backstory.stores.conformance import StoreContract, note
from backstory.stores.sqlite import SqliteStore
from tests.stores.test_model import SESSIONS, StoreMachine, sessions, sizes


class TestSqlite(StoreContract):
    durability: Durability = "power"

    @pytest.fixture
    async def make_store(self, tmp_path):
        stores = []

        def make(clock):
            stores.append(SqliteStore(tmp_path / "chat.db", clock=clock, durability=self.durability))
            return stores[-1]

        yield make
        for store in stores:
            await store.close()


class TestSqliteWithoutSync(TestSqlite):
    durability = "process"


class SqliteMachine(StoreMachine):
    """A crash cuts SQLite's own log at any byte of a batch: nobody was told, so it must not be there."""

    def open(self):
        return SqliteStore(self.root / "chat.db", clock=self.clock, durability="process")

    @rule(index=sessions, size=sizes, data=st.data())
    def crash_in_an_append(self, index, size, data):
        model, names = self.models[index], self.fresh(size)
        wal = self.root / "chat.db-wal"
        before = wal.stat().st_size
        self.do(self.store.append(SESSIONS[index], [note(name) for name in names], **self.writer(model)))
        after = wal.read_bytes()
        end = data.draw(st.integers(before, len(after)))
        left = Path(tempfile.mkdtemp())  # what stands on the disk when the process has died
        shutil.copy(self.root / "chat.db", left)
        (left / "chat.db-wal").write_bytes(after[:end])
        for store in (self.store, self.other):
            self.do(store.close())
        shutil.rmtree(self.root)
        self.root = left
        if end == len(after):
            self.written(model, names)
            model.batch = None
        self.store, self.other = self.open(), self.open()


TestSqliteMachine = SqliteMachine.TestCase
TestSqliteMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
