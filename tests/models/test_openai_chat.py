"""OpenAIModel over Chat Completions: the official SDK against a server that plays what real ones do."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from backstory import errors
from backstory.legality.rules import problems
from backstory.messages import Reasoning, assistant, tool, user
from backstory.models import Answer, CallDelta, OpenAIModel, ReasoningDelta, TextDelta, Usage
from backstory.models.base import Event
from backstory.models.retry import Retry
from tests.models.server import Reply, Server

BODY = {"messages": [{"role": "user", "content": "Hello"}]}
QUICK = Retry(retries=2, first=0.01)


@pytest_asyncio.fixture
async def model(server: Server) -> AsyncIterator[OpenAIModel]:
    found = OpenAIModel(
        "m", base_url=f"{server.url}/v1", api_key="sk-secret", retries=QUICK, timeout=5, temperature=0
    )
    yield found
    await found.aclose()


def completion(message: dict[str, Any], finish: str = "stop", **fields: Any) -> Reply:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": finish}
    usage = {"prompt_tokens": 12, "completion_tokens": 3, "total_tokens": 15}
    return Reply(
        json={
            "id": "x",
            "object": "chat.completion",
            "created": 1,
            "model": "m-1",
            "choices": [choice],
            "usage": usage,
            **fields,
        }
    )


def chunk(delta: dict[str, Any], finish: str | None = None, **fields: Any) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return {
        "id": "x",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "m-1",
        "choices": [choice],
        **fields,
    }


def streamed(*deltas: dict[str, Any], finish: str = "stop", usage: Any = None, **fields: Any) -> Reply:
    last = [{**chunk({}), "choices": [], "usage": usage}] if usage else []
    return Reply(events=[*map(chunk, deltas), chunk({}, finish), *last, "[DONE]"], **fields)


def call(
    index: int | None = 0, id: str | None = None, name: str | None = None, arguments: Any = None
) -> dict[str, Any]:
    function = {key: value for key, value in (("name", name), ("arguments", arguments)) if value is not None}
    fragment: dict[str, Any] = {"function": function}
    if index is not None:
        fragment["index"] = index
    if id is not None:
        fragment |= {"id": id, "type": "function"}
    return {"tool_calls": [fragment]}


async def events_of(model: OpenAIModel, body: dict = BODY) -> list[Event]:
    return [event async for event in model.stream(body)]


async def watch(model: OpenAIModel, seen: list[Event]) -> None:
    async for event in model.stream(BODY):
        seen.append(event)  # noqa: PERF401


# --- answers -------------------------------------------------------------------------------


async def test_a_whole_answer(server: Server, model: OpenAIModel):
    usage = {
        "prompt_tokens": 100,
        "completion_tokens": 20,
        "prompt_tokens_details": {"cached_tokens": 64},
        "completion_tokens_details": {"reasoning_tokens": 8},
    }
    server.plays(
        completion({"content": "Hi", "refusal": None, "annotations": [], "x_unknown": 1}, usage=usage)
    )
    answer = await model.complete(BODY)
    assert (answer.text, answer.finish, answer.model) == ("Hi", "stop", "m-1")
    assert answer.usage == Usage(input=100, output=20, cached=64, reasoning=8)
    assert answer.message.native is not None
    assert answer.message.native.value == {"role": "assistant", "content": "Hi", "x_unknown": 1}
    path, headers, body = server.requests[0]
    assert path == "/v1/chat/completions"
    assert headers["authorization"] == "Bearer sk-secret"
    assert body == {"model": "m", "temperature": 0, **BODY}


async def test_the_body_wins_over_the_settings_and_stays_as_it_was(server: Server, model: OpenAIModel):
    server.plays(completion({"content": "Hi"}))
    body = {**BODY, "temperature": 1, "model": "other", "min_p": 0.1, "stream": True}
    before = dict(body)
    await model.complete(body)
    assert body == before
    assert server.bodies[0] == {**BODY, "temperature": 1, "model": "other", "min_p": 0.1}


async def test_a_streamed_answer(server: Server, model: OpenAIModel):
    server.plays(
        streamed(
            {"role": "assistant", "content": ""},
            {"reasoning_content": "Think"},
            {"reasoning_content": "ing."},
            {"content": "Hel"},
            {"content": "lo"},
            usage={"prompt_tokens": 9, "completion_tokens": 2, "prompt_cache_hit_tokens": 4},
        )
    )
    *deltas, answer = await events_of(model)
    assert deltas == [
        ReasoningDelta(text="Think"),
        ReasoningDelta(text="ing."),
        TextDelta(text="Hel"),
        TextDelta(text="lo"),
    ]
    assert isinstance(answer, Answer)
    assert (answer.text, answer.reasoning, answer.finish) == ("Hello", "Thinking.", "stop")
    assert answer.usage == Usage(input=9, output=2, cached=4)
    assert isinstance(answer.message.parts[0], Reasoning)
    assert answer.message.native is not None
    assert answer.message.native.value == {
        "role": "assistant",
        "content": "Hello",
        "reasoning_content": "Thinking.",
    }
    assert server.bodies[0]["stream_options"] == {"include_usage": True}


@pytest.mark.parametrize(
    ("deltas", "expected"),
    [
        pytest.param(
            [
                call(0, "a", "look", ""),
                call(0, None, None, '{"x"'),
                call(0, None, None, ":1}"),
                call(1, "b", "go", "{}"),
            ],
            [("a", "look", '{"x":1}'), ("b", "go", "{}")],
            id="by-index",
        ),
        pytest.param(
            [call(0, "a", "look", '{"x"'), call(0, "a", "look", ":1}")],
            [("a", "look", '{"x":1}')],
            id="id-repeated",
        ),
        pytest.param(
            [call(0, "a", "look", '{"x"'), call(0, "", None, ":1}")],
            [("a", "look", '{"x":1}')],
            id="empty-id-later",
        ),
        pytest.param(
            [call(0, "a", "look", '{"x":1}'), call(0, "b", "go", "{}")],
            [("a", "look", '{"x":1}'), ("b", "go", "{}")],
            id="all-index-0",
        ),
        pytest.param(
            [call(None, "a", "look", '{"x"'), call(None, None, None, ":1}"), call(None, "b", "go", "{}")],
            [("a", "look", '{"x":1}'), ("b", "go", "{}")],
            id="no-index",
        ),
        pytest.param(
            [call(None, None, "look", '{"x":1}'), call(None, None, "look", '{"x":2}')],
            [("*", "look", '{"x":1}'), ("*", "look", '{"x":2}')],
            id="no-index-no-id",
        ),
        pytest.param([call(0, "", "look", "{}")], [("*", "look", "{}")], id="empty-id"),
        pytest.param(
            [call(0, "a", "look", "{}"), call(1, "a", "look", '{"x":1}')],
            [("a", "look", "{}"), ("*", "look", '{"x":1}')],
            id="one-id-twice",
        ),
        pytest.param([call(0, "a", "look", {"x": 1})], [("a", "look", '{"x":1}')], id="object-arguments"),
        pytest.param([call(0, "a", "look", '{"x": ')], [("a", "look", '{"x": ')], id="torn"),
        pytest.param([call(0, "a", None, "{}")], [("a", "", "{}")], id="no-name"),
        pytest.param([call(0, "a", "look")], [("a", "look", "")], id="no-arguments"),
        pytest.param(
            [call(1, "b", "go", "{}"), call(0, "a", "look", "{}")],
            [("b", "go", "{}"), ("a", "look", "{}")],
            id="order-of-arrival",
        ),
    ],
)
async def test_streamed_calls(server: Server, model: OpenAIModel, deltas: list, expected: list):
    server.plays(streamed({"role": "assistant", "content": None}, *deltas, finish="tool_calls"))
    *pieces, answer = await events_of(model)
    assert isinstance(answer, Answer)
    assert answer.finish == "tool_calls"
    assert [(name, arguments) for _, name, arguments in expected] == [
        (c.name, c.arguments) for c in answer.calls
    ]
    for part, (own_id, _, _) in zip(answer.calls, expected, strict=True):
        assert part.id == own_id if own_id != "*" else part.id.startswith("call_")
    assert len({part.id for part in answer.calls}) == len(expected)
    for index, part in enumerate(answer.calls):
        mine = [p for p in pieces if isinstance(p, CallDelta) and p.index == index]
        assert "".join(p.name for p in mine) == part.name
        assert "".join(p.arguments for p in mine) == part.arguments
    malformed = [part for part in answer.calls if not part.name or part.arguments == '{"x": ']
    assert list(answer.malformed) == malformed
    # What the model said is legal to send back once each call has its result, unless the call itself is broken.
    if not malformed:
        answers = [tool(part.id, "ok") for part in answer.calls]
        broken = {p.rule for p in problems([user("Hi"), *answer.messages, *answers], model.target)}
        assert broken <= {"call.arguments"}


async def test_two_calls_with_one_id_in_a_whole_answer_are_told_apart(server: Server, model: OpenAIModel):
    one = {"id": "same", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    server.plays(completion({"content": None, "tool_calls": [one, one, {**one, "id": ""}]}, "stop"))
    answer = await model.complete(BODY)
    assert answer.finish == "tool_calls"  # whatever the server calls it
    assert len({part.id for part in answer.calls}) == 3
    assert answer.calls[0].id == "same"


async def test_custom_calls_and_unknown_fields_of_calls_are_kept(server: Server, model: OpenAIModel):
    signed = {
        "index": 0,
        "id": "a",
        "type": "function",
        "function": {"name": "f", "arguments": "{}"},
        "extra_content": {"google": {"thought_signature": "sig"}},
    }
    custom = [
        {"index": 1, "id": "b", "type": "custom", "custom": {"name": "sh", "input": "ls"}},
        {"index": 1, "custom": {"input": " -l"}},
    ]
    server.plays(streamed(*({"tool_calls": [one]} for one in [signed, *custom]), finish="tool_calls"))
    answer = (await events_of(model))[-1]
    assert isinstance(answer, Answer)
    first, second = answer.calls
    assert first.signature == "sig"
    assert (second.kind, second.name, second.arguments) == ("custom", "sh", "ls -l")


@pytest.mark.parametrize(
    ("message", "finish", "outcome"),
    [
        ({"content": "cut o"}, "length", "length"),
        ({"content": None}, "length", "length"),
        ({"content": ""}, "stop", "empty"),
        ({"content": "  \n"}, "stop", "empty"),
        ({"content": None, "reasoning_content": "hm"}, "stop", "empty"),
        ({"content": "ok", "tool_calls": []}, "tool_calls", "stop"),
        ({"content": None, "refusal": "I can't."}, "stop", "refusal"),
        ({"content": "so"}, "content_filter", "content_filter"),
        ({"content": "ok"}, "function_call", "stop"),
        ({"content": "ok"}, "weird", "other"),
    ],
)
async def test_every_end_has_its_outcome(
    server: Server, model: OpenAIModel, message: dict, finish: str, outcome: str
):
    server.plays(completion(message, finish), streamed(message, finish=finish))
    whole, last = await model.complete(BODY), (await events_of(model))[-1]
    assert isinstance(last, Answer)
    assert (whole.finish, last.finish) == (outcome, outcome)
    assert whole.text == last.text == (message["content"] or message.get("refusal") or "")


async def test_without_choices_it_is_tried_again(server: Server, model: OpenAIModel):
    server.plays(Reply(json={"choices": []}), completion({"content": "Hi"}))
    assert (await model.complete(BODY)).text == "Hi"
    server.plays(Reply(json={"error": {"code": 402, "message": "Insufficient Balance"}}))
    with pytest.raises(errors.ModelRefused, match="Insufficient Balance"):
        await model.complete(BODY)


# --- failures ------------------------------------------------------------------------------


def error(status: int, message: str = "nope", **fields: Any) -> Reply:
    headers = fields.pop("headers", {})
    return Reply(status=status, json={"error": {"message": message, **fields}}, headers=headers)


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 529])
async def test_what_may_be_tried_again_is(server: Server, model: OpenAIModel, status: int):
    server.plays(error(status), error(status), completion({"content": "Hi"}))
    assert (await model.complete(BODY)).text == "Hi"
    server.plays(error(status), streamed({"content": "Hi"}))
    last = (await events_of(model))[-1]
    assert isinstance(last, Answer)
    assert len(server.requests) == 5


@pytest.mark.parametrize(
    ("reply", "cls"),
    [
        (error(400, "bad"), errors.ModelRefused),
        (error(401, "Incorrect API key provided: sk-secret."), errors.ModelRefused),
        (error(404, "model not found"), errors.ModelRefused),
        (error(422, "no"), errors.ModelRefused),
        (error(429, "You exceeded your current quota", code="insufficient_quota"), errors.ModelRefused),
        (error(500, "Jinja Exception: roles must alternate"), errors.ModelRefused),
        (error(503, "no", headers={"x-should-retry": "false"}), errors.ModelRefused),
        (error(503, "no", headers={"retry-after": "3600"}), errors.ModelUnavailable),
        (error(400, "x", code="context_length_exceeded"), errors.ContextTooLong),
        (Reply(text="<html>hello</html>"), errors.ModelRefused),
    ],
)
async def test_what_may_not_be_tried_again_is_not(
    server: Server, model: OpenAIModel, reply: Reply, cls: type
):
    server.plays(reply)
    with pytest.raises(cls) as caught:
        await model.complete(BODY)
    assert len(server.requests) == 1
    assert "sk-secret" not in str(caught.value)


async def test_retries_end(server: Server, model: OpenAIModel):
    with pytest.raises(errors.ModelUnavailable, match="500: no more"):
        await model.complete(BODY)
    assert len(server.requests) == 3


async def test_retry_after_is_heeded(server: Server, model: OpenAIModel):
    server.plays(error(429, headers={"retry-after": "0.2"}), completion({"content": "Hi"}))
    clock = asyncio.get_running_loop().time
    start = clock()
    await model.complete(BODY)
    assert 0.2 <= clock() - start < 2


async def test_the_limit_is_read_out_of_the_message(server: Server, model: OpenAIModel):
    text = "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
    server.plays(error(400, text, code="context_length_exceeded"))
    with pytest.raises(errors.ContextTooLong) as caught:
        await events_of(model)
    assert caught.value.limit == 128_000


async def test_a_server_that_is_not_there():
    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", retries=Retry(retries=1, first=0.01))
    with pytest.raises(errors.ModelUnavailable, match="Connection error"):
        await model.complete(BODY)


async def test_a_slow_server_times_out(server: Server):
    model = OpenAIModel("m", base_url=f"{server.url}/v1", retries=0, timeout=0.1)
    server.plays(Reply(delay=5, json={}), Reply(events=[chunk({"content": "Hi"})], hang=True))
    with pytest.raises(errors.ModelUnavailable, match="timed out"):
        await model.complete(BODY)
    with pytest.raises(errors.ModelUnavailable):
        await events_of(model)
    await model.aclose()


async def test_a_stream_that_breaks_after_something_was_handed_out_is_not_tried_again(
    server: Server, model: OpenAIModel
):
    server.plays(
        Reply(events=[chunk({"content": "Hi"})], cut=True, between=0.01), streamed({"content": "again"})
    )
    seen: list[Event] = []
    with pytest.raises(errors.ModelUnavailable):
        await watch(model, seen)
    assert seen == [TextDelta(text="Hi")]
    assert len(server.requests) == 1


async def test_a_stream_that_breaks_before_is_tried_again(server: Server, model: OpenAIModel):
    server.plays(Reply(events=[chunk({"role": "assistant"})], cut=True), streamed({"content": "Hi"}))
    answer = (await events_of(model))[-1]
    assert isinstance(answer, Answer)
    assert answer.text == "Hi"


@pytest.mark.parametrize(
    ("events", "cls"),
    [
        ([chunk({"content": "Hi"}), "[DONE]"], errors.ModelUnavailable),
        ([chunk({"content": "Hi"}), "{broken"], errors.ModelUnavailable),
        (
            [chunk({"content": "Hi"}), {"error": {"message": "overloaded", "code": 503}}],
            errors.ModelUnavailable,
        ),
        (
            [
                chunk({"content": "Hi"}),
                {"error": {"message": "the request exceeds the available context size"}},
            ],
            errors.ContextTooLong,
        ),
    ],
)
async def test_streams_that_end_badly(server: Server, model: OpenAIModel, events: list, cls: type):
    server.plays(Reply(events=events))
    with pytest.raises(cls):
        await events_of(model)


async def test_a_server_that_does_not_know_stream_options(server: Server, model: OpenAIModel):
    server.plays(
        error(400, "Unknown field: stream_options"), streamed({"content": "Hi"}), streamed({"content": "Hi"})
    )
    await events_of(model)
    await events_of(model)
    assert ["stream_options" in body for body in server.bodies] == [True, False, False]


async def test_a_cancelled_stream_lets_its_connection_go(server: Server, model: OpenAIModel):
    server.plays(Reply(events=[chunk({"content": "Hi"})], hang=True))
    seen: list[Event] = []
    task = asyncio.create_task(watch(model, seen))
    while not seen:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        await server.closed.wait()
    server.plays(completion({"content": "Hi"}))
    assert (await model.complete(BODY)).text == "Hi"


async def test_a_stream_that_is_left_lets_its_connection_go(server: Server, model: OpenAIModel):
    server.plays(Reply(events=[chunk({"content": "Hi"})], hang=True))
    events = model.stream(BODY)
    assert await anext(events) == TextDelta(text="Hi")
    await events.aclose()
    async with asyncio.timeout(60):
        await server.closed.wait()


# --- making one ----------------------------------------------------------------------------


def test_each_event_loop_has_its_own_client():
    from tests.models.server import serving

    model = OpenAIModel("m", base_url="http://127.0.0.1:9/v1", retries=0)

    async def ask() -> str:
        async with serving() as server:
            server.plays(completion({"content": "Hi"}))
            model._connection._make = lambda: __import__("openai").AsyncOpenAI(
                base_url=server.url, api_key="x"
            )
            try:
                return (await model.complete(BODY)).text
            finally:
                await model.aclose()

    assert [asyncio.run(ask()) for _ in range(2)] == ["Hi", "Hi"]


async def test_a_client_of_your_own(server: Server):
    import openai

    client = openai.AsyncOpenAI(base_url=f"{server.url}/v1", api_key="sk-own")
    model = OpenAIModel("m", client=client, target="vllm", max_output=50)
    server.plays(completion({"content": "Hi"}))
    await model.complete(BODY)
    assert server.requests[0][1]["authorization"] == "Bearer sk-own"
    assert server.bodies[0]["max_tokens"] == 50
    assert model.target.name == "vllm"
    await client.close()


async def test_what_goes_back_is_what_came(server: Server, model: OpenAIModel):
    server.plays(streamed(call(0, "a", "look", "{}"), finish="tool_calls"))
    answer = (await events_of(model))[-1]
    assert isinstance(answer, Answer)
    assert assistant("", *answer.calls).calls == answer.calls
