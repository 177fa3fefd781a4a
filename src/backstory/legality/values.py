"""What single values must be: an id, a name, arguments, a part. Rules and repairs ask the same questions here."""

from __future__ import annotations

import functools
import json
import math
import re
from collections.abc import Callable, Mapping
from typing import Any

from backstory.messages import (
    Media,
    Message,
    Native,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from backstory.targets import Target

DEEPEST = 256
"""Levels of nesting that may be sent. JSON readers commonly refuse at 500 to 1,000, and a request adds its own."""

_LONGEST_INT = 4_000 * 3
"""Bits. CPython writes no integer of more than 4,300 digits (https://docs.python.org/3/library/stdtypes.html)."""


ITEM_DEPTH = 8
"""Levels that an item may put around a call's arguments."""


def is_strict(value: object, levels: int = DEEPEST) -> bool:
    """Whether a value is strict JSON in UTF-8: no NaN, no lone surrogate, no foreign type, not nested too deep."""
    level: list[Any] = [value]
    for _ in range(levels):
        deeper: list[Any] = []
        for held in level:
            kind = type(held)
            if kind is str:
                if not (held.isascii() or _is_utf8(held)):
                    return False
            elif kind is dict:
                for key in held:
                    if type(key) is not str or not (key.isascii() or _is_utf8(key)):
                        return False
                deeper += held.values()
            elif kind is list or kind is tuple:
                deeper += held
            elif held is None or kind is bool:
                continue
            elif not _is_rare(held):
                return False
        if not deeper:
            return True
        level = deeper
    return False


def _is_rare(value: Any) -> bool:
    """Numbers, and subclasses of text such as an enum's member."""
    if isinstance(value, int):
        return value.bit_length() <= _LONGEST_INT
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str) and _is_utf8(value)


def _is_utf8(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def is_strict_message(message: Message, target: Target) -> bool:
    """Whether all that would be written of a message is strict JSON."""
    native = message.native
    if native is not None and native.format == target.format:
        if not is_strict(native.value):
            return False
        if native.intact:
            return True
    parts = [message.name, [_written(part, target) for part in message.parts]]
    return is_strict(parts, DEEPEST + ITEM_DEPTH)  # the lists of `_written` are not sent


def _written(part: Part, target: Target) -> list[object]:
    """Whatever of a part may reach the wire, as JSON values."""
    native = part.native
    found: list[object] = [part.signature]
    if native is not None and native.format == target.format:
        found.append(native.value)
    match part:
        case Text(text=text) | Refusal(text=text):
            found.append(text)
        case Reasoning(text=text, encrypted=encrypted):
            found += [text, encrypted]
        case ToolCall(id=call_id, name=name, arguments=arguments):
            found += [call_id, name, arguments]
        case ToolResult(call_id=call_id, name=maybe, content=content):
            found += [call_id, maybe, [_written(inner, target) for inner in content]]
        case Media():
            found += [part.url, part.data, part.file_id, part.media_type]
            found += [getattr(part, field, None) for field in ("detail", "transcript", "name", "text")]
    return found


def is_object(arguments: str, target: Target) -> bool:
    """Whether a call's arguments are a JSON object, and one that the target's format can hold as an object."""
    if arguments == "{}":
        return True
    try:
        value = json.loads(arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and (
        target.format not in HOLDS_OBJECTS or is_strict(value, DEEPEST - ITEM_DEPTH)
    )


HOLDS_OBJECTS = frozenset({"anthropic", "gemini"})
"""Formats that hold a call's arguments as an object; the others as a string."""


def _refuse(constant: str) -> Any:
    raise ValueError(constant)


@functools.lru_cache(maxsize=64)
def _matcher(pattern: str) -> Callable[[str], object]:
    return re.compile(pattern).fullmatch


def good_name(name: str, pattern: str | None) -> bool:
    return pattern is None or _matcher(pattern)(name) is not None


def has_good_id(call: ToolCall, target: Target) -> bool:
    """Whether a call has an id that the target takes. A call of Gemini's own needs none.

    An item's own id is not its `call_id`: Responses wants both, and each but once.
    """
    own = call.native if is_of(call.native, target) else None
    if not call.id:
        return target.format == "gemini" and own is not None
    if (
        own is not None
        and own.intact
        and target.format == "openai_responses"
        and not own.value.get("call_id")
    ):
        return call.kind == "mcp_approval_request"  # which has but one
    return good_id(call.id, target)


def good_id(call_id: str, target: Target) -> bool:
    """Whether an id has the characters and the length that the target takes."""
    if not call_id:
        return False
    if target.id_length is not None and len(call_id) > target.id_length:
        return False
    return target.id_pattern is None or good_name(call_id, target.id_pattern)


def is_blank(text: str, target: Target) -> bool:
    """Whether the target takes a text for no text at all."""
    return not (text.strip() if target.nonblank else text)


def carries(part: Part, target: Target) -> bool:
    """Whether a part says anything once it is written for the target."""
    if isinstance(part, (Text, Refusal)):
        return not is_blank(part.text, target) or (target.format == "gemini" and part.signature is not None)
    if isinstance(part, Reasoning):
        return target.format != "openai_chat" and takes_reasoning(part, target)
    if isinstance(part, Opaque):
        return is_of(part.native, target) and target.origin.matches(part.origin)
    return True  # calls and results; media, since words stand in its place where it cannot be sent


def is_of(native: Native | None, target: Target) -> bool:
    return native is not None and native.format == target.format


def takes_reasoning(part: Reasoning, target: Target) -> bool:
    """Whether a reasoning part may go back to the target: made by it, and signed where it asks for that."""
    if target.reasoning == "never" or not target.origin.matches(part.origin):
        return False
    if target.format == "anthropic":
        return bool(part.encrypted) if part.redacted else bool(part.signature)
    return is_of(part.native, target)


def is_empty(message: Message, target: Target) -> bool:
    """Whether nothing of a message would reach the target."""
    parts = message.parts
    if parts and carries(parts[0], target):  # nearly always, and asked of each message of each request
        return False
    return not any(carries(part, target) for part in parts[1:])


def has_blank_text(message: Message, target: Target) -> bool:
    """Whether a blank text stands beside other parts, or in a tool result's list."""
    if message.role == "tool":
        return any(isinstance(part, ToolResult) and _has_blank(part, target) for part in message.parts)
    return any(is_blank_part(part, target) for part in message.parts) and not is_empty(message, target)


def _has_blank(result: ToolResult, target: Target) -> bool:
    """A result may be an empty string; what it may not hold is a part without text."""
    content = result.content
    if len(content) == 1 and content[0].native is None:
        return False
    return any(is_blank_part(part, target) for part in content)


def is_blank_part(part: Part, target: Target) -> bool:
    return isinstance(part, (Text, Refusal)) and not carries(part, target)


def takes_kind(call: ToolCall, target: Target) -> bool:
    """Whether the target knows this kind of call: functions always, free text by `custom_calls`, else its own."""
    if call.kind == "function":
        return True
    if call.kind == "custom":
        return target.custom_calls
    return target.format == "openai_responses" and is_of(call.native, target)


def markers(part: Part) -> int:
    """`cache_control` markers of a part as Anthropic gets it, those inside it included."""
    native = part.native
    if native is None or native.format != "anthropic":
        return 0
    if isinstance(part, ToolResult):
        return int(native.value.get("cache_control") is not None) + sum(map(markers, part.content))
    return _markers(native.value)


def _markers(value: object) -> int:
    if isinstance(value, Mapping):
        return int(value.get("cache_control") is not None) + _markers(value.get("content"))
    return sum(map(_markers, value)) if isinstance(value, list) else 0
