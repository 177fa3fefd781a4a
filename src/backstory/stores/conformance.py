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
reopen are skipped. Needs pytest and pytest-asyncio in auto mode, and is the only module that imports them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, ClassVar

import pytest

from backstory.errors import (
    HeadMoved,
    InvalidInput,
    LeaseHeld,
    MessageConflict,
    StaleLease,
    StoreDamaged,
    StoreUnavailable,
)
from backstory.messages import Message, Text, user
from backstory.records import NewRecord, Record, from_line, new_message
from backstory.stores.base import Store
from backstory.stores.clock import ManualClock
from backstory.stores.values import Head, Lease, LeaseRequest, NewEntry, Replacement, SessionId

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


class StoreContract:
    """Everything that `backstory.stores.base` promises and a test can see."""

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

    # --- appending

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

    # --- reading

    @pytest.mark.parametrize("newest_first", [False, True])
    async def test_pages_in_both_directions(self, store: Store, newest_first: bool) -> None:
        await self.fill(store, 50)
        everything = [f"r{place}" for place in range(1, 51)]
        found: list[str] = []
        after, before = 0, None
        while page := await store.read(S, after=after, before=before, limit=7, newest_first=newest_first):
            found += texts(page)
            if newest_first:
                before = page[-1].seq
            else:
                after = page[-1].seq
        assert found == (everything[::-1] if newest_first else everything)

    async def test_ranges(self, store: Store) -> None:
        await self.fill(store, 20)
        assert places(await store.read(S, after=5, before=9)) == [6, 7, 8]
        assert places(await store.read(S, after=5, before=9, newest_first=True)) == [8, 7, 6]
        assert places(await store.read(S, after=5, before=9, limit=2, newest_first=True)) == [8, 7]
        assert places(await store.read(S, after=18)) == [19, 20]
        assert places(await store.read(S, before=3)) == [1, 2]
        assert await store.read(S, after=20) == []
        assert await store.read(S, before=1) == []
        assert await store.read(S, after=9, before=9) == []
        assert await store.read(S, limit=0) == []
        assert places(await store.read(S, after=19, before=1_000)) == [20]

    async def test_ranges_of_a_long_log(self, store: Store) -> None:
        for start in range(0, 3000, 500):
            await store.append(S, [note("x" * 200 + str(start + place)) for place in range(500)])
        assert places(await store.read(S, after=1234, limit=3)) == [1235, 1236, 1237]
        assert places(await store.read(S, before=1234, limit=3, newest_first=True)) == [1233, 1232, 1231]
        assert places(await store.read(S, after=2998)) == [2999, 3000]
        assert len(await store.read(S, after=1, before=3000)) == 2998

    async def test_a_reopened_store_reads_the_same(self, store: Store, other: Store) -> None:
        await self.fill(store, 10)
        assert await other.read(S) == await store.read(S)
        assert await other.head(S) == await store.head(S)
        await other.append(S, [note("from the other")], expected=10)
        assert texts(await store.read(S, after=9)) == ["r10", "from the other"]
        assert (await store.head(S)).seq == 11
        await store.append(S, [note("back")], expected=11)
        assert texts(await other.read(S, newest_first=True, limit=2)) == ["back", "from the other"]

    # --- ids and scopes

    async def test_hostile_keys_stay_apart(self, store: Store) -> None:
        for key in HOSTILE:
            await store.append(SessionId(key=key), [note(key)], expected=0)
        for key in HOSTILE:
            assert texts(await store.read(SessionId(key=key))) == [key]
        listed = await store.sessions("default", limit=1000)
        assert sorted(info.session.key for info in listed.sessions) == sorted(HOSTILE)
        for key in HOSTILE:
            assert await store.delete(SessionId(key=key))
        assert (await store.sessions("default")).sessions == ()

    async def test_hostile_scopes_stay_apart(self, store: Store) -> None:
        for scope in HOSTILE:
            session = SessionId(scope=scope, key="same")
            await store.append(session, [note(scope)], expected=0)
            await store.post(session, NewEntry(kind="message", data={"of": scope}))
        for scope in HOSTILE:
            session = SessionId(scope=scope, key="same")
            assert texts(await store.read(session)) == [scope]
            assert [info.session for info in (await store.sessions(scope)).sessions] == [session]
            assert [entry.data["of"] for entry in await store.inbox(session)] == [scope]
        assert await store.scopes() == sorted(HOSTILE)

    async def test_no_id_leads_into_another_scope(self, store: Store) -> None:
        await store.append(SessionId(scope="a", key="b/c"), [note("a, b/c")])
        await store.append(SessionId(scope="a/b", key="c"), [note("a/b, c")])
        await store.append(SessionId(key="@a/b"), [note("default")])
        for scope, key in (
            ("a", "b"),
            ("a/b/c", "x"),
            ("default", "a"),
            ("default", "@a"),
            ("default", "a/b/c"),
        ):
            assert await store.read(SessionId(scope=scope, key=key)) == []

    def test_ids_that_are_none(self) -> None:
        for bad in ("", "x" * 8193, "🍵" * 2049):
            with pytest.raises(InvalidInput):
                SessionId(key=bad)
            with pytest.raises(InvalidInput):
                SessionId(scope=bad, key="k")

    # --- listing and deleting

    async def test_sessions_by_last_activity(self, store: Store, clock: ManualClock) -> None:
        for key in ("a", "b", "c", "d", "e"):
            clock.advance(1)
            await store.append(SessionId(key=key), [note(key)])
        clock.advance(1)
        await store.append(SessionId(key="b"), [note("again")])
        found: list[str] = []
        cursor = None
        for _ in range(9):
            page = await store.sessions("default", limit=2, cursor=cursor)
            found += [info.session.key for info in page.sessions]
            cursor = page.cursor
            if cursor is None:
                break
        assert found == ["b", "e", "d", "c", "a"]
        newest = (await store.sessions("default", limit=1)).sessions[0]
        assert newest.active == pytest.approx(clock.now(), abs=0.01)
        assert (await store.sessions("nobody")).sessions == ()
        with pytest.raises(InvalidInput):
            await store.sessions("default", cursor="no cursor")

    async def test_delete(self, store: Store) -> None:
        lease = (await store.append(S, [note("old")], acquire=LeaseRequest(owner="o", ttl=60))).lease
        assert lease is not None
        old = await store.head(S)
        await store.post(S, NewEntry(kind="message", data={"text": "secret"}))
        await store.put_draft(S, {"text": "secret"}, after=1, fence=lease.fence)
        with pytest.raises(LeaseHeld):
            await store.delete(S)
        assert await store.delete(S, fence=lease.fence)
        assert not await store.delete(S)
        assert await store.head(S) == Head()
        assert await store.inbox(S) == []
        assert await store.draft(S) is None
        assert (await store.sessions("default")).sessions == ()
        with pytest.raises(StaleLease):
            await store.append(S, [note("from the past")], fence=lease.fence)
        await store.append(S, [note("new")], expected=0)
        assert texts(await store.read(S)) == ["new"]
        assert (await store.head(S)).generation != old.generation
        fresh = await store.acquire(S, LeaseRequest(owner="p", ttl=60))
        assert fresh.fence > lease.fence

    async def test_a_session_that_vanished_is_not_made_anew_in_silence(
        self, store: Store, other: Store
    ) -> None:
        await store.append(S, [note("a")])
        await other.delete(S)
        with pytest.raises(HeadMoved):
            await store.append(S, [note("b")], expected=1)
        assert await store.head(S) == Head()

    # --- leases

    async def test_a_lease_is_one_holders(self, store: Store, clock: ManualClock) -> None:
        mine = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        assert await store.lease(S) == mine
        with pytest.raises(LeaseHeld) as held:
            await store.acquire(S, LeaseRequest(owner="you", ttl=10))
        assert held.value.owner == "me"
        assert held.value.expires_in == pytest.approx(10)
        with pytest.raises(LeaseHeld):
            await store.append(S, [note("without a lease")])
        await store.append(S, [note("mine")], fence=mine.fence)
        clock.advance(5)
        longer = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        assert longer.fence == mine.fence
        assert longer.expires == pytest.approx(clock.now() + 10)
        await store.release(longer)
        assert await store.lease(S) is None
        with pytest.raises(StaleLease):
            await store.append(S, [note("after it was given back")], fence=mine.fence)
        yours = await store.acquire(S, LeaseRequest(owner="you", ttl=10))
        assert yours.fence > mine.fence
        await store.release(mine)  # of no effect: it is no longer mine
        assert await store.lease(S) == yours

    async def test_a_dead_holder_is_taken_over(self, store: Store, clock: ManualClock) -> None:
        dead = await store.acquire(S, LeaseRequest(owner="dead", ttl=10))
        await store.append(S, [note("a")], fence=dead.fence)
        clock.advance(9.9)
        with pytest.raises(LeaseHeld):
            await store.acquire(S, LeaseRequest(owner="heir", ttl=10))
        clock.advance(0.2)
        assert await store.lease(S) is None
        await store.append(S, [note("late, but nobody took over")], fence=dead.fence)
        heir = (await store.append(S, [note("b")], acquire=LeaseRequest(owner="heir", ttl=10))).lease
        assert heir is not None
        assert heir.fence > dead.fence
        for refused in (
            store.append(S, [note("from the grave")], fence=dead.fence),
            store.renew(dead, 10),
            store.take(S, ["x"], fence=dead.fence),
            store.put_draft(S, {"text": "x"}, after=3, fence=dead.fence),
            store.delete(S, fence=dead.fence),
            store.rewrite(S, [], expected=3, fence=dead.fence),
        ):
            with pytest.raises(StaleLease):
                await refused
        assert texts(await store.read(S)) == ["a", "late, but nobody took over", "b"]

    async def test_a_lease_rides_in_first_and_last_batch(self, store: Store) -> None:
        first = await store.append(S, [note("first")], acquire=LeaseRequest(owner="me", ttl=10), batch="1")
        assert first.lease is not None
        fence = first.lease.fence
        assert await store.lease(S) == first.lease
        again = await store.append(S, [note("first")], acquire=LeaseRequest(owner="me", ttl=10), batch="1")
        assert again.repeated
        assert again.lease is not None
        assert again.lease.fence == fence
        await store.append(S, [note("last")], fence=fence, release=True, batch="2")
        assert await store.lease(S) is None
        assert (await store.append(S, [note("last")], fence=fence, release=True, batch="2")).repeated
        both = await store.append(S, [note("x")], acquire=LeaseRequest(owner="me", ttl=10), release=True)
        assert both.lease is not None
        assert both.lease.fence > fence
        assert await store.lease(S) is None

    async def test_a_refused_append_takes_no_lease(self, store: Store) -> None:
        await store.append(S, [note("a")])
        with pytest.raises(HeadMoved):
            await store.append(S, [note("b")], expected=0, acquire=LeaseRequest(owner="me", ttl=10))
        assert await store.lease(S) is None
        held = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        with pytest.raises(LeaseHeld):
            await store.append(S, [note("b")], acquire=LeaseRequest(owner="you", ttl=10))
        assert await store.lease(S) == held
        assert (await store.head(S)).seq == 1

    async def test_a_lease_may_be_taken_and_given_back_without_records(self, store: Store) -> None:
        done = await store.append(S, [], acquire=LeaseRequest(owner="me", ttl=10))
        assert done.lease is not None
        assert done.head == Head()
        await store.append(S, [], fence=done.lease.fence, release=True)
        assert await store.lease(S) is None

    async def test_renewing(self, store: Store, clock: ManualClock) -> None:
        lease = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        clock.advance(20)
        renewed = await store.renew(lease, 10)
        assert renewed.fence == lease.fence
        assert renewed.expires == pytest.approx(clock.now() + 10)
        assert await store.lease(S) == renewed

    async def test_leases_of_different_sessions(self, store: Store) -> None:
        scoped = SessionId(scope="other", key=S.key)
        mine = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        yours = await store.acquire(scoped, LeaseRequest(owner="you", ttl=10))
        assert (await store.lease(S), await store.lease(scoped)) == (mine, yours)

    async def test_a_lease_between_two_stores(self, store: Store, other: Store, clock: ManualClock) -> None:
        mine = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        assert await other.lease(S) == mine
        with pytest.raises(LeaseHeld):
            await other.acquire(S, LeaseRequest(owner="you", ttl=10))
        clock.advance(11)
        yours = await other.acquire(S, LeaseRequest(owner="you", ttl=10))
        with pytest.raises(StaleLease):
            await store.append(S, [note("late")], fence=mine.fence)
        await other.release(yours)
        assert (await store.acquire(S, LeaseRequest(owner="me", ttl=10))).fence > yours.fence

    # --- the inbox

    async def test_posts_wait_in_order(self, store: Store) -> None:
        lease = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        posted = [await store.post(S, NewEntry(kind="message", data={"n": number})) for number in range(5)]
        waiting = await store.inbox(S)
        assert waiting == [done.entry for done in posted]
        assert len({entry.id for entry in waiting}) == 5
        ends = [entry.position for entry in waiting]
        assert ends == sorted(set(ends))
        await store.take(S, [waiting[0].id, waiting[2].id, "unknown"], fence=lease.fence)
        assert [entry.data["n"] for entry in await store.inbox(S)] == [1, 3, 4]
        with pytest.raises(LeaseHeld):
            await store.take(S, [waiting[1].id])
        await store.take(S, [entry.id for entry in waiting], fence=lease.fence)
        assert await store.inbox(S) == []
        later = await store.post(S, NewEntry(kind="message", data={"n": 9}))
        assert later.entry.position > ends[-1]

    async def test_a_client_id_is_posted_once(self, store: Store) -> None:
        first = await store.post(S, NewEntry(kind="message", data={"text": "hi \ud800"}, id="m1"))
        again = await store.post(S, NewEntry(kind="message", data={"text": "hi \ud800"}, id="m1"))
        assert (first.repeated, again.repeated) == (False, True)
        assert again.entry == first.entry
        with pytest.raises(MessageConflict):
            await store.post(S, NewEntry(kind="message", data={"text": "other"}, id="m1"))
        with pytest.raises(InvalidInput):
            await store.post(S, NewEntry(kind="message", data={"x": object()}))
        assert len(await store.inbox(S)) == 1

    async def test_concurrent_posts(self, store: Store, make_store: MakeStore, clock: ManualClock) -> None:
        stores = [store, make_store(clock)] if self.lasting else [store]
        await asyncio.gather(
            *(
                one.post(S, NewEntry(kind="message", data={"n": number}, id=f"m{number}"))
                for one in stores
                for number in range(20)
            )
        )
        waiting = await store.inbox(S)
        assert sorted(entry.data["n"] for entry in waiting) == list(range(20))

    async def test_waiting_for_mail_and_for_the_lease(self, store: Store, clock: ManualClock) -> None:
        assert await store.wait(S, free=True, within=5)
        lease = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        assert not await store.wait(S, free=True, mail_after=0, within=0.05)
        for change in (
            lambda: store.post(S, NewEntry(kind="message")),
            lambda: store.release(lease),
        ):
            free = (await store.inbox(S)) != []
            waiting = asyncio.ensure_future(
                store.wait(S, free=free, mail_after=None if free else 0, within=20)
            )
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await change()
            assert await waiting
        (entry,) = await store.inbox(S)
        assert not await store.wait(S, mail_after=entry.position, within=0.02)
        await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        waiting = asyncio.ensure_future(store.wait(S, free=True, within=20))
        await asyncio.sleep(0.02)
        clock.advance(11)
        assert await waiting

    async def test_waiting_across_stores(self, store: Store, other: Store) -> None:
        waiting = asyncio.ensure_future(other.wait(S, mail_after=0, within=20))
        await asyncio.sleep(0.02)
        await store.post(S, NewEntry(kind="message"))
        assert await waiting

    # --- drafts and blobs

    async def test_drafts(self, store: Store) -> None:
        first = await store.append(S, [note("question")], acquire=LeaseRequest(owner="me", ttl=10))
        assert first.lease is not None
        fence = first.lease.fence
        await store.put_draft(S, {"text": "An ans"}, after=1, fence=fence)
        await store.put_draft(S, {"text": "An answer \ud800"}, after=1, fence=fence)
        draft = await store.draft(S)
        assert draft is not None
        assert (draft.after, draft.fence, draft.data) == (1, fence, {"text": "An answer \ud800"})
        await store.append(S, [note("An answer.")], fence=fence)
        assert await store.draft(S) is None
        await store.put_draft(S, {"text": "more"}, after=2, fence=fence)
        await store.put_draft(S, None, after=2, fence=fence)
        assert await store.draft(S) is None
        with pytest.raises(StaleLease):
            await store.put_draft(S, {"text": "x"}, after=2, fence=fence + 1)

    async def test_blobs(self, store: Store) -> None:
        data = bytes(range(256)) * 1000
        handle = await store.put_blob("default", data)
        assert await store.put_blob("default", data) == handle
        assert handle.startswith("sha256:")
        assert await store.get_blob("default", handle) == data
        empty = await store.put_blob("default", b"")
        assert await store.get_blob("default", empty) == b""
        for scope in ("other", "DEFAULT", "../default"):
            with pytest.raises(StoreDamaged):
                await store.get_blob(scope, handle)
        for bad in ("", "sha256:", "../../etc/passwd", "sha256:" + "0" * 63 + "/", handle.upper()):
            with pytest.raises(InvalidInput):
                await store.get_blob("default", bad)
        assert await store.delete_blob("default", handle)
        assert not await store.delete_blob("default", handle)
        with pytest.raises(StoreDamaged):
            await store.get_blob("default", handle)

    # --- rewriting

    async def test_rewrite_keeps_places(self, store: Store) -> None:
        await self.fill(store, 10)
        before = await store.head(S)
        kept = await store.read(S)
        after = await store.rewrite(
            S,
            [
                Replacement(first=8, last=8, record=NewRecord(kind="erased", data={"text": "gone"})),
                Replacement(first=1, last=5, record=NewRecord(kind="archived", data={"text": "cold"})),
            ],
            expected=10,
        )
        assert after.seq == before.seq
        assert after.generation > before.generation
        assert await store.head(S) == after
        records = await store.read(S)
        assert [(record.first, record.seq) for record in records] == [
            (1, 5),
            (6, 6),
            (7, 7),
            (8, 8),
            (9, 9),
            (10, 10),
        ]
        assert [record.kind for record in records] == ["archived", "meta", "meta", "erased", "meta", "meta"]
        assert [record for record in records if record.kind == "meta"] == [kept[5], kept[6], kept[8], kept[9]]
        assert places(await store.read(S, after=4, before=7)) == [5, 6]
        assert places(await store.read(S, after=5, limit=1)) == [6]
        assert (await store.append(S, [note("on")], expected=10)).head.seq == 11
        assert (await store.verify(S)).sound

    async def test_rewrite_of_the_last_record(self, store: Store) -> None:
        await self.fill(store, 6)
        erased = NewRecord(kind="erased", data={"text": "gone"})
        await store.rewrite(S, [Replacement(first=5, last=6, record=erased)], expected=6, purge=True)
        assert (await store.head(S)).seq == 6
        assert texts(await store.read(S)) == ["r1", "r2", "r3", "r4", "gone"]
        await store.append(S, [note("r7")], expected=6)
        wider = NewRecord(kind="archived", data={"text": "all"})
        await store.rewrite(S, [Replacement(first=1, last=7, record=wider)], expected=7)
        assert texts(await store.read(S)) == ["all"]
        assert (await store.append(S, [note("r8")])).head.seq == 8

    async def test_rewrite_refuses_what_makes_no_sense(self, store: Store) -> None:
        await self.fill(store, 6)
        record = NewRecord(kind="erased")
        await store.rewrite(S, [Replacement(first=2, last=4, record=record)], expected=6)
        before = await store.read(S)
        head = await store.head(S)
        for spans in ([(0, 1)], [(3, 2)], [(6, 7)], [(1, 5), (5, 6)], [(3, 5)], [(1, 3)], [(3, 3)]):
            with pytest.raises(InvalidInput):
                await store.rewrite(
                    S, [Replacement(first=a, last=b, record=record) for a, b in spans], expected=6
                )
        with pytest.raises(HeadMoved):
            await store.rewrite(S, [Replacement(first=1, last=1, record=record)], expected=5)
        assert await store.read(S) == before
        assert await store.head(S) == head

    async def test_rewrite_is_no_activity(self, store: Store, clock: ManualClock) -> None:
        for key in ("a", "b"):
            clock.advance(1)
            await store.append(SessionId(key=key), [note(key)])
        clock.advance(1)
        await store.rewrite(
            SessionId(key="a"), [Replacement(first=1, last=1, record=NewRecord(kind="erased"))], expected=1
        )
        listed = (await store.sessions("default")).sessions
        assert [info.session.key for info in listed] == ["b", "a"]

    async def test_a_rewrite_is_seen_by_others(self, store: Store, other: Store) -> None:
        await self.fill(store, 6)
        assert (await other.head(S)).seq == 6
        await store.rewrite(S, [Replacement(first=1, last=4, record=NewRecord(kind="erased"))], expected=6)
        assert await other.head(S) == await store.head(S)
        assert await other.read(S) == await store.read(S)
        await other.append(S, [note("r7")], expected=6)
        assert (await store.head(S)).seq == 7

    async def test_readers_never_see_a_rewrite_half_done(self, store: Store, other: Store) -> None:
        await self.fill(store, 30)
        done = asyncio.Event()

        async def rewrite() -> None:
            for number in range(1, 30):
                await store.rewrite(
                    S, [Replacement(first=1, last=number, record=NewRecord(kind="archived"))], expected=30
                )
            done.set()

        writing = asyncio.ensure_future(rewrite())
        looks = count()
        while not done.is_set():
            records = await other.read(S)
            ends = [0, *(record.seq for record in records)]
            assert [record.first - 1 for record in records] == ends[:-1]
            assert ends[-1] == 30
            assert (await other.head(S)).seq == 30
            next(looks)
        await writing
        assert next(looks) > 0

    # --- checks and closing

    async def test_a_sound_log_needs_no_repair(self, store: Store) -> None:
        await self.fill(store, 7)
        report = await store.verify(S)
        assert report.sound
        assert (report.records, report.head) == (7, await store.head(S))
        assert await store.repair(S) == report
        assert (await store.verify(SessionId(key="nobody"))).head == Head()

    async def test_a_closed_store_refuses(self, store: Store) -> None:
        await store.append(S, [note("a")])
        await store.close()
        await store.close()
        lease = Lease(session=S, owner="o", fence=1, expires=0)
        for refused in (
            store.append(S, [note("b")]),
            store.read(S),
            store.post(S, NewEntry(kind="message")),
            store.acquire(S, LeaseRequest(owner="o", ttl=1)),
            store.renew(lease, 1),
            store.sessions("default"),
            store.get_blob("default", "sha256:" + "0" * 64),
        ):
            with pytest.raises(StoreUnavailable):
                await refused

    async def test_sessions_do_not_wait_for_one_another(self, store: Store) -> None:
        sessions = [SessionId(key=f"s{number}") for number in range(40)]
        for _ in range(3):
            await asyncio.gather(*(store.append(one, [note(one.key)]) for one in sessions))
        for one in sessions:
            assert texts(await store.read(one)) == [one.key] * 3
