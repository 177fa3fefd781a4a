"""Leases and fences, on the store's own clock."""

from __future__ import annotations

import pytest

from backstory.errors import (
    HeadMoved,
    LeaseHeld,
    StaleLease,
)
from backstory.stores.base import Store
from backstory.stores.clock import ManualClock
from backstory.stores.conformance.given import Given, S, note, texts
from backstory.stores.values import Head, LeaseRequest, SessionId


class Leasing(Given):
    """See the module."""

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
