"""Undo, redo, edit, begin anew, fork, move, delete: records, and nothing that was said is ever lost."""

import pytest

import backstory
from backstory.compaction.summary import Summary
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
from backstory.sessions.cuts import newly_covered
from backstory.sessions.session import Session
from backstory.sessions.spans import Cut
from backstory.sessions.summaries import pinned_texts, summary_of, summary_record
from backstory.stores import FilesStore, InMemoryStore, LeaseRequest, SessionId, SqliteStore, Store
from tests.agent.turns import look
from tests.sessions.support import S, check_log, records_of, said, view_of

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
    bs = backstory.open(store, model=model, budget=budget, runtime=False, tools=tools, compaction=False)
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


# --- summaries and pins ---------------------------------------------------------------------------


async def summarised(session, start, text="so far: one and two", kept=None):
    """A compaction by hand: the summary stands for all before a place."""
    await session.refresh()
    cut = Cut(start=start, kept=kept)
    spans = newly_covered(session.view.summary_cut, cut)
    record = summary_record(
        Summary(text=text, kept=("the code is 77",), by="m"), cut, spans=spans, on=session.view.active
    )
    await operations.write(session, [record])


def system_of(model):
    return model.requests[-1]["messages"][0]["content"]


def pieces(view):
    return (view.live(), view.cut, view.active, dict(view.summary), view.pins)


async def test_a_summary_stands_in_the_system_block_and_its_undo_brings_everything_back(store):
    bs = await talked(store, "one", "two", "three")
    session = session_of(store)
    await session.refresh()
    await session.load(None)
    before = pieces(session.view)
    await summarised(session, session.view.spans[3].first)
    compacted = pieces(session.view)
    assert words(await view_of(store)) == ["three", "THREE"]
    assert session.view.coverage(2) == ("summary", session.view.active)
    again = ScriptedModel(["FOUR", "FIVE"], name="m")
    await bs.say("s", "four", model=again)
    assert "so far: one and two" in system_of(again)
    assert "the code is 77" in system_of(again)
    assert [m["content"] for m in again.requests[0]["messages"][1:]] == ["three", "THREE", "four"]
    await session.refresh()
    await operations.undo(session)
    assert await operations.lift(session)
    await session.load(None)
    assert pieces(session.view) == before
    with pytest.raises(SessionError, match="no summary"):
        await operations.lift(session)
    await operations.redo(session)
    await session.load(None)
    assert pieces(session.view) == compacted
    await operations.lift(session)
    await bs.say("s", "five", model=again)
    assert "so far" not in str(again.requests[-1])
    assert [m["content"] for m in again.requests[-1]["messages"]][-3:] == ["three", "THREE", "five"]


async def test_undoing_a_summarised_turn_takes_the_summary_out_of_force_and_redo_puts_it_back(store):
    await talked(store, "one", "two", "three")
    session = session_of(store)
    await session.refresh()
    await summarised(session, session.view.spans[2].first, "s1")
    await summarised(session, session.view.spans[3].first, "s2")
    before = pieces(session.view)
    await operations.undo(session, 2)
    active = summary_of(session.view)
    assert active is not None
    assert active.text == "s1"
    await session.load(None)
    assert words(await view_of(store)) == []
    assert session.view.coverage(2)[0] == "summary"
    await operations.redo(session)
    assert pieces(session.view) == before
    await operations.undo(session, 3)
    assert session.view.active == 0


async def test_what_a_later_summary_adds_is_all_that_the_one_before_did_not_tell(store):
    await talked(store, "one", "two", "three", "four")
    session = session_of(store)
    await session.refresh()
    spans = session.view.spans
    await summarised(session, spans[2].last, kept=(spans[2].first + 1, spans[2].first + 2))
    await operations.write(session, [NewRecord(kind="cut", data={"start": spans[3].last, "kept": None})])
    assert session.view.coverage(spans[2].first + 1)[0] == "cut", "the message that the summary's cut kept"
    assert session.view.coverage(spans[3].first + 1)[0] == "cut"
    await summarised(session, spans[4].first)
    kept = spans[2].first + 1
    assert [tuple(s) for s in session.view.summary["spans"]] == [
        (kept, kept),
        (spans[2].last, spans[4].first - 1),
    ]
    assert {session.view.coverage(seq)[0] for seq in range(1, spans[4].first)} == {"summary"}


async def test_forks_take_the_summary_and_pins_along_and_new_ends_both(store):
    await talked(store, "one", "two", "three")
    session = session_of(store)
    await session.refresh()
    await summarised(session, session.view.spans[3].first)
    await operations.pin(session, "answer in verse")
    await operations.fork(session, B)
    forked = await view_of(store, B)
    assert words(forked) == ["three", "THREE"]
    assert summary_of(forked) == summary_of(session.view)
    assert pinned_texts(forked) == ["answer in verse"]
    check_log(await records_of(store, B), dense=False)
    await operations.begin_anew(session)
    assert (session.view.active, session.view.pins, words(await view_of(store))) == (0, {}, [])


async def test_a_pinned_message_is_told_of_once_it_is_not_replayed_and_pins_survive_summaries(store):
    bs = await talked(store, "the code is 12", "two", "three")
    session = session_of(store)
    await session.refresh()
    first = session.view.spans[1].first + 1
    pinned = await operations.pin(session, message=first)
    await operations.pin(session, " always in\nmetres ")
    assert pinned_texts(session.view) == ["always in metres"]
    await summarised(session, session.view.spans[3].first)
    assert pinned_texts(session.view) == ["the code is 12", "always in metres"]
    again = ScriptedModel(["FOUR"], name="m")
    await bs.say("s", "four", model=again)
    assert "- the code is 12\n- always in metres" in system_of(again)
    await session.refresh()
    assert await operations.unpin(session, pinned) == "the code is 12"
    assert pinned_texts(await view_of(store)) == ["always in metres"]
    with pytest.raises(SessionError, match="nothing is pinned"):
        await operations.unpin(session, pinned)
    with pytest.raises(SessionError, match="no message"):
        await operations.pin(session, message=session.view.head)
    with pytest.raises(InvalidInput, match="nothing to pin"):
        await operations.pin(session, "  ")
