"""Conversion between any two formats: what was said survives, what cannot be carried is reported."""

import copy
import json
from collections.abc import Callable
from typing import Any

import pytest
from anthropic.types import MessageParam, ToolParam
from google.genai import types
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam, ChatCompletionToolParam
from openai.types.responses import FunctionToolParam, ResponseInputItemParam
from pydantic import TypeAdapter

from backstory import messages as m
from backstory.errors import ConfigurationError, InvalidInput, InvalidMessage
from backstory.formats import wire_format
from backstory.formats.base import Loss
from backstory.formats.convert import convert
from backstory.formats.request import read_all, request_body, tools_for
from backstory.targets import FORMATS, Target

VALID: dict[str, Callable[[Any], Any]] = {
    "openai_chat": TypeAdapter(ChatCompletionMessageParam).validate_python,
    "openai_responses": TypeAdapter(ResponseInputItemParam).validate_python,
    "anthropic": TypeAdapter(MessageParam).validate_python,
    "gemini": types.Content.model_validate,
}
VALID_TOOL: dict[str, Callable[[Any], Any]] = {
    "openai_chat": TypeAdapter(ChatCompletionToolParam).validate_python,
    "openai_responses": TypeAdapter(FunctionToolParam).validate_python,
    "anthropic": TypeAdapter(ToolParam).validate_python,
    "gemini": types.Tool.model_validate,
}

# --- generated conversations -----------------------------------------------------------------

WORDS = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8).filter(
    lambda text: text.strip() == text
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | WORDS,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(WORDS, inner, max_size=2),
    max_leaves=4,
)
ARGUMENTS = st.dictionaries(WORDS, JSON, max_size=2)
NAMES = st.sampled_from(["look_up", "book", "f-1"])


@st.composite
def conversations(draw: st.DrawFn) -> list[m.Message]:
    messages = [m.system(draw(WORDS))] if draw(st.booleans()) else []
    number = 0
    for _ in range(draw(st.integers(1, 3))):
        messages.append(m.user(draw(WORDS)))
        for _ in range(draw(st.integers(0, 2))):
            calls = []
            for _ in range(draw(st.integers(1, 3))):
                number += 1
                arguments = json.dumps(draw(ARGUMENTS), ensure_ascii=draw(st.booleans()))
                calls.append(m.ToolCall(id=f"call_{number}", name=draw(NAMES), arguments=arguments))
            messages.append(m.assistant(draw(st.just("") | WORDS), *calls))
            messages += [m.tool(call.id, draw(st.just("") | WORDS)) for call in calls]
        messages.append(m.assistant(draw(WORDS)))
    return messages


def told(messages: list[m.Message]) -> list[tuple[str, ...]]:
    """What was said, whoever grouped it into whatever items."""
    events: list[tuple[str, ...]] = []
    for message in messages:
        for part in message.parts:
            match part:
                case m.Text(text=text) if text:
                    events.append((message.role, text))
                case m.ToolCall(id=call_id, name=name, arguments=arguments):
                    events.append(("call", call_id, name, json.dumps(json.loads(arguments), sort_keys=True)))
                case m.ToolResult(call_id=call_id, content=content):
                    events.append(("result", call_id, m.texts(content)))
    return events


PAIRS = [(source, target) for source in FORMATS for target in FORMATS]


@pytest.mark.parametrize(("source", "target"), PAIRS)
@settings(max_examples=40)
@given(messages=conversations())
def test_what_was_said_survives(source: str, target: str, messages: list[m.Message]) -> None:
    given_ = wire_format(source).write(messages, Target.of(source))
    before = copy.deepcopy(given_.items)
    converted = convert(given_.items, source=source, target=target, system=given_.system)
    assert given_.items == before
    for item in converted.messages:
        VALID[target](item)
    form = wire_format(target)
    back, _ = read_all(converted.messages, target, system=converted.body.get(form.SYSTEM or ""))
    assert told(back) == told(messages)
    assert converted.losses == ()
    if source == target:
        assert all(new is old for new, old in zip(converted.messages, given_.items, strict=True))
        assert len(converted.messages) == len(given_.items)


@given(messages=conversations())
def test_there_and_back_through_all_formats(messages: list[m.Message]) -> None:
    items: list[Any] = wire_format("openai_chat").write(messages, Target.of("openai_chat")).items
    source, system = "openai_chat", None
    for target in ("anthropic", "openai_responses", "gemini", "openai_chat"):
        converted = convert(items, source=source, target=target, system=system)
        field = wire_format(target).SYSTEM
        items, system, source = converted.messages, converted.body.get(field or ""), target
    assert told(read_all(items, "openai_chat")[0]) == told(messages)


# --- one case each -------------------------------------------------------------------------


CHAT: list[dict[str, Any]] = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "What is in stock?", "name": "Ann"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "stock", "arguments": "{}"}}],
    },
    {"role": "tool", "tool_call_id": "c1", "content": "12 boxes"},
]


def test_the_body_holds_the_system_where_the_target_has_it_apart() -> None:
    converted = convert(CHAT, target="anthropic")
    assert converted.body == {"system": "Be brief.", "messages": converted.messages}
    assert [item["role"] for item in converted.messages] == ["user", "assistant", "user"]
    assert set(convert(CHAT, target="gemini").body) == {"systemInstruction", "contents"}
    assert set(convert(CHAT, target="openai_chat").body) == {"messages"}


def test_it_can_be_taken_apart_into_messages_and_losses() -> None:
    messages, losses = convert(CHAT, target="anthropic")
    assert messages == convert(CHAT, target="anthropic").messages
    assert losses == (
        Loss(index=1, kind="name", what="Anthropic has no field for the speaker's name ('Ann')"),
    )


def test_losses_are_counted_by_the_list_that_was_given() -> None:
    items = [
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t", "content": "r"},
            {"type": "text", "text": "and"},
        ]},
        {"role": "assistant", "content": [{"type": "container_upload", "file_id": "f"}]},
    ]  # fmt: skip
    converted = convert(items, source="anthropic", target="gemini", system="s")
    assert [(loss.index, loss.kind) for loss in converted.losses if loss.kind == "opaque"] == [(1, "opaque")]
    image = {"role": "user", "parts": [{"inlineData": {"mimeType": "image/png", "data": "aGk="}}]}
    system = convert([], source="gemini", target="anthropic", system=image)
    assert [(loss.index, loss.kind) for loss in system.losses] == [(-1, "image")]


def test_a_signature_survives_the_way_through_a_chat_message() -> None:
    contents = [
        {"role": "user", "parts": [{"text": "go"}]},
        {
            "role": "model",
            "parts": [
                {"functionCall": {"name": "f", "args": {}}, "thoughtSignature": "U0lH"},
                {"functionCall": {"name": "g", "args": {}}},
            ],
        },
        {
            "role": "user",
            "parts": [
                {"functionResponse": {"name": "f", "response": {}}},
                {"functionResponse": {"name": "g", "response": {}}},
            ],
        },
    ]
    chat, losses = convert(contents, source="gemini", target="openai_chat")
    assert losses == ()
    assert [call["id"] for call in chat[1]["tool_calls"]] == ["call_1", "call_2"]
    assert [item["tool_call_id"] for item in chat[2:]] == ["call_1", "call_2"]
    back, losses = convert(chat, source="openai_chat", target="gemini-3")
    assert losses == ()
    first, second = back[1]["parts"]
    assert first["thoughtSignature"] == "U0lH"
    assert "thoughtSignature" not in second
    assert [part["functionResponse"]["name"] for part in back[2]["parts"]] == ["f", "g"]
    _, losses = convert(contents, source="gemini", target="openai_chat", extensions=False)
    assert [(loss.index, loss.kind) for loss in losses] == [(1, "signature")]


def test_a_call_without_an_id_gets_one_that_nobody_has() -> None:
    contents = [
        {"role": "model", "parts": [
            {"functionCall": {"name": "f"}},
            {"functionCall": {"name": "g"}},
            {"functionCall": {"name": "h", "id": "call_1"}},
        ]},
        {"role": "user", "parts": [
            {"functionResponse": {"name": "g", "response": {"output": "G"}}},
            {"functionResponse": {"name": "f", "response": {"output": "F"}}},
            {"functionResponse": {"name": "h", "id": "call_1", "response": {"output": "H"}}},
        ]},
    ]  # fmt: skip
    chat, _ = convert(contents, target="openai_chat")
    assert [call["id"] for call in chat[0]["tool_calls"]] == ["call_2", "call_3", "call_1"]
    assert [(item["tool_call_id"], item["content"]) for item in chat[1:]] == [
        ("call_3", "G"), ("call_2", "F"), ("call_1", "H"),
    ]  # fmt: skip
    same, _ = convert(contents, target="gemini")
    assert [new is old for new, old in zip(same, contents, strict=True)] == [True, True]


def test_the_source_is_told_from_the_messages() -> None:
    items = [{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "r"}]}]
    assert convert(items, target="openai_chat").messages[0]["role"] == "tool"
    contents = [{"role": "user", "parts": [{"text": "x"}]}]
    assert convert(contents, target="anthropic").messages == [{"role": "user", "content": "x"}]
    assert convert([], target="anthropic").messages == []


def test_reasoning_goes_to_its_maker_only() -> None:
    thinking = {"type": "thinking", "thinking": "hm", "signature": "S"}
    items = [
        {"role": "user", "content": "q"},
        {"role": "assistant", "content": [thinking, {"type": "text", "text": "a"}]},
    ]
    target = Target.of("anthropic").but(origin=m.Origin(provider="anthropic", model="b"))
    for origin, kept in [
        (m.Origin(provider="anthropic", model="b"), True),
        (m.Origin(provider="anthropic", model="a"), False),
    ]:
        converted = convert(items, source="anthropic", target=target, origin=origin)
        assert ("S" in json.dumps(converted.messages)) is kept
        assert [loss.kind for loss in converted.losses] == ([] if kept else ["reasoning"])


@pytest.mark.parametrize(
    ("given_", "what"),
    [
        ("hello", "expected the list of messages .* not str"),
        (None, "not NoneType"),
        ({"messages": []}, "pass its field 'messages'"),
        ({"role": "user", "content": "x"}, "put one message into a list"),
        (iter([]), "expected the list"),
    ],
)
def test_what_is_no_list_is_refused(given_: Any, what: str) -> None:
    with pytest.raises(InvalidInput, match=what):
        convert(given_, target="anthropic")


def test_other_bad_input() -> None:
    with pytest.raises(InvalidMessage, match="message 1: ") as caught:
        convert([CHAT[0], 5], target="anthropic")
    assert caught.value.index == 1
    with pytest.raises(ConfigurationError):
        convert(CHAT, target="nobody")
    with pytest.raises(ConfigurationError):
        convert(CHAT, source="nobody", target="anthropic")


# --- request bodies and tools --------------------------------------------------------------

SCHEMA = {
    "type": "object",
    "properties": {"item": {"type": "string"}},
    "required": ["item"],
    "additionalProperties": False,
}
FUNCTION = {"name": "stock", "description": "What is there.", "parameters": SCHEMA}
DECLARED: dict[str, dict[str, Any]] = {
    "openai_chat": {"type": "function", "function": FUNCTION},
    "openai_responses": {"type": "function", **FUNCTION, "strict": False},
    "anthropic": {"name": "stock", "description": "What is there.", "input_schema": SCHEMA},
}


@pytest.mark.parametrize("source", DECLARED)
@pytest.mark.parametrize("target", FORMATS)
def test_tools_are_declared_as_the_target_has_it(source: str, target: str) -> None:
    tool = DECLARED[source]
    (found,) = tools_for(Target.of(target), [tool])
    VALID_TOOL[target](found)
    if source == target:
        assert found is tool
    elif target == "gemini":
        assert found == {"functionDeclarations": [
            {"name": "stock", "description": "What is there.", "parametersJsonSchema": SCHEMA},
        ]}  # fmt: skip
    elif "strict" not in tool:
        assert found == DECLARED[target]


def test_declarations_of_gemini_share_one_tool_and_others_stay() -> None:
    other: dict[str, Any] = {"googleSearch": {}}
    own = {"functionDeclarations": [{"name": "mine"}]}
    found = tools_for(Target.of("gemini"), [DECLARED["openai_chat"], other, own, DECLARED["anthropic"]])
    assert found[1] is other
    assert found[2] is own
    assert [each["name"] for each in found[0]["functionDeclarations"]] == ["stock", "stock"]
    assert len(found) == 3


def test_a_function_without_parameters() -> None:
    bare = {"type": "function", "function": {"name": "now"}}
    assert tools_for(Target.of("anthropic"), [bare]) == [
        {"name": "now", "input_schema": {"type": "object", "properties": {}}}
    ]
    assert tools_for(Target.of("gemini"), [bare]) == [{"functionDeclarations": [{"name": "now"}]}]
    VALID_TOOL["openai_responses"](tools_for(Target.of("openai_responses"), [bare])[0])


def test_unknown_tools_come_back_as_they_are() -> None:
    tools: list[Any] = [
        {"type": "web_search_20250305", "name": "web_search"},
        "odd",
        {"type": "custom", "custom": {}},
    ]
    for target in FORMATS:
        assert all(new is old for new, old in zip(tools_for(Target.of(target), tools), tools, strict=True))


def test_a_body_has_tools_only_where_there_are_some() -> None:
    target = Target.of("anthropic")
    written = wire_format("anthropic").write([m.user("u")], target)
    assert request_body(target, written) == {"messages": [{"role": "user", "content": "u"}]}
    assert request_body(target, written, []) == request_body(target, written)
    assert request_body(target, written, [DECLARED["openai_chat"]])["tools"] == [DECLARED["anthropic"]]
