"""OpenAI Responses: an answer from the events of a stream, or from one response. Plain values in; no I/O."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from backstory.errors import ModelError, ModelUnavailable
from backstory.formats import wire_format
from backstory.messages import Message
from backstory.models.base import Answer, CallDelta, Finish, ReasoningDelta, TextDelta, Usage, answered
from backstory.models.chat_answers import with_own_ids
from backstory.models.failures import Report, understand
from backstory.targets import Target

# https://platform.openai.com/docs/api-reference/responses-streaming
_TEXT = frozenset({"response.output_text.delta", "response.refusal.delta"})
_REASONING = frozenset({"response.reasoning_summary_text.delta", "response.reasoning_text.delta"})
_ARGUMENTS = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_END = frozenset({"response.completed", "response.incomplete", "response.failed"})
_CALLS = frozenset({"function_call", "custom_tool_call"})


def whole(response: Mapping[str, Any], target: Target, items: list[Any] | None = None) -> Answer:
    """The answer of a response object; `items` are its output where the stream gave them one by one.

    Raises `ModelUnavailable` where it failed or was cancelled, `ModelRefused` where the request was to blame.
    """
    status = response.get("status")
    if status == "failed" or response.get("error"):
        raise failure(response.get("error"))
    if status in ("cancelled", "queued", "in_progress"):
        raise ModelUnavailable(f"the response is {status}")
    items = items or response.get("output") or []
    messages: list[Message] = []
    read = wire_format("openai_responses").read
    for index, item in enumerate(_own_ids(items)):
        messages += read(item, index=index, origin=target.origin)
    finish: Finish = "stop"
    if status == "incomplete":
        details = response.get("incomplete_details")
        reason = details.get("reason") if isinstance(details, Mapping) else None
        finish = "content_filter" if reason == "content_filter" else "length"
    return answered(
        tuple(messages) or (Message(role="assistant"),),
        finish,
        usage=usage_of(response.get("usage")),
        model=str(response.get("model") or ""),
    )


def failure(error: Any) -> ModelError:
    """https://platform.openai.com/docs/api-reference/responses/object: `error` of a response that failed."""
    body = error if isinstance(error, Mapping) else {}
    message = str(body.get("message") or "the response failed")
    code = str(body.get("code") or "")
    refused = code.startswith(("invalid_", "image_"))
    kind = "invalid_request_error" if refused else ""
    return understand(Report(message=message, code=code, kind=kind, body=body)).error


def usage_of(usage: Any) -> Usage | None:
    if not isinstance(usage, Mapping) or not isinstance(usage.get("input_tokens"), int):
        return None
    asked, given = usage.get("input_tokens_details") or {}, usage.get("output_tokens_details") or {}
    return Usage(
        input=usage["input_tokens"],
        output=usage.get("output_tokens") or 0,
        cached=asked.get("cached_tokens") or 0,
        reasoning=given.get("reasoning_tokens") or 0,
        cache_written=asked.get("cache_write_tokens") or 0,
    )


def _own_ids(items: list[Any]) -> list[Any]:
    places = [n for n, item in enumerate(items) if isinstance(item, Mapping) and item.get("type") in _CALLS]
    found = list(items)
    for place, call in zip(places, with_own_ids([items[n] for n in places], "call_id"), strict=True):
        found[place] = call
    return found


class ResponseStream:
    """Events in, deltas out, and at the end the answer."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._items: dict[int, Any] = {}
        self._calls: dict[int, int] = {}
        self._response: Mapping[str, Any] | None = None

    def feed(self, event: Mapping[str, Any]) -> Iterator[TextDelta | ReasoningDelta | CallDelta]:
        """The delta that an event holds, if any. Raises the typed error that an ``error`` event tells."""
        if "type" not in event and isinstance(event.get("data"), Mapping):
            event = event["data"]  # openai before 2.0 hands on an `error` event like this
        kind = event.get("type")
        delta = event.get("delta")
        place = event.get("output_index")
        if kind in _TEXT and delta:
            yield TextDelta(text=str(delta))
        elif kind in _REASONING and delta:
            yield ReasoningDelta(text=str(delta))
        elif kind in _ARGUMENTS and delta:
            yield CallDelta(index=self._number(place), arguments=str(delta))
        elif kind == "response.output_item.added":
            item = event.get("item")
            if isinstance(item, Mapping) and item.get("type") in _CALLS:
                name, call_id = str(item.get("name") or ""), str(item.get("call_id") or "")
                yield CallDelta(index=self._number(place), id=call_id, name=name)
        elif kind == "response.output_item.done":
            # Only here is encrypted reasoning complete.
            self._items[place if isinstance(place, int) else len(self._items)] = event.get("item")
        elif kind in _END:
            response = event.get("response")
            self._response = response if isinstance(response, Mapping) else {}
        elif kind == "error":
            raise failure(event.get("error") or event)

    def answer(self) -> Answer:
        """The whole. Raises `ModelUnavailable` where the stream ended before the response did."""
        if self._response is None:
            raise ModelUnavailable("the stream ended before the response was complete")
        items = [self._items[place] for place in sorted(self._items)]
        return whole(self._response, self._target, items)

    def _number(self, place: Any) -> int:
        return self._calls.setdefault(place if isinstance(place, int) else -1, len(self._calls))
