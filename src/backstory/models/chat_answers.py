"""Chat Completions: an answer from its pieces, or from one object. Plain values in, an `Answer` out; no I/O.

Servers differ in how they stream: fragments of a call by index, or all with index 0, or with none; ids once, in every
fragment, or never; reasoning in a field of its own. Whatever a piece holds that is not known here is kept.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

from backstory.errors import ModelError, ModelUnavailable
from backstory.formats import wire_format
from backstory.models.base import Answer, CallDelta, Finish, ReasoningDelta, TextDelta, Usage, answered
from backstory.models.failures import Report, understand
from backstory.targets import Target

# https://platform.openai.com/docs/api-reference/chat/object: finish_reason; `eos` and others by compatible servers.
_FINISH: dict[str, Finish] = {
    "stop": "stop",
    "eos": "stop",
    "end_turn": "stop",
    "stop_sequence": "stop",
    "tool_calls": "tool_calls",
    "tool_use": "tool_calls",
    "function_call": "tool_calls",
    "length": "length",
    "max_tokens": "length",
    "model_length": "length",
    "content_filter": "content_filter",
    "sensitive": "content_filter",
    "refusal": "refusal",
}
# https://api-docs.deepseek.com/guides/thinking_mode, https://docs.vllm.ai/en/latest/features/reasoning_outputs.html
_REASONING = ("reasoning_content", "reasoning")
_Delta = TextDelta | ReasoningDelta | CallDelta


def whole(completion: Mapping[str, Any], target: Target) -> Answer:
    """The answer of a completion object. Raises the typed error where it holds one, or no choice."""
    choice = _choice(completion)
    if choice is None or not isinstance(choice.get("message"), Mapping):
        raise error_in(completion) or ModelUnavailable("the server answered without a choice")
    return finished(
        dict(choice["message"]),
        choice.get("finish_reason"),
        target,
        usage=completion.get("usage"),
        model=str(completion.get("model") or ""),
    )


def error_in(completion: Mapping[str, Any]) -> ModelError | None:
    """An error in an answer with status 200: proxies put it there."""
    error = completion.get("error")
    if not error:
        return None
    body = error if isinstance(error, Mapping) else {"message": str(error)}
    code, kind = str(body.get("code") or ""), str(body.get("type") or "")
    report = Report(message=str(body.get("message") or error), code=code, kind=kind, body=body)
    return understand(report).error


def finished(
    item: dict[str, Any], finish: Any, target: Target, *, usage: Any = None, model: str = ""
) -> Answer:
    """The answer of a message as the server wrote it. Fields that are null or an empty list are left out of it.

    Strict servers refuse both when they are sent back, and they say nothing.
    """
    item = {key: value for key, value in item.items() if value is not None and value != []}
    item = {"role": item.pop("role", "assistant"), "content": item.pop("content", None), **item}
    calls = item.get("tool_calls")
    if isinstance(calls, list):
        item["tool_calls"] = with_own_ids(calls, "id")
    messages = wire_format("openai_chat").read(item, index=0, origin=target.origin)
    word = finish if isinstance(finish, str) else "stop"
    return answered(tuple(messages), _FINISH.get(word, "other"), usage=usage_of(usage), model=model)


def with_own_ids(items: list[Any], field: str) -> list[Any]:
    """The same calls, each with an id of its own: a result could not be told whose it is otherwise."""
    seen: set[Any] = set()
    found: list[Any] = []
    for item in items:
        if isinstance(item, Mapping):
            if not item.get(field) or item[field] in seen:
                item = {**item, field: f"call_{uuid.uuid4().hex[:24]}"}
            seen.add(item[field])
        found.append(item)
    return found


def usage_of(usage: Any) -> Usage | None:
    """https://platform.openai.com/docs/api-reference/chat/object: usage; DeepSeek names the cached tokens otherwise."""
    if not isinstance(usage, Mapping) or not isinstance(usage.get("prompt_tokens"), int):
        return None
    asked, given = usage.get("prompt_tokens_details"), usage.get("completion_tokens_details")
    cached = _number(asked, "cached_tokens") or _number(usage, "prompt_cache_hit_tokens")
    return Usage(
        input=_number(usage, "prompt_tokens"),
        output=_number(usage, "completion_tokens"),
        cached=cached or _number(usage, "cached_tokens"),
        reasoning=_number(given, "reasoning_tokens"),
        cache_written=_number(asked, "cache_write_tokens"),
    )


def _number(value: Any, field: str) -> int:
    found = value.get(field) if isinstance(value, Mapping) else None
    return found if isinstance(found, int) else 0


def _choice(value: Mapping[str, Any]) -> Mapping[str, Any] | None:
    choices = value.get("choices")
    first = choices[0] if isinstance(choices, list) and choices else None
    return first if isinstance(first, Mapping) else None


class ChatStream:
    """Chunks in, deltas out, and at the end the answer."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._item: dict[str, Any] = {}
        self._calls: list[_Call] = []
        self._finish: Any = None
        self._usage: Any = None
        self._model = ""

    def feed(self, chunk: Mapping[str, Any]) -> Iterator[_Delta]:
        """The deltas that a chunk holds."""
        self._model = str(chunk.get("model") or self._model)
        self._usage = chunk.get("usage") or self._usage
        choice = _choice(chunk)
        if choice is None:
            return
        self._finish = choice.get("finish_reason") or self._finish
        self._usage = choice.get("usage") or self._usage  # Moonshot puts it here
        delta = choice.get("delta")
        if not isinstance(delta, Mapping):
            return
        for key, value in delta.items():
            if key == "tool_calls":
                for fragment in value if isinstance(value, list) else ():
                    if isinstance(fragment, Mapping):
                        yield from self._fragment(fragment)
            elif value is not None:
                self._item[key] = value if key == "role" else _grown(self._item.get(key), value)
                if isinstance(value, str) and value:
                    if key in ("content", "refusal"):
                        yield TextDelta(text=value)
                    elif key in _REASONING and not (key == "reasoning" and delta.get("reasoning_content")):
                        yield ReasoningDelta(text=value)

    def answer(self) -> Answer:
        """The whole. Raises `ModelUnavailable` where the stream ended before the answer did."""
        if self._finish is None:
            raise ModelUnavailable("the stream ended before the answer was complete")
        item = dict(self._item)
        if self._calls:
            item["tool_calls"] = [call.item() for call in self._calls]
        return finished(item, self._finish, self._target, usage=self._usage, model=self._model)

    def _fragment(self, fragment: Mapping[str, Any]) -> Iterator[_Delta]:
        call, number = self._call(fragment)
        name, arguments = call.add(fragment)
        yield CallDelta(index=number, id=call.id, name=name, arguments=arguments)

    def _call(self, fragment: Mapping[str, Any]) -> tuple[_Call, int]:
        """The call that a fragment belongs to: a new one, or one that is under way."""
        index, own_id = fragment.get("index"), str(fragment.get("id") or "")
        name, arguments = _function(fragment)
        found: int | None = None
        for number in range(len(self._calls) - 1, -1, -1):
            call = self._calls[number]
            if call.index == index if isinstance(index, int) else (call.id == own_id if own_id else True):
                found = number
                break
        if found is not None:
            call = self._calls[found]
            other = bool(own_id and call.id and own_id != call.id and name)
            again = bool(name and call.whole and (arguments or name != call.name) and (not own_id or other))
            if not other and not again:
                return call, found
        self._calls.append(_Call(index))
        return self._calls[-1], len(self._calls) - 1


class _Call:
    """One call under way."""

    def __init__(self, index: Any) -> None:
        self.index = index
        self.id = ""
        self.name = ""
        self._arguments = ""
        self._custom = False
        self._other: dict[str, Any] = {}

    @property
    def whole(self) -> bool:
        """Whether the arguments are a finished JSON object already: nothing can follow."""
        if not self._arguments.rstrip().endswith("}"):
            return False
        try:
            json.loads(self._arguments)
        except ValueError:
            return False
        return True

    def add(self, fragment: Mapping[str, Any]) -> tuple[str, str]:
        """Take a fragment in; what it adds to name and arguments."""
        self.id = self.id or str(fragment.get("id") or "")
        self._custom = self._custom or isinstance(fragment.get("custom"), Mapping)
        for key, value in fragment.items():
            if key not in ("index", "id", "function", "custom") and value is not None:
                self._other[key] = value
        name, arguments = _function(fragment)
        if name.startswith(self.name):  # told anew with each fragment, or for the first time
            name = name[len(self.name) :]
        self.name += name
        self._arguments += arguments
        return name, arguments

    def item(self) -> dict[str, Any]:
        if self._custom:
            inner = {"custom": {"name": self.name, "input": self._arguments}}
        else:
            inner = {"function": {"name": self.name, "arguments": self._arguments}}
        return {"id": self.id, "type": "custom" if self._custom else "function", **inner, **self._other}


def _function(fragment: Mapping[str, Any]) -> tuple[str, str]:
    inner = fragment.get("function") or fragment.get("custom")
    if not isinstance(inner, Mapping):
        return "", ""
    arguments = inner.get("arguments", inner.get("input"))
    if isinstance(arguments, Mapping):  # an object, from servers that do not know that it is a string
        arguments = json.dumps(arguments, ensure_ascii=False, separators=(",", ":"))
    return str(inner.get("name") or ""), arguments if isinstance(arguments, str) else ""


def _grown(held: Any, value: Any) -> Any:
    """A field of the message after one more piece: text and lists grow, objects field by field, others are replaced."""
    if isinstance(held, str) and isinstance(value, str):
        return held + value
    if isinstance(held, list) and isinstance(value, list):
        return held + value
    if isinstance(held, Mapping) and isinstance(value, Mapping):
        return {
            **held,
            **{k: _grown(held.get(k), v) for k, v in value.items() if k != "id" and v is not None},
        } | ({"id": value["id"]} if value.get("id") else {})
    return value
