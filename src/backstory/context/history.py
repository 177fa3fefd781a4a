"""A list of plain wire items, read lazily from either end: what is not needed is never looked at.

A reading costs in proportion to what is read, never to how long the list is. Items are read once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from backstory.errors import InvalidInput
from backstory.formats import wire_format
from backstory.formats.detect import detect
from backstory.legality.steps import starts_turn
from backstory.messages import Message, Origin

WORDS = ("user", "system", "developer")


class Source(Protocol):
    """Messages by position, read as needed: a wire list (`History`), or the view of a session.

    Positions run from `head`, the first after the system's, up to the length; some may hold no message. `system` holds
    the leading system messages with their positions.
    """

    head: int
    system: list[tuple[int, Message]]

    def __len__(self) -> int: ...

    def at(self, position: int) -> list[Message]:
        """The messages of a position: one as a rule, two for results and words in one item, or none."""
        ...

    def between(self, start: int, stop: int) -> list[tuple[int, Message]]:
        """The messages of the positions `start` up to `stop`, each with its position."""
        ...


class History:
    """The messages of a wire list by their position in it.

    `head` is how many leading items are the system's; `system` holds those messages, and before them the value of the
    request's own system field, at position -1.
    """

    def __init__(
        self, items: Any, source: str | None = None, *, system: Any = None, origin: Origin | None = None
    ) -> None:
        if not isinstance(items, (list, tuple)):
            raise InvalidInput(
                f"expected a list of messages, not {type(items).__name__}"
                + (f"; pass its field {_field(items)!r}" if _field(items) else "")
            )
        self.items: Sequence[Any] = items
        self.source = source or detect(items) or "openai_chat"
        self._format = wire_format(self.source)
        self._origin = origin or self._format.ORIGIN
        self._read: dict[int, list[Message]] = {}
        self.system: list[tuple[int, Message]] = [(-1, m) for m in self._format.read_system(system)]
        self.head = 0
        while self.head < len(items) and _is_system(items[self.head]):
            self.system += [(self.head, message) for message in self.at(self.head)]
            self.head += 1

    def __len__(self) -> int:
        return len(self.items)

    def at(self, position: int) -> list[Message]:
        """The messages of one item. Raises `InvalidMessage` where it cannot be read."""
        found = self._read.get(position)
        if found is None:
            found = self._format.read(self.items[position], index=position, origin=self._origin)
            self._read[position] = found
        return found

    def between(self, start: int, stop: int) -> list[tuple[int, Message]]:
        """The messages of the items `start` up to `stop`, each with its position."""
        read = self._read
        return [
            (position, message)
            for position in range(start, stop)
            for message in read.get(position) or self.at(position)
        ]


def begins_turn(source: Source, position: int) -> bool:
    """Whether a turn begins with the messages of a position: as `steps.turns` says, told from the neighbours alone.

    The first message after the system's begins a turn in any case. Words between a call and its result begin none.
    """
    found = source.at(position)
    if not found:
        return False
    before = message_before(source, position)
    if before is None:
        return True
    return starts_turn(before, found[0]) and not _splits_step(source, position)


def begins_step(source: Source, position: int) -> bool:
    """Whether a response begins with the messages of a position."""
    found = source.at(position)
    if not found or found[0].role != "assistant":
        return False
    before = message_before(source, position)
    return not (found[0].joined and before is not None and before.role == "assistant")


def message_before(source: Source, position: int) -> Message | None:
    """The last message before a position; `None` where there is none but the system's."""
    while position > source.head:
        position -= 1
        if found := source.at(position):
            return found[-1]
    return None


def message_from(source: Source, position: int) -> Message | None:
    """The first message at or after a position."""
    while position < len(source):
        if found := source.at(position):
            return found[0]
        position += 1
    return None


def _splits_step(source: Source, position: int) -> bool:
    """Whether results follow these words that answer calls of the step before them."""
    after = position
    while after < len(source) and all(message.role in WORDS for message in source.at(after)):
        after += 1
    answers: set[str] = set()
    while after < len(source) and all(message.role != "assistant" for message in source.at(after)):
        answers.update(result.call_id for message in source.at(after) for result in message.results)
        after += 1
    while answers and position > source.head:
        position -= 1
        for message in reversed(source.at(position)):
            if message.role == "assistant":
                if any(call.id in answers for call in message.calls):
                    return True
                if begins_step(source, position):
                    return False
    return False


def _is_system(item: Any) -> bool:
    """Told without reading it: what comes after the system may never be needed."""
    return isinstance(item, Mapping) and item.get("role") in ("system", "developer")


def _field(items: Any) -> str | None:
    if isinstance(items, dict):
        return next((name for name in ("messages", "input", "contents") if name in items), None)
    return None


def inside_newest_turn(history: Source, position: int) -> tuple[int, tuple[int, int] | None]:
    """The newest turn alone is too big: its user message, and a step of it at or after a position."""
    start = position
    while start > history.head and not begins_turn(history, start):
        start -= 1
    first = start
    while first < len(history) and all(message.role != "assistant" for message in history.at(first)):
        first += 1
    if position <= first:
        return start, None
    step = next((p for p in range(position, len(history)) if begins_step(history, p)), position)
    while step > first and not begins_step(history, step):
        step -= 1
    return (step, (start, first)) if step > first and first > start else (step, None)
