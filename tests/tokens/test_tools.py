"""Tool declarations: every provider's form, and no schema raises."""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.tokens import Counter, count_text, count_tools
from backstory.tokens.tools import ANTHROPIC_PROMPT

COUNTER = Counter(name="o200k_base")
SCHEMA = {
    "type": "object",
    "properties": {
        "location": {"type": "string", "description": "The city and state, e.g. San Francisco, CA"},
        "unit": {
            "type": "string",
            "description": "The unit of temperature to return",
            "enum": ["celsius", "fahrenheit"],
        },
    },
    "required": ["location"],
}
FUNCTION = {
    "name": "get_current_weather",
    "description": "Get the current weather in a given location",
    "parameters": SCHEMA,
}

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=10),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=6), inner, max_size=4),
    max_leaves=20,
)


@pytest.mark.parametrize(("encoding", "billed"), [("o200k_base", 101), ("cl100k_base", 105)])
def test_a_count_is_what_openai_bills(encoding: str, billed: int) -> None:
    # OpenAI's cookbook, "How to count tokens with tiktoken", last section: what gpt-4o and gpt-4 billed for the
    # tool above with these two messages. A message takes 3 and its role; the answer is primed with 3; a system message
    # beside tools costs 4 less.
    messages = (
        "You are a helpful assistant that can answer to questions about the weather.",
        "What's the weather like in San Francisco?",
    )
    around = sum(3 + 1 + count_text(message, encoding) for message in messages) + 3 - 4
    assert (
        around + count_tools([{"type": "function", "function": FUNCTION}], Counter(name=encoding)) == billed
    )


def test_what_the_rendering_has_no_place_for_counts_as_well() -> None:
    def counted(**more: object) -> int:
        return count_tools(
            [
                {
                    "name": "f",
                    "parameters": {"type": "object", "properties": {"a": {"type": "string", **more}}},
                }
            ],
            COUNTER,
        )

    plain = counted()
    assert counted(pattern="[a-z]{4}") > plain
    assert counted(default="a" * 400) > plain + 40
    assert counted(enum=["one", "two"]) > plain
    assert counted(anyOf=[{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/x"}}]) > plain


def test_nested_schemas_count_by_all_that_is_in_them() -> None:
    inner = {
        "type": "object",
        "properties": {"deep": {"type": ["string", "null"], "description": "far down in it"}},
    }
    lists = {"type": "array", "items": inner}
    nested = {
        "name": "f",
        "parameters": {
            "type": "object",
            "properties": {"list": lists, "any": {}, "odd": None, "open": {"type": "object"}},
        },
    }
    assert count_tools([nested], COUNTER) > count_tools([{"name": "f"}], COUNTER) + count_text(
        "far down in it"
    )


def test_the_form_on_the_wire_makes_no_great_difference() -> None:
    forms: list[dict[str, Any]] = [
        {"type": "function", "function": FUNCTION},
        {"type": "function", **FUNCTION, "strict": True},
        {
            "name": FUNCTION["name"],
            "description": FUNCTION["description"],
            "input_schema": SCHEMA,
            "cache_control": {"type": "ephemeral"},
        },
        {"functionDeclarations": [FUNCTION]},
    ]
    counts = [count_tools([form], COUNTER) for form in forms]
    assert max(counts) == min(counts)


def test_no_tools_cost_nothing() -> None:
    assert count_tools([], COUNTER) == count_tools(None, COUNTER) == 0


def test_claude_is_told_how_to_use_tools_once() -> None:
    counter = Counter(name="claude-4.7")
    one, two = count_tools([FUNCTION], counter), count_tools([FUNCTION, FUNCTION], counter)
    assert ANTHROPIC_PROMPT < one < two < one + ANTHROPIC_PROMPT


@given(tools=st.lists(json_values, max_size=4), more=json_values)
def test_more_tools_cost_more_and_none_raise(tools: Any, more: Any) -> None:
    assert 0 <= count_tools(tools, COUNTER) < count_tools([*tools, more], COUNTER)


def circular() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "object"}
    schema["properties"] = {"child": schema}
    return {"name": "tree", "parameters": schema}


def deep() -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for _ in range(100_000):
        schema = {"items": schema}
    return {"name": "deep", "parameters": schema}


@pytest.mark.parametrize(
    "tool",
    [
        circular(),
        deep(),
        {"name": "set", "enum": {"a", "b"}},
        {"name": "bytes", "default": b"\xff"},
        {"name": "keys", ("a", 1): 2, None: 3},
        {"name": "lone surrogate \ud800"},
        {"function": None},
        MappingProxyType({"name": "frozen", "parameters": MappingProxyType({"type": "object"})}),
        None,
        "a string",
        7,
        object(),
    ],
    ids=lambda value: type(value).__name__,
)
def test_odd_declarations_count_and_do_not_raise(tool: Any) -> None:
    assert count_tools([tool], COUNTER) > 12


@pytest.mark.parametrize("tools", [FUNCTION, "text", ({"name": "in a tuple"},)])
def test_what_is_no_list_counts_too(tools: Any) -> None:
    assert count_tools(tools, COUNTER) > 12
