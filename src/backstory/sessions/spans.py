"""What a view is made of: spans of the log, cuts, undos, the open turn, known messages. Plain frozen values."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backstory.quick import quick


class Span(NamedTuple):
    """Places `first` to `last`, both included. (A tuple, since a snapshot holds hundreds.)"""

    first: int
    last: int

    def __contains__(self, seq: object) -> bool:
        return isinstance(seq, int) and self.first <= seq <= self.last


@dataclass(frozen=True, kw_only=True, slots=True)
class Cut:
    """Replay begins at place `start`; `kept` (start, stop) is a user message before it that stays.

    `anew`: the user wanted it so, and no undo takes it back. `stands`: a summary owns it, which stands for what is
    before, from place `since` on. `seq` is the place of its record.
    """

    start: int = 0
    kept: tuple[int, int] | None = None
    anew: bool = False
    stands: bool = field(default=False, compare=False)
    since: int = field(default=1, compare=False)
    seq: int = field(default=0, compare=False)


@dataclass(frozen=True, kw_only=True, slots=True)
class Undo:
    """What one undo hides: spans that do not overlap, in order. `of` is ``turn``, or ``mark`` for a mark alone.

    Or it hides nothing and takes a summary out of force: ``summary``, and `lifts` is the place of that record.
    """

    spans: tuple[Span, ...]
    of: str = "turn"
    lifts: int = 0

    @property
    def first(self) -> int:
        return self.spans[0].first

    def __contains__(self, seq: int) -> bool:
        return any(seq in span for span in self.spans)


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class OpenTurn:
    """The turn that is under way, or that a crash left open. `seq` is the place of its `turn_started`.

    `message_id` is the client's id of the message that began it, `digest` stands for that message's content.
    `started` are the calls (place of the assistant's message, number of the call in it) that were started.
    """

    number: int
    seq: int
    message_id: str | None = None
    digest: str = ""
    started: frozenset[tuple[int, int]] = frozenset()

    def starting(self, call: tuple[int, int]) -> OpenTurn:
        """The same with one more call started."""
        return OpenTurn(
            number=self.number,
            seq=self.seq,
            message_id=self.message_id,
            digest=self.digest,
            started=self.started | {call},
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Known:
    """A client message that the log holds: its turn, the place of its message, and a digest of its content."""

    turn: int
    seq: int
    digest: str


def cut_to_json(cut: Cut) -> list[Any]:
    kept = list(cut.kept) if cut.kept else None
    return [cut.start, kept, cut.anew, cut.seq, *([cut.since] if cut.stands else ())]


def cut_from_json(value: list[Any]) -> Cut:
    start, kept, anew, seq, *since = value
    return Cut(
        start=start,
        kept=tuple(kept) if kept else None,
        anew=anew,
        stands=bool(since),
        since=int(since[0]) if since else 1,
        seq=seq,
    )


def spans_to_json(spans: Mapping[int, Span]) -> list[int]:
    """Turns with their spans, in one flat list of number, first, last: hundreds of small lists would cost more."""
    return [place for number, span in spans.items() for place in (number, *span)]


def spans_from_json(value: list[Any]) -> dict[int, Span]:
    """The spans again; logs that were written before hold them as ``[number, first, last]`` each."""
    flat = [place for one in value for place in one] if value and isinstance(value[0], list) else value
    return {n: Span(first, last) for n, first, last in zip(flat[::3], flat[1::3], flat[2::3], strict=True)}


def undo_to_json(undo: Undo) -> list[Any]:
    spans = [[span.first, span.last] for span in undo.spans]
    return [undo.of, spans, *([undo.lifts] if undo.lifts else ())]


def undo_from_json(value: list[Any]) -> Undo:
    of, spans, *lifts = value
    return Undo(
        spans=tuple(Span(first, last) for first, last in spans), of=of, lifts=lifts[0] if lifts else 0
    )


def turn_to_json(turn: OpenTurn | None) -> dict[str, Any] | None:
    if turn is None:
        return None
    return {**dataclasses.asdict(turn), "started": sorted(map(list, turn.started))}


def turn_from_json(value: Mapping[str, Any] | None) -> OpenTurn | None:
    if value is None:
        return None
    return OpenTurn(**{**value, "started": frozenset((seq, number) for seq, number in value["started"])})
