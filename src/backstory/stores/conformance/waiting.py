"""What waits beside the log: the inbox, drafts, blobs."""

from __future__ import annotations

import asyncio

import pytest

from backstory.errors import (
    InvalidInput,
    LeaseHeld,
    MessageConflict,
    StaleLease,
    StoreDamaged,
)
from backstory.stores.base import Store
from backstory.stores.clock import ManualClock
from backstory.stores.conformance.given import Given, MakeStore, S, note
from backstory.stores.values import LeaseRequest, NewEntry


class Waiting(Given):
    """See the module."""

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
        assert await store.wait(S, free=True, within=60)
        lease = await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        assert not await store.wait(S, free=True, mail_after=0, within=0.05)
        for change in (
            lambda: store.post(S, NewEntry(kind="message")),
            lambda: store.release(lease),
        ):
            free = (await store.inbox(S)) != []
            waiting = asyncio.ensure_future(
                store.wait(S, free=free, mail_after=None if free else 0, within=60)
            )
            await asyncio.sleep(0.02)
            assert not waiting.done()
            await change()
            assert await waiting
        (entry,) = await store.inbox(S)
        assert not await store.wait(S, mail_after=entry.position, within=0.02)
        await store.acquire(S, LeaseRequest(owner="me", ttl=10))
        waiting = asyncio.ensure_future(store.wait(S, free=True, within=60))
        await asyncio.sleep(0.02)
        clock.advance(11)
        assert await waiting

    async def test_waiting_across_stores(self, store: Store, other: Store) -> None:
        waiting = asyncio.ensure_future(other.wait(S, mail_after=0, within=60))
        await asyncio.sleep(0.02)
        await store.post(S, NewEntry(kind="message"))
        assert await waiting

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

    async def test_blobs_are_told_by_their_age(self, store: Store, clock: ManualClock) -> None:
        first = clock.now()
        old, renewed, other = [
            await store.put_blob("default", data) for data in (b"old", b"renewed", b"other")
        ]
        elsewhere = await store.put_blob("a/b \U0001f375", b"old")
        assert elsewhere == old
        clock.advance(100.0)
        middle = clock.now()
        clock.advance(1.0)
        assert await store.put_blob("default", b"renewed") == renewed
        assert await store.put_blob("default", b"young") not in (old, renewed, other)
        assert await store.old_blobs("default", before=first) == []
        assert await store.old_blobs("default", before=middle) == sorted([old, other])
        assert await store.old_blobs("default", before=middle, limit=1) == [min(old, other)]
        assert await store.old_blobs("default", before=middle, after=min(old, other)) == [max(old, other)]
        assert len(await store.old_blobs("default", before=clock.now() + 1.0)) == 4
        assert await store.blob_scopes() == ["a/b \U0001f375", "default"]
        assert not await store.delete_blob("default", renewed, before=middle)
        assert await store.delete_blob("default", old, before=middle)
        assert not await store.delete_blob("default", old, before=middle)
        assert await store.get_blob("default", renewed) == b"renewed"
        assert await store.get_blob("a/b \U0001f375", elsewhere) == b"old", "another scope's"
        assert await store.delete_blob("a/b \U0001f375", elsewhere)
        assert await store.blob_scopes() == ["default"]
        assert await store.old_blobs("default", before=middle) == [other]
