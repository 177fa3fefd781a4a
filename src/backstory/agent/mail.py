"""What others leave in a session's inbox for the turn that is under way, and how it goes into the log.

`steer` is a message of the user's that continues the turn, `late_result` a tool's answer that came after its call was
closed, `interrupt` and `stop` end the turn. `message` waits for a turn of its own and is left alone here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from backstory.messages import Message, Text, ToolResult
from backstory.records import NewRecord, new_message
from backstory.stores.values import Entry

FOR_THE_TURN = ("steer", "late_result", "interrupt", "stop")

Counts = Callable[[Message], Mapping[str, int]]
"""Token counts of a message, by counter, to be stored with it."""


def logged(entry: Entry, turn: int, counts: Counts) -> list[NewRecord]:
    """The records of an entry; none for an interrupt or a stop, which end the turn."""
    if entry.kind == "steer":
        message = Message(role="user", parts=(Text(text=str(entry.data["text"])),))
        extra = {"digest": entry.data["digest"]} if entry.data.get("digest") else {}
        return [new_message(message, turn=turn, tokens=counts(message), message_id=entry.id, **extra)]
    if entry.kind == "late_result":
        message = late_result(entry.data)
        return [new_message(message, turn=turn, tokens=counts(message), message_id=entry.id, late=True)]
    return []


def late_result(data: Mapping[str, Any]) -> Message:
    """A real result that came after its call was closed: it stands where it came; the view puts it in its place."""
    part = ToolResult(
        call_id=str(data["call_id"]),
        name=data.get("name"),
        content=(Text(text=str(data["text"])),),
        is_error=bool(data.get("is_error", False)),
    )
    return Message(role="tool", parts=(part,))
