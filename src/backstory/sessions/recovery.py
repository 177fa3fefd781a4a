"""What a crash left open, and the records that close it. A pure function of the view.

Finished results are kept, those of earlier steps of the same turn too. Each unanswered call gets exactly one synthetic
result, which says whether it had been started. Running this twice, or crashing in the middle of it, changes nothing:
what was closed is no longer open.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, TypeAlias

from backstory.formats.synthetic import synthetic_text
from backstory.legality.steps import pair
from backstory.messages import Message, Synthetic, Text, ToolCall, ToolResult
from backstory.records import NewRecord, new_message
from backstory.sessions.view import View

INTERRUPTED = "(interrupted)"
"""The assistant's mark in a turn that ended without an answer: the history alternates without merging later."""

Place: TypeAlias = tuple[int, int]
"""Which call: the place of its message in the log, and its number in there from 0."""
SoFar: TypeAlias = Mapping[Place, str]
"""What calls that have no result had told of their work when they were interrupted."""
NOTHING: SoFar = MappingProxyType({})


def draft_json(text: str, so_far: SoFar) -> dict[str, Any]:
    """A draft as it is kept beside the log: the answer that was being streamed, and what running calls told."""
    told = [[*place, said] for place, said in so_far.items()]
    return {"text": text, **({"so_far": told} if told else {})}


def draft_of(data: Mapping[str, Any]) -> tuple[str, SoFar]:
    """The two again."""
    return str(data.get("text", "")), {(seq, number): text for seq, number, text in data.get("so_far", ())}


def open_calls(view: View) -> list[tuple[Place, ToolCall]]:
    """The calls of the open turn without a result, each with its place."""
    if view.turn is None:
        return []
    records = view.of_turn(view.turn.number)
    messages = [record.message for record in records]
    if not any(message.calls for message in messages):
        return []
    pairing = pair(messages)
    found: list[tuple[Place, ToolCall]] = []
    numbers: dict[int, int] = {}
    for place, call in pairing.calls.items():
        seq = records[place.message].seq
        number = numbers.get(seq, 0)
        numbers[seq] = number + 1
        if place not in pairing.answer:
            found.append(((seq, number), call))
    return found


def synthetic_result(call: ToolCall, why: Synthetic, so_far: str = "") -> Message:
    """The one result that stands for a missing one, with what the call had told of its work."""
    return Message(
        role="tool",
        parts=(
            ToolResult(
                call_id=call.id,
                name=call.name,
                content=(Text(text=synthetic_text(why, so_far)),),
                is_error=True,
                kind=call.kind,
                synthetic=why,
            ),
        ),
    )


def close_calls(view: View, so_far: SoFar = NOTHING) -> list[NewRecord]:
    """One synthetic result for each open call of the turn that a crash left open."""
    if view.turn is None:
        return []
    closed: list[NewRecord] = []
    for place, call in open_calls(view):
        why: Synthetic = "outcome_unknown" if place in view.turn.started else "not_started"
        stand_in = synthetic_result(call, why, so_far.get(place, ""))
        closed.append(new_message(stand_in, turn=view.turn.number))
    return closed


def end_turn(
    view: View,
    reason: str,
    *,
    draft: str = "",
    so_far: SoFar = NOTHING,
    usage: Mapping[str, Any] | None = None,
) -> list[NewRecord]:
    """The records that end the open turn without an answer: its calls closed, a mark of the assistant's, its end.

    `draft` is the text that was being streamed, which becomes the interrupted answer; `so_far` goes into the results
    of the calls that it is of. `reason` is ``interrupted``,
    ``stopped``, ``failed`` or ``limit``.
    """
    if view.turn is None:
        return []
    number = view.turn.number
    closed = close_calls(view, so_far)
    live = view.of_turn(number)
    last = live[-1].message.role if live else "user"
    if closed or last != "assistant" or draft:
        text = f"{draft}\n\n{INTERRUPTED}" if draft else INTERRUPTED
        mark = Message(role="assistant", parts=(Text(text=text),))
        closed.append(new_message(mark, turn=number, mark=reason))
    closed.append(NewRecord(kind="turn_ended", data=_ended(reason, usage), turn=number))
    return closed


def _ended(reason: str, usage: Mapping[str, Any] | None) -> dict[str, Any]:
    return {"reason": reason, **({"usage": dict(usage)} if usage else {})}
