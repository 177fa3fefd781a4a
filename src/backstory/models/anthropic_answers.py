"""Anthropic's Messages: an answer from the events of a stream. Plain values in, an `Answer` out; no I/O.

https://docs.anthropic.com/en/docs/build-with-claude/streaming. Blocks are kept as they come, thinking with its
signature above all; kinds of blocks and of deltas that are not known here are kept as well.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from backstory.errors import ModelUnavailable
from backstory.formats import wire_format
from backstory.models.base import Answer, CallDelta, Finish, ReasoningDelta, TextDelta, Usage, answered
from backstory.models.chat_answers import with_own_ids
from backstory.targets import Target

# https://docs.anthropic.com/en/api/handling-stop-reasons
_FINISH: dict[str, Finish] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_use": "tool_calls",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "pause_turn": "pause",
    "refusal": "refusal",
}


def whole(message: Mapping[str, Any], target: Target) -> Answer:
    """The answer of a message object."""
    blocks = message.get("content")
    blocks = list(blocks) if isinstance(blocks, list) else []
    places = [n for n, b in enumerate(blocks) if isinstance(b, Mapping) and b.get("type") == "tool_use"]
    for place, block in zip(places, with_own_ids([blocks[n] for n in places], "id"), strict=True):
        blocks[place] = block
    item = {"role": "assistant", "content": blocks}
    messages = wire_format("anthropic").read(item, index=0, origin=target.origin)
    finish = _FINISH.get(str(message.get("stop_reason")), "other")
    usage = usage_of(message.get("usage"))
    return answered(tuple(messages), finish, usage=usage, model=str(message.get("model") or ""))


def usage_of(usage: Any) -> Usage | None:
    """https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching: the whole input is the sum of the three."""
    if not isinstance(usage, Mapping) or not isinstance(usage.get("input_tokens"), int):
        return None
    read = usage.get("cache_read_input_tokens") or 0
    written = usage.get("cache_creation_input_tokens") or 0
    details = usage.get("output_tokens_details")
    thought = details.get("thinking_tokens") if isinstance(details, Mapping) else 0
    return Usage(
        input=usage["input_tokens"] + read + written,
        output=usage.get("output_tokens") or 0,
        cached=read,
        reasoning=thought or 0,
        cache_written=written,
    )


class MessageStream:
    """Events in, deltas out, and at the end the answer."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._message: dict[str, Any] = {}
        self._usage: dict[str, Any] = {}
        self._blocks: dict[int, dict[str, Any]] = {}
        self._inputs: dict[int, str] = {}
        self._calls: dict[int, int] = {}
        self._ended = False

    def feed(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta | CallDelta]:
        """The delta that an event holds, if any."""
        kind = event.get("type")
        index = event.get("index")
        if kind == "message_start":
            self._merge(event.get("message"))
        elif kind == "message_delta":
            delta = event.get("delta")
            self._merge({**(delta if isinstance(delta, Mapping) else {}), "usage": event.get("usage")})
        elif kind == "message_stop":
            self._ended = True
        elif kind == "content_block_start" and isinstance(index, int):
            yield from self._start(index, dict(event.get("content_block") or {}))
        elif kind == "content_block_delta" and isinstance(index, int):
            delta = event.get("delta")
            if isinstance(delta, Mapping):
                yield from self._delta(index, delta)

    def answer(self) -> Answer:
        """The whole. Raises `ModelUnavailable` where the stream ended before the message did."""
        if not self._ended and not self._message.get("stop_reason"):
            raise ModelUnavailable("the stream ended before the message was complete")
        blocks = []
        for index, block in sorted(self._blocks.items()):
            if index in self._inputs:
                block["input"] = _object(self._inputs[index])
            blocks.append(block)
        return whole({**self._message, "content": blocks, "usage": self._usage}, self._target)

    def _merge(self, message: Any) -> None:
        """Later values stand; a usage is cumulative, and later ones leave out what did not change."""
        if isinstance(message, Mapping):
            self._message |= {key: value for key, value in message.items() if value is not None}
            usage = message.get("usage")
            if isinstance(usage, Mapping):
                self._usage |= {key: value for key, value in usage.items() if value is not None}

    def _start(self, index: int, block: dict[str, Any]) -> Iterator[TextDelta | ReasoningDelta | CallDelta]:
        self._blocks[index] = block
        if block.get("type") == "tool_use":
            number = self._calls.setdefault(index, len(self._calls))
            yield CallDelta(index=number, id=str(block.get("id") or ""), name=str(block.get("name") or ""))
        elif block.get("type") == "text" and block.get("text"):
            yield TextDelta(text=block["text"])

    def _delta(
        self, index: int, delta: Mapping[str, Any]
    ) -> Iterator[TextDelta | ReasoningDelta | CallDelta]:
        block = self._blocks.setdefault(index, {})
        kind = delta.get("type")
        if kind == "input_json_delta":
            piece = str(delta.get("partial_json") or "")
            self._inputs[index] = self._inputs.get(index, "") + piece
            if index in self._calls and piece:
                yield CallDelta(index=self._calls[index], arguments=piece)
            return
        if kind == "citations_delta":
            block["citations"] = [*(block.get("citations") or []), delta.get("citation")]
            return
        for key, value in delta.items():
            if key != "type" and value is not None:
                held = block.get(key)
                block[key] = held + value if isinstance(held, str) and isinstance(value, str) else value
        if kind == "text_delta" and delta.get("text"):
            yield TextDelta(text=str(delta["text"]))
        elif kind == "thinking_delta" and delta.get("thinking"):
            yield ReasoningDelta(text=str(delta["thinking"]))


def _object(text: str) -> Any:
    """A call's input; a torn one (at `max_tokens`) as `formats.arguments` keeps what is no object."""
    if not text.strip():
        return {}
    try:
        found = json.loads(text)
    except ValueError:
        return {"_arguments": text}
    return found if isinstance(found, dict) else {"_arguments": text}
