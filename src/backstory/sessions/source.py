"""The live messages of a session as what a request is built from. Positions are places in the log (`seq`).

It reads the view and nothing else; that enough of it is loaded is the caller's business (`Session.load`).
"""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from backstory.legality.steps import starts_turn
from backstory.messages import Message
from backstory.records import Record
from backstory.sessions.view import View


class ViewSource:
    """A `backstory.context.history.Source` over the live messages up to a place (`stop`, not included)."""

    def __init__(self, view: View, *, stop: int | None = None) -> None:
        end = view.head + 1 if stop is None else stop
        records = view.live()
        if stop is not None:
            records = [record for record in records if record.seq < stop]
        self.records: Sequence[Record] = records
        self.head = view.start if view.loaded <= view.start else (records[0].seq if records else end)
        self.system: list[tuple[int, Message]] = []
        self._end = max(end, self.head)
        self._places = [record.seq for record in records]
        self._index: Mapping[int, int] = {seq: number for number, seq in enumerate(self._places)}
        self._found: dict[int, list[Message]] = {}  # as `at` gave them

    def __len__(self) -> int:
        return self._end

    def at(self, position: int) -> list[Message]:
        found = self._found.get(position)
        if found is None:
            number = self._index.get(position)
            found = self._found[position] = [counted(self.records[number])] if number is not None else []
        return found

    def between(self, start: int, stop: int) -> list[tuple[int, Message]]:
        first, last = bisect.bisect_left(self._places, start), bisect.bisect_left(self._places, stop)
        return [(record.seq, counted(record)) for record in self.records[first:last]]

    def begins_turn(self, position: int) -> bool:
        if position <= self.head:
            return position == self.head
        number = self._index.get(position)
        if number is None:
            return False
        before = self.records[number - 1].message if number else None
        return starts_turn(before, self.records[number].message)


def counted(record: Record) -> Message:
    """The message of a record, with the token counts that were stored when it was written."""
    message = record.message
    if not message._counts and record.tokens:
        message._counts.update(record.tokens)
    return message
