"""What every part of the contract is given: a clock, a store, a second one, and ids that mean harm."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, ClassVar

import pytest

from backstory.records import NewRecord, Record
from backstory.stores.base import Store
from backstory.stores.clock import ManualClock
from backstory.stores.values import SessionId

MakeStore = Callable[[ManualClock], Store]

S = SessionId(key="telegram:12345")

HOSTILE = [
    "../../outside",
    "/abs/x",
    "a/b",
    "..",
    ".",
    "a\0b",
    "C:\\x",
    "con",
    "CON",
    "con.txt",
    "a" * 500,
    "\0" * 8192,
    "b" * 499 + "1",
    "b" * 499 + "2",
    "🍵" * 500,
    "Alice",
    "alice",
    "ALICE",
    "trailing.",
    "trailing",
    "trailing ",
    " leading",
    "-rf",
    "%2e%2e",
    "a:b",
    "a=b",
    "a+b",
    "a~b",
    "@default",
    "x.jsonl",
    "x",
    "é",
    "e\u0301",
    "小张:微信",
    "\ud800",
    "line\nbreak",
    "*?<>|\"'`$;&",
    "default",
]


def note(text: str, **data: Any) -> NewRecord:
    """A small record."""
    return NewRecord(kind="meta", data={"text": text, **data})


def texts(records: list[Record]) -> list[str]:
    return [record.data["text"] for record in records]


def places(records: list[Record]) -> list[int]:
    return [record.seq for record in records]


class Given:
    """Fixtures. Derived classes say how a store is made."""

    lasting: ClassVar[bool] = True

    @pytest.fixture
    def make_store(self) -> Iterator[MakeStore]:
        raise NotImplementedError("say how a store is made: see the module's docstring")

    @pytest.fixture
    def clock(self) -> ManualClock:
        return ManualClock()

    @pytest.fixture
    async def store(self, make_store: MakeStore, clock: ManualClock) -> Store:
        return make_store(clock)

    @pytest.fixture
    async def other(self, store: Store, make_store: MakeStore, clock: ManualClock) -> Store:
        """A second store over the same data, as another process has it."""
        if not self.lasting:
            pytest.skip("this store lives in one object")
        return make_store(clock)

    async def fill(self, store: Store, number: int, session: SessionId = S, *, size: int = 3) -> None:
        """`number` records in batches of `size`."""
        for start in range(1, number + 1, size):
            batch = [note(f"r{place}") for place in range(start, min(start + size, number + 1))]
            await store.append(session, batch)
