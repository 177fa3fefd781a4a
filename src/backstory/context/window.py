"""Where replay begins: whole steps, filled from the newest back, under limits of tokens, messages and turns.

The window steps and does not slide: it fills up to its limits, and is then cut to a low mark, so that between two
cuts each request extends the one before. A cut stands at the start of a turn; only where the newest turn alone is
too big does it stand inside that turn, at a step, and the turn's user message is kept before it.

Pure: it sees messages and their tokens, and `backstory.legality.steps` says where they can be cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from backstory.context.budget import LOW_MARK
from backstory.errors import ConfigurationError
from backstory.legality.bench import CallPlace
from backstory.legality.repair import Mended
from backstory.legality.steps import Turn, head_length, pair, turns
from backstory.messages import Message, Synthetic


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What a window may hold; `None` is no limit. The tightest holds."""

    tokens: int | None = None
    messages: int | None = None
    turns: int | None = None

    def __post_init__(self) -> None:
        for name in ("messages", "turns"):
            value = getattr(self, name)
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 1):
                raise ConfigurationError(f"max_{name} must be a whole number, 1 or more, not {value!r}")

    def low(self, mark: float = LOW_MARK, *, fixed: int = 0) -> Limits:
        """What a cut leaves: of everything the share `mark`, and of turns and messages one at least.

        `fixed` is the tokens outside the window that count against the same budget. Where they are most of it, a cut
        still leaves half that share of what is left, so that a long system does not wipe the history out.
        """
        tokens = self.tokens
        if tokens is not None:
            tokens = max(int((tokens + fixed) * mark) - fixed, int(tokens * mark / 2), 0)
        return Limits(
            tokens=tokens,
            messages=None if self.messages is None else max(1, int(self.messages * mark)),
            turns=None if self.turns is None else max(1, int(self.turns * mark)),
        )

    def hold(self, *, tokens: int, messages: int, turns: int) -> bool:
        return (
            (self.tokens is None or tokens <= self.tokens)
            and (self.messages is None or messages <= self.messages)
            and (self.turns is None or turns <= self.turns)
        )


@dataclass(frozen=True, slots=True)
class Choice:
    """Replay messages `start` to the end, and before them those from `kept[0]` up to `kept[1]` (a user message).

    `fits` is false where even the newest step with its user message is over the limits.
    """

    start: int
    kept: tuple[int, int] | None = None
    fits: bool = True


def choose(
    messages: Sequence[Message],
    tokens: Sequence[int],
    high: Limits,
    low: Limits,
    *,
    positions: Sequence[int] | None = None,
) -> Choice:
    """The longest suffix within `low`, beginning at a turn.

    If the newest turn alone is over `low`, that turn, if it is within `high`; else the longest suffix of its steps
    that is within `low` together with its user message; else the newest step, whatever its size.
    `messages` are those after the leading system messages, `tokens` theirs, `positions` the items they come from:
    none of several that come from one item can be cut off alone.
    """
    found = turns(messages)
    if not found:
        return Choice(0)
    start: int | None = None
    used = count = 0
    for number, turn in enumerate(reversed(found), start=1):
        used += sum(tokens[turn.start : turn.stop])
        count += turn.stop - turn.start
        if not low.hold(tokens=used, messages=count, turns=number):
            break
        start = turn.start
    if start is not None:
        return Choice(start)
    newest = found[-1]
    alone = sum(tokens[newest.start : newest.stop])
    if high.hold(tokens=alone, messages=newest.stop - newest.start, turns=1):
        return Choice(newest.start)
    return _inside(newest, tokens, high, low, range(len(messages)) if positions is None else positions)


def _inside(turn: Turn, tokens: Sequence[int], high: Limits, low: Limits, positions: Sequence[int]) -> Choice:
    if not turn.steps:
        return Choice(turn.start, fits=False)
    first = turn.steps[0].start
    starts = [s.start for s in turn.steps if s.start == first or positions[s.start] != positions[s.start - 1]]
    count = first - turn.start
    used = sum(tokens[turn.start : first])
    start, stop = turn.stop, turn.stop
    for begin in reversed(starts):
        used += sum(tokens[begin:stop])
        limits = low if start < turn.stop else high  # the newest step stays, if it fits at all
        if not limits.hold(tokens=used, messages=count + turn.stop - begin, turns=1):
            break
        start = stop = begin
    fits = start < turn.stop
    start = start if fits else starts[-1]
    if start == first:
        return Choice(turn.start, fits=fits)
    own = first > turn.start and positions[turn.start] != positions[first]  # else it is a mark of ours
    return Choice(start, (turn.start, first) if own else None, fits=fits)


@dataclass(kw_only=True)
class Window:
    """What is replayed: from position `cut` on, and before it the user message at `kept`; mended, and counted."""

    cut: int
    kept: tuple[int, int] | None
    mended: Mended
    tokens: list[int]
    head: int = field(init=False)
    total: int = field(init=False)

    def __post_init__(self) -> None:
        self.head = head_length(self.mended.messages)
        self.total = sum(self.tokens)

    @property
    def messages(self) -> list[Message]:
        return self.mended.messages

    @property
    def positions(self) -> list[int]:
        return self.mended.positions

    def invented(self) -> dict[CallPlace, Synthetic]:
        """Calls that are answered by a synthetic result here, by their places in the caller's list."""
        results = [message.results for message in self.messages if message.role == "tool"]
        if not any(result.synthetic for of_message in results for result in of_message):
            return {}
        pairs = pair(self.messages)
        counts: dict[int, int] = {}
        found: dict[CallPlace, Synthetic] = {}
        for call in pairs.calls:
            position = self.positions[call.message]
            number = counts[position] = counts.get(position, -1) + 1
            answer = pairs.answer.get(call)
            if answer is not None and (kind := pairs.results[answer].synthetic) is not None:
                found[CallPlace(position, number)] = kind
        return found


def placed(window: Window, choice: Choice) -> tuple[int, tuple[int, int] | None]:
    """A choice among the mended messages as positions in the caller's list."""
    positions = window.positions[window.head :]
    if not positions or (choice.start == 0 and choice.kept is None):
        return window.cut, window.kept
    kept = None
    if choice.kept is not None:
        kept = (positions[choice.kept[0]], positions[choice.kept[1] - 1] + 1)
    return positions[choice.start], kept
