"""Tokens of whole messages: the text of each part, counted once, and what a target adds per message.

What a message holds is counted per part and kept with the message, per counter; what a provider adds around it is a
formula. Media count by size and detail, never by the length of their base64.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping, Sequence
from typing import Any, Final

from backstory.messages import (
    Audio,
    File,
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
from backstory.tokens.media import audio_tokens, file_tokens, image_size_base64, image_tokens
from backstory.tokens.models import Counter

PER_MESSAGE = 4
"""Role and delimiters: 3 and the role's word. https://cookbook.openai.com/examples/how_to_count_tokens_with_tiktoken"""
PER_NAME = 1
PER_CALL = 8
"""Recipient, channel and delimiters of a call: `to=functions.NAME`, commentary, json, call."""
PER_MOVED = 24
"""Chat Completions' results hold no media: words that stand for each, marks, and a user message of its own."""
PRIMING = 3
"""Every reply is primed with the assistant's header (the same source)."""

PROVIDERS: Final[Mapping[str, str]] = {
    "openai_chat": "openai",
    "openai_responses": "openai",
    "anthropic": "anthropic",
    "gemini": "gemini",
}


def count_message(message: Message, counter: Counter, format: str) -> int:
    """Tokens of one message as an item of a request in `format`, by `counter`."""
    key = f"{counter.name}/{format}"
    known = message._counts.get(key)
    if known is None:
        provider, count = PROVIDERS[format], counter.count
        known = PER_MESSAGE
        for part in message.parts:
            known += count(part.text) if type(part) is Text else count_part(part, counter, provider)
        if message.name is not None and message.role != "tool":
            known += PER_NAME + counter.count(message.name)
        if format == "openai_chat" and message.role == "tool":
            known += PER_MOVED * sum(isinstance(i, Media) for r in message.results for i in r.content)
        message._counts[key] = known
    return known


def count_messages(messages: Sequence[Message], counter: Counter, format: str) -> list[int]:
    """Tokens of each message."""
    key = f"{counter.name}/{format}"  # most are counted
    return [
        known if (known := message._counts.get(key)) is not None else count_message(message, counter, format)
        for message in messages
    ]


def count_part(part: Part, counter: Counter, provider: str) -> int:
    """Tokens of what one part holds."""
    count = counter.count
    match part:
        case Text(text=text) | Refusal(text=text):
            return count(text)
        case ToolCall(id=call_id, name=name, arguments=arguments):
            return PER_CALL + count(name) + count(arguments) + (count(call_id) if call_id else 0)
        case ToolResult(call_id=call_id, content=content):
            return sum(count_part(inner, counter, provider) for inner in content) + (
                count(call_id) if call_id else 0
            )
        case Reasoning(text=text, encrypted=encrypted):
            return count(text) + (count(encrypted) if encrypted else 0)
        case Image():
            size = image_size_base64(part.data) if part.data else None
            width, height = size or (None, None)
            return image_tokens(width=width, height=height, detail=part.detail, provider=provider)
        case Audio():
            return count(part.transcript) if part.transcript else audio_tokens(part.data, part.media_type)
        case File():
            return count(part.text) if part.text else file_tokens(part.data, part.media_type)
        case Opaque(native=native) if native is not None:
            return count(_compact(native.value))
    return 0


def _compact(value: Any) -> str:
    """JSON, or where there is none for it (nested too deep, circular), what Python prints of it."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=str, skipkeys=True)
    except (ValueError, RecursionError):
        return reprlib.repr(value)
