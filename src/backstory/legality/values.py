"""What single values must be: an id, a name, arguments, a part. Rules and repairs ask the same questions here."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from backstory.messages import (
    Image,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from backstory.targets import Target


def is_strict(value: object) -> bool:
    """Whether a value is strict JSON in UTF-8: no NaN, no lone surrogate, not nested beyond what JSON readers take."""
    try:
        json.dumps(value, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (ValueError, TypeError, RecursionError):
        return False
    return True


def is_object(arguments: str) -> bool:
    """Whether a call's arguments are a JSON object."""
    if arguments == "{}":
        return True
    try:
        return isinstance(json.loads(arguments, parse_constant=_refuse), dict)
    except (ValueError, RecursionError):
        return False


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


def good_id(call_id: str, target: Target) -> bool:
    """Whether an id has the characters and the length that the target takes; none where ids are optional."""
    if not call_id:
        return target.format == "gemini"
    if target.id_length is not None and len(call_id) > target.id_length:
        return False
    return target.id_pattern is None or re.fullmatch(target.id_pattern, call_id) is not None


def good_name(name: str, pattern: str | None) -> bool:
    return pattern is None or re.fullmatch(pattern, name) is not None


def is_blank(text: str, target: Target) -> bool:
    """Whether the target takes a text for no text at all."""
    return not (text.strip() if target.nonblank else text)


def carries(part: Part, target: Target) -> bool:
    """Whether a part says anything once it is written for the target."""
    match part:
        case Text(text=text) | Refusal(text=text):
            return not is_blank(text, target) or (target.format == "gemini" and part.signature is not None)
        case ToolCall() | ToolResult():
            return True
        case Reasoning():
            return target.format != "openai_chat" and takes_reasoning(part, target)
        case Opaque():
            return part.native is not None and part.native.format == target.format
        case Media():
            return media_kind(part) in target.media or (
                part.native is not None and part.native.format == target.format
            )
    return False


def media_kind(part: Media) -> str:
    return "image" if isinstance(part, Image) else type(part).__name__.lower()


def takes_reasoning(part: Reasoning, target: Target) -> bool:
    """Whether a reasoning part may go back to the target: made by it, and signed where it asks for that."""
    if not target.origin.matches(part.origin) or part.native is None or part.native.format != target.format:
        return False
    return target.format != "anthropic" or part.redacted or bool(part.signature)


def is_empty(message: Message, target: Target) -> bool:
    """Whether nothing of a message would reach the target."""
    if message.role == "tool":
        return not message.parts
    return not any(carries(part, target) for part in message.parts)


def strings_of(part: Part) -> list[object]:
    """Whatever of a part reaches the wire, as JSON values."""
    native = part.native
    found: list[object] = (
        [dict(native.value)] if native is not None and isinstance(native.value, Mapping) else []
    )
    match part:
        case Text(text=text) | Refusal(text=text):
            found.append(text)
        case Reasoning(text=text, encrypted=encrypted):
            found += [text, encrypted]
        case ToolCall(id=call_id, name=name, arguments=arguments):
            found += [call_id, name, arguments]
        case ToolResult(call_id=call_id, name=maybe, content=content):
            found += [call_id, maybe]
            for inner in content:
                found += strings_of(inner)
        case Media(url=url, data=data, file_id=file_id, media_type=media_type):
            found += [url, data, file_id, media_type]
    found.append(part.signature)
    return found


def has_blank_text(message: Message, target: Target) -> bool:
    """Whether a blank text stands beside other parts, or inside a tool result's list."""
    if message.role == "tool":
        return any(
            isinstance(part, ToolResult)
            and any(is_blank_part(inner, target) for inner in part.content)
            and (len(part.content) > 1 or part.content[0].native is not None)
            for part in message.parts
        )
    return any(is_blank_part(part, target) for part in message.parts) and not is_empty(message, target)


def is_blank_part(part: Part, target: Target) -> bool:
    return isinstance(part, Text) and not carries(part, target)


def takes_kind(call: ToolCall, target: Target) -> bool:
    """Whether the target knows this kind of call: functions always, free text by `custom_calls`, else its own."""
    if call.kind == "function":
        return True
    if call.kind == "custom":
        return target.custom_calls
    return call.native is not None and call.native.format == target.format


def count_markers(message: Message) -> int:
    """`cache_control` markers on the blocks of a message, those inside tool results included."""
    count = 0
    for part in message.parts:
        count += is_marked(part)
        if isinstance(part, ToolResult):
            count += sum(is_marked(inner) for inner in part.content)
    return count


def is_marked(part: Part) -> bool:
    return (
        part.native is not None
        and part.native.format == "anthropic"
        and part.native.value.get("cache_control") is not None
    )
