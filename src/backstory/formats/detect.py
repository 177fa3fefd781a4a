"""Which wire format a list is in, told from its shape; and what a whole request body holds.

It reads a few items at each end, so that a list of 100,000 costs as much as one of 70, and validates nothing. It
refuses to guess: a list of plain text reads alike in several formats, and gives `None`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from backstory.errors import InvalidInput
from backstory.targets import Format

_FIRST = 20
_LAST = 50

# The block types of https://docs.anthropic.com/en/api/messages that no other format has.
_ANTHROPIC_BLOCKS = frozenset(
    {
        "tool_use",
        "tool_result",
        "thinking",
        "redacted_thinking",
        "server_tool_use",
        "mcp_tool_use",
        "document",
        "search_result",
        "container_upload",
        "compaction",
    }
)
# The part types of https://developers.openai.com/api/reference/resources/chat, and those that servers have added.
_CHAT_PARTS = frozenset({"image_url", "input_audio", "file", "video_url", "audio_url"})
# The content types of https://developers.openai.com/api/reference/resources/responses.
_RESPONSES_PARTS = frozenset(
    {
        "input_text",
        "input_image",
        "input_file",
        "output_text",
        "summary_text",
        "reasoning_text",
        "computer_screenshot",
    }
)
_CHAT_FIELDS = frozenset(
    {
        "tool_calls",
        "tool_call_id",
        "function_call",
        "refusal",
        "audio",
        "reasoning_content",
        "reasoning",
        "reasoning_details",
    }
)


def detect(items: Sequence[Any]) -> Format | None:
    """The format of a list of messages, items or contents; `None` where its shape does not tell.

    At most the first 20 and the last 50 items are looked at. Where they disagree the majority wins, the earlier
    one of two equals.
    """
    sample = items if len(items) <= _FIRST + _LAST else [*items[:_FIRST], *items[-_LAST:]]
    votes: dict[Format, int] = {}
    developer = False
    for item in sample:
        if isinstance(item, Mapping):
            found = _of_item(item)
            if found is not None:
                votes[found] = votes.get(found, 0) + 1
            developer = developer or item.get("role") in ("developer", "function")
    if votes:
        return max(votes, key=lambda name: votes[name])
    return "openai_chat" if developer else None


def _of_item(item: Mapping[str, Any]) -> Format | None:
    role = item.get("role")
    if type(item.get("parts")) is list or role == "model":
        return "gemini"
    if role is None or type(item.get("type")) is str:
        return "openai_responses" if type(item.get("type")) is str else None
    if role in ("tool", "function") or not _CHAT_FIELDS.isdisjoint(item):
        return "openai_chat"
    content = item.get("content")
    if type(content) is list:
        for block in content:
            if isinstance(block, Mapping):
                found = _of_block(block)
                if found is not None:
                    return found
    return None


def _of_block(block: Mapping[str, Any]) -> Format | None:
    kind = block.get("type")
    if type(kind) is not str:
        return None
    if (
        kind in _ANTHROPIC_BLOCKS
        or kind.endswith("_tool_result")
        or "source" in block
        or "citations" in block
    ):
        return "anthropic"
    if kind in _CHAT_PARTS:
        return "openai_chat"
    if kind in _RESPONSES_PARTS:
        return "openai_responses"
    return "anthropic" if kind == "text" and "cache_control" in block else None


class Unwrapped(NamedTuple):
    """What a request body holds: its list, its own system field, its format where it tells, its tools."""

    items: list[Any]
    system: Any
    format: Format | None
    tools: Any


def unwrap(value: Any) -> Unwrapped:
    """The list inside a whole request body; a bare list, or a single message, is one too.

    Known are ``{"messages": …, "system": …}``, ``{"input": …, "instructions": …}``, ``{"contents": …,
    "systemInstruction": …}`` and a batch line that holds one of these in ``body`` or ``params``. Raises
    `InvalidInput` for anything else. The items themselves are not looked into.
    """
    if isinstance(value, (list, tuple)):
        return Unwrapped(list(value), None, detect(value), None)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"must be a list of messages or a request body, not {type(value).__name__}")
    for field in ("body", "params"):  # a line of OpenAI's, or of Anthropic's, batch file
        if isinstance(value.get(field), Mapping):
            value = value[field]
            break
    tools = value.get("tools")
    if "messages" in value:
        items = _list(value["messages"], "messages")
        system = value.get("system")
        if "system" in value or "anthropic_version" in value:
            return Unwrapped(items, system, detect(items) or "anthropic", tools)
        return Unwrapped(items, None, detect(items) or _of_tools(tools), tools)
    if "input" in value:
        given = value["input"]
        items = (
            [{"type": "message", "role": "user", "content": given}]
            if type(given) is str
            else _list(given, "input")
        )
        return Unwrapped(items, value.get("instructions"), "openai_responses", tools)
    if "contents" in value:
        given = value["contents"]
        if type(given) is str:
            given = [{"role": "user", "parts": [{"text": given}]}]
        elif isinstance(given, Mapping):
            given = [given]
        config = value.get("config")
        held = [value, config] if isinstance(config, Mapping) else [value]
        system = _first(held, "systemInstruction", "system_instruction")
        return Unwrapped(_list(given, "contents"), system, "gemini", _first(held, "tools"))
    if "role" in value or "type" in value:
        return Unwrapped([value], None, detect([value]), None)
    raise InvalidInput("an object without messages, input or contents is no request body")


def _list(value: Any, field: str) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return list(value)
    raise InvalidInput(f"{field} must be a list, not {type(value).__name__}")


def _first(held: Sequence[Mapping[str, Any]], *fields: str) -> Any:
    return next((each[field] for each in held for field in fields if each.get(field) is not None), None)


def _of_tools(tools: Any) -> Format | None:
    """The format of a list of tools, by the shape of its first."""
    first = tools[0] if isinstance(tools, (list, tuple)) and tools else None
    if not isinstance(first, Mapping):
        return None
    if "input_schema" in first:
        return "anthropic"
    if isinstance(first.get("function"), Mapping):
        return "openai_chat"
    if "functionDeclarations" in first or "function_declarations" in first:
        return "gemini"
    return "openai_responses" if first.get("type") == "function" else None
