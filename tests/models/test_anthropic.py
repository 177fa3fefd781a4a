"""AnthropicModel: the official SDK against a server that streams as Anthropic does."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio

from backstory import errors
from backstory.formats import anthropic as format_
from backstory.legality.rules import problems
from backstory.messages import Reasoning, tool, user
from backstory.models import AnthropicModel, CallDelta, ReasoningDelta, TextDelta, Usage
from backstory.models.base import Event
from backstory.models.retry import Retry
from tests.models.server import Reply, Server

BODY = {"messages": [{"role": "user", "content": "Look."}]}
THINKING = {"type": "thinking", "thinking": "Hmm.", "signature": "sig=="}
REDACTED = {"type": "redacted_thinking", "data": "opaque"}
TEXT = {"type": "text", "text": "I look."}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "look", "input": {"at": "sky"}}


@pytest_asyncio.fixture
async def model(server: Server) -> AsyncIterator[AnthropicModel]:
    found = AnthropicModel(
        "claude-x", base_url=server.url, api_key="sk-ant-secret", retries=Retry(first=0.01), timeout=5
    )
    yield found
    await found.aclose()


def events(*blocks: dict[str, Any], stop: str = "end_turn", torn: str | None = None) -> list[dict[str, Any]]:
    usage = {
        "input_tokens": 10,
        "cache_read_input_tokens": 100,
        "cache_creation_input_tokens": 20,
        "output_tokens": 1,
    }
    message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "claude-x-1", "content": []}
    found: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "stop_reason": None, "usage": usage}},
        {"type": "ping"},
    ]
    for index, block in enumerate(blocks):
        found += _block(index, block, torn)
    found.append(
        {
            "type": "message_delta",
            "delta": {"stop_reason": stop, "stop_sequence": None},
            "usage": {"output_tokens": 30},
        }
    )
    return [*found, {"type": "message_stop"}]


def _block(index: int, block: dict[str, Any], torn: str | None) -> list[dict[str, Any]]:
    deltas: list[dict[str, Any]] = []
    start = block
    if block["type"] == "text":
        start = {"type": "text", "text": ""}
        deltas = [{"type": "text_delta", "text": piece} for piece in (block["text"][:2], block["text"][2:])]
    elif block["type"] == "thinking":
        start = {"type": "thinking", "thinking": "", "signature": ""}
        deltas = [
            {"type": "thinking_delta", "thinking": block["thinking"]},
            {"type": "signature_delta", "signature": block["signature"]},
        ]
    elif block["type"] == "tool_use":
        start = {**block, "input": {}}
        deltas = [
            {"type": "input_json_delta", "partial_json": p}
            for p in ("", *([torn] if torn else ['{"at":', '"sky"}']))
        ]
    return [
        {"type": "content_block_start", "index": index, "content_block": start},
        *({"type": "content_block_delta", "index": index, "delta": delta} for delta in deltas),
        {"type": "content_block_stop", "index": index},
    ]


def streamed(*blocks: dict[str, Any], **fields: Any) -> Reply:
    return Reply(events=events(*blocks, **fields), named=True)


async def events_of(model: AnthropicModel) -> list[Any]:
    return [event async for event in model.stream(BODY)]


async def watch(model: AnthropicModel, seen: list[Event]) -> None:
    async for event in model.stream(BODY):
        seen.append(event)  # noqa: PERF401


async def test_a_streamed_answer_keeps_its_blocks(server: Server, model: AnthropicModel):
    server.plays(streamed(THINKING, REDACTED, TEXT, CALL, stop="tool_use"))
    *deltas, answer = await events_of(model)
    assert deltas == [
        ReasoningDelta(text="Hmm."),
        TextDelta(text="I "),
        TextDelta(text="look."),
        CallDelta(index=0, id="toolu_1", name="look"),
        CallDelta(index=0, arguments='{"at":'),
        CallDelta(index=0, arguments='"sky"}'),
    ]
    assert answer.message.native.value == {"role": "assistant", "content": [THINKING, REDACTED, TEXT, CALL]}
    assert answer.usage == Usage(input=130, output=30, cached=100, cache_written=20)
    assert (answer.finish, answer.model) == ("tool_calls", "claude-x-1")
    assert isinstance(answer.message.parts[0], Reasoning)
    _, headers, body = server.requests[0]
    assert "sk-ant-secret" in headers.get("x-api-key", "") + headers.get(
        "authorization", ""
    )  # by the SDK's version
    assert body == {"model": "claude-x", "max_tokens": 8192, "stream": True, **BODY}


async def test_what_came_goes_back(server: Server, model: AnthropicModel):
    server.plays(streamed(THINKING, CALL, stop="tool_use"))
    answer = await model.complete(BODY)
    history = [user("Look."), *answer.messages, tool("toolu_1", "blue")]
    assert not list(problems(history, model.target))
    assert format_.write(history, model.target).items[1] == {"role": "assistant", "content": [THINKING, CALL]}


@pytest.mark.parametrize(
    ("stop", "finish"),
    [
        ("end_turn", "stop"),
        ("stop_sequence", "stop"),
        ("max_tokens", "length"),
        ("model_context_window_exceeded", "length"),
        ("pause_turn", "pause"),
        ("refusal", "refusal"),
        ("new_reason", "other"),
    ],
)
async def test_ends(server: Server, model: AnthropicModel, stop: str, finish: str):
    server.plays(streamed(TEXT, stop=stop))
    assert (await model.complete(BODY)).finish == finish


async def test_an_empty_answer(server: Server, model: AnthropicModel):
    server.plays(streamed(), streamed({"type": "text", "text": ""}))
    assert (await model.complete(BODY)).finish == "empty"
    assert (await model.complete(BODY)).finish == "empty"


async def test_a_torn_call_is_malformed_and_two_ids_are_told_apart(server: Server, model: AnthropicModel):
    server.plays(streamed(CALL, stop="max_tokens", torn='{"at": "s'), streamed(CALL, CALL, stop="tool_use"))
    torn = await model.complete(BODY)
    assert torn.finish == "length"
    assert torn.malformed == torn.calls
    twice = await model.complete(BODY)
    assert len({call.id for call in twice.calls}) == 2
    assert not twice.malformed


async def test_unknown_blocks_and_deltas_are_kept(server: Server, model: AnthropicModel):
    found = events({"type": "compaction", "content": ""}, TEXT)
    found[3:3] = [
        {"type": "content_block_delta", "index": 0, "delta": {"type": "compaction_delta", "content": "short"}}
    ]
    place = next(n for n, e in enumerate(found) if e.get("index") == 1 and e["type"] == "content_block_delta")
    citation = {"type": "char_location", "cited_text": "x"}
    found.insert(
        place,
        {
            "type": "content_block_delta",
            "index": 1,
            "delta": {"type": "citations_delta", "citation": citation},
        },
    )
    server.plays(Reply(events=found, named=True))
    answer = await model.complete(BODY)
    assert answer.message.native is not None
    assert answer.message.native.value["content"] == [
        {"type": "compaction", "content": "short"},
        {**TEXT, "citations": [citation]},
    ]


def error(status: int, kind: str, message: str = "x", **headers: str) -> Reply:
    return Reply(
        status=status, json={"type": "error", "error": {"type": kind, "message": message}}, headers=headers
    )


@pytest.mark.parametrize(
    ("reply", "cls", "tries"),
    [
        (error(529, "overloaded_error"), errors.ModelUnavailable, 3),
        (error(500, "api_error"), errors.ModelUnavailable, 3),
        (error(401, "authentication_error", "invalid x-api-key sk-ant-secret"), errors.ModelRefused, 1),
        (error(400, "invalid_request_error", "max_tokens: Field required"), errors.ModelRefused, 1),
        (error(400, "invalid_request_error", "Your credit balance is too low"), errors.ModelRefused, 1),
        (error(413, "request_too_large"), errors.ContextTooLong, 1),
        (
            error(400, "invalid_request_error", "prompt is too long: 210000 tokens > 200000 maximum"),
            errors.ContextTooLong,
            1,
        ),
    ],
)
async def test_failures(server: Server, model: AnthropicModel, reply: Reply, cls: type, tries: int):
    server.plays(*[reply] * 3)
    with pytest.raises(cls) as caught:
        await model.complete(BODY)
    assert len(server.requests) == tries
    assert "sk-ant-secret" not in str(caught.value)
    if "210000" in str(caught.value):
        assert isinstance(caught.value, errors.ContextTooLong)
        assert caught.value.limit == 200_000


async def test_an_error_inside_a_stream(server: Server, model: AnthropicModel):
    overloaded = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    broken = Reply(events=[*events(TEXT)[:4], overloaded], named=True)
    server.plays(broken, streamed(TEXT), broken)
    assert (await model.complete(BODY)).text == "I look."  # nobody has seen anything yet
    seen: list[Event] = []
    with pytest.raises(errors.ModelUnavailable, match="Overloaded"):
        await watch(model, seen)
    assert seen == [TextDelta(text="I ")]
    assert len(server.requests) == 3


async def test_a_connection_that_breaks(server: Server, model: AnthropicModel):
    cut = Reply(events=events(TEXT)[:4], named=True, cut=True, between=0.01)
    server.plays(cut, streamed(TEXT), Reply(events=events(TEXT)[:4], named=True), streamed(TEXT))
    assert (await model.complete(BODY)).text == "I look."
    assert (await model.complete(BODY)).text == "I look."  # ended in good order, but before the message did


async def test_a_slow_server_times_out(server: Server):
    model = AnthropicModel("claude-x", base_url=server.url, api_key="x", retries=0, timeout=0.1)
    server.plays(Reply(delay=5), Reply(events=events(TEXT)[:2], named=True, hang=True))
    for _ in range(2):
        with pytest.raises(errors.ModelUnavailable):
            await model.complete(BODY)
    await model.aclose()


async def test_a_cancelled_stream_lets_its_connection_go(server: Server, model: AnthropicModel):
    server.plays(Reply(events=events(TEXT)[:4], named=True, hang=True))
    seen: list[Event] = []
    task = asyncio.create_task(watch(model, seen))
    while not seen:  # noqa: ASYNC110
        await asyncio.sleep(0.005)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    async with asyncio.timeout(60):
        await server.closed.wait()


async def test_fields_that_the_sdk_does_not_know_go_as_they_are(server: Server, model: AnthropicModel):
    server.plays(streamed(TEXT))
    body = {**BODY, "max_tokens": 5, "context_management": {"edits": []}, "system": "Be brief."}
    await model.complete(body)
    assert server.bodies[0] == {"model": "claude-x", "stream": True, **body}


def test_making_one():
    with pytest.raises(errors.ConfigurationError, match="ANTHROPIC_API_KEY"):
        AnthropicModel()
    with pytest.raises(errors.ConfigurationError, match="Anthropic's format"):
        AnthropicModel(api_key="x", target="openai")
    model = AnthropicModel("claude-sonnet-4-5", api_key="sk-ant-secret", max_output=100, temperature=0)
    assert model.settings == {"max_tokens": 100, "temperature": 0}
    assert (model.window, model.max_output) == (200_000, 100)
    assert "secret" not in repr(model)
