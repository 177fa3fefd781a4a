"""From one wire format to another, in one call.

It reads and writes and says what could not be carried. It does not repair: what was illegal stays so, and what is
legal in one API may not be so in another; `backstory.repair` and `backstory.fit` see to that.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any

from backstory.formats import wire_format
from backstory.formats.base import Item, Loss
from backstory.formats.detect import detect
from backstory.formats.request import read_all, request_body
from backstory.messages import Message, Origin, Part, ToolCall, ToolResult, evolve
from backstory.targets import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Converted:
    """What `convert` gives: ``messages, losses = convert(…)`` or its fields by name.

    `messages` is the list in the target's format, `losses` what could not be carried (`Loss.index` is the
    position in the list that was given, -1 for the system), `body` the fields of a request, among them the
    system where the target has it apart.
    """

    messages: list[Item] = field(default_factory=list)
    losses: tuple[Loss, ...] = ()
    body: dict[str, Any] = field(default_factory=dict)

    def __iter__(self) -> Iterator[Any]:
        return iter((self.messages, self.losses))


def convert(
    messages: Any,
    *,
    source: str | None = None,
    target: Target | str,
    system: Any = None,
    origin: Origin | None = None,
    extensions: bool = True,
) -> Converted:
    """The messages of one wire format in another.

    `source` is the format's name; it is told from the messages where it is not given. `target` is a `Target` or
    a preset's name. `system` is the value of the source request's own system field. `origin` says who made the
    opaque items (signatures, encrypted reasoning), so that they are carried only to where they are accepted.
    With `extensions`, documented extension fields are written, so that a Gemini signature survives in a chat
    message's `extra_content` and comes back to its place.

    Nothing is repaired, moved or renamed; run `backstory.repair` on the result where a server must accept it.
    (Only a call without an id, which is legal in Gemini alone, gets one elsewhere, and its result the same.)
    To the same format, items come back as the very same objects. Raises `InvalidInput` where this is no list,
    `InvalidMessage` for an item that cannot be read, `ConfigurationError` for an unknown format or target.
    """
    target = Target.of(target)
    if extensions and not target.extensions:
        target = target.but(extensions=True)
    if source is None:
        source = (detect(messages) if isinstance(messages, list | tuple) else None) or "openai_chat"
    found, positions = read_all(messages, source, origin, system=system)
    if source == "gemini" != target.format:
        found = _with_ids(found)
    written = wire_format(target.format).write(found, target)
    losses = tuple(replace(loss, index=positions[loss.index]) for loss in written.losses)
    return Converted(messages=written.items, losses=losses, body=request_body(target, written))


def _with_ids(messages: list[Message]) -> list[Message]:
    """Calls without an id get one by their place; a result that of the first call of its name that waits."""
    taken = {call.id for message in messages for call in message.calls}
    fresh = (f"call_{number}" for number in count(1) if f"call_{number}" not in taken)
    waiting: list[ToolCall] = []
    found: list[Message] = []
    for message in messages:
        parts: list[Part] = []
        if message.role in ("assistant", "user"):
            waiting = []
        for part in message.parts:
            if isinstance(part, ToolCall) and not part.id:
                part = evolve(part, id=next(fresh))
                waiting.append(part)
            elif isinstance(part, ToolResult) and not part.call_id and waiting:
                call = next((call for call in waiting if call.name == part.name), waiting[0])
                waiting.remove(call)
                part = evolve(part, call_id=call.id)
            parts.append(part)
        changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
        found.append(message.evolve(parts=tuple(parts)) if changed else message)
    return found
