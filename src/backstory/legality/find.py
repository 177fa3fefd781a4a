"""Finds breaches: one function a rule of `backstory.legality.rules`, each a pass over the messages.

A finder yields the position in the list and what is wrong there, in a sentence. It says nothing of whom the
rule holds for: that is the table's.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator, Sequence

from backstory.legality.shapes import misshapen, misshapen_part, out_of_place
from backstory.legality.steps import Pairing, Place, continues, head_length, pair
from backstory.legality.values import (
    carries,
    good_name,
    has_blank_text,
    has_good_id,
    is_empty,
    is_object,
    is_of,
    is_strict_message,
    markers,
    takes_kind,
    takes_reasoning,
)
from backstory.messages import Message, Opaque, Reasoning, Refusal, Text, ToolCall, ToolResult
from backstory.targets import Target


class View:
    """A list of messages as the rules see it: what several of them need is computed once, when first asked for."""

    def __init__(self, messages: Sequence[Message], target: Target) -> None:
        self.messages = messages
        self.target = target
        self.head = head_length(messages)
        self.roles = [message.role for message in messages]

    @functools.cached_property
    def pairing(self) -> Pairing:
        return pair(self.messages)


Breach = tuple[int, str]


# --- one message ---------------------------------------------------------------------------


def not_strict(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        if not is_strict_message(message, view.target):
            yield (
                index,
                "holds a lone surrogate, NaN or infinity, or nests too deep: it cannot be sent as JSON",
            )


def shape(view: View) -> Iterator[Breach]:
    target = view.target
    for index, message in enumerate(view.messages):
        what = misshapen(message, target)
        if what is None and any(misshapen_part(part, target) for part in message.parts):
            what = "a call or a result that lacks a field, or has one of the wrong type"
        if what is not None:
            yield index, what


def misplaced_parts(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        for number in out_of_place(message, view.target):
            kind = type(message.parts[number]).__name__.lower()
            yield index, f"a part ({kind}) that cannot stand in a message of the role {message.role}"


def unknown_developer(view: View) -> Iterator[Breach]:
    for index, role in enumerate(view.roles):
        if role == "developer":
            yield index, "the role 'developer' is not known to this target"


def speaker(view: View) -> Iterator[Breach]:
    pattern = view.target.speaker_pattern
    for index, message in enumerate(view.messages):
        if message.name is not None and message.role != "tool" and not good_name(message.name, pattern):
            yield index, f"the speaker's name {message.name!r} is not one that the target takes"


def blank_text(view: View) -> Iterator[Breach]:
    for index, message in enumerate(view.messages):
        if has_blank_text(message, view.target):
            yield index, "a text part without text"


def trailing_space(view: View) -> Iterator[Breach]:
    if view.messages and trailing_text(view.messages[-1], view.target) is not None:
        yield len(view.messages) - 1, "the final assistant message ends with white space"


def trailing_text(message: Message, target: Target) -> int | None:
    """The part of the assistant's that ends with white space where the target reads the last of it."""
    if message.role != "assistant":
        return None
    for number in range(len(message.parts) - 1, -1, -1):
        part = message.parts[number]
        if carries(part, target):
            spaced = isinstance(part, (Text, Refusal)) and part.text != part.text.rstrip()
            return number if spaced else None
    return None


def empty(view: View) -> Iterator[Breach]:
    for index in empty_messages(view.messages, view.target):
        yield index, f"{view.messages[index].role} message without content"


def empty_messages(messages: Sequence[Message], target: Target) -> list[int]:
    """Messages of which nothing would reach the target.

    A response in several items is one message, except to Responses. One of its items that holds no text, such as
    reasoning of another's, is empty only if all the others are; and never to Responses, where the writer leaves it
    out, together with the ids that refer to it.
    """
    found = [index for index, message in enumerate(messages) if is_empty(message, target)]
    empty = set(found)
    return [
        index
        for index in found
        if messages[index].role != "assistant"
        or not messages[index].parts
        or any(isinstance(part, (Text, Refusal)) for part in messages[index].parts)
        or (target.format != "openai_responses" and empty.issuperset(_response(messages, index)))
    ]


def _response(messages: Sequence[Message], index: int) -> range:
    """The messages that are one response with message `index`."""
    start, stop = index, index + 1
    while continues(messages, start):
        start -= 1
    while stop < len(messages) and continues(messages, stop):
        stop += 1
    return range(start, stop)


def dangling(view: View) -> Iterator[Breach]:
    for index in dangling_reasoning(view.messages, view.target):
        yield index, "a reasoning item without the item that followed it"


def dangling_reasoning(messages: Sequence[Message], target: Target) -> list[int]:
    """Responses: a reasoning item belongs to the next item of the same response, and is refused without it."""
    found: list[int] = []
    for index in range(len(messages) - 1, -1, -1):
        parts = messages[index].parts
        if parts and all(isinstance(part, Reasoning) and takes_reasoning(part, target) for part in parts):
            after = index + 1
            if after == len(messages) or not continues(messages, after) or (found and found[-1] == after):
                found.append(index)
    return found[::-1]


def breakpoints(view: View) -> Iterator[Breach]:
    places = [i for i, m in enumerate(view.messages) for part in m.parts for _ in range(markers(part))]
    for index in dict.fromkeys(places[: max(0, len(places) - view.target.cache_markers)]):
        yield index, f"more than {view.target.cache_markers} cache_control breakpoints"


def item_ids(view: View) -> Iterator[Breach]:
    for index in repeated_items(view.messages):
        yield index, f"the item id {view.messages[index].id!r} stands twice"


def repeated_items(messages: Sequence[Message]) -> list[int]:
    """Responses: items that carry the id of an earlier one."""
    seen: set[str] = set()
    found: list[int] = []
    for index, message in enumerate(messages):
        native = message.native
        if message.id is None or native is None or native.format != "openai_responses":
            continue
        if native.value.get("type") != "local_shell_call_output":  # whose `id` is the call's
            if message.id in seen:
                found.append(index)
            seen.add(message.id)
    return found


# --- order ---------------------------------------------------------------------------------


def late_system(view: View) -> Iterator[Breach]:
    for index in range(view.head, len(view.roles)):
        if view.roles[index] in ("system", "developer"):
            yield index, "a system message stands after the head"


def two_systems(view: View) -> Iterator[Breach]:
    for index in range(1, view.head):
        yield index, "more than one system message at the head"


def nothing_said(view: View) -> Iterator[Breach]:
    apart = view.target.format in ("anthropic", "gemini")  # the system's messages are not in the list
    if not view.messages or (view.head == len(view.messages) and not apart):
        return
    said = (view.messages[index] for index in range(view.head, len(view.messages)))
    if all(is_empty(message, view.target) for message in said):
        yield len(view.messages) - 1, "nothing is said besides what the system says"


def not_user_first(view: View) -> Iterator[Breach]:
    if view.head < len(view.messages) and view.roles[view.head] == "assistant":
        yield view.head, "the conversation begins with the assistant"


def same_role(view: View) -> Iterator[Breach]:
    before = ""
    for index, role in enumerate(view.roles):
        if role == before and (role == "user" or (role == "assistant" and not view.messages[index].joined)):
            yield index, f"two {role} messages in a row"
        before = role


def user_after_tool(view: View) -> Iterator[Breach]:
    before = ""
    for index, role in enumerate(view.roles):
        if role == "user" and before == "tool":
            yield index, "a user message directly after a tool result"
        before = role


# --- calls and results ---------------------------------------------------------------------


def arguments(view: View) -> Iterator[Breach]:
    for place, call in view.pairing.calls.items():
        if call.kind == "function" and not is_object(call.arguments, view.target):
            yield place.message, f"call {call.id!r} of {call.name!r}: the arguments are not a JSON object"


def kind(view: View) -> Iterator[Breach]:
    for place, call in view.pairing.calls.items():
        if not takes_kind(call, view.target):
            what = f"call {call.id!r} of {call.name!r} is a {call.kind} call, which this target does not know"
            yield place.message, what


def call_name(view: View) -> Iterator[Breach]:
    pattern = view.target.name_pattern
    for place, call in view.pairing.calls.items():
        if call.kind in ("function", "custom") and not good_name(call.name, pattern):
            yield place.message, f"call {call.id!r} has the invalid name {call.name!r}"
    for place, result in view.pairing.results.items():
        if result.name is not None and not good_name(result.name, pattern):
            yield place.message, f"result {result.call_id!r} has the invalid name {result.name!r}"


def call_id(view: View) -> Iterator[Breach]:
    for place, call in view.pairing.calls.items():
        if not has_good_id(call, view.target):
            yield place.message, f"call of {call.name!r} has the invalid id {call.id!r}"


def id_twice(view: View) -> Iterator[Breach]:
    whole = view.target.unique_ids == "request"
    seen: set[tuple[int, str]] = set()
    for place, call in view.pairing.calls.items():
        key = (-1 if whole else view.pairing.step[place.message], call.id)
        if call.id and key in seen:
            yield place.message, f"call id {call.id!r} stands twice in one {'request' if whole else 'step'}"
        seen.add(key)


def parallel(view: View) -> Iterator[Breach]:
    counts: dict[int, int] = {}
    for place in view.pairing.calls:
        step = view.pairing.step[place.message]
        counts[step] = counts.get(step, 0) + 1
        if counts[step] == 2:
            yield step, "several calls in one response"


def unanswered(view: View) -> Iterator[Breach]:
    for place in view.pairing.unanswered:
        call = view.pairing.calls[place]
        yield place.message, f"call {call.id!r} of {call.name!r} has no result"


def orphans(view: View) -> Iterator[Breach]:
    for place in unowned(view.pairing, view.messages):
        yield place.message, f"result {view.pairing.results[place].call_id!r} answers no call"


def unowned(pairing: Pairing, messages: Sequence[Message]) -> list[Place]:
    """Results that answer no call, here or elsewhere.

    Responses: an `item_reference` says that the server holds items which this list does not show, so that a result
    may answer one of those: https://platform.openai.com/docs/api-reference/responses/create. Once, though.
    """
    parts = (part for message in messages for part in message.parts)
    if not pairing.orphans or not any(isinstance(p, Opaque) and p.kind == "item_reference" for p in parts):
        return pairing.orphans
    known: set[str] = set()
    found: list[Place] = []
    for place in pairing.orphans:
        call_id = pairing.results[place].call_id
        if not call_id or call_id in known:
            found.append(place)
        known.add(call_id)
    return found


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
    while index < result.message and continues(messages, index):
        index += 1
    return all(messages[i].role == "tool" for i in range(index, result.message + 1))


def mismatched_id(view: View) -> Iterator[Breach]:
    for call, result in view.pairing.answer.items():
        asked, given = view.pairing.calls[call], view.pairing.results[result]
        if not has_id_of(given, asked, view.target):
            yield result.message, f"result {given.call_id!r} answers call {asked.id!r} under another id"


def has_id_of(result: ToolResult, call: ToolCall, target: Target) -> bool:
    """Whether a result has its call's id; one of Gemini's own may have none, and is then found by its name."""
    if result.call_id == call.id:
        return True
    return target.format == "gemini" and not result.call_id and is_of(result.native, target)


def mismatched_name(view: View) -> Iterator[Breach]:
    for call, result in view.pairing.answer.items():
        asked, held = view.pairing.calls[call], view.pairing.results[result]
        if not names_its_call(held, asked):
            yield result.message, f"result {held.call_id!r} of {held.name!r} answers a call of {asked.name!r}"


def names_its_call(result: ToolResult, call: ToolCall) -> bool:
    """Whether Gemini gets the call's name: an item of its own must tell it, else the writer finds it by the id."""
    own = result.native is not None and result.native.format == "gemini"
    return result.name == call.name or (result.name is None and not own and bool(call.id))


def mismatched_kind(view: View) -> Iterator[Breach]:
    for call, result in view.pairing.answer.items():
        if view.pairing.calls[call].kind != view.pairing.results[result].kind:
            given = view.pairing.results[result].call_id
            yield result.message, f"result {given!r} is not of its call's kind"


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
