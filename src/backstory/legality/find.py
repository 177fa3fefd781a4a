"""Finds breaches: one function a rule of `backstory.legality.rules`, each a pass over the messages.

A finder yields the position in the list and what is wrong there, in a sentence. It says nothing of whom the
rule holds for: that is the table's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from backstory.legality.steps import Pairing, Place, head_length, pair
from backstory.legality.values import (
    count_markers,
    good_id,
    good_name,
    has_blank_text,
    is_empty,
    is_object,
    is_strict,
    strings_of,
    takes_kind,
    takes_reasoning,
)
from backstory.messages import Message, Reasoning, ToolCall
from backstory.targets import Target


class View:
    """A list of messages as the rules see it: the pairing is computed once, and only when asked for."""

    def __init__(self, messages: Sequence[Message], target: Target) -> None:
        self.messages = messages
        self.target = target
        self.head = head_length(messages)

    @functools.cached_property
    def pairing(self) -> Pairing:
        return pair(self.messages)

    def calls(self) -> Iterator[tuple[int, ToolCall]]:
        for index, message in enumerate(self.messages):
            if message.role == "assistant":
                for part in message.parts:
                    if isinstance(part, ToolCall):
                        yield index, part


Breach = tuple[int, str]


def not_strict(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        if (
            message.native is not None
            and message.native.intact
            and message.native.format == view.target.format
        ):
            good = is_strict(message.native.value)
        else:
            good = all(is_strict(strings_of(part)) for part in message.parts)
        if not good or not is_strict(message.name):
            yield (
                index,
                "holds a lone surrogate, NaN or infinity, or nests too deep: it cannot be sent as JSON",
            )


def unknown_developer(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        if message.role == "developer":
            yield index, "the role 'developer' is not known to this target"


def late_system(view: View) -> Iterator[Breach]:
    for index in range(view.head, len(view.messages)):
        if view.messages[index].role in ("system", "developer"):
            yield index, "a system message stands after the head"


def two_systems(view: View) -> Iterator[Breach]:
    for index in range(1, view.head):
        yield index, "more than one system message at the head"


def empty(view: View) -> Iterator[Breach]:
    for index in empty_messages(view.messages, view.target):
        yield index, f"{view.messages[index].role} message without content"


def empty_messages(messages: Sequence[Message], target: Target) -> list[int]:
    """Messages of which nothing would reach the target; of a response in several items, only if all are such."""
    found: list[int] = []
    start = 0
    while start < len(messages):
        stop = start + 1
        while stop < len(messages) and messages[stop].role == "assistant" and messages[stop].joined:
            stop += 1
        group = range(start, stop)
        if all(is_empty(messages[index], target) for index in group):
            found += group
        start = stop
    return found


def blank_text(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        if has_blank_text(message, view.target):
            yield index, "a text part without text"


def not_user_first(view: View) -> Iterator[Breach]:
    if view.head < len(view.messages) and view.messages[view.head].role == "assistant":
        yield view.head, "the conversation begins with the assistant"


def same_role(view: View) -> Iterator[Breach]:
    for index in range(view.head + 1, len(view.messages)):
        before, message = view.messages[index - 1], view.messages[index]
        if (
            message.role in ("user", "assistant")
            and message.role == before.role
            and not (message.joined and message.role == "assistant")
        ):
            yield index, f"two {message.role} messages in a row"


def user_after_tool(view: View) -> Iterator[Breach]:
    for index in range(view.head + 1, len(view.messages)):
        if view.messages[index].role == "user" and view.messages[index - 1].role == "tool":
            yield index, "a user message directly after a tool result"


def arguments(view: View) -> Iterator[Breach]:
    for index, call in view.calls():
        if call.kind != "custom" and not is_object(call.arguments):
            yield index, f"call {call.id!r} of {call.name!r}: the arguments are not a JSON object"


def custom(view: View) -> Iterator[Breach]:
    for index, call in view.calls():
        if not takes_kind(call, view.target):
            yield (
                index,
                f"call {call.id!r} of {call.name!r} is a {call.kind} call, which this target does not know",
            )


def call_name(view: View) -> Iterator[Breach]:
    for index, call in view.calls():
        if call.kind in ("function", "custom") and not good_name(call.name, view.target.name_pattern):
            yield index, f"call {call.id!r} has the invalid name {call.name!r}"
    if view.target.format == "gemini":
        for place, result in view.pairing.results.items():
            if result.name is not None and not good_name(result.name, view.target.name_pattern):
                yield place.message, f"result {result.call_id!r} has the invalid name {result.name!r}"


def speaker(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        if (
            message.name is not None
            and message.role != "tool"
            and not good_name(message.name, view.target.speaker_pattern)
        ):
            yield index, f"the speaker's name {message.name!r} is not one that the target takes"


def call_id(view: View) -> Iterator[Breach]:
    for index, call in view.calls():
        if not good_id(call.id, view.target):
            yield index, f"call of {call.name!r} has the invalid id {call.id!r}"


def id_twice(view: View) -> Iterator[Breach]:
    whole = view.target.unique_ids == "request"
    seen: set[tuple[int, str]] = set()
    for index, call in view.calls():
        key = (-1 if whole else view.pairing.step[index], call.id)
        if call.id and key in seen:
            yield index, f"call id {call.id!r} stands twice in one {'request' if whole else 'step'}"
        seen.add(key)


def unanswered(view: View) -> Iterator[Breach]:
    for place in view.pairing.unanswered:
        call = view.pairing.calls[place]
        yield place.message, f"call {call.id!r} of {call.name!r} has no result"


def orphans(view: View) -> Iterator[Breach]:
    for place in view.pairing.orphans:
        yield place.message, f"result {view.pairing.results[place].call_id!r} answers no call"


def duplicates(view: View) -> Iterator[Breach]:
    for place in view.pairing.duplicates:
        yield place.message, f"result {view.pairing.results[place].call_id!r} is a further answer to its call"


def misplaced(view: View) -> Iterator[Breach]:
    for call, result in view.pairing.answer.items():
        if not follows(view.messages, call, result):
            given = view.pairing.results[result].call_id
            yield result.message, f"result {given!r} does not stand right after its call"


def follows(messages: Sequence[Message], call: Place, result: Place) -> bool:
    """Whether only results, and the rest of the call's own response, stand between a call and its result."""
    index = call.message + 1
    while index < result.message and messages[index].role == "assistant" and messages[index].joined:
        index += 1
    return all(messages[i].role == "tool" for i in range(index, result.message + 1))


def mismatched_id(view: View) -> Iterator[Breach]:
    for call, result in view.pairing.answer.items():
        asked, given = view.pairing.calls[call].id, view.pairing.results[result].call_id
        if asked != given and (given or view.target.format != "gemini"):
            yield result.message, f"result {given!r} answers call {asked!r} under another id"


def disordered(view: View) -> Iterator[Breach]:
    last: dict[int, Place] = {}
    for call in view.pairing.calls:
        result = view.pairing.answer.get(call)
        if result is None:
            continue
        step = view.pairing.step[call.message]
        if result < last.get(step, result):
            yield result.message, "results stand in another order than their calls"
        last[step] = result


def parallel(view: View) -> Iterator[Breach]:
    counts: dict[int, int] = {}
    for place in view.pairing.calls:
        step = view.pairing.step[place.message]
        counts[step] = counts.get(step, 0) + 1
        if counts[step] == 2:
            yield step, "several calls in one response"


def foreign_reasoning(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        for part in message.parts:
            native = part.native
            if (
                isinstance(part, Reasoning)
                and native is not None
                and native.format == view.target.format
                and not takes_reasoning(part, view.target)
            ):
                yield index, "reasoning that another model made, or that lost its signature"


def dangling(view: View) -> Iterator[Breach]:
    for index in dangling_reasoning(view.messages):
        yield index, "a reasoning item without the item that followed it"


def dangling_reasoning(messages: Sequence[Message]) -> list[int]:
    """Responses: a reasoning item belongs to the next item of the same response, and is refused without it."""
    found: list[int] = []
    for index in range(len(messages) - 1, -1, -1):
        message = messages[index]
        if message.parts and all(isinstance(part, Reasoning) for part in message.parts):
            after = messages[index + 1] if index + 1 < len(messages) else None
            if after is None or after.role != "assistant" or not after.joined or index + 1 in found:
                found.append(index)
    return found[::-1]


def breakpoints(view: View) -> Iterator[Breach]:
    places = [i for i, m in enumerate(view.messages) for _ in range(count_markers(m))]
    for index in places[: max(0, len(places) - view.target.cache_markers)]:
        yield index, f"more than {view.target.cache_markers} cache_control breakpoints"
