"""Appends: whole, in order, durable, safe to repeat."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from backstory.errors import (
    HeadMoved,
    InvalidInput,
)
from backstory.messages import Message, Text, user
from backstory.records import NewRecord, from_line, new_message
from backstory.stores.base import Store
from backstory.stores.clock import ManualClock
from backstory.stores.conformance.given import Given, MakeStore, S, note, places, texts
from backstory.stores.values import Head, LeaseRequest, SessionId


class Appending(Given):
    """See the module."""

    async def test_a_session_that_is_not_there_is_empty(self, store: Store) -> None:
        assert await store.head(S) == Head()
        assert await store.read(S) == []
        assert await store.lease(S) is None
        assert await store.inbox(S) == []
        assert await store.draft(S) is None

    async def test_places_are_dense_from_one(self, store: Store) -> None:
        first = await store.append(S, [note("a")])
        second = await store.append(S, [note("b"), note("c")])
        assert places(list(first.records + second.records)) == [1, 2, 3]
        assert second.head.seq == (await store.head(S)).seq == 3
        assert await store.read(S) == [*first.records, *second.records]

    async def test_what_was_read_is_what_was_written(self, store: Store) -> None:
        message = Message(
            role="user", parts=(Text(text="grüße 茶 🍵 \u2028 \u2029 \x00 \x7f “q”\r\n"),), name="n"
        )
        done = await store.append(
            S, [new_message(message, turn=7, tokens={"o200k": 12}, message_id="m-1", lang="de")], batch="b"
        )
        (record,) = await store.read(S)
        assert record == done.records[0]
        assert record.message == message
        assert (record.turn, record.kind, record.tokens, record.message_id, record.batch) == (
            7,
            "message",
            {"o200k": 12},
            "m-1",
            "b",
        )
        assert record.data["lang"] == "de"
        assert from_line(record.line) == record

    async def test_a_lone_surrogate_survives(self, store: Store) -> None:
        await store.append(S, [new_message(user("half \ud83d of an emoji"))])
        (record,) = await store.read(S)
        assert record.message.text == "half \ud83d of an emoji"
        record.line.decode()

    async def test_a_record_of_ten_megabytes(self, store: Store) -> None:
        big = "長い" * 1_700_000
        await store.append(S, [note("before"), note(big), note("after")])
        assert texts(await store.read(S)) == ["before", big, "after"]
        assert texts(await store.read(S, newest_first=True)) == ["after", big, "before"]
        assert texts(await store.read(S, after=2)) == ["after"]

    async def test_what_json_cannot_hold_is_refused(self, store: Store) -> None:
        circle: dict[str, Any] = {}
        circle["again"] = circle
        for data in ({"x": float("nan")}, {"x": object()}, {"x": b"bytes"}, circle):
            with pytest.raises(InvalidInput):
                await store.append(S, [note("good"), NewRecord(kind="meta", data=data)])
        assert (await store.head(S)).seq == 0

    async def test_an_append_that_says_nothing_is_refused(self, store: Store) -> None:
        with pytest.raises(InvalidInput):
            await store.append(S, [])
        with pytest.raises(InvalidInput):
            await store.append(S, [note("a")], release=True)
        with pytest.raises(InvalidInput):
            await store.append(S, [note("a")], fence=1, acquire=LeaseRequest(owner="o", ttl=1))
        assert await store.head(S) == Head()

    async def test_expected_head(self, store: Store) -> None:
        with pytest.raises(HeadMoved) as gone:
            await store.append(S, [note("a")], expected=4)
        assert (gone.value.expected, gone.value.actual) == (4, 0)
        await store.append(S, [note("a")], expected=0)
        await store.append(S, [note("b")], expected=1)
        with pytest.raises(HeadMoved) as moved:
            await store.append(S, [note("c")], expected=1)
        assert (moved.value.expected, moved.value.actual) == (1, 2)
        with pytest.raises(HeadMoved):
            await store.append(S, [note("again new")], expected=0)
        assert texts(await store.read(S)) == ["a", "b"]

    async def test_a_batch_id_makes_a_retry_safe(self, store: Store) -> None:
        await store.append(S, [note("a")], batch="one")
        first = await store.append(S, [note("b"), note("c")], expected=1, batch="two")
        again = await store.append(S, [note("b"), note("c")], expected=1, batch="two")
        assert (first.repeated, again.repeated) == (False, True)
        assert again.records == first.records
        assert again.head == first.head
        unsure = await store.append(S, [note("a")], batch="one")
        assert unsure.repeated
        assert places(list(unsure.records)) == [1]
        assert texts(await store.read(S)) == ["a", "b", "c"]

    async def test_a_repeated_batch_is_found_behind_later_ones(self, store: Store) -> None:
        await store.append(S, [note("a")], expected=0, batch="one")
        for number in range(100):
            await store.append(S, [note(f"{number}")], batch=f"later {number}")
        assert (await store.append(S, [note("a")], expected=0, batch="one")).repeated
        assert (await store.append(S, [note("37")], batch="later 37")).repeated

    async def test_one_batch_id_names_one_batch(self, store: Store) -> None:
        await store.append(S, [note("a")], batch="one")
        with pytest.raises(InvalidInput):
            await store.append(S, [note("something else")], batch="one")
        with pytest.raises(InvalidInput):
            await store.append(S, [note("a"), note("b")], batch="one")
        other = SessionId(key="other")
        assert not (await store.append(other, [note("something else")], batch="one")).repeated

    async def test_concurrent_appends_to_one_session(self, store: Store, make_store: MakeStore) -> None:
        stores = [store]
        if self.lasting:
            stores += [make_store(ManualClock()) for _ in range(2)]
        await asyncio.gather(
            *(
                one.append(S, [note(f"{index}.{number}.{part}") for part in range(3)])
                for index, one in enumerate(stores)
                for number in range(20)
            )
        )
        records = await store.read(S)
        assert places(records) == list(range(1, 60 * len(stores) + 1))
        assert len(set(texts(records))) == len(records)
        for start in range(0, len(records), 3):  # batches are contiguous
            names = texts(records[start : start + 3])
            assert [name.rsplit(".", 1)[1] for name in names] == ["0", "1", "2"]
            assert len({name.rsplit(".", 1)[0] for name in names}) == 1

    async def test_one_of_many_that_expect_the_same_head_wins(self, store: Store) -> None:
        results = await asyncio.gather(
            *(store.append(S, [note(f"{number}")], expected=0) for number in range(20)),
            return_exceptions=True,
        )
        lost = [result for result in results if isinstance(result, BaseException)]
        assert len(lost) == 19
        assert all(isinstance(error, HeadMoved) for error in lost)
        assert (await store.head(S)).seq == 1

    async def test_a_cancelled_caller_does_not_cut_a_batch(self, store: Store) -> None:
        for number in range(10):
            task = asyncio.ensure_future(store.append(S, [note(f"{number}.{part}") for part in range(5)]))
            await asyncio.sleep(0)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await store.append(S, [note("end")])
        records = await store.read(S)
        assert len(records) % 5 == 1
        assert places(records) == list(range(1, len(records) + 1))
