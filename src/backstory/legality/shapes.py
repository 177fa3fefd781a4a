"""What an item must look like beyond what our types say: fields of a wrong form, parts where their role has no place.

The readers are lenient, and an item that was read whole goes back as it came. So what its own API would refuse in it
is found here, one function a format; `backstory.legality.mend_parts` then has it written anew from the typed parts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from backstory.legality.values import is_of
from backstory.messages import Message, Opaque, Part, Reasoning, Refusal, Text, ToolCall, ToolResult
from backstory.targets import Target


def misshapen(message: Message, target: Target) -> str | None:
    """What is wrong with a message's own item, in a sentence; `None` for a good one, and for another format's."""
    native = message.native
    if native is None or not native.intact or native.format != target.format:
        return None
    return _ITEMS[target.format](message, native.value)


def misshapen_part(part: Part, target: Target) -> bool:
    """The same for a part of its own, which is then to be written anew; for a result, also for what it holds."""
    native = part.native
    if isinstance(part, ToolResult) and not all(may_be_held(inner, target) for inner in part.content):
        return True
    if native is None or not native.intact or native.format != target.format:
        return False
    check = _PARTS.get((target.format, type(part)))
    return check is not None and check(native.value)


def out_of_place(message: Message, target: Target) -> list[int]:
    """Numbers of the parts that the message's role cannot hold, and of reasoning that its own API would refuse."""
    return [number for number, part in enumerate(message.parts) if not _may_stand(part, message.role, target)]


def _may_stand(part: Part, role: str, target: Target) -> bool:
    if isinstance(part, (Text, Refusal)):
        return role != "tool"
    if isinstance(part, ToolCall):
        return role == "assistant"
    if isinstance(part, ToolResult):
        return role == "tool"
    if isinstance(part, Reasoning):
        return role == "assistant" and not _is_unsigned(part, target)
    if isinstance(part, Opaque):
        return (role == "user" and target.format == "openai_chat") or may_be_held(part, target)
    return role != "tool"


def may_be_held(part: Part, target: Target) -> bool:
    """Whether an opaque part of the target's own format may stand in a content, or in a tool's result."""
    if not isinstance(part, Opaque) or part.native is None or part.native.format != target.format:
        return True  # what is another's is not written
    value = part.native.value
    if target.format == "openai_chat":
        return False  # text, and the assistant's refusals, only
    if target.format == "gemini":
        return bool(value)
    return target.format != "anthropic" or (isinstance(value.get("type"), str) and part.kind != "text")


def _is_unsigned(part: Reasoning, target: Target) -> bool:
    """Thinking of Anthropic's own form without what makes it valid."""
    if target.format != "anthropic" or not is_of(part.native, target):
        return False
    return not (part.encrypted if part.redacted else part.signature)


# https://platform.openai.com/docs/api-reference/chat/create


def _chat(message: Message, item: Mapping[str, Any]) -> str | None:
    content = item.get("content")
    if message.role == "assistant":
        if "tool_calls" in item and not item["tool_calls"]:
            return "tool_calls must be left out where there are none"
        if type(content) is list and not content:
            return "content must not be an empty list"
        if type(content) is list and not all(_is_type(part, "text", "refusal") for part in content):
            return "an assistant's content holds nothing but text"
    elif message.role == "tool":
        if item.get("role") == "function":
            return "the role 'function' is of an older API"
        if type(content) is not str and not content:
            return "a tool message must have content"
    elif message.role != "user" and type(content) is list and not all(_is_type(p, "text") for p in content):
        return "a system message holds nothing but text"
    return None


def _is_type(part: Any, *types: str) -> bool:
    return isinstance(part, Mapping) and part.get("type") in types


def _chat_call(call: Mapping[str, Any]) -> bool:
    kind = call.get("type")
    if kind == "custom":
        inner = call.get("custom")
        return not isinstance(inner, Mapping) or type(inner.get("input")) is not str
    return kind is None and "function" in call


# https://platform.openai.com/docs/api-reference/responses/create


def _responses(message: Message, item: Mapping[str, Any]) -> str | None:
    if item.get("type") in ("function_call_output", "custom_tool_call_output") and not isinstance(
        item.get("output"), (str, list)
    ):
        return "an output must be a string or a list"
    return None


# https://docs.anthropic.com/en/api/messages


def _anthropic(message: Message, item: Mapping[str, Any]) -> str | None:
    return None


def _tool_use(block: Mapping[str, Any]) -> bool:
    return not isinstance(block.get("input"), Mapping)


# https://ai.google.dev/api/caching#Content


def _gemini(message: Message, item: Mapping[str, Any]) -> str | None:
    if "role" in item and item["role"] is None:
        return "the role must be user or model"
    return None


def _body(part: Mapping[str, Any], *names: str) -> Mapping[str, Any]:
    return next((part[name] for name in names if isinstance(part.get(name), Mapping)), {})


def _function_call(part: Mapping[str, Any]) -> bool:
    args = _body(part, "functionCall", "function_call").get("args", {})
    return not isinstance(args, Mapping)


def _function_response(part: Mapping[str, Any]) -> bool:
    return not isinstance(_body(part, "functionResponse", "function_response").get("response"), Mapping)


_ITEMS: dict[str, Callable[[Message, Mapping[str, Any]], str | None]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}
_PARTS: dict[tuple[str, type[Part]], Callable[[Mapping[str, Any]], bool]] = {
    ("openai_chat", ToolCall): _chat_call,
    ("anthropic", ToolCall): _tool_use,
    ("gemini", ToolCall): _function_call,
    ("gemini", ToolResult): _function_response,
}
