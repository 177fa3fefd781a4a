"""Reads: both directions, paged, the same after reopening; checks; and a store that was closed."""

from __future__ import annotations

import asyncio

import pytest

from backstory.errors import (
    StoreUnavailable,
)
from backstory.stores.base import Store
from backstory.stores.conformance.given import Given, S, note, places, texts
from backstory.stores.values import Head, Lease, LeaseRequest, NewEntry, SessionId


class Reading(Given):
    """See the module."""

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
