"""The write gate: what a cached view is worth, writes that are cancelled, and sessions that are let go."""

import asyncio

import pytest

from backstory.errors import HeadMoved
from backstory.messages import ToolCall, assistant, tool, user
from backstory.records import NewRecord, new_message
from backstory.sessions.session import FAR_BEHIND, Session, Sessions
from backstory.sessions.view import SNAPSHOT_EVERY
from backstory.stores import InMemoryStore, LeaseRequest, SessionId
from tests.sessions.support import Counting, S, Wrapped

OWNER = LeaseRequest(owner="me", ttl=30)


def meta(number=0):
    return NewRecord(kind="meta", data={"n": number})


class Slow(Wrapped):
    """An append takes its time, and then is made."""

    def __init__(self, inner):
        super().__init__(inner)
        self.gate = asyncio.Event()
        self.begun = asyncio.Event()

    async def append(self, *arguments, **options):
        async def write():
            await self.gate.wait()
            return await self.inner.append(*arguments, **options)

        self.begun.set()
        return await asyncio.shield(asyncio.ensure_future(write()))  # a cancelled caller does not cancel it


async def test_a_cached_view_is_extended_by_what_is_new_and_by_nothing_else():
    store = Counting(InMemoryStore())
    one, other = Session(store, S), Session(store, S)
    await one.append([meta(1), meta(2)])
    await other.refresh()
    assert store.read_records == 2
    await one.append([meta(3)])
    await other.refresh()
    assert store.read_records == 3
    await other.refresh()
    assert store.read_records == 3
    assert other.view.to_json() == one.view.to_json()


async def test_far_behind_it_opens_anew():
    store = Counting(InMemoryStore())
    one, other = Session(store, S), Session(store, S)
    await one.append([meta()])
    await other.refresh()
    for number in range(FAR_BEHIND + 10):
        await one.append([meta(number)])
    store.read_records = 0
    await other.refresh()
    assert store.read_records <= 2 * SNAPSHOT_EVERY
    assert other.view.head == one.view.head
    assert other.view.meta == one.view.meta


async def test_a_session_that_was_deleted_and_begun_again_is_another_one():
    store = InMemoryStore()
    session = Session(store, S)
    for _ in range(3):
        await session.append([meta()])
    await store.delete(S)
    fresh = Session(store, S)
    for number in range(10, 14):
        await fresh.append([meta(number)])
    await session.refresh()
    assert session.view.to_json() == fresh.view.to_json()
    await store.delete(S)
    assert (await session.refresh()).head == 0


async def test_who_writes_after_somebody_else_must_look_again():
    store = InMemoryStore()
    one, other = Session(store, S), Session(store, S)
    await one.append([meta(1)])
    with pytest.raises(HeadMoved):
        await other.append([meta(2)])
    await other.refresh()
    await other.append([meta(2)])
    assert other.view.meta == {"n": 2}


async def test_two_refreshes_at_once_fold_nothing_twice():
    store = InMemoryStore()
    one, other = Session(store, S), Session(store, S)
    await other.refresh()
    for number in range(5):
        await one.append([meta(number)])
    await asyncio.gather(other.refresh(), other.refresh(), other.refresh())
    assert other.view.head == 5


@pytest.mark.parametrize("times", [1, 3])
async def test_a_cancelled_write_is_whole_and_the_view_knows_of_it(times):
    store = Slow(InMemoryStore())
    session = Session(store, S)
    task = asyncio.create_task(session.append([new_message(user("hello"))], acquire=OWNER))
    await store.begun.wait()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done(), "it waits to see what becomes of the write"
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert session.view.head == 1
    assert session.lease is not None
    await session.append([meta()], release=True)
    assert await store.lease(S) is None


async def test_a_cancelled_write_that_fails_is_a_cancellation_all_the_same():
    store = Slow(InMemoryStore())
    await Session(store.inner, S).append([meta()])
    session = Session(store, S)
    task = asyncio.create_task(session.append([meta()]))
    await store.begun.wait()
    task.cancel()
    await asyncio.sleep(0)
    store.gate.set()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_the_next_place_is_told_also_where_a_snapshot_comes_in_between():
    session = Session(InMemoryStore(), S)
    for number in range(2 * SNAPSHOT_EVERY + 3):
        place = session.next_seq()
        (record,) = await session.append([meta(number)])
        assert record.seq == place
        assert record.kind == "meta"


# --- sessions in hand ---------------------------------------------------------------------------


async def test_idle_sessions_are_let_go_and_those_in_use_are_not():
    sessions = Sessions(InMemoryStore(), limit=3)
    ids = [SessionId(key=str(n)) for n in range(10)]
    async with sessions.hold(ids[0]) as first:
        for session_id in ids[1:]:
            async with sessions.hold(session_id):
                pass
        assert len(sessions._held) <= 4
        assert sessions.peek(ids[0]) == (first, True)
    sessions.forget(ids[0])
    assert sessions.peek(ids[0])[0] is not first


async def test_first_come_first_served_and_never_two_at_once():
    sessions = Sessions(InMemoryStore(), limit=1)
    order, inside = [], 0

    async def work(number):
        nonlocal inside
        async with sessions.hold(S):
            inside += 1
            assert inside == 1
            order.append(number)
            sessions.peek(SessionId(key=f"other {number}"))  # crowds it out, were it not in use
            await asyncio.sleep(0)
            inside -= 1

    await asyncio.gather(*(work(number) for number in range(20)))
    assert order == list(range(20))


@pytest.mark.parametrize("tokens", [10, 100, 333, 1000])
async def test_what_is_loaded_for_a_window_begins_with_a_turn(tokens):
    store = InMemoryStore()
    session = Session(store, S)
    for turn in range(1, 60):
        batch = [NewRecord(kind="turn_started", turn=turn), new_message(user(f"question {turn}"), turn=turn)]
        for step in range(turn % 5):
            call = ToolCall(id=f"c{step}", name="look")
            batch += [
                new_message(assistant("", call), turn=turn),
                new_message(tool(f"c{step}", "seen"), turn=turn),
            ]
        batch += [new_message(assistant("done"), turn=turn), NewRecord(kind="turn_ended", turn=turn)]
        await session.append(batch)
    cold = Session(store, S)
    await cold.refresh()
    await cold.load(tokens, lambda record: 10)
    live = cold.view.live()
    assert live[0].message.role == "user"
    assert 10 * len(live) > min(tokens, 10 * 59)
    assert [r.seq for r in live] == [r.seq for r in session.view.live()][-len(live) :]


async def test_a_snapshot_that_cannot_be_read_is_passed_over():
    store = InMemoryStore()
    session = Session(store, S)
    for number in range(SNAPSHOT_EVERY + 3):
        await session.append([meta(number)])
    await session.append([NewRecord(kind="snapshot", data={"of": "another version"})])
    await session.append([meta(-1)])
    assert (await Session(store, S).refresh()).to_json() == session.view.to_json()
