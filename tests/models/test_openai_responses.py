"""OpenAIModel over Responses: items verbatim, encrypted reasoning, no state at the server."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from backstory import errors
from backstory.formats import openai_responses
from backstory.legality.rules import problems
from backstory.messages import Reasoning, tool, user
from backstory.models import Answer, CallDelta, OpenAIModel, ReasoningDelta, TextDelta, Usage
from backstory.models.retry import Retry
from tests.models.server import Reply, Server

BODY = {"input": [{"role": "user", "content": "Look."}]}
THOUGHT = {
    "id": "rs_1",
    "type": "reasoning",
    "summary": [{"type": "summary_text", "text": "Hm."}],
    "encrypted_content": "opaque==",
}
CALL = {
    "id": "fc_1",
    "type": "function_call",
    "status": "completed",
    "call_id": "call_1",
    "name": "look",
    "arguments": '{"at":"sky"}',
}
WORDS = {
    "id": "msg_1",
    "type": "message",
    "status": "completed",
    "role": "assistant",
    "content": [{"type": "output_text", "text": "Blue.", "annotations": []}],
}
USAGE = {
    "input_tokens": 50,
    "input_tokens_details": {"cached_tokens": 32},
    "output_tokens": 20,
    "output_tokens_details": {"reasoning_tokens": 12},
    "total_tokens": 70,
}


@pytest_asyncio.fixture
async def model(server: Server) -> AsyncIterator[OpenAIModel]:
    found = OpenAIModel(
        "gpt-5-mini", base_url=f"{server.url}/v1", api="responses", retries=Retry(retries=1, first=0.01)
    )
    yield found
    await found.aclose()


def response(*output: dict[str, Any], status: str = "completed", **fields: Any) -> dict[str, Any]:
    return {
        "id": "resp_1",
        "object": "response",
        "created_at": 1,
        "model": "gpt-5-mini-1",
        "status": status,
        "output": list(output),
        "usage": USAGE,
        **fields,
    }


def streamed(*output: dict[str, Any], end: str = "response.completed", **fields: Any) -> Reply:
    """As the API streams it: encrypted content is complete in the done event only."""
    events: list[dict[str, Any]] = [{"type": "response.created", "response": response(status="in_progress")}]
    for place, item in enumerate(output):
        torn = {**item, "encrypted_content": "op"} if "encrypted_content" in item else item
        events.append({"type": "response.output_item.added", "output_index": place, "item": torn})
        if item["type"] == "reasoning":
            events.append(
                {"type": "response.reasoning_summary_text.delta", "output_index": place, "delta": "Hm."}
            )
        if item["type"] == "function_call":
            kind = "response.function_call_arguments.delta"
            pieces = (item["arguments"][:4], item["arguments"][4:])
            events += [{"type": kind, "output_index": place, "delta": piece} for piece in pieces]
        if item["type"] == "message":
            events += [
                {
                    "type": "response.output_text.delta",
                    "output_index": place,
                    "content_index": 0,
                    "delta": piece,
                }
                for piece in ("Bl", "ue.")
            ]
        events.append({"type": "response.output_item.done", "output_index": place, "item": item})
    events.append({"type": end, "response": response(**fields)})
    return Reply(events=[{"sequence_number": n, **event} for n, event in enumerate(events)], named=True)


async def events_of(model: OpenAIModel) -> list[Any]:
    return [event async for event in model.stream(BODY)]


async def test_a_whole_answer_keeps_every_item(server: Server, model: OpenAIModel):
    server.plays(Reply(json=response(THOUGHT, CALL)))
    answer = await model.complete(BODY)
    assert [m.native.value for m in answer.messages if m.native] == [THOUGHT, CALL]
    assert answer.finish == "tool_calls"
    assert answer.usage == Usage(input=50, output=20, cached=32, reasoning=12)
    assert [(c.id, c.name, c.arguments) for c in answer.calls] == [("call_1", "look", '{"at":"sky"}')]
    assert server.requests[0][0] == "/v1/responses"
    assert server.bodies[0] == {"model": "gpt-5-mini", "store": False, **BODY}


async def test_a_streamed_answer_is_the_same(server: Server, model: OpenAIModel):
    server.plays(streamed(THOUGHT, CALL), streamed(THOUGHT, WORDS))
    *deltas, answer = await events_of(model)
    assert deltas == [
        ReasoningDelta(text="Hm."),
        CallDelta(index=0, id="call_1", name="look"),
        CallDelta(index=0, arguments='{"at'),
        CallDelta(index=0, arguments='":"sky"}'),
    ]
    assert [m.native.value for m in answer.messages] == [THOUGHT, CALL]
    *deltas, answer = await events_of(model)
    assert deltas[1:] == [TextDelta(text="Bl"), TextDelta(text="ue.")]
    assert (answer.text, answer.finish, answer.model) == ("Blue.", "stop", "gpt-5-mini-1")


async def test_what_came_goes_back(server: Server, model: OpenAIModel):
    server.plays(streamed(THOUGHT, CALL))
    answer = (await events_of(model))[-1]
    history = [user("Look."), *answer.messages, tool("call_1", "blue")]
    assert not list(problems(history, model.target))
    written = openai_responses.write(history, model.target)
    assert written.items[1:3] == [THOUGHT, CALL]
    (part,) = answer.messages[0].parts
    assert isinstance(part, Reasoning)
    assert part.encrypted == "opaque=="


async def test_two_calls_with_one_id_are_told_apart(server: Server, model: OpenAIModel):
    server.plays(Reply(json=response(CALL, CALL)))
    answer = await model.complete(BODY)
    assert len({call.id for call in answer.calls}) == 2


@pytest.mark.parametrize(
    ("fields", "finish"),
    [
        ({"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}, "length"),
        ({"status": "incomplete", "incomplete_details": {"reason": "content_filter"}}, "content_filter"),
        ({}, "empty"),
    ],
)
async def test_ends(server: Server, model: OpenAIModel, fields: dict, finish: str):
    server.plays(
        Reply(json=response(**fields)),
        streamed(end="response.incomplete" if fields else "response.completed", **fields),
    )
    answers = [await model.complete(BODY), (await events_of(model))[-1]]
    assert [answer.finish for answer in answers] == [finish, finish]


async def test_a_refusal(server: Server, model: OpenAIModel):
    refusal = {**WORDS, "content": [{"type": "refusal", "refusal": "I can't."}]}
    server.plays(Reply(json=response(refusal)))
    answer = await model.complete(BODY)
    assert (answer.finish, answer.text) == ("refusal", "I can't.")


@pytest.mark.parametrize(
    ("error", "cls"),
    [
        ({"code": "server_error", "message": "oops"}, errors.ModelUnavailable),
        ({"code": "rate_limit_exceeded", "message": "slow down"}, errors.ModelUnavailable),
        ({"code": "invalid_prompt", "message": "no"}, errors.ModelRefused),
        (
            {
                "code": "context_length_exceeded",
                "message": "Your input exceeds the context window of this model.",
            },
            errors.ContextTooLong,
        ),
    ],
)
async def test_failures(server: Server, error: dict, cls: type):
    model = OpenAIModel("m", base_url=f"{server.url}/v1", api="responses", retries=0)
    server.plays(
        Reply(json=response(status="failed", error=error)),
        streamed(end="response.failed", status="failed", error=error),
        Reply(events=[{"type": "error", "sequence_number": 0, **error}], named=True),
    )
    with pytest.raises(cls):
        await model.complete(BODY)
    for _ in range(2):
        with pytest.raises(cls):
            await events_of(model)
    await model.aclose()


async def test_a_stream_that_ends_early_is_tried_again(server: Server, model: OpenAIModel):
    server.plays(
        Reply(events=[{"type": "response.created", "response": response()}], named=True), streamed(WORDS)
    )
    answer = (await events_of(model))[-1]
    assert isinstance(answer, Answer)
    assert answer.text == "Blue."


def test_encrypted_reasoning_is_asked_for_where_the_model_reasons():
    asks = {"include": ["reasoning.encrypted_content"]}
    for name, expected in [("gpt-5-mini", asks), ("o3", asks), ("gpt-4o", {}), ("gpt-5-chat-latest", {})]:
        model = OpenAIModel(name, api_key="x", api="responses", max_output=100)
        assert model.settings == {"store": False, "max_output_tokens": 100, **expected}
