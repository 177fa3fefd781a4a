"""Which format a list is in, and what a request body holds."""

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.errors import InvalidInput
from backstory.formats import wire_format
from backstory.formats.detect import detect, unwrap
from backstory.targets import FORMATS

PLAIN = [{"role": "user", "content": "hi"}, {"role": "assistant", "content": "hello"}]


@pytest.mark.parametrize(
    ("item", "name"),
    [
        ({"role": "user", "parts": [{"text": "hi"}]}, "gemini"),
        ({"parts": [{"text": "hi"}]}, "gemini"),
        ({"role": "model", "parts": []}, "gemini"),
        ({"type": "message", "role": "user", "content": "hi"}, "openai_responses"),
        ({"role": "user", "content": [{"type": "input_text", "text": "hi"}]}, "openai_responses"),
        ({"role": "assistant", "content": [{"type": "output_text", "text": "hi"}]}, "openai_responses"),
        ({"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}, "openai_responses"),
        ({"type": "future_item"}, "openai_responses"),
        ({"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t"}]}, "anthropic"),
        (
            {"role": "assistant", "content": [{"type": "text", "text": "a"}, {"type": "tool_use"}]},
            "anthropic",
        ),
        ({"role": "assistant", "content": [{"type": "thinking", "thinking": "a"}]}, "anthropic"),
        (
            {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": "x"}}]},
            "anthropic",
        ),
        ({"role": "assistant", "content": [{"type": "web_search_tool_result"}]}, "anthropic"),
        ({"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]}, "anthropic"),
        ({"role": "tool", "tool_call_id": "c", "content": "x"}, "openai_chat"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "openai_chat"),
        ({"role": "assistant", "content": "x", "reasoning_content": "y"}, "openai_chat"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}, "openai_chat"),
        ({"role": "function", "name": "f", "content": "x"}, "openai_chat"),
    ],
)
def test_one_telling_item_is_enough(item: dict[str, Any], name: str) -> None:
    assert detect([*PLAIN, item, *PLAIN]) == name
    wire_format(name).read(item, index=0, origin=wire_format(name).ORIGIN)


@pytest.mark.parametrize(
    "items",
    [
        [],
        PLAIN,
        [{"role": "system", "content": "s"}, *PLAIN],
        [{"role": "user", "content": [{"type": "text", "text": "a"}]}],
        ["text", None, 3],
        [{}],
        [{"role": 3, "content": {"a": 1}}],
        [{"role": "user", "content": ["a", None, {"type": 3}]}],
    ],
)
def test_what_reads_alike_everywhere_is_not_guessed(items: list[Any]) -> None:
    assert detect(items) is None


def test_a_developer_is_openais() -> None:
    assert detect([{"role": "developer", "content": "s"}, *PLAIN]) == "openai_chat"
    typed = {"type": "message", "role": "user", "content": "x"}
    assert detect([{"role": "developer", "content": "s"}, typed]) == "openai_responses"


def test_the_majority_wins() -> None:
    chat = {"role": "tool", "tool_call_id": "c", "content": "x"}
    gemini = {"role": "user", "parts": []}
    assert detect([chat, gemini, gemini]) == "gemini"
    assert detect([chat, gemini]) == "openai_chat"


class Long(Sequence[Any]):
    """A list that notes what is read of it."""

    def __init__(self, length: int) -> None:
        self.length = length
        self.read: set[int] = set()

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, key: Any) -> Any:
        if isinstance(key, slice):
            return [self[index] for index in range(*key.indices(self.length))]
        self.read.add(key)
        return PLAIN[key % 2]

    def __iter__(self) -> Iterator[Any]:
        return (self[index] for index in range(self.length))


def test_only_the_two_ends_of_a_long_list_are_read() -> None:
    items = Long(1_000_000)
    assert detect(items) is None
    assert len(items.read) == 70
    assert detect([*PLAIN * 1000, {"role": "tool", "tool_call_id": "c"}, *PLAIN * 20]) == "openai_chat"


JSON = st.recursive(
    st.none() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                ["role", "content", "parts", "type", "tool_calls", "messages", "input", "contents", "tools"]
            ),
            inner | st.sampled_from(["user", "tool", "text", "function_call"]),
            max_size=3,
        )
    ),
    max_leaves=12,
)


@given(st.lists(JSON, max_size=4))
def test_anything_at_all_has_a_format_or_none(items: list[Any]) -> None:
    assert detect(items) in (None, *FORMATS)


@given(JSON)
def test_anything_at_all_is_unwrapped_or_refused(value: Any) -> None:
    try:
        unwrapped = unwrap(value)
    except InvalidInput:
        return
    assert type(unwrapped.items) is list
    assert unwrapped.format in (None, *FORMATS)


def test_a_bare_list_and_a_single_message() -> None:
    assert unwrap(PLAIN) == (PLAIN, None, None, None)
    assert unwrap(tuple(PLAIN)).items == PLAIN
    assert unwrap(PLAIN[0]) == ([PLAIN[0]], None, None, None)
    assert unwrap({"type": "reasoning", "summary": []}).format == "openai_responses"


CHAT_TOOLS = [{"type": "function", "function": {"name": "f"}}]


@pytest.mark.parametrize(
    ("body", "system", "name"),
    [
        ({"messages": PLAIN}, None, None),
        ({"messages": PLAIN, "tools": CHAT_TOOLS}, None, "openai_chat"),
        ({"messages": PLAIN, "tools": [{"name": "f", "input_schema": {}}]}, None, "anthropic"),
        ({"messages": PLAIN, "tools": []}, None, None),
        ({"messages": PLAIN, "system": "s"}, "s", "anthropic"),
        ({"messages": PLAIN, "anthropic_version": "2023-06-01"}, None, "anthropic"),
        ({"input": PLAIN, "instructions": "s"}, "s", "openai_responses"),
        ({"input": PLAIN}, None, "openai_responses"),
        ({"contents": PLAIN, "systemInstruction": {"parts": []}}, {"parts": []}, "gemini"),
        ({"contents": PLAIN, "config": {"system_instruction": "s", "tools": CHAT_TOOLS}}, "s", "gemini"),
        ({"custom_id": "1", "method": "POST", "body": {"messages": PLAIN}}, None, None),
        ({"custom_id": "1", "params": {"messages": PLAIN, "system": "s"}}, "s", "anthropic"),
    ],
)
def test_whole_bodies(body: dict[str, Any], system: Any, name: str | None) -> None:
    unwrapped = unwrap(body)
    assert unwrapped.items == PLAIN
    assert unwrapped.system == system
    assert unwrapped.format == name
    held = body.get("body") or body.get("config") or body
    assert unwrapped.tools == held.get("tools")


def test_a_string_where_the_api_takes_one() -> None:
    assert unwrap({"input": "hi"}).items == [{"type": "message", "role": "user", "content": "hi"}]
    assert unwrap({"contents": "hi"}).items == [{"role": "user", "parts": [{"text": "hi"}]}]
    assert unwrap({"contents": {"parts": []}}).items == [{"parts": []}]


@pytest.mark.parametrize(
    "value",
    [None, 3, "text", {}, {"a": 1}, {"messages": {}}, {"messages": "hi"}, {"input": 3}, {"contents": 3}],
)
def test_what_is_no_request_body_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput):
        unwrap(value)
