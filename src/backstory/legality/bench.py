"""The workbench of repair: the messages under repair with their places in the list, and the report.

Every mend (`mend_parts`, `mend_steps`, `mend_order`) is a function of one `Bench` and changes its entries.
"""

from __future__ import annotations

import bisect
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from backstory.messages import Message, Synthetic
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
    """A call by its place in the caller's list: position of the item, number among that item's calls."""

    position: int
    number: int


_UNKNOWN: Synthetic = "outcome_unknown"


class Bench:
    """`seals` are positions across which neighbours are never merged: the list was sent as far as there.
    `sent` are calls whose synthetic result the model has seen, with its kind where that is known. `not_started` are
    ids of calls known never to have been started.
    """

    def __init__(
        self,
        entries: list[Entry],
        target: Target,
        *,
        seals: Collection[int] = (),
        sent: Mapping[CallPlace, Synthetic] | Collection[CallPlace] = (),
        not_started: Collection[str] = (),
    ) -> None:
        self.entries = entries
        self.target = target
        self.not_started = frozenset(not_started)
        self.repairs: list[Repair] = []
        self.made: list[CallPlace] = []  # calls for which a result was made up
        self._seals = sorted(seals)
        self._sent = dict(sent) if isinstance(sent, Mapping) else dict.fromkeys(sent, _UNKNOWN)

    @property
    def messages(self) -> list[Message]:
        return [entry.message for entry in self.entries]

    def report(self, rule: str, position: int, what: str) -> None:
        self.repairs.append(Repair(rule=rule, index=position, what=what))

    def replace(self, number: int, message: Message) -> None:
        self.entries[number] = Entry(self.entries[number].position, message)

    def sealed(self, before: int, after: int) -> bool:
        """Whether the list was sent as far as between two positions."""
        found = bisect.bisect_right(self._seals, before)
        return found < len(self._seals) and self._seals[found] <= after

    def was_sent(self, position: int, number: int) -> Synthetic | None:
        """The kind of synthetic result that the model has seen for the call of this number among a position's calls."""
        return self._sent.get(CallPlace(position, number))


def entries_of(messages: Sequence[Message], positions: Iterable[int] | None) -> list[Entry]:
    places = range(len(messages)) if positions is None else positions
    return [Entry(position, message) for position, message in zip(places, messages, strict=True)]
