"""What a caller hands back, understood: a provider's response of any SDK as an `Answer`, any value as a result."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from backstory.agent.results import items_of
from backstory.errors import InvalidInput
from backstory.formats import wire_format
from backstory.messages import Message, Part, Text, ToolCall, ToolResult
from backstory.models import anthropic_answers, chat_answers, responses_answers
from backstory.models.base import Answer, answered
from backstory.targets import Target


def answer_of(response: Any, target: Target) -> Answer:
    """The answer in what a model call gave: an SDK's object, its JSON, one message in wire form, a `Message`, text.

    Raises `InvalidInput` for anything else, and the typed error where the response holds one.
    """
    if isinstance(response, Answer):
        return response
    if isinstance(response, Message):
        return answered((response,), "stop")
    if isinstance(response, str):
        return answered((Message(role="assistant", parts=(Text(text=response),)),), "stop")
    value = _plain(response)
    if "choices" in value:
        return chat_answers.whole(value, target)
    if "output" in value and value.get("object", "response") == "response":
        return responses_answers.whole(value, target)
    if value.get("type") == "message" and value.get("role") == "assistant" and target.format == "anthropic":
        return anthropic_answers.whole(value, target)
    if "candidates" in value:
        return _gemini(value, target)
    if value.get("role") in ("assistant", "model"):
        read = wire_format(target.format).read(value, index=0, origin=target.origin)
        return answered(tuple(read), "stop")
    raise InvalidInput(
        f"this is no model's response that we know (its fields: {', '.join(map(str, value)) or 'none'}); give the "
        "SDK's object, its JSON, the assistant's message, or its text"
    )


def _plain(response: Any) -> Mapping[str, Any]:
    if isinstance(response, Mapping):
        return response
    dump = getattr(response, "model_dump", None)
    if callable(dump):
        # Fields that the server did not send are no part of its answer: sent back, strict servers refuse them.
        value = dump(mode="json", exclude_unset=True, by_alias=True)
        if isinstance(value, Mapping):
            return value
    raise InvalidInput(f"a model's response cannot be a {type(response).__name__}")


def _gemini(value: Mapping[str, Any], target: Target) -> Answer:
    """https://ai.google.dev/api/generate-content#GenerateContentResponse"""
    candidates = value["candidates"] or [{}]
    content = candidates[0].get("content") or {"role": "model", "parts": []}
    read = wire_format("gemini").read({"role": "model", **content}, index=0, origin=target.origin)
    cut = str(candidates[0].get("finishReason") or candidates[0].get("finish_reason") or "").upper()
    finish = "length" if cut == "MAX_TOKENS" else "content_filter" if cut in _WITHHELD else "stop"
    return answered(tuple(read) or (Message(role="assistant"),), finish)  # type: ignore[arg-type]


_WITHHELD = ("SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII")


def result_of(call: ToolCall, value: Any) -> ToolResult:
    """The result of a call: a `ToolResult`, parts, text, or anything that can be told as JSON."""
    if isinstance(value, ToolResult):
        return value if value.call_id == call.id else dataclasses.replace(value, call_id=call.id)
    if isinstance(value, BaseException):
        return _result(call, (Text(text=f"Error: {type(value).__name__}: {value}"),), is_error=True)
    parts = tuple(
        item if isinstance(item, Part) else Text(text=item.decode(errors="replace"))
        for item in items_of(value)
    )
    return _result(call, parts or (Text(text="done"),), is_error=False)


def _result(call: ToolCall, parts: tuple[Part, ...], *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, content=parts, is_error=is_error, kind=call.kind)
