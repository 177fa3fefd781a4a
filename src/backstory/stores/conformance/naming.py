"""Ids of every kind stay apart; lists by activity; deleting."""

from __future__ import annotations

import pytest

from backstory.errors import (
    HeadMoved,
    InvalidInput,
    LeaseHeld,
    StaleLease,
)
from backstory.stores.base import Store
from backstory.stores.clock import ManualClock
from backstory.stores.conformance.given import HOSTILE, Given, MakeStore, S, note, texts
from backstory.stores.values import Head, LeaseRequest, NewEntry, SessionId


class Naming(Given):
    """See the module."""

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

    async def test_delete(self, store: Store, make_store: MakeStore, clock: ManualClock) -> None:
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
        await store.delete(S)
        clock.advance(0.001)
        fresh = await (make_store(clock) if self.lasting else store).acquire(
            S, LeaseRequest(owner="p", ttl=60)
        )
        assert fresh.fence > lease.fence

    async def test_a_session_that_vanished_is_not_made_anew_in_silence(
        self, store: Store, other: Store
    ) -> None:
        await store.append(S, [note("a")])
        await other.delete(S)
        with pytest.raises(HeadMoved):
            await store.append(S, [note("b")], expected=1)
        assert await store.head(S) == Head()
