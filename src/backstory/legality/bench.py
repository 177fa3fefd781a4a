"""The workbench of repair: the messages under repair with their places in the list, and the report.

Every mend (`mend_parts`, `mend_steps`, `mend_order`) is a function of one `Bench` and changes its entries.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from backstory.messages import Message
from backstory.targets import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Repair:
    """One change that was made: for which rule, at which position of the list, and what it was."""

    rule: str
    index: int
    what: str


class Entry(NamedTuple):
    """A message and the position in the caller's list that it comes from; a made-up message has its neighbour's."""

    position: int
    message: Message


class CallPlace(NamedTuple):
    """A call by its place in the caller's list: position of the message, number among that message's parts."""

    position: int
    part: int


@dataclass(slots=True)
class Bench:
    """`seals` are positions across which neighbours are never merged: the list was sent as far as there.
    `sent` are calls whose synthetic result the model has seen. `not_started` are ids of calls known never to
    have been started.
    """

    entries: list[Entry]
    target: Target
    seals: Collection[int] = ()
    sent: Collection[CallPlace] = ()
    not_started: Collection[str] = ()
    repairs: list[Repair] = field(default_factory=list)

    @property
    def messages(self) -> list[Message]:
        return [entry.message for entry in self.entries]

    def report(self, rule: str, position: int, what: str) -> None:
        self.repairs.append(Repair(rule=rule, index=position, what=what))

    def replace(self, number: int, message: Message) -> None:
        self.entries[number] = Entry(self.entries[number].position, message)


def entries_of(messages: Sequence[Message], positions: Iterable[int] | None) -> list[Entry]:
    places = range(len(messages)) if positions is None else positions
    return [Entry(position, message) for position, message in zip(places, messages, strict=True)]
