"""A list of plain wire items, read lazily from either end: what is not needed is never looked at.

A reading costs in proportion to what is read, never to how long the list is. Items are read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

from backstory.errors import InvalidInput
from backstory.formats import wire_format
from backstory.formats.detect import detect
from backstory.legality.steps import starts_turn
from backstory.messages import Message, Origin


class Source(Protocol):
    """Messages by position, read as needed: a wire list (`History`), or the view of a session."""

    head: int
    system: list[tuple[int, Message]]

    def __len__(self) -> int: ...
    def at(self, position: int) -> list[Message]: ...
    def between(self, start: int, stop: int) -> list[tuple[int, Message]]: ...
    def begins_turn(self, position: int) -> bool: ...


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
        while self.head < len(items):
            found = self.at(self.head)
            if any(message.role not in ("system", "developer") for message in found):
                break
            self.system += [(self.head, message) for message in found]
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
        return [(position, message) for position in range(start, stop) for message in self.at(position)]

    def begins_turn(self, position: int) -> bool:
        """Whether a turn begins with the item at a position; the first after the system begins one in any case."""
        if position <= self.head:
            return position == self.head
        found = self.at(position)
        if not found:
            return False
        before = self.at(position - 1)
        return starts_turn(before[-1] if before else None, found[0])


def _field(items: Any) -> str | None:
    if isinstance(items, dict):
        return next((name for name in ("messages", "input", "contents") if name in items), None)
    return None
