"""Rewrites: atomic, places kept, seen by others only whole."""

from __future__ import annotations

import asyncio
from itertools import count

import pytest

from backstory.errors import (
    HeadMoved,
    InvalidInput,
)
from backstory.records import NewRecord
from backstory.stores.base import Store
from backstory.stores.clock import ManualClock
from backstory.stores.conformance.given import Given, S, note, places, texts
from backstory.stores.values import Replacement, SessionId


class Rewriting(Given):
    """See the module."""

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

    async def test_what_was_replaced_comes_back_as_it_was(self, store: Store) -> None:
        for number in range(3):
            await store.append(S, [note(f"{number}"), note("more")], batch=f"b{number}")
        before = await store.read(S)
        gone = NewRecord(kind="archived", data={"text": "cold"})
        await store.rewrite(S, [Replacement(first=1, last=4, record=gone)], expected=6)
        back = Replacement(first=1, last=4, record=gone, records=tuple(before[:4]))
        await store.rewrite(S, [back], expected=6)
        assert [r.line for r in await store.read(S)] == [r.line for r in before]
        assert (await store.verify(S)).sound
        for wrong in (before[:3], before[1:4], [before[0], *before[2:5]], before[:5]):
            with pytest.raises(InvalidInput):
                await store.rewrite(
                    S, [Replacement(first=1, last=4, record=gone, records=tuple(wrong))], expected=6
                )
        assert [r.line for r in await store.read(S)] == [r.line for r in before]

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
