"""What others leave in a session's inbox for the turn that is under way, and how it goes into the log.

`steer` is a message of the user's that continues the turn, `late_result` a tool's answer that came after its call was
closed, `interrupt` and `stop` end the turn that they name. `message` waits for a turn of its own and is left alone.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backstory.errors import InvalidMessage
from backstory.messages import Message, Text, ToolResult, from_json, to_json
from backstory.records import NewRecord, new_message
from backstory.stores.values import Entry

FOR_THE_TURN = ("steer", "late_result", "interrupt", "stop")

Counts = Callable[[Message], Mapping[str, int]]
"""Token counts of a message, by counter, to be stored with it."""


def carried(message: Message, digest: str) -> dict[str, Any]:
    """The data of an entry that carries a user's message."""
    return {"message": to_json(message), "digest": digest}


def message_of(entry: Entry) -> tuple[Message, str]:
    """The message that an entry carries, and the digest of what was said. Raises `InvalidMessage`."""
    try:
        return from_json(entry.data["message"]), str(entry.data["digest"])
    except KeyError as error:
        raise InvalidMessage(f"entry {entry.id!r} of the inbox carries no message") from error


def logged(entry: Entry, turn: int, counts: Counts, live: Sequence[Message]) -> list[NewRecord]:
    """The records of an entry; none for an interrupt or a stop, which end the turn. `live` is what is replayed."""
    if entry.kind == "steer":
        message, digest = message_of(entry)
        return [new_message(message, turn=turn, tokens=counts(message), message_id=entry.id, digest=digest)]
    if entry.kind == "late_result":
        message = late_result(entry.data, live)
        return [new_message(message, turn=turn, tokens=counts(message), message_id=entry.id, late=True)]
    return []


def late_result(data: Mapping[str, Any], live: Sequence[Message]) -> Message:
    """A real result that came after its call was closed: it stands where it came; the view puts it in its place.

    Where its call is not replayed any more it can only be told as a note.
    """
    call_id, text = str(data["call_id"]), str(data["text"])
    call = next((call for message in reversed(live) for call in message.calls if call.id == call_id), None)
    if call is None:
        name = f"{data['name']} ({call_id})" if data.get("name") else f"call {call_id}"
        told = f"[The result of {name}, which is no longer shown, came late:]\n{text}"
        return Message(role="user", parts=(Text(text=told),))
    part = ToolResult(
        call_id=call_id,
        name=call.name,
        content=(Text(text=text or "[empty]"),),
        is_error=bool(data.get("is_error", False)),
        kind=call.kind,
    )
    return Message(role="tool", parts=(part,))
