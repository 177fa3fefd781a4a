"""Walks a recorded conversation as if it were live: what would have been sent at each model call, and what it costs.

A model call stands wherever the assistant answers, and one more at the end where the list waits for an answer. Each
call is `assemble`d from the list as it stood then, under one of three strategies. Pure; it decides nothing itself.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Literal, TypeVar, get_args

from backstory.context import prefix
from backstory.context.budget import LOW_MARK, Budget
from backstory.context.fit import Fitted, assemble
from backstory.context.history import Source
from backstory.context.ledger import Ledger
from backstory.context.state import State
from backstory.errors import BudgetExceeded, ConfigurationError, NothingToSend
from backstory.formats.base import Loss
from backstory.legality.bench import Repair
from backstory.legality.steps import continues, turns
from backstory.messages import Message
from backstory.targets import Target
from backstory.tokens import Counter
from backstory.tokens.messages import count_message

Strategy = Literal["full", "sliding", "stepped"]
T = TypeVar("T")

STRATEGIES: tuple[Strategy, ...] = get_args(Strategy)


@dataclass(frozen=True, kw_only=True, slots=True)
class Price:
    """What a million tokens cost: input, input that the provider's cache serves, output.

    `written` is the price of input that goes into the cache, where the provider asks more for that; else `None`.
    """

    input: float
    cached: float
    output: float
    written: float | None = None

    def __post_init__(self) -> None:
        for name in ("input", "cached", "output", "written"):
            value = getattr(self, name)
            if value is not None and not 0 <= value < float("inf"):
                raise ConfigurationError(f"a price is a number, zero or more, not {value!r} ({name})")

    def of(self, *, fresh: int, cached: int, output: int) -> float:
        """The cost of so many tokens, in the price's own currency."""
        written = self.input if self.written is None else self.written
        return (fresh * written + cached * self.cached + output * self.output) / 1_000_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Call:
    """One model call of the recording.

    `number` counts from 1, `turn` too; `asked` is the turn's user's messages. `at` is the position of the answer (the
    list's length where none was recorded), `answer` its messages, `output` their tokens. `sent` are the spans of
    positions that the request holds besides the system, `items` how many items it has. `opened` says that the prefix
    changed, `cut` that it did since the window was full. `repairs` and `losses` are those that no call before had.
    `error` says why nothing could be sent. `fitted` is the request itself, where the caller wanted it kept.
    """

    number: int
    turn: int
    at: int
    asked: tuple[Message, ...]
    answer: tuple[Message, ...]
    output: int
    ledger: Ledger = field(default_factory=lambda: Ledger(budget=None))
    items: int = 0
    sent: tuple[tuple[int, int], ...] = ()
    opened: bool = False
    cut: bool = False
    repairs: tuple[Repair, ...] = ()
    losses: tuple[Loss, ...] = ()
    error: str | None = None
    fitted: Fitted | None = field(default=None, repr=False)

    @property
    def input(self) -> int:
        """Tokens of input; none where nothing could be sent."""
        return 0 if self.error else self.ledger.total

    @property
    def cached(self) -> int:
        """Tokens of input that stand unchanged in the request before, so that a cache can serve them."""
        return 0 if self.error else min(self.ledger.shared, self.ledger.total)

    @property
    def fresh(self) -> int:
        return self.input - self.cached

    def cost(self, price: Price) -> float:
        return 0.0 if self.error else price.of(fresh=self.fresh, cached=self.cached, output=self.output)


@dataclass(frozen=True, kw_only=True, slots=True)
class Skipped:
    """An assistant's message that no model call of ours would have made, and why."""

    at: int
    why: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Walk:
    """A recording under one strategy."""

    strategy: Strategy
    calls: tuple[Call, ...]
    skipped: tuple[Skipped, ...] = ()

    @property
    def input(self) -> int:
        return sum(call.input for call in self.calls)

    @property
    def cached(self) -> int:
        return sum(call.cached for call in self.calls)

    @property
    def output(self) -> int:
        return sum(call.output for call in self.calls if not call.error)

    @property
    def largest(self) -> int:
        return max((call.input for call in self.calls), default=0)

    @property
    def cuts(self) -> int:
        return sum(call.cut for call in self.calls)

    @property
    def healed(self) -> int:
        return sum(len(call.repairs) for call in self.calls)

    @property
    def failed(self) -> int:
        return sum(call.error is not None for call in self.calls)

    def over(self, budget: int | None) -> int:
        """Calls whose request is bigger than a budget: what a server with such a window would refuse."""
        return 0 if budget is None else sum(call.input > budget for call in self.calls)

    def cost(self, price: Price) -> float:
        return sum(call.cost(price) for call in self.calls)


class _Until:
    """A history as it stood when it had so many items."""

    def __init__(self, history: Source, length: int) -> None:
        self._history = history
        self._length = length
        self.head = min(history.head, length)
        self.system = [(position, message) for position, message in history.system if position < length]

    def __len__(self) -> int:
        return self._length

    def at(self, position: int) -> list[Message]:
        return self._history.at(position)

    def between(self, start: int, stop: int) -> list[tuple[int, Message]]:
        return self._history.between(start, stop)


def replay(
    history: Source,
    target: Target,
    counter: Counter,
    budget: Budget,
    *,
    strategy: Strategy = "stepped",
    tools: Sequence[Any] | None = None,
    max_turns: int | None = None,
    max_messages: int | None = None,
    low_mark: float = LOW_MARK,
    keep: Collection[int] = (),
) -> Walk:
    """Every model call of a recording under one strategy.

    ``full`` sends all there is, whatever the limits. ``sliding`` is `fit` without a state: it fills the window anew at
    each call, and once it is full it gives up a turn at a time. ``stepped`` is `fit` with the state of the call before:
    it fills, then is cut to `low_mark` of the budget. `keep` are numbers of calls whose `fitted` is kept.

    A call that cannot be made within the budget has its `error`, and the walk goes on. Raises what `fit` raises for
    settings that make no sense and for messages that cannot be read.
    """
    if strategy not in STRATEGIES:
        raise ConfigurationError(f"unknown strategy {strategy!r}; one of {', '.join(STRATEGIES)}")
    limited = strategy != "full"
    calls: list[Call] = []
    skipped: list[Skipped] = []
    repairs: _New[Repair] = _New()
    losses: _New[Loss] = _New()
    before: Fitted | None = None
    for point in _points(history):
        number = len(calls) + 1
        output = sum(count_message(message, counter, target.format) for message in point.answer)
        view = _Until(history, point.at)
        call = Call(
            number=number, turn=point.turn, at=point.at, asked=point.asked, answer=point.answer, output=output
        )
        try:
            fitted = assemble(
                view,
                target,
                counter,
                budget if limited else Budget(),
                tools=tools,
                state=before.state if before is not None and strategy != "sliding" else None,
                max_turns=max_turns if limited else None,
                max_messages=max_messages if limited else None,
                low_mark=low_mark,
            )
        except NothingToSend as error:
            skipped.append(Skipped(at=point.at, why=str(error)))
            continue
        except BudgetExceeded as error:
            calls.append(dataclasses.replace(call, ledger=error.ledger, error=str(error)))
            continue
        if strategy == "sliding" and before is not None:
            fitted = dataclasses.replace(fitted, ledger=_against(before, fitted))
        ledger = fitted.ledger
        opened = before is not None and ledger.epoch > before.ledger.epoch
        calls.append(
            dataclasses.replace(
                call,
                ledger=dataclasses.replace(ledger, items=()),
                items=len(fitted.messages),
                sent=tuple(_sent(view, ledger)),
                opened=opened,
                cut=opened and before is not None and ledger.dropped != before.ledger.dropped,
                repairs=repairs.of(fitted.repairs),
                losses=losses.of(fitted.losses),
                fitted=fitted if number in keep else None,
            )
        )
        before = fitted
    return Walk(strategy=strategy, calls=tuple(calls), skipped=tuple(skipped))


def _against(before: Fitted, fitted: Fitted) -> Ledger:
    """The ledger of a request that was made without a state, as it stands to the request before."""
    old, new, ledger = State.from_json(before.state), State.from_json(fitted.state), fitted.ledger
    assert isinstance(old, State)
    assert isinstance(new, State)
    shared = same = 0
    if old.tools == new.tools:
        shared = ledger.line("tools").used
        if old.system == new.system:
            same = prefix.common(old.items, new.items)
            apart = ledger.line("system").used - sum(new.tokens[: new.head])
            shared += apart + sum(new.tokens[:same])
    moved = same < len(old.items)
    why = "goes on"
    if moved:
        why = "what was sent before has changed"
        if ledger.dropped != before.ledger.dropped:
            why = f"the window moved: replay begins at message {new.cut}"
    return dataclasses.replace(ledger, shared=shared, epoch=before.ledger.epoch + moved, why=why)


class _New(Generic[T]):
    """Lets each value through once."""

    def __init__(self) -> None:
        self._known: set[T] = set()

    def of(self, given: Iterable[T]) -> tuple[T, ...]:
        found = tuple(each for each in dict.fromkeys(given) if each not in self._known)
        self._known.update(found)
        return found


@dataclass(frozen=True, kw_only=True, slots=True)
class _Point:
    """Where a model was asked: position of its answer, the answer's messages, the turn and its user's messages."""

    at: int
    answer: tuple[Message, ...]
    turn: int
    asked: tuple[Message, ...]


def _points(history: Source) -> Iterator[_Point]:
    entries = history.between(history.head, len(history))
    messages = [message for _, message in entries]
    for number, turn in enumerate(turns(messages), 1):
        first = turn.steps[0].start if turn.steps else turn.stop
        asked = tuple(messages[turn.start : first])
        for step in turn.steps:
            stop = step.start + 1
            while stop < step.stop and continues(messages, stop):
                stop += 1
            answer = tuple(messages[step.start : stop])
            yield _Point(at=entries[step.start][0], answer=answer, turn=number, asked=asked)
        if turn.stop == len(messages) and messages[-1].role != "assistant":
            yield _Point(at=len(history), answer=(), turn=number, asked=asked)


def _sent(view: Source, ledger: Ledger) -> Iterator[tuple[int, int]]:
    """The spans of positions that were not dropped, the system not counted."""
    start = view.head
    for span in ledger.dropped:
        if span.start > start:
            yield start, span.start
        start = span.stop
    if start < len(view):
        yield start, len(view)
