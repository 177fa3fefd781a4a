"""`fit`: a list of messages, as it comes, becomes the request that fits a budget and that the model's API accepts.

Pure and without set-up: plain dicts in, plain dicts out. Everything that it decides is in the result: what was
dropped and why (`ledger`), what was mended (`repairs`), what the format cannot carry (`losses`), and what the next
call needs so that its request extends this one (`state`).
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from backstory.context import prefix
from backstory.context.budget import LOW_MARK, Budget
from backstory.context.fitting import Fitting, Window
from backstory.context.history import History, Source
from backstory.context.ledger import Dropped, Ledger, Line
from backstory.context.markers import mark
from backstory.context.state import State
from backstory.context.window import Limits
from backstory.errors import BudgetExceeded, ConfigurationError, InvalidInput, NothingToSend
from backstory.formats import wire_format
from backstory.formats.base import Loss, Written
from backstory.formats.request import request_body
from backstory.legality.bench import Repair
from backstory.messages import Message, Opaque, Origin
from backstory.targets import Target
from backstory.tokens import Calibration, Counter, count_tools, counter_for
from backstory.tokens.messages import PRIMING


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """One request, ready to be sent.

    `body` is its fields in the target's format: ``messages``, or ``system`` and ``messages``, or ``input``, or
    ``contents``; with ``tools``, and for Anthropic with cache markers. `messages` is the list alone, without
    markers; what was not changed is the very object that came in. `state` is plain JSON, for the next call.
    """

    messages: list[dict[str, Any]]
    body: dict[str, Any]
    ledger: Ledger
    state: dict[str, Any]
    repairs: tuple[Repair, ...] = ()
    losses: tuple[Loss, ...] = ()


def fit(
    messages: Any,
    *,
    budget: int | None = None,
    window: int | None = None,
    reserve: int | None = None,
    target: Target | str = "openai_chat",
    source: str | None = None,
    system: Any = None,
    tools: Sequence[Any] | None = None,
    state: Any = None,
    max_turns: int | None = None,
    max_messages: int | None = None,
    model: str | None = None,
    encoding: str | None = None,
    calibration: Calibration | None = None,
    origin: Origin | None = None,
    not_started: Collection[str] = (),
    ready: bool = True,
) -> Fitted:
    """The newest messages that fit, as whole steps, legal for the target; where all fits and is legal, all as it is.

    `budget` is tokens of all input: system, tools, media and messages. Or give `window` (input and output together)
    and `reserve`, what is kept of it for the output (a fifth, unless said otherwise). Without either nothing is cut.
    `max_turns` and `max_messages` bind as well; the tightest holds.

    `target` is a preset's name or a `Target`. `source` is the format of `messages`: told from their shape, and
    ``openai_chat`` where that says nothing. `system` is the value of the source request's own system field, where its
    format has one. Leading system and developer messages are the system, and are never cut.

    Without `state` the whole budget is filled. With the `state` of the request before, replay begins where that began,
    until the budget is full; then it is cut to half of it, so that the provider's cache can serve what is repeated.
    A state that does not match the list opens a new epoch, and `ledger.why` says why.

    Tokens are counted for `model` (or in `encoding`), else as the target's format suggests; `calibration` corrects
    estimates. `origin` says who made opaque items such as signatures. `not_started` are ids of open calls that are
    known not to have been started: their made-up results then say so. With ``ready=False`` the list may end with the
    assistant.

    Raises `InvalidInput` for what is no list of messages, `ConfigurationError` for settings that make no sense,
    `NothingToSend` where the model is not the one to speak next, and `BudgetExceeded`, with the ledger, where system,
    tools, the turn's user message and the newest step do not fit; big results of that step are shown as previews first.
    """
    goal = Target.of(target)
    counter = _counter(model, encoding, goal)
    limit = Budget.of(budget=budget, window=window, reserve=reserve, margin=counter.margin)
    history = History(messages, source, system=system, origin=origin)
    return assemble(
        history,
        goal,
        counter,
        limit,
        tools=tools,
        state=state,
        max_turns=max_turns,
        max_messages=max_messages,
        factor=calibration.factor if calibration is not None else 1.0,
        not_started=not_started,
        ready=ready,
    )


def _counter(model: str | None, encoding: str | None, target: Target) -> Counter:
    if encoding is None:
        return counter_for(model, target.format)
    if model is not None:
        raise ConfigurationError("give model or encoding, not both")
    return Counter(name=encoding)


def assemble(
    history: Source,
    target: Target,
    counter: Counter,
    budget: Budget,
    *,
    tools: Sequence[Any] | None = None,
    state: Any = None,
    max_turns: int | None = None,
    max_messages: int | None = None,
    factor: float = 1.0,
    not_started: Collection[str] = (),
    ready: bool = True,
    low_mark: float = LOW_MARK,
) -> Fitted:
    """What `fit` does, over any source of messages. `low_mark` is the share of the budget that a cut leaves."""
    if tools is not None and not isinstance(tools, (list, tuple)):
        raise InvalidInput(f"tools must be a list of tool declarations, not {type(tools).__name__}")
    request = _Request(target, counter, budget, history)
    known = request.take(state)
    request.order_tools(tools or ())
    fitting = Fitting(
        history,
        target,
        counter,
        Limits(tokens=budget.tokens, messages=max_messages, turns=max_turns),
        fixed=request.tool_tokens + PRIMING,
        factor=factor,
        low_mark=low_mark,
        not_started=not_started,
    )
    chosen = fitting.run(known)
    return request.finish(fitting, chosen, ready=ready)


@dataclass(slots=True)
class _Request:
    """The account of one request: what was taken over from the one before, and what becomes of it."""

    target: Target
    counter: Counter
    budget: Budget
    history: Source
    before: State | None = None
    mismatch: str = ""
    tools: list[Any] = field(default_factory=list)
    tool_digests: tuple[str, ...] = ()
    tool_tokens: int = 0

    @property
    def shape(self) -> str:
        """Target and counter, as a state remembers them: a change of either changes every byte, or every count."""
        given = f"{self.target!r}".encode()
        return f"{self.target.name}/{self.counter.name}/{hashlib.blake2b(given, digest_size=4).hexdigest()}"

    def take(self, state: Any) -> State | None:
        """The state to go on from, or `None`; then `mismatch` says why, where there was one."""
        if state is None:
            return None
        found = State.from_json(state)
        if isinstance(found, str):
            self.mismatch = found
            return None
        self.before = found
        if found.shape != self.shape:
            self.mismatch = "the target or the way of counting changed"
        elif found.length > len(self.history):
            self.mismatch = (
                f"the list has {len(self.history)} messages, and had {found.length} at the last request"
            )
        elif found.cut < self.history.head:
            self.mismatch = "the list has other system messages at its head than at the last request"
        return None if self.mismatch else found

    def order_tools(self, tools: Sequence[Any]) -> None:
        self.tools = prefix.same_order(self.before.tools if self.before else (), tools)
        self.tool_digests = tuple(prefix.digest(tool) for tool in self.tools)
        self.tool_tokens = count_tools(self.tools, self.counter) if self.tools else 0

    def finish(self, fitting: Fitting, window: Window, *, ready: bool) -> Fitted:
        messages = window.messages
        lines = tuple(self.lines(fitting, window))
        total = sum(line.used for line in lines)
        if self.budget.tokens is not None and total > self.budget.tokens:
            raise self.exceeded(self.ledger(fitting, window, lines, total))
        if ready:
            _check_ready(messages)
        written = wire_format(self.target.format).write(messages, self.target)
        tokens = _item_tokens(written, window)
        after = self.state(fitting, window, written, tokens)
        ledger = self.ledger(fitting, window, lines, total, after=after)
        replayed = len(self.before.items) if self.before and self.before.epoch == ledger.epoch else 0
        body = request_body(self.target, written, self.tools)
        positions = window.mended.positions
        return Fitted(
            messages=written.items,
            body=mark(body, self.target, replayed=replayed),
            ledger=ledger,
            state=replace(after, epoch=ledger.epoch).to_json(),
            repairs=window.mended.repairs,
            losses=tuple(
                Loss(index=positions[loss.index], kind=loss.kind, what=loss.what) for loss in written.losses
            ),
        )

    def lines(self, fitting: Fitting, window: Window) -> Iterator[Line]:
        """System, tools, history, the current message, and what every request has besides."""
        head = sum(window.tokens[: window.head])
        start = len(window.messages)
        while start > window.head and window.messages[start - 1].role == "user":
            start -= 1
        message = sum(window.tokens[start:])
        history = sum(window.tokens[window.head : start])
        asked = max(history, fitting.asked - head - message)
        yield Line(section="system", asked=head, granted=head, used=head)
        if self.tools:
            yield Line(
                section="tools", asked=self.tool_tokens, granted=self.tool_tokens, used=self.tool_tokens
            )
        room = history
        if self.budget.tokens is not None:
            room = max(0, self.budget.tokens - head - self.tool_tokens - message - PRIMING)
        yield Line(section="history", asked=asked, granted=min(asked, room), used=history)
        yield Line(section="message", asked=message, granted=message, used=message)
        yield Line(section="overhead", asked=PRIMING, granted=PRIMING, used=PRIMING)

    def exceeded(self, ledger: Ledger) -> BudgetExceeded:
        asked = ", ".join(f"{line.section} {line.used:,}" for line in ledger.lines)
        what = f"the request needs {ledger.total:,} tokens of input and may take {self.budget.tokens:,} ({asked})"
        biggest = max(ledger.lines, key=lambda line: line.used).section
        advice = {
            "system": "shorten the system message",
            "tools": "send fewer tools, or shorter descriptions",
            "message": "shorten the current message; it is never cut in silence",
            "history": "the newest step alone is too big: shorten its tool results or arguments",
        }.get(biggest, "shorten the input")
        return BudgetExceeded(
            f"{what}; {advice}, or raise the budget",
            ledger=ledger,
            needed=ledger.total,
            budget=self.budget.tokens or 0,
        )

    def state(self, fitting: Fitting, window: Window, written: Written, tokens: list[int]) -> State:
        held = set(window.mended.positions)
        return State(
            shape=self.shape,
            length=len(self.history),
            cut=window.cut,
            kept=window.kept,
            condensed=fitting.condensed,
            sent=tuple(sorted((p.position, p.number) for p in window.mended.made if p.position in held)),
            seals=tuple(sorted(seal for seal in fitting.seals if seal >= window.cut)),
            system=prefix.digest(written.system) if written.system is not None else "",
            tools=self.tool_digests,
            items=tuple(prefix.digest(item) for item in written.items),
            tokens=tuple(tokens),
            fixed=self.tool_tokens,
            factor=fitting.factor,
            epoch=self.before.epoch if self.before else 1,
        )

    def ledger(
        self,
        fitting: Fitting,
        window: Window,
        lines: tuple[Line, ...],
        total: int,
        *,
        after: State | None = None,
    ) -> Ledger:
        epoch, why, shared = self.epoch(after, window) if after is not None else (0, "not sent", 0)
        return Ledger(
            budget=self.budget.tokens,
            reserve=self.budget.reserve,
            total=total,
            lines=lines,
            dropped=tuple(self.dropped(window)),
            condensed=tuple(fitting.previews),
            epoch=epoch,
            why=why,
            shared=shared,
            exact=self.counter.exact,
            margin=self.counter.margin,
            counter=self.counter.name,
            items=after.tokens if after is not None else (),
        )

    def dropped(self, window: Window) -> Iterator[Dropped]:
        head = self.history.head
        if window.kept is None:
            if window.cut > head:
                yield Dropped(start=head, stop=window.cut, reason="cut")
            return
        if window.kept[0] > head:
            yield Dropped(start=head, stop=window.kept[0], reason="cut")
        if window.cut > window.kept[1]:
            yield Dropped(start=window.kept[1], stop=window.cut, reason="cut_in_turn")

    def epoch(self, after: State, window: Window) -> tuple[int, str, int]:
        """The epoch of this request, what opened it, and how many tokens it shares with the request before."""
        before = self.before
        if before is None:
            return 1, self.mismatch or "first request", 0
        shared = self.tool_tokens if before.tools == after.tools else 0
        head = sum(window.tokens[: window.head]) if after.system else 0
        same_head = before.tools == after.tools and before.system == after.system
        common = prefix.common(before.items, after.items) if same_head else 0
        if same_head:
            shared += head + sum(after.tokens[:common])
        why = self.mismatch
        if not why and before.tools != after.tools:
            why = "the tools changed"
        elif not why and before.system != after.system:
            why = "the system changed"
        elif not why and common < len(before.items):
            if (before.cut, before.kept) != (after.cut, after.kept):
                why = f"the window was full: replay begins at message {after.cut}"
            else:
                why = f"item {common} is no longer what was sent"
        return (before.epoch + 1, why, shared) if why else (before.epoch, "goes on", shared)


def _check_ready(messages: Sequence[Message]) -> None:
    last = messages[-1] if messages else None
    if last is None or last.role in ("system", "developer"):
        raise NothingToSend("there is no message to answer: the list is empty, or holds the system's alone")
    if last.role == "assistant" and not (last.parts and isinstance(last.parts[-1], Opaque)):
        raise NothingToSend(
            "the list ends with the assistant's complete answer: add the next user message, or pass ready=False"
        )


def _item_tokens(written: Written, window: Window) -> list[int]:
    """Tokens of each item: those of the messages it was written from."""
    ends = [*written.starts[1:], len(window.tokens)]
    return [sum(window.tokens[start:end]) for start, end in zip(written.starts, ends, strict=True)]
