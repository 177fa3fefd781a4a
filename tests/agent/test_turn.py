"""A turn from the user's message to the answer: what is durable when, and each way in which it can end."""

import asyncio
import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backstory
from backstory.agent.loop_guard import LoopGuard
from backstory.errors import (
    BudgetExceeded,
    ContextTooLong,
    MessageConflict,
    ModelUnavailable,
    NothingToSend,
    SessionError,
)
from backstory.messages import Refusal, Text, ToolCall, assistant
from backstory.models.base import Answer, Usage
from backstory.models.scripted import Play, ScriptedModel, calls
from backstory.sessions.recovery import INTERRUPTED, open_calls
from backstory.stores import InMemoryStore
from tests.agent.turns import S, kinds, look, messages, opened, peek, play, records, scripted
from tests.sessions.support import Counting, check_log, check_prefix, legal

# --- what is durable when -------------------------------------------------------------------


async def test_the_users_message_is_durable_before_the_model_is_called():
    seen: list = []

    async def answer(body):
        seen.append(await messages(bs))
        return "hi"

    bs = opened(answer)
    await bs.say("s", "hello")
    assert seen == [[("user", "hello")]]


async def test_each_result_is_durable_as_it_comes_and_each_call_is_started_before_it_begins():
    seen: list = []

    @backstory.tool
    async def probe(n: int) -> str:
        """Probe."""
        log = await records(bs)
        view_started = [(r.data["message"], r.data["call"]) for r in log if r.kind == "call_started"]
        seen.append(
            (n, sum(r.kind == "message" and r.message.role == "tool" for r in log), len(view_started))
        )
        return f"probed {n}"

    bs = opened(calls(("probe", {"n": 1}), ("probe", {"n": 2}), ("probe", {"n": 3})), "done", tools=[probe])
    await bs.say("s", "go")
    assert seen == [(1, 0, 1), (2, 1, 2), (3, 2, 3)]


async def test_a_turn_with_a_tool_has_four_durable_points():
    store = Counting(InMemoryStore())
    bs = opened("hi", calls(("look", {"what": 1})), "done", store=store)
    await bs.say("s", "first")
    store.batches.clear()
    await bs.say("s", "look")
    assert store.batches == [
        ["turn_started", "message"],
        ["request", "message", "call_started"],
        ["message"],
        ["request", "message", "turn_ended"],
    ]


async def test_parallel_calls_begin_together_and_are_recorded_as_begun_with_the_answer():
    store = Counting(InMemoryStore())
    gate = asyncio.Event()
    running = []

    @backstory.tool(parallel=True)
    async def slow(n: int) -> str:
        """Slow."""
        running.append(n)
        if len(running) == 3:
            gate.set()
        await gate.wait()
        return f"slow {n}"

    script = calls(("slow", {"n": 1}), ("slow", {"n": 2}), ("slow", {"n": 3}), ("look", {"what": "x"}))
    bs = opened(script, "done", store=store, tools=[slow, look])
    events = [
        type(event).__name__ async for event in bs.stream("s", "go") if "Delta" not in type(event).__name__
    ]
    assert store.batches[1] == ["epoch", "request", "message", "call_started", "call_started", "call_started"]
    assert store.batches[4] == ["message", "call_started"]
    assert events == ["ToolStarted"] * 3 + ["ToolFinished"] * 3 + ["ToolStarted", "ToolFinished", "TurnEnded"]
    check_log(await records(bs))


# --- the loop of one's own ------------------------------------------------------------------


async def test_ones_own_loop_must_answer_each_call_and_cannot_go_on_after_the_end():
    bs = opened()
    async with bs.turn("s", "go") as turn:
        await turn.request()
        await turn.record(assistant("", ToolCall(id="a", name="look"), ToolCall(id="b", name="look")))
        with pytest.raises(NothingToSend, match="look, look"):
            await turn.request()
        with pytest.raises(SessionError, match="wait for their results"):
            await turn.record("too early")
        first, second = turn.open_calls
        await turn.result(first, {"n": 1})
        with pytest.raises(SessionError, match="waits for no result"):
            await turn.result(first, "twice")
        await turn.result(second, "ok")
        await turn.request()
        await turn.record("done")
        assert turn.done
        with pytest.raises(SessionError, match="is done"):
            await turn.record("more")
        with pytest.raises(NothingToSend):
            await turn.request()
    assert [text for role, text in await messages(bs) if role == "tool"] == ['{"n":1}', "ok"]


async def test_a_turn_that_is_left_early_is_ended_and_the_history_alternates():
    bs = opened("fine")
    async with bs.turn("s", "one"):
        pass
    with pytest.raises(ZeroDivisionError):
        async with bs.turn("s", "two"):
            raise ZeroDivisionError
    reply = await bs.say("s", "three")
    assert reply.text == "fine"
    assert await messages(bs) == [
        ("user", "one"),
        ("assistant", INTERRUPTED),
        ("user", "two"),
        ("assistant", INTERRUPTED),
        ("user", "three"),
        ("assistant", "fine"),
    ]
    reasons = [r.data["reason"] for r in await records(bs) if r.kind == "turn_ended"]
    assert reasons == ["interrupted", "failed", "done"]
    legal(scripted(bs))


async def test_the_example_of_the_readme_runs_with_a_client_of_openais_shape():
    """`async with bs.turn(…)`: request.body, the client's own objects, turn.open_calls, turn.result."""

    class Completions:
        def __init__(self):
            self.bodies = []

        async def create(self, **body):
            from openai.types.chat import ChatCompletion

            self.bodies.append(body)
            message: dict = {"role": "assistant", "content": "Your name is Zhang."}
            if len(self.bodies) == 1:
                call = {
                    "id": "c1",
                    "type": "function",
                    "function": {"name": "look", "arguments": '{"what": "me"}'},
                }
                message = {"role": "assistant", "content": None, "tool_calls": [call]}
            choice = {
                "index": 0,
                "message": message,
                "finish_reason": "tool_calls" if len(self.bodies) == 1 else "stop",
            }
            usage = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
            return ChatCompletion.model_validate(
                {
                    "id": "x",
                    "object": "chat.completion",
                    "created": 1,
                    "model": "m",
                    "choices": [choice],
                    "usage": usage,
                }
            )

    completions = Completions()
    bs = opened("你好,小张")
    answer = await bs.say("telegram:12345", "我叫小张,我在做 RAG 项目", tools=[look])
    assert str(answer) == "你好,小张"
    async with bs.turn("telegram:12345", "What is my name?", tools=[look]) as turn:
        while not turn.done:
            request = await turn.request()
            assert request.ledger.total > 0
            await turn.record(await completions.create(**request.body))
            for call in turn.open_calls:
                await turn.result(call, f"looked: {call.arguments}")
    assert turn.text == "Your name is Zhang."
    assert turn.usage == Usage(input=20, output=10)
    assert [item["role"] for item in completions.bodies[1]["messages"]][-3:] == ["user", "assistant", "tool"]


# --- how an answer ends ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("step", "reason", "text"),
    [
        (Play(step="half of", finish="length"), "length", "half of"),
        (Play(step="withheld", finish="content_filter"), "content_filter", "withheld"),
        (
            Answer(
                messages=(
                    assistant(
                        "",
                    ).evolve(parts=(Refusal(text="I cannot."),)),
                ),
                finish="refusal",
            ),
            "refusal",
            "I cannot.",
        ),
        (Play(step="odd", finish="other"), "other", "odd"),
        (Play(step=assistant(""), finish="content_filter"), "content_filter", ""),
        (Play(step=assistant(""), finish="length"), "length", ""),
    ],
)
async def test_each_finish_has_one_outcome_and_the_session_goes_on(step, reason, text):
    bs = opened(step, "fine")
    reply = await bs.say("s", "go")
    assert (reply.reason, reply.text) == (reason, text)
    assert (await bs.say("s", "next")).text == "fine"
    legal(scripted(bs))


async def test_an_empty_answer_is_asked_for_once_more_and_then_marked():
    bs = opened(assistant(""), "said", assistant(""), assistant(""), "fine")
    assert (await bs.say("s", "one")).text == "said"
    reply = await bs.say("s", "two")
    assert (reply.reason, reply.text) == ("empty", "(no answer)")
    assert (await bs.say("s", "three")).text == "fine"
    legal(scripted(bs))


async def test_malformed_calls_and_unknown_tools_get_results_that_say_so():
    bs = opened(calls(("look", '{"what": '), ("nothing", {}), ("look", {"what": 2})), "done")
    reply = await bs.say("s", "go")
    assert reply.text == "done"
    results = [text for role, text in await messages(bs) if role == "tool"]
    assert sum(text.startswith("Error: ") for text in results) == 2
    assert "saw 2" in results
    legal(scripted(bs))


async def test_a_call_that_was_torn_by_the_length_gets_a_result_and_the_turn_goes_on():
    bs = opened(Play(step=calls(("look", '{"wha')), finish="length"), "done")
    assert (await bs.say("s", "go")).text == "done"
    legal(scripted(bs))


async def test_two_calls_with_one_id_are_two_calls():
    twice = assistant(
        "",
        ToolCall(id="c", name="look", arguments='{"what":"a"}'),
        ToolCall(id="c", name="look", arguments='{"what":"b"}'),
    )
    bs = opened(twice, "done")
    assert (await bs.say("s", "go")).text == "done"
    results = [text for role, text in await messages(bs) if role == "tool"]
    assert sorted(results) == ["saw a", "saw b"]
    legal(scripted(bs))


async def test_a_pause_is_sent_back_until_it_is_too_many():
    from backstory.messages import Native, Opaque, Origin

    value = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}}
    part = Opaque(
        kind="server_tool_use",
        native=Native(format="anthropic", value=value),
        origin=Origin(provider="anthropic"),
    )
    paused = Answer(messages=(backstory.messages.Message(role="assistant", parts=(part,)),), finish="pause")
    model = ScriptedModel([paused, "found it"], target="anthropic", name="m", legal=False)
    bs = opened(model, tools=())
    assert (await bs.say("s", "search")).text == "found it"
    model.then(*[paused] * 8)
    bs = opened(model, tools=(), guard=LoopGuard(max_iterations=3), store=bs.store)
    assert (await bs.say("s", "search for ever")).reason == "limit"


# --- models that fail -------------------------------------------------------------------------


async def test_a_failing_model_ends_the_turn_and_the_same_message_takes_it_up_again():
    bs = opened(ModelUnavailable, "fine at last", "next")
    with pytest.raises(ModelUnavailable):
        await bs.say("s", "go", message_id="m1")
    assert (await messages(bs))[-1] == ("assistant", INTERRUPTED)
    reply = await bs.say("s", "go", message_id="m1")
    assert (reply.text, reply.turn, reply.before) == ("fine at last", 1, False)
    again = await bs.say("s", "go", message_id="m1")
    assert (again.text, again.before) == ("fine at last", True)
    await bs.say("s", "more")
    assert INTERRUPTED not in str(scripted(bs).requests[-1])
    check_log(await records(bs))
    legal(scripted(bs))


async def test_a_failed_turn_that_is_not_the_newest_is_answered_as_it_ended():
    bs = opened(ModelUnavailable, "two")
    with pytest.raises(ModelUnavailable):
        await bs.say("s", "one", message_id="m1")
    await bs.say("s", "two", message_id="m2")
    reply = await bs.say("s", "one", message_id="m1")
    assert (reply.reason, reply.before) == ("failed", True)


async def test_a_stream_that_breaks_off_leaves_what_was_said_as_an_interrupted_answer():
    bs = opened(Play(step="word " * 40, after=3, error=ModelUnavailable("gone")), "fine")
    with pytest.raises(ModelUnavailable):
        await bs.say("s", "go")
    role, text = (await messages(bs))[-1]
    assert role == "assistant"
    assert text.startswith("word word")
    assert text.endswith(INTERRUPTED)
    assert (await bs.say("s", "next")).text == "fine"


async def test_too_long_is_fitted_once_more_and_tried_once():
    limit = ContextTooLong("too long", limit=1500)
    bs = opened(*["a " * 100] * 6, limit, "fits", budget=4000, tools=())
    for number in range(6):
        await bs.say("s", f"{number} " + "word " * 120)
    reply = await bs.say("s", "and now?")
    assert reply.text == "fits"
    refused, taken = scripted(bs).requests[-2:]
    assert len(str(taken)) < len(str(refused)) / 2
    why = [r.data["why"] for r in await records(bs) if r.kind == "epoch"]
    assert why[-1] == "the provider said that the request was too long"
    legal(scripted(bs))


async def test_too_long_again_is_a_clear_error_and_the_session_goes_on():
    bs = opened("one", ContextTooLong("1"), ContextTooLong("2"), "three", budget=4000, tools=())
    await bs.say("s", "one")
    with pytest.raises(ContextTooLong, match="2"):
        await bs.say("s", "two")
    assert (await bs.say("s", "three")).text == "three"
    legal(scripted(bs))


async def test_a_message_that_cannot_fit_is_logged_and_bricks_nothing():
    bs = opened("one", "two", budget=900, tools=())
    await bs.say("s", "hello")
    with pytest.raises(BudgetExceeded) as caught:
        await bs.say("s", "word " * 2000, message_id="big")
    assert caught.value.ledger.total > 900
    assert (await bs.say("s", "small")).text == "two"
    roles = [role for role, _ in await messages(bs)]
    assert roles == ["user", "assistant"] * 3
    check_log(await records(bs))
    legal(scripted(bs))


# --- tools -------------------------------------------------------------------------------------


async def test_a_big_result_is_kept_aside_and_the_model_reads_on():
    @backstory.tool(max_result=1000)
    async def big() -> str:
        """A long story."""
        return "".join(f"line {n}\n" for n in range(5000))

    def read_on(body):
        preview = body["messages"][-1]["content"]
        handle = preview.split('handle="')[1].split('"')[0]
        return calls(("read_result", {"handle": handle, "offset": 20_000}))

    bs = opened(calls("big"), read_on, "done", tools=[big])
    assert (await bs.say("s", "go")).text == "done"
    first, second = [text for role, text in await messages(bs) if role == "tool"]
    assert len(first) <= 1000
    assert "line 2" in second
    with pytest.raises(backstory.errors.StoreDamaged):
        await bs.store.get_blob("other", first.split('handle="')[1].split('"')[0])


async def test_a_loop_is_warned_and_then_ended():
    same = calls(("look", {"what": "x"}))
    bs = opened(*[same] * 6, "fine")
    reply = await bs.say("s", "go")
    assert reply.reason == "limit"
    refused = [text for role, text in await messages(bs) if role == "tool" and text.startswith("[Not run")]
    assert len(refused) == 2
    assert (await bs.say("s", "next")).text  # the sixth step of the script, or the answer
    legal(scripted(bs))


async def test_a_tool_that_hangs_is_stopped_and_a_turn_has_a_limit():
    @backstory.tool
    async def hang() -> str:
        """Hang."""
        await asyncio.sleep(60)
        return "never"

    bs = opened(calls("hang"), "went on", tools=[hang], tool_timeout=0.05)
    assert (await bs.say("s", "go")).text == "went on"
    assert "longer than 0.05 s" in (await messages(bs))[2][1]
    bs = opened(calls("hang"), tools=[hang], turn_timeout=0.05)
    assert (await bs.say("s", "go")).reason == "limit"
    bs = opened(Play(step="never", stall=True), turn_timeout=0.05)
    assert (await bs.say("s", "go")).reason == "limit"
    check_log(await records(bs))


# --- cancellation, at any await -----------------------------------------------------------------


@pytest.mark.parametrize("ticks", range(0, 60, 1))
async def test_a_turn_that_is_cancelled_anywhere_leaves_a_legal_session(ticks):
    model = play(calls(("look", {"what": 1}), ("peek", {"what": 2})), "done", "fine", "fine", "fine")
    bs = opened(model)
    task = asyncio.create_task(bs.say("s", "go", message_id="m"))
    for _ in range(ticks):
        await asyncio.sleep(0)
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):  # or it was over before
        await task
    log = await records(bs)
    check_log(log)
    assert bs.sessions.peek(S)[0].view.turn is None
    assert await bs.store.lease(S) is None
    reply = await bs.say("s", "next")
    assert reply.turn == (2 if log else 1)
    legal(model)
    check_log(await records(bs))


async def test_a_stream_that_nobody_reads_on_ends_the_turn_and_the_models_stream():
    bs = opened(Play(step="word " * 50), "fine")
    events = bs.stream("s", "go")
    async for _ in events:
        break
    await events.aclose()
    assert (await messages(bs))[-1] == ("assistant", INTERRUPTED)
    assert await bs.store.lease(S) is None
    assert (await bs.say("s", "next")).text == "fine"


# --- ids ------------------------------------------------------------------------------------------


async def test_the_same_id_with_other_content_is_a_conflict_and_an_undone_one_may_come_again():
    bs = opened("one", "other")
    await bs.say("s", "hello", message_id="m")
    with pytest.raises(MessageConflict):
        await bs.say("s", "good-bye", message_id="m")
    await bs.command("s", "/undo")
    assert (await bs.say("s", "good-bye", message_id="m")).text == "other"


async def test_ids_and_sessions_of_other_scopes_are_other_ones():
    bs = opened("a", "b", "c")
    one = await bs.say("s", "hello", message_id="m", scope="x")
    other = await bs.say("s", "something else", message_id="m", scope="y")
    assert (one.text, other.text) == ("a", "b")
    assert await messages(bs) == []
    assert len(await records(bs, scope="x")) == len(await records(bs, scope="y")) > 0
    assert "hello" not in str(scripted(bs).requests[1])


async def test_prefixes_hold_over_turns_steps_and_reopening(tmp_path):
    bodies = []
    for round_ in range(3):
        model = play(
            calls(("look", {"what": round_}), ("peek", {"what": "p"})), f"answer {round_}", "and more"
        )
        async with backstory.open(tmp_path, model=model, tools=[look, peek]) as bs:
            await bs.say("s", f"question {round_}")
            await bs.say("s", "and?")
            log = await records(bs)
        bodies += model.requests
        legal(model)
    check_prefix(log, bodies)
    assert {r.data["state"]["epoch"] for r in log if r.kind == "request"} == {1}


async def test_nothing_is_asked_without_a_model_and_without_words():
    bs = backstory.open("memory:")
    with pytest.raises(backstory.errors.ConfigurationError, match="no model"):
        await bs.say("s", "hello")
    bs = opened("x")
    for bad in ("", "  ", [], [3]):
        with pytest.raises(backstory.errors.InvalidInput):
            await bs.say("s", bad)  # type: ignore[arg-type]
    with pytest.raises(backstory.errors.ConfigurationError, match="policy"):
        await bs.say("s", "x", policy="later")  # type: ignore[arg-type]
    assert await kinds(bs) == []
    assert (await bs.say("s", [Text(text="parts")])).text == "x"


@settings(max_examples=60, deadline=None)
@given(
    steps=st.lists(
        st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=4), min_size=1, max_size=4
    ),
    chance=st.randoms(use_true_random=False),
)
def test_what_a_turn_takes_for_open_is_what_its_log_leaves_open(steps, chance):
    """Ids that come again, in one answer and in later ones, answered in any order."""

    async def life():
        bs = opened(play())
        async with bs.turn("s", "go") as turn:
            for ids in steps:
                await turn.record(assistant("", *(ToolCall(id=each, name="look") for each in ids)))
                assert turn._open() == open_calls(turn.session.view)
                assert len(turn.open_calls) == len(ids)
                while turn.open_calls:
                    await turn.result(chance.choice(turn.open_calls), "seen")
                    assert turn._open() == open_calls(turn.session.view)
            await turn.record(assistant("done"))

    asyncio.run(life())
