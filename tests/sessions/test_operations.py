"""Undo, redo, edit, begin anew, fork, move, delete: records, and nothing that was said is ever lost."""

import pytest

import backstory
from backstory.errors import (
    InvalidInput,
    LeaseHeld,
    SessionBusy,
    SessionError,
    SessionExists,
    SessionNotFound,
)
from backstory.models.scripted import ScriptedModel, calls
from backstory.records import NewRecord
from backstory.sessions import forks, operations
from backstory.sessions.session import Session
from backstory.stores import FilesStore, InMemoryStore, LeaseRequest, SessionId, SqliteStore, Store
from tests.agent.turns import look
from tests.sessions.support import S, check_log, said, view_of

B, C, D = (SessionId(key=key) for key in "bcd")


@pytest.fixture(params=["memory", "files", "sqlite"])
async def store(request, tmp_path):
    made: Store
    if request.param == "memory":
        made = InMemoryStore()
    elif request.param == "files":
        made = FilesStore(tmp_path, durability="process")
    else:
        made = SqliteStore(tmp_path / "sessions.db", durability="process")
    yield made
    await made.close()


async def talked(store, *texts, key="s", budget=None, tools=()):
    """A session with a turn for each text; its answers are the texts in upper case."""
    model = ScriptedModel([text.upper() for text in texts], name="m")
    bs = backstory.open(store, model=model, budget=budget, runtime=False, tools=tools)
    for text in texts:
        await bs.say(key, text)
    return bs


def session_of(store, session_id=S):
    return Session(store, session_id)


def words(view):
    return [text for _, text in said(view)]


# --- undo, redo, edit, begin anew -----------------------------------------------------------------


async def test_undo_redo_and_what_they_refuse(store):
    await talked(store, "one", "two", "three")
    session = session_of(store)
    undone = await operations.undo(session, 2)
    assert (undone.turns, undone.text) == ((2, 3), "two")
    assert words(await view_of(store)) == ["one", "ONE"]
    with pytest.raises(SessionError, match="1 turns that can be undone"):
        await operations.undo(session, 2)
    await operations.redo(session)
    assert words(await view_of(store)) == ["one", "ONE", "two", "TWO", "three", "THREE"]
    with pytest.raises(SessionError, match="nothing was undone"):
        await operations.redo(session)
    await operations.undo(session)
    await talked(store, "four")
    with pytest.raises(SessionError, match="turns since"):
        await operations.redo(session)
    assert words(await view_of(store)) == ["one", "ONE", "two", "TWO", "four", "FOUR"]
    check_log(await store.read(S))


async def test_undos_of_undone_neighbours_hide_each_turn_once(store):
    await talked(store, "one", "two")
    session = session_of(store)
    await operations.undo(session)
    await talked(store, "three")
    await operations.undo(session, 2)
    view = await view_of(store)
    assert words(view) == []
    assert [[(s.first, s.last) for s in undo.spans] for undo in view.hidden.values()] != []
    check_log(await store.read(S))
    await operations.redo(session)
    assert words(await view_of(store)) == ["one", "ONE", "three", "THREE"], "turn 2 stays undone"


async def test_the_effects_of_tools_remain_and_are_named(store):
    model = ScriptedModel([calls(("look", {"what": "x"}), ("look", {"what": "y"})), "done"], name="m")
    bs = backstory.open(store, model=model, tools=[look])
    await bs.say("s", "go")
    undone = await operations.undo(session_of(store))
    assert undone.tools == ("look",)
    assert (await store.read(S))[-1].data["effects"] == ["look"]


async def test_edit_hides_from_a_turn_on(store):
    bs = await talked(store, "one", "two", "three")
    session = session_of(store)
    undone = await operations.edit(session, 2)
    assert (undone.turns, undone.text) == ((2, 3), "two")
    assert isinstance(bs.model, ScriptedModel)
    bs.model.then("NEW")
    assert (await bs.say("s", "other words")).turn == 4
    assert words(await view_of(store)) == ["one", "ONE", "other words", "NEW"]
    with pytest.raises(SessionError, match="no turn 3"):
        await operations.edit(session, 3)
    check_log(await store.read(S))


async def test_begun_anew_nothing_before_comes_back(store):
    await talked(store, "one", "two")
    session = session_of(store)
    await operations.begin_anew(session)
    with pytest.raises(SessionError, match="0 turns"):
        await operations.undo(session)
    await talked(store, "three")
    assert words(await view_of(store)) == ["three", "THREE"]
    await operations.undo(session)
    assert words(await view_of(store)) == []
    await operations.redo(session)
    await operations.undo(session)
    await operations.begin_anew(session)
    with pytest.raises(SessionError, match="begun anew"):
        await operations.redo(session)
    check_log(await store.read(S))


async def test_nothing_is_done_while_a_turn_is_open_or_runs(store):
    bs = await talked(store, "one")
    async with bs.turn("s", "open"):
        for operation in (operations.undo, operations.redo, operations.begin_anew):
            with pytest.raises((SessionBusy, SessionError)):
                await operation(session_of(store))
        with pytest.raises(LeaseHeld):
            await operations.fork(session_of(store), B)
        with pytest.raises(LeaseHeld):
            await operations.delete(session_of(store))
        with pytest.raises(LeaseHeld):
            await operations.move(store, S, B)
        assert (await store.head(B)).seq == 0
    lease = await store.acquire(S, LeaseRequest(owner="x", ttl=9))
    with pytest.raises(LeaseHeld):
        await operations.begin_anew(session_of(store))
    await store.release(lease)


# --- forks ------------------------------------------------------------------------------------------


async def test_a_fork_goes_on_from_any_turn_and_the_parent_stays(store):
    await talked(store, "one", "two", "three")
    assert await operations.fork(session_of(store), B, turn=2) == 4
    assert await operations.fork(session_of(store), C) == 6
    await talked(store, "other", key="b")
    assert words(await view_of(store, B)) == ["one", "ONE", "two", "TWO", "other", "OTHER"]
    assert words(await view_of(store)) == ["one", "ONE", "two", "TWO", "three", "THREE"]
    view = await view_of(store)
    assert view.children == ("b", "c")
    for session_id in (S, B, C):
        check_log(await store.read(session_id))
    with pytest.raises(SessionExists):
        await operations.fork(session_of(store), B)
    with pytest.raises(SessionNotFound):
        await operations.fork(session_of(store, D), SessionId(key="e"))
    with pytest.raises(SessionError, match="not live"):
        await operations.fork(session_of(store), D, turn=7)
    with pytest.raises(InvalidInput, match="scope"):
        await operations.fork(session_of(store), SessionId(scope="other", key="d"))


async def cut_session(store):
    """Old turns that a cut left behind, and newer ones."""
    await talked(store, *[f"{n} " + "word " * 40 for n in range(12)], budget=700)
    view = await view_of(store)
    assert view.cut.start > 1
    return view


async def all_of(store, session_id):
    """Everything that a session can reach: its older records, and its own."""
    session = session_of(store, session_id)
    view = await session.refresh()
    found = [r async for r in forks.older(store, session_id.scope, forks.refers(view))]
    return [*found, *await store.read(session_id)]


def texts(records):
    return [r.message.text for r in records if r.kind == "message"]


async def test_a_fork_refers_to_what_it_did_not_copy_and_keeps_it_when_the_parent_goes(store):
    view = await cut_session(store)
    everything = texts(await store.read(S))
    await operations.fork(session_of(store), B)
    own = texts(await store.read(B))
    assert len(own) == len(view.live()) < len(everything)
    assert texts(await all_of(store, B)) == everything
    await operations.delete(session_of(store))
    assert (await store.head(S)).seq == 0
    assert texts(await all_of(store, B)) == everything
    assert words(await view_of(store, B)) == own
    await talked(store, "goes on", key="b")
    check_log(await store.read(B), dense=False)
    await talked(store, "another session of the old name")
    assert texts(await all_of(store, B))[: len(everything)] == everything


async def test_forks_of_forks_keep_everything_in_whatever_order_their_parents_go(store):
    for order in ((S, B), (B, S)):
        await cut_session(store)
        everything = texts(await store.read(S))
        await operations.fork(session_of(store), B)
        await talked(store, *[f"b{n} " + "word " * 40 for n in range(8)], key="b", budget=700)
        more = texts(await all_of(store, B))
        assert more[: len(everything)] == everything
        await operations.fork(session_of(store, B), C)
        assert texts(await all_of(store, C)) == more
        for gone in order:
            await operations.delete(session_of(store, gone))
            assert texts(await all_of(store, C)) == more
        await operations.delete(session_of(store, C))
        assert [i async for i in listed(store)] == []


async def listed(store):
    for info in (await store.sessions("default")).sessions:
        yield info.session


async def test_a_parent_is_not_deleted_while_its_fork_runs_a_turn(store):
    await cut_session(store)
    await operations.fork(session_of(store), B)
    lease = await store.acquire(B, LeaseRequest(owner="x", ttl=9))
    with pytest.raises(SessionBusy, match="refers"):
        await operations.delete(session_of(store))
    assert (await store.head(S)).seq > 0
    assert await store.lease(S) is None
    await store.release(lease)
    await operations.delete(session_of(store))


async def test_a_moved_session_is_the_same_under_another_key_and_its_forks_know(store):
    await cut_session(store)
    everything = texts(await store.read(S))
    await operations.fork(session_of(store), B)
    before = await store.read(S)
    await operations.move(store, S, D)
    assert (await store.head(S)).seq == 0
    assert [(r.kind, r.turn, r.data) for r in await store.read(D)] == [
        (r.kind, r.turn, r.data) for r in before
    ]
    assert texts(await all_of(store, B)) == everything
    await operations.delete(session_of(store, D))
    assert texts(await all_of(store, B)) == everything
    with pytest.raises(SessionNotFound):
        await operations.move(store, S, D)
    await talked(store, "new", key="d")
    with pytest.raises(SessionExists):
        await operations.move(store, B, D)
    with pytest.raises(InvalidInput):
        await operations.move(store, B, SessionId(scope="x", key="b"))


async def test_deleting_what_is_not_there(store):
    with pytest.raises(SessionNotFound):
        await operations.delete(session_of(store))


async def test_an_open_turn_is_left_out_of_a_fork(store):
    bs = await talked(store, "one")
    async with bs.turn("s", "open"):
        log = await store.read(S)
    crashed = InMemoryStore()
    await crashed.append(S, [NewRecord(kind=r.kind, data=r.data, turn=r.turn) for r in log])
    assert await operations.fork(session_of(crashed), B) == 2
    assert words(await view_of(crashed, B)) == ["one", "ONE"]
    assert (await view_of(crashed, B)).turn is None
