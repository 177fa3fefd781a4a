"""A message that arrives while a turn runs, interrupts, late results, and the lease: here and across processes.

Two `Backstory` objects over one store are two processes: they share nothing but the store.
"""

import asyncio
import threading

import pytest

import backstory
from backstory.agent import drafts
from backstory.agent.execute import execute
from backstory.agent.tool_context import ToolContext
from backstory.errors import (
    LeaseHeld,
    ModelUnavailable,
    SessionBusy,
    SessionError,
    StaleLease,
    TurnInterrupted,
)
from backstory.formats.synthetic import NOT_STARTED_TEXT, OUTCOME_UNKNOWN_TEXT, SO_FAR, synthetic_text
from backstory.messages import Image, Message, Text
from backstory.models.scripted import Play, calls
from backstory.sessions import lease
from backstory.sessions.recovery import INTERRUPTED
from backstory.stores import InMemoryStore, LeaseRequest, ManualClock, NewEntry
from tests.agent.turns import S, look, messages, opened, peek, play, records, scripted, until
from tests.sessions.support import Dying, check_log, expire, killed, legal, view_of


class Gate:
    """A model's step, or a tool, that waits until it is let go."""

    def __init__(self, answer="gated"):
        self.entered = asyncio.Event()
        self.open = asyncio.Event()
        self.answer = answer

    async def __call__(self, body=None):
        self.entered.set()
        await self.open.wait()
        return self.answer


def two(*scripts, **options):
    """Two processes over one store."""
    store = InMemoryStore()
    return [opened(*script, store=store, **options) for script in scripts]


async def posted(store, count=1):
    """Wait until so many entries are in the inbox."""
    await until(lambda: len(store._sessions[S].entries) >= count)


async def log_is_sound(bs):
    check_log(await records(bs))
    legal(scripted(bs))
    assert await bs.store.lease(S) is None
    assert await bs.store.inbox(S) == []


# --- queue ------------------------------------------------------------------------------------


@pytest.mark.parametrize("across", [False, True])
async def test_queued_messages_have_their_turns_in_order(across):
    gate = Gate("one")
    a, b = two([gate, *["more"] * 9], ["more"] * 9)
    others = [b if across else a, a, b if across else a, a]
    tasks = [asyncio.create_task(a.say("s", "first"))]
    await gate.entered.wait()
    for number, bs in enumerate(others):
        tasks.append(asyncio.create_task(bs.say("s", f"later {number}")))
        await asyncio.sleep(0.01)
    gate.open.set()
    replies = await asyncio.gather(*tasks)
    assert [reply.reason for reply in replies] == ["done"] * 5
    said = [text for role, text in await messages(a) if role == "user"]
    assert said[0] == "first"
    if across:
        assert sorted(said[1:]) == [f"later {n}" for n in range(4)]
        assert said.index("later 0") < said.index("later 2")
        assert said.index("later 1") < said.index("later 3")
    else:
        assert said[1:] == [f"later {n}" for n in range(4)]
    await log_is_sound(a)
    legal(scripted(b))


async def test_across_processes_what_waited_first_comes_first_whoever_runs_it():
    gate = Gate("one")
    a, b = two([gate, *["by a"] * 5], ["by b"] * 5)
    c = opened(*["by c"] * 5, store=a.store)
    tasks = [asyncio.create_task(a.say("s", "first"))]
    await gate.entered.wait()
    for bs, text in ((b, "second"), (c, "third"), (opened(*["by d"] * 5, store=a.store), "fourth")):
        tasks.append(asyncio.create_task(bs.say("s", text)))
        await posted(a.store, len(tasks) - 1)
    gate.open.set()
    replies = await asyncio.gather(*tasks)
    assert [text for role, text in await messages(a) if role == "user"] == [
        "first",
        "second",
        "third",
        "fourth",
    ]
    assert [reply.text for reply in replies] == ["one", "by b", "by c", "by d"]
    assert not any(reply.before for reply in replies)
    await log_is_sound(a)


async def test_ones_own_loops_take_their_turns_as_they_came():
    gate = Gate("one")
    store = InMemoryStore()
    first = asyncio.create_task(opened(gate, store=store).say("s", "first"))
    await gate.entered.wait()
    others = [opened(store=store) for _ in range(4)]

    async def own(bs, text):
        async with bs.turn("s", text) as turn:
            await turn.request()
            await asyncio.sleep(0.005)
            await turn.record(Message(role="assistant", parts=(Text(text=f"to {text}"),)))

    tasks = []
    for number, bs in enumerate(others):
        tasks.append(asyncio.create_task(own(bs, f"later {number}")))
        await posted(store, number + 1)
    gate.open.set()
    await asyncio.gather(first, *tasks)
    said = [text for role, text in await messages(others[0])]
    assert said == ["first", "one", *(t for n in range(4) for t in (f"later {n}", f"to later {n}"))]


async def test_a_newcomer_runs_nobodys_message_who_can_run_it():
    gate = Gate("one")
    a, b = two([gate], ["by b"])
    tasks = [asyncio.create_task(a.say("s", "first"))]
    await gate.entered.wait()
    tasks.append(asyncio.create_task(b.say("s", "second")))
    await posted(a.store)
    gate.open.set()
    await tasks[0]
    assert (await opened("by c", store=a.store).say("s", "third")).text == "by c"
    assert (await tasks[1]).text == "by b"
    assert [text for role, text in await messages(a) if role == "user"] == ["first", "second", "third"]


async def test_a_message_that_waits_is_durable_and_is_answered_even_when_its_process_dies():
    gate = Gate("one")
    a, b = two([gate, "answered by a", "and third"], [])
    first = asyncio.create_task(a.say("s", "first"))
    await gate.entered.wait()
    second = asyncio.create_task(b.say("s", "second", message_id="m2"))
    await posted(a.store)
    second.cancel()
    gate.open.set()
    await first
    assert (await a.say("s", "third")).text == "and third"
    assert [text for role, text in await messages(a) if role == "user"] == ["first", "second", "third"]
    again = await a.say("s", "second", message_id="m2")
    assert (again.text, again.before) == ("answered by a", True)
    await log_is_sound(a)


async def test_a_waiting_message_that_cannot_be_answered_blocks_nobody():
    bs = opened(ModelUnavailable, "fine", "fine")
    message = {"role": "user", "parts": [{"part": "text", "text": "fails"}]}
    await bs.store.post(S, NewEntry(kind="message", id="m1", data={"message": message, "digest": "d"}))
    await bs.store.post(S, NewEntry(kind="message", id="m2", data={"no": "message"}))
    assert (await bs.say("s", "hello")).text == "fine"
    await bs.store.post(S, NewEntry(kind="message", id="m1", data={"message": message, "digest": "other"}))
    assert (await bs.say("s", "again")).text == "fine"
    await log_is_sound(bs)


async def test_the_same_message_twice_at_once_is_one_turn():
    gate = Gate("once")
    a, b = two([gate], [])
    tasks = [asyncio.create_task(a.say("s", "go", message_id="m"))]
    await gate.entered.wait()
    tasks += [
        asyncio.create_task(b.say("s", "go", message_id="m")),
        asyncio.create_task(a.say("s", "go", message_id="m")),
    ]
    await asyncio.sleep(0.01)
    gate.open.set()
    replies = await asyncio.gather(*tasks)
    assert [reply.text for reply in replies] == ["once"] * 3
    assert sorted(reply.before for reply in replies) == [False, True, True]
    assert len(await messages(a)) == 2
    await log_is_sound(a)


# --- reject, interrupt, stop --------------------------------------------------------------------


@pytest.mark.parametrize("across", [False, True])
async def test_reject_does_not_wait(across):
    gate = Gate("one")
    a, b = two([gate], ["two"])
    first = asyncio.create_task(a.say("s", "first"))
    await gate.entered.wait()
    with pytest.raises(SessionBusy):
        await (b if across else a).say("s", "second", policy="reject")
    gate.open.set()
    await first
    assert len(await messages(a)) == 2
    await log_is_sound(a)


@pytest.mark.parametrize("across", [False, True])
@pytest.mark.parametrize("where", ["model", "tool", "stream"])
async def test_an_interrupt_ends_the_turn_wherever_it_is(across, where):
    gate = Gate()

    @backstory.tool
    async def wait() -> str:
        """Wait."""
        await gate()
        return "waited"

    step = {
        "model": gate,
        "tool": calls("wait"),
        "stream": Play(step="word " * 50, after=3, stall=True),
    }[where]
    store = InMemoryStore()
    a = opened(step, *["by a"] * 3, store=store, tools=[wait])
    b = opened(*["by b"] * 3, store=store, tools=[wait])
    first = asyncio.create_task(a.say("s", "first"))
    if where == "stream":
        await asyncio.sleep(0.05)
    else:
        await gate.entered.wait()
    reply = await asyncio.wait_for((b if across else a).say("s", "second", policy="interrupt"), 60)
    assert reply.reason == "done"
    ended = await first
    assert ended.reason == "interrupted"
    texts = await messages(a)
    assert texts[-2] == ("user", "second")
    assert texts[-3][1].endswith(INTERRUPTED)
    if where == "stream":
        assert texts[-3][1].startswith("word word")
    if where == "tool":
        assert texts[-4][1] == OUTCOME_UNKNOWN_TEXT
    await log_is_sound(a)


@pytest.mark.parametrize("across", [False, True])
async def test_stop_ends_the_turn_and_says_whether_there_was_one(across):
    gate = Gate()
    a, b = two([gate, "fine"], [])
    assert not await a.stop("s")
    first = asyncio.create_task(a.say("s", "first"))
    await gate.entered.wait()
    assert await (b if across else a).stop("s")
    assert (await asyncio.wait_for(first, 60)).reason == "stopped"
    assert (await a.say("s", "next")).text == "fine"
    await log_is_sound(a)


async def test_a_stop_that_comes_too_late_ends_no_later_turn():
    """It names the turn by its lease."""
    a, b = two(["one", "two"], [])
    await a.say("s", "first")
    held = await a.store.acquire(S, LeaseRequest(owner="gone", ttl=1))
    assert await b.stop("s")
    await a.store.release(held)
    assert (await a.say("s", "second")).text == "two"
    assert await a.store.inbox(S) == []


async def test_ones_own_loop_hears_of_a_stop_of_its_own_process():
    bs = opened("fine")
    async with bs.turn("s", "first") as turn:
        await turn.request()
        assert await bs.stop("s")
        with pytest.raises(TurnInterrupted, match="a stop"):
            await turn.request()
    assert turn.reason == "stopped"
    assert (await bs.say("s", "next")).text == "fine"
    await log_is_sound(bs)


async def test_ones_own_loop_hears_of_an_interrupt_at_its_next_request():
    a, b = two([], ["by b"])
    async with a.turn("s", "first") as turn:
        await turn.request()
        other = asyncio.create_task(b.say("s", "second", policy="interrupt"))
        await posted(a.store, 2)
        with pytest.raises(TurnInterrupted):
            await turn.request()
    assert (await other).text == "by b"
    check_log(await records(a))


# --- steer -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("across", [False, True])
async def test_a_steering_message_goes_into_the_turn_and_gets_its_answer(across):
    gate = Gate("looked")

    @backstory.tool
    async def wait() -> str:
        """Wait."""
        return await gate()

    store = InMemoryStore()
    a = opened(calls("wait"), "both answered", store=store, tools=[wait])
    b = opened(store=store, tools=[wait])
    first = asyncio.create_task(a.say("s", "first"))
    await gate.entered.wait()
    picture = [Text(text="and blue, please"), Image(url="https://example.org/a.png")]
    steer = asyncio.create_task((b if across else a).say("s", picture, policy="steer", message_id="st"))
    await posted(store)
    gate.open.set()
    assert (await first).text == (await asyncio.wait_for(steer, 60)).text == "both answered"
    assert [role for role, _ in await messages(a)] == ["user", "assistant", "tool", "user", "assistant"]
    assert "a.png" in str(scripted(a).requests[-1]), "pictures steer, too"
    await log_is_sound(a)


@pytest.mark.parametrize("across", [False, True])
async def test_a_steering_message_that_comes_too_late_has_a_turn_of_its_own(across):
    gate = Gate("one")
    a, b = two([gate, "two"], ["two"])
    first = asyncio.create_task(a.say("s", "first"))
    await gate.entered.wait()
    steer = asyncio.create_task((b if across else a).say("s", "more", policy="steer"))
    await posted(a.store)
    gate.open.set()
    assert (await first).text == "one"
    assert (await asyncio.wait_for(steer, 60)).text == "two"
    assert [text for _, text in await messages(a)] == ["first", "one", "more", "two"]
    await log_is_sound(a)


# --- crashes and late results --------------------------------------------------------------------------


async def crashed(store, *, at, tools):
    """A process that dies at a durable point of a turn with two calls."""
    bs = opened(
        calls(("look", {"what": 1}), ("look", {"what": 2})), "never", store=Dying(store, at), tools=tools
    )
    assert await killed(bs.say("s", "go", message_id="m"))
    await expire(store)


async def test_not_started_and_outcome_unknown_are_told_apart_and_finished_results_kept():
    store = InMemoryStore()
    await crashed(store, at=4, tools=[look])  # user · blob and answer · first result is lost
    bs = opened("recovered", store=store)
    reply = await bs.resume("s")
    assert reply.recovered == ("look: outcome_unknown", "look: not_started")
    results = [text for role, text in await messages(bs) if role == "tool"]
    assert results == [OUTCOME_UNKNOWN_TEXT, NOT_STARTED_TEXT]
    store = InMemoryStore()
    await crashed(store, at=5, tools=[look])
    bs = opened("recovered", store=store)
    assert (await bs.say("s", "go", message_id="m")).text == "recovered"
    results = [text for role, text in await messages(bs) if role == "tool"]
    assert results == ["saw 1", OUTCOME_UNKNOWN_TEXT]
    await log_is_sound(bs)
    with pytest.raises(SessionError, match="no open turn"):
        await bs.resume("s")


async def test_another_message_ends_the_open_turn_and_adopts_its_draft():
    store = InMemoryStore()
    dying = Dying(store)
    bs = opened(Play(step="word " * 50, after=6, stall=True), store=dying)
    task = asyncio.create_task(killed(bs.say("s", "go")))
    await asyncio.sleep(0.02)
    turn = bs._admission.running[S]
    await turn.draft("It is forty-")
    dying.dead = True
    task.cancel()
    assert await task, "it was killed, not ended"
    await expire(store)
    bs = opened("fine", store=store)
    reply = await bs.say("s", "other")
    assert reply.turn == 2
    assert (await messages(bs))[1] == ("assistant", f"It is forty-\n\n{INTERRUPTED}")
    await log_is_sound(bs)


@pytest.mark.parametrize("thread", [False, True])
@pytest.mark.parametrize("resumed", [False, True])
async def test_what_a_call_told_of_its_work_outlives_the_process(monkeypatch, thread, resumed):
    monkeypatch.setattr(drafts, "DRAFT_EVERY", 0.0)
    gone = threading.Event()

    def move(context: ToolContext) -> str:
        """Move files."""
        for number in range(1, 4):
            context.so_far(f"moved {number} of 9")
        gone.wait()
        return "moved all"

    async def move_too(context: ToolContext) -> str:
        """Move files."""
        context.so_far("moved 2 of 9")
        await asyncio.sleep(0.01)
        context.so_far("moved 3 of 9")
        await asyncio.sleep(3600)
        return "moved all"

    store = InMemoryStore()
    tool = backstory.tool(move if thread else move_too, name="move")
    dying = Dying(store)
    bs = opened(calls("move", ("peek", {"what": "1"})), store=dying, tools=[tool, peek])
    task = asyncio.create_task(killed(bs.say("s", "go")))

    async def told():
        draft = await store.draft(S)
        return draft is not None and "moved 3 of 9" in str(draft.data)

    async with asyncio.timeout(60):
        while not await told():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
    dying.dead = True
    task.cancel()
    gone.set()
    assert await task, "it was killed, not ended"
    await expire(store)
    bs = opened("fine", store=store)
    await (bs.resume("s") if resumed else bs.say("s", "other"))
    results = [text for role, text in await messages(bs) if role == "tool"]
    assert results == [synthetic_text("outcome_unknown", "moved 3 of 9"), NOT_STARTED_TEXT]
    sent = str(scripted(bs).requests[-1]["messages"])
    assert sent.count(SO_FAR) == sent.count("moved 3 of 9") == 1
    await log_is_sound(bs)


async def test_a_late_result_is_told_as_a_note_and_takes_its_place_in_the_next_epoch():
    store = InMemoryStore()
    await crashed(store, at=4, tools=[look])
    bs = opened("recovered", "noted", "and now", "in place", store=store)
    await bs.resume("s")
    before = scripted(bs).requests[-1]
    assert OUTCOME_UNKNOWN_TEXT in str(before)
    await bs.late_result("s", "call_1", "the real thing")
    assert [entry.kind for entry in await store.inbox(S)] == ["late_result"], "it waits where no turn runs"
    await bs.say("s", "next")
    body = scripted(bs).requests[-1]
    assert body["messages"][: len(before["messages"])] == before["messages"]
    assert "came late" in str(body["messages"][-1])
    assert "the real thing" in str(body["messages"][-1])
    await bs.say("s", "more")
    bs = opened("in place", store=store, tools=[look, backstory.tool(execute_nothing)])
    await bs.say("s", "another list of tools opens an epoch")
    body = scripted(bs).requests[-1]
    tool = next(item for item in body["messages"] if item["role"] == "tool")
    assert tool["content"] == "the real thing"
    assert "came late" not in str(body)
    await log_is_sound(bs)


def execute_nothing() -> str:
    """Nothing."""
    return str(execute)


async def test_a_late_result_takes_its_place_at_once_where_the_stand_in_was_never_sent():
    store = InMemoryStore()
    await crashed(store, at=4, tools=[look])
    bs = opened("answer", store=store)
    await bs.late_result("s", "call_1", "the real thing")
    await bs.resume("s")
    (body,) = scripted(bs).requests
    contents = [item["content"] for item in body["messages"] if item["role"] == "tool"]
    assert contents == ["the real thing", NOT_STARTED_TEXT]
    await log_is_sound(bs)


async def test_a_late_result_while_a_turn_runs_is_told_at_its_next_step():
    gate = Gate("waited")

    @backstory.tool
    async def wait() -> str:
        """Wait."""
        return await gate()

    store = InMemoryStore()
    await crashed(store, at=4, tools=[look])
    bs = opened("recovered", calls("wait"), "done", store=store, tools=[look, wait])
    await bs.resume("s")
    running = asyncio.create_task(bs.say("s", "go on"))
    await gate.entered.wait()
    await opened(store=store).late_result("s", "call_1", "the real thing")
    gate.open.set()
    await running
    assert "the real thing" not in str(scripted(bs).requests[1])
    assert "the real thing" in str(scripted(bs).requests[2]["messages"][-1])
    await log_is_sound(bs)


async def test_a_late_result_of_a_call_that_is_no_longer_shown_is_a_note():
    bs = opened("one", "two")
    await bs.say("s", "hello")
    await bs.late_result("s", "call_9", "too late", name="look")
    await bs.say("s", "next")
    assert "too late" in str(scripted(bs).requests[-1]["messages"][-1])
    await log_is_sound(bs)


# --- the lease ---------------------------------------------------------------------------------------


@pytest.fixture
def at_once(monkeypatch):
    """A lease is renewed, and interrupts are listened for, from the first moment on."""
    monkeypatch.setattr(lease, "LISTEN_AFTER", 0.0)


async def settle():
    for _ in range(20):
        await asyncio.sleep(0)


async def test_a_lease_is_renewed_while_the_turn_runs_and_given_back_at_its_end(at_once):
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    gate = Gate("one")
    bs = opened(gate, store=store, lease_ttl=30)
    task = asyncio.create_task(bs.say("s", "go"))
    await gate.entered.wait()
    await settle()
    for _ in range(8):
        clock.advance(11)
        await settle()
        assert await store.lease(S) is not None
    gate.open.set()
    assert (await task).text == "one"
    assert await store.lease(S) is None
    assert not [t for t in asyncio.all_tasks() if t is not asyncio.current_task()], "nothing is left running"


async def test_whoever_lost_the_lease_writes_nothing_more():
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    gate = Gate("never logged")
    slow, other = opened(gate, store=store), opened("taken over", store=store)
    task = asyncio.create_task(slow.say("s", "first"))
    await gate.entered.wait()
    slow._admission.running[S]._renewal.stop()  # as if the process were suspended
    clock.advance(31)
    assert (await other.say("s", "second")).text == "taken over"
    gate.open.set()
    with pytest.raises(StaleLease):
        await task
    assert [text for _, text in await messages(other)] == ["first", INTERRUPTED, "second", "taken over"]
    scripted(slow).then("back again")
    assert (await slow.say("s", "third")).text == "back again"
    await log_is_sound(other)


async def test_a_lost_lease_ends_the_models_call(at_once):
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    gate = Gate("never")
    slow = opened(gate, store=store)
    task = asyncio.create_task(slow.say("s", "first"))
    await gate.entered.wait()
    held = await store.lease(S)
    assert held is not None
    await settle()
    await store.release(held)
    await store.acquire(S, LeaseRequest(owner="thief", ttl=1000))
    clock.advance(11)
    with pytest.raises(StaleLease):
        await asyncio.wait_for(task, 60)


async def test_operations_are_refused_while_a_turn_runs_elsewhere():
    gate = Gate("one")
    a, b = two([gate], [])
    await asyncio.sleep(0)
    task = asyncio.create_task(a.say("s", "first"))
    await gate.entered.wait()
    with pytest.raises((SessionBusy, LeaseHeld)):
        await b.command("s", "/undo")
    with pytest.raises((SessionBusy, LeaseHeld)):
        await b.command("s", "/new")
    assert "is under way" in (await b.command("s", "/status")).text
    gate.open.set()
    await task
    assert play("x").name == "m"
    assert (await view_of(a.store)).turn is None
