"""The scripted model: it plays, it records, and it refuses what a real API refuses."""

import asyncio
from typing import Any, cast

import pytest

from backstory import errors
from backstory.messages import Message, Refusal, Text, ToolCall, assistant
from backstory.models import Answer, CallDelta, Model, Play, ScriptedModel, TextDelta, Usage, calls
from backstory.models.base import Event
from backstory.targets import Target

HELLO = {"messages": [{"role": "user", "content": "Hello"}]}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}

# One body per format: a user's words, and a finished step with a tool.
BODIES: dict[str, dict[str, Any]] = {
    "openai": {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": None, "tool_calls": [CALL]},
            {"role": "tool", "tool_call_id": "c1", "content": "42"},
        ]
    },
    "openai_responses": {
        "instructions": "Be brief.",
        "input": [
            {"role": "user", "content": "Look."},
            {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "42"},
        ],
    },
    "anthropic": {
        "system": "Be brief.",
        "messages": [
            {"role": "user", "content": "Look."},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "42"}]},
        ],
    },
    "gemini": {
        "systemInstruction": {"parts": [{"text": "Be brief."}]},
        "contents": [
            {"role": "user", "parts": [{"text": "Look."}]},
            {"role": "model", "parts": [{"functionCall": {"name": "look", "args": {}}}]},
            {"role": "user", "parts": [{"functionResponse": {"name": "look", "response": {"result": "42"}}}]},
        ],
    },
}
ITEMS = {"openai": "messages", "openai_responses": "input", "anthropic": "messages", "gemini": "contents"}


async def events_of(model: ScriptedModel, body=HELLO) -> list[Event]:
    return [event async for event in model.stream(body)]


async def watch(model: ScriptedModel, seen: list[Event]) -> None:
    """Into a list as it comes, so that what came before a break is seen."""
    async for event in model.stream(HELLO):
        seen.append(event)  # noqa: PERF401


async def test_it_plays_its_script_and_keeps_the_requests():
    model = ScriptedModel(["One", "Two"], temperature=0)
    assert isinstance(model, Model)
    assert (await model.complete(HELLO)).text == "One"
    body = {"messages": [{"role": "user", "content": "Again"}]}
    assert (await model.complete(body)).text == "Two"
    body["messages"].append({"role": "user", "content": "later"})
    assert model.requests == [HELLO, {"messages": [{"role": "user", "content": "Again"}]}]
    with pytest.raises(
        errors.ConfigurationError, match=r"at its end: 2 steps were played, and this is request 3"
    ):
        await model.complete(HELLO)


async def test_a_stream_gives_pieces_and_then_the_answer():
    model = ScriptedModel([calls(("look", {"at": "the sky"}), "wait", text="I will look.")], size=5)
    *pieces, answer = await events_of(model)
    assert isinstance(answer, Answer)
    assert "".join(p.text for p in pieces if isinstance(p, TextDelta)) == "I will look."
    first = [p for p in pieces if isinstance(p, CallDelta) and p.index == 0]
    assert (first[0].id, first[0].name) == ("call_1", "look")
    assert "".join(p.arguments for p in first) == answer.calls[0].arguments == '{"at": "the sky"}'
    assert [call.id for call in answer.calls] == ["call_1", "call_2"]
    assert answer.finish == "tool_calls"
    assert answer.message.native is not None


@pytest.mark.parametrize("target", BODIES)
async def test_every_format_is_read_and_answered(target: str):
    model = ScriptedModel(["Forty-two.", calls("look")], target=target)
    answer = await model.complete(BODIES[target])
    assert (answer.text, answer.finish) == ("Forty-two.", "stop")
    assert all(m.native is not None and m.native.format == model.target.format for m in answer.messages)
    assert answer.usage is not None
    assert answer.usage.input > 10
    assert (await model.complete(BODIES[target])).calls[0].name == "look"


@pytest.mark.parametrize("target", BODIES)
@pytest.mark.parametrize("lost", [1, 2])
async def test_a_call_without_its_result_or_the_reverse_is_refused(target: str, lost: int):
    body = {**BODIES[target]}
    items = list(body[ITEMS[target]])
    del items[-lost]
    body[ITEMS[target]] = items
    model = ScriptedModel(["never"], target=target)
    with pytest.raises(errors.ModelRefused, match=r"result\.(missing|orphan)"):
        await model.complete(body)
    assert model.requests == [body]
    assert model.played == 0


@pytest.mark.parametrize(
    ("target", "body", "words"),
    [
        ("openai", {}, "messages must be a list"),
        ("openai", {"messages": []}, "at least one"),
        ("openai", {"messages": [{"role": "robot", "content": "x"}]}, "unknown role 'robot'"),
        ("openai", {"messages": [{"role": "system", "content": "x"}]}, "not the system's"),
        ("openai", {**HELLO, "temperature": float("nan")}, "strict JSON"),
        ("openai", {**HELLO, "tools": [{"type": "function", "function": {"name": "a b"}}]}, "does not match"),
        (
            "openai",
            {**HELLO, "tools": [{"type": "function", "function": {"name": "a"}}] * 2},
            "must be unique",
        ),
        ("openai", {"messages": [*HELLO["messages"], {"role": "assistant", "content": "Hi"}]}, "end with"),
        ("openai_chat", {"messages": HELLO["messages"] * 2}, "conversation roles must alternate"),
        ("anthropic", {"messages": [{"role": "user", "content": " "}]}, "non-empty|non-whitespace"),
    ],
)
async def test_other_refusals(target: str, body: dict, words: str):
    with pytest.raises(errors.ModelRefused, match=words):
        await ScriptedModel(["never"], target=target).complete(body)


async def test_anthropic_wants_max_tokens_and_gets_the_models_own():
    model = ScriptedModel(["ok"], target="anthropic")
    await model.complete(HELLO)
    with pytest.raises(errors.ModelRefused, match="max_tokens: Field required"):
        await model.complete({**HELLO, "max_tokens": None})


async def test_legal_false_takes_anything():
    body = {"messages": [{"role": "tool", "tool_call_id": "nobody", "content": "42"}]}
    assert (await ScriptedModel(["ok"], legal=False).complete(body)).text == "ok"


async def test_a_request_beyond_the_window_is_too_long():
    model = ScriptedModel(["ok"], window=50)
    with pytest.raises(errors.ContextTooLong) as caught:
        await model.complete({"messages": [{"role": "user", "content": "word " * 100}]})
    assert caught.value.limit == 50
    assert (await model.complete(HELLO)).text == "ok"


async def test_what_two_requests_share_counts_as_cached():
    model = ScriptedModel(lambda body: "ok")
    one = [{"role": "system", "content": "Be brief. " * 20}, {"role": "user", "content": "Hello"}]
    two = [*one, {"role": "assistant", "content": "ok"}, {"role": "user", "content": "And now?"}]
    usages = [(await model.complete({"messages": messages})).usage for messages in (one, two, two, one[1:])]
    assert [u is not None and u.cached for u in usages] == [
        0,
        usages[0] and usages[0].input - 3,
        usages[1] and usages[1].input - 3,
        0,
    ]


@pytest.mark.parametrize(
    "error", [errors.ModelUnavailable("down"), errors.ModelUnavailable, KeyboardInterrupt]
)
async def test_exceptions_are_raised(error):
    with pytest.raises(error if isinstance(error, type) else type(error)):
        await ScriptedModel([error]).complete(HELLO)


async def test_functions_see_the_body_and_may_be_async():
    async def reply(body: dict) -> str:
        await asyncio.sleep(0)
        return f"You said {body['messages'][-1]['content']}"

    model = ScriptedModel([reply, lambda body: calls("look")], temperature=0.5)
    assert (await model.complete(HELLO)).text == "You said Hello"
    assert (await model.complete(HELLO)).finish == "tool_calls"
    assert ScriptedModel(reply).name == "scripted"


async def test_other_answers():
    given = Answer(messages=(assistant("as given"),), usage=Usage(input=1, output=2))
    model = ScriptedModel(
        [
            given,
            "",
            Message(role="assistant", parts=(Refusal(text="I can't."),)),
            assistant("", ToolCall(id="x", name="look", arguments='{"at": ')),
            Play(step="cut o", finish="length", usage=Usage(input=5, output=3)),
            cast(Any, 42),
        ],
        target="openai",
    )
    assert await model.complete(HELLO) is given
    empty = await model.complete(HELLO)
    assert (empty.finish, empty.text, empty.message.parts) == ("empty", "", ())
    refusal = await model.complete(HELLO)
    assert (refusal.finish, refusal.text) == ("refusal", "I can't.")
    torn = await model.complete(HELLO)
    assert torn.malformed == torn.calls
    cut = await model.complete(HELLO)
    assert (cut.finish, cut.usage) == ("length", Usage(input=5, output=3))
    with pytest.raises(errors.ConfigurationError, match="cannot play int"):
        await model.complete(HELLO)


async def test_several_messages_are_one_answer():
    model = ScriptedModel(
        [[assistant("Let me look."), assistant("", ToolCall(id="c", name="look"))]], target="openai_responses"
    )
    answer = await model.complete({"input": "Look."})
    assert len(answer.messages) == 2
    assert answer.messages[1].joined
    assert [type(part) for part in answer.message.parts] == [Text, ToolCall]


async def test_a_stream_can_stall_and_be_cancelled():
    model = ScriptedModel([Play(step="a long answer", stall=True, after=2)], size=3)
    seen: list[Event] = []
    task = asyncio.create_task(watch(model, seen))
    await asyncio.sleep(0.01)
    assert seen == [TextDelta(text="a l"), TextDelta(text="ong")]
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_a_stream_can_break():
    model = ScriptedModel(
        [Play(step="a long answer", error=errors.ModelUnavailable("lost"), after=1, between=0.001)]
    )
    seen: list[Event] = []
    with pytest.raises(errors.ModelUnavailable, match="lost"):
        await watch(model, seen)
    assert len(seen) == 1
    with pytest.raises(errors.ModelUnavailable):
        await ScriptedModel([Play(step="hi", error=errors.ModelUnavailable("lost"), after=9)]).complete(HELLO)


async def test_then_writes_on_and_delay_waits():
    model = ScriptedModel().then(Play(step="slow", delay=0.02))
    clock = asyncio.get_running_loop().time
    start = clock()
    assert (await model.complete(HELLO)).text == "slow"
    assert clock() - start >= 0.015


def test_repr_and_window_of_the_target():
    model = ScriptedModel(["x"], target=Target.of("vllm").but(window=4096))
    assert (model.window, repr(model)) == (4096, "ScriptedModel('scripted', target='vllm', 1 steps left)")
