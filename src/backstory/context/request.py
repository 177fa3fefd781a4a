"""The account of one request: what it takes over from the one before, how it differs, and what its tokens went to.

It cuts and mends nothing (that is `fitting`'s); it compares what was sent with what is to be sent, says which epoch
that makes and why, and writes ledger and state.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.context import prefix
from backstory.context.budget import Budget
from backstory.context.fitting import Fitting
from backstory.context.history import Source
from backstory.context.ledger import Dropped, Ledger, Line
from backstory.context.state import Claim, State
from backstory.context.window import Window
from backstory.errors import BackstoryError, BudgetExceeded, InvalidInput
from backstory.formats import wire_format
from backstory.formats.base import Written
from backstory.messages import Reasoning
from backstory.targets import Target
from backstory.tokens import Counter, count_tools
from backstory.tokens.messages import PRIMING


class Unproven(BackstoryError):
    """What a state claims to have sent is not what this request begins with. Never reaches a caller of ours."""


@dataclass(frozen=True, slots=True)
class Draft:
    """A window as it would be sent.

    `items` and `tokens` are each item's digest and count; the first `head` items are the system's.
    """

    window: Window
    written: Written
    system: str
    items: tuple[str, ...]
    tokens: tuple[int, ...]
    head: int

    def position(self, item: int) -> int:
        """The position in the caller's list that an item was written from."""
        return self.window.positions[self.written.starts[item]]


@dataclass(slots=True)
class Request:
    """One request in the making. `loose` is the position of a message that bears passages for this once.

    `claim` stands for the items of the state to go on from, where these were not kept with it.
    """

    target: Target
    counter: Counter
    budget: Budget
    history: Source
    loose: int | None = None
    claim: Claim | None = None
    before: State | None = None
    mismatch: str = ""
    why: str = ""
    tools: list[Any] = field(default_factory=list)
    tool_digests: tuple[str, ...] = ()
    tool_tokens: int = 0

    @property
    def shape(self) -> str:
        """Target and counter, as a state remembers them: a change of either changes every byte, or every count."""
        return f"{self.target.name}/{self.counter.name}/{_mark_of(self.target)}"

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
        elif not self.history.head <= found.cut <= len(self.history):
            self.mismatch = _OTHER_LIST
        return None if self.mismatch else found

    def order_tools(self, tools: Sequence[Any] | None) -> None:
        """Take the tools up, in the order of the request before where they are the same."""
        if tools is None:
            return
        if not isinstance(tools, (list, tuple)):
            raise InvalidInput(f"tools must be a list of tool declarations, not {type(tools).__name__}")
        try:
            self.tools = prefix.same_order(self.before.tools if self.before else (), tools)
            self.tool_digests = tuple(prefix.digest(tool) for tool in self.tools)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidInput(f"tools must be JSON values ({error})") from error
        self.tool_tokens = count_tools(self.tools, self.counter) if self.tools else 0

    # --- against the request before --------------------------------------------------------

    def decide(self, fitting: Fitting, known: State | None) -> Draft:
        """The request that extends the one before, or else one that begins a new epoch with as much of it as can be.

        Raises `BudgetExceeded` where that does not fit, and `Unproven` where the items of the request before are only
        claimed, and are not what this one begins with.
        """
        if known is None:
            if self.claim is not None:
                raise Unproven
            return self.draft(fitting, fitting.fill())
        try:
            draft = self.draft(fitting, fitting.resume(known))
        except (
            BudgetExceeded
        ):  # mended from its old beginning, the newest turn may be longer than it is alone
            if self.claim is not None:
                raise Unproven from None
            return self.draft(fitting, fitting.fill())
        if self.claim is not None:
            known = self.before = self.proven(known, draft, self.claim)
        window = draft.window
        self.why = self.changes(draft, full=fitting.full)
        if fitting.full or not self.why:
            return draft
        changed = draft.head + prefix.common(known.items[known.head :], draft.items[draft.head :])
        position = draft.position(changed) if changed < len(draft.items) else len(self.history)
        if position <= known.cut < len(self.history) and not self.is_expected(known, draft, changed):
            self.mismatch = self.why = _OTHER_LIST
            return self.draft(fitting, fitting.fill())
        if fitting.forget(position, system=self.system_changed(draft)):
            window = fitting.window(window.cut, window.kept)
            try:
                draft = self.draft(fitting, fitting.settled(fitting.narrow(window, low=True)))
            except BudgetExceeded:  # as above: mended from where the window was, it may be longer than alone
                return self.draft(fitting, fitting.fill())
        return draft

    def proven(self, known: State, draft: Draft, claim: Claim) -> State:
        """A state with the items that were sent: those at the beginning of a draft, by their digest."""
        items = draft.items[: claim.items]
        if prefix.digest(items) != claim.digest:
            raise Unproven
        tokens = draft.tokens[: claim.items]
        return dataclasses.replace(known, items=items, tokens=tokens, head=claim.head)

    def draft(self, fitting: Fitting, window: Window) -> Draft:
        """A window as wire items, where it is within the budget."""
        if self.budget.tokens is not None and window.total + fitting.fixed > self.budget.tokens:
            raise self.exceeded(fitting, window)
        written = wire_format(self.target.format).write(window.messages, self.target)
        return Draft(
            window,
            written,
            system=prefix.digest(written.system) if written.system is not None else "",
            items=tuple(
                prefix.item_digest(item, window.messages[start])
                for item, start in zip(written.items, written.starts, strict=True)
            ),
            tokens=item_tokens(written.starts, window.tokens),
            head=sum(start < window.head for start in written.starts),
        )

    def system_changed(self, draft: Draft) -> bool:
        """Whether what stands before the history is other than in the request before."""
        before = self.before
        return before is not None and (
            before.tools != self.tool_digests
            or before.system != draft.system
            or before.items[: before.head] != draft.items[: draft.head]
        )

    def changes(self, draft: Draft, *, full: bool) -> str:
        """What is no longer as it was sent, in words; nothing where this request extends the one before.

        `full` says that the window was.
        """
        before = self.before
        if before is None or self.mismatch:
            return self.mismatch or "first request"
        found = []
        if before.tools != self.tool_digests:
            found.append("the tools changed")
        if before.system != draft.system or before.items[: before.head] != draft.items[: draft.head]:
            found.append("the system changed")
        items = before.items[before.head :]
        common = prefix.common(items, draft.items[draft.head :])
        if full and common < len(items):
            found.append(f"the window was full: replay begins at message {draft.window.cut}")
        elif common < len(items):
            found.append(self.first_change(before, draft, draft.head + common))
        return "; ".join(found)

    def first_change(self, before: State, draft: Draft, item: int) -> str:
        """Why an item is another one than was sent."""
        if told := self.is_expected(before, draft, item):
            return told
        if len(self.history) < before.length:
            return f"the list has {len(self.history)} messages, and had {before.length} at the last request"
        if item < len(draft.items):
            return f"message {draft.position(item)} is not as it was sent"
        return "messages that were sent are gone"

    def is_expected(self, before: State, draft: Draft, item: int) -> str:
        """Why the same message makes another item; nothing where we know of no reason."""
        if before.loose is not None and before.loose - before.head == item - draft.head:
            return "passages_dropped: what was looked up for an earlier message has left it"
        if item < len(draft.items) and self.target.reasoning == "turn":
            held = draft.window.messages[draft.written.starts[item]].parts
            if any(isinstance(part, Reasoning) for part in held):
                return "reasoning_expired: reasoning is sent within its turn only"
        return ""

    # --- the account -----------------------------------------------------------------------

    def account(self, fitting: Fitting, draft: Draft) -> tuple[Ledger, State]:
        """Ledger and state of a draft that is to be sent."""
        before, window = self.before, draft.window
        why = self.why or self.changes(draft, full=fitting.full)
        epoch = 1 if before is None else before.epoch + bool(why)
        lines = tuple(self.lines(fitting, window))
        ledger = Ledger(
            **self.settings(),
            total=sum(line.used for line in lines),
            lines=lines,
            dropped=tuple(self.dropped(window)),
            condensed=tuple(fitting.previews(window)),
            epoch=epoch,
            why=why or "goes on",
            shared=self.shared(fitting, draft),
            items=draft.tokens,
        )
        after = State(
            shape=self.shape,
            length=len(self.history),
            cut=window.cut,
            kept=window.kept,
            condensed=fitting.condensed,
            sent=tuple(
                (place.position, place.number, kind) for place, kind in sorted(window.invented().items())
            ),
            seals=tuple(sorted(seal for seal in fitting.seals if seal > window.cut)),
            system=draft.system,
            tools=self.tool_digests,
            items=draft.items,
            tokens=draft.tokens,
            head=draft.head,
            loose=self.loose_item(draft),
            factor=fitting.factor,
            epoch=epoch,
        )
        return ledger, after

    def settings(self) -> dict[str, Any]:
        return {
            "budget": self.budget.tokens,
            "reserve": self.budget.reserve,
            "exact": self.counter.exact,
            "margin": self.counter.margin,
            "counter": self.counter.name,
        }

    def replayed(self, ledger: Ledger) -> int:
        """How many items the request before had, where this one extends it."""
        return len(self.before.items) if self.before and self.before.epoch == ledger.epoch else 0

    def shared(self, fitting: Fitting, draft: Draft) -> int:
        """Tokens that stand unchanged at the same place in the request before: tools, then system, then items."""
        before = self.before
        if before is None or before.tools != self.tool_digests:
            return 0
        if before.system != draft.system:
            return fitting.tools
        starts = draft.written.starts
        apart = sum(draft.window.tokens[: starts[0] if starts else None]) if draft.system else 0
        return fitting.tools + apart + sum(draft.tokens[: prefix.common(before.items, draft.items)])

    def loose_item(self, draft: Draft) -> int | None:
        if self.loose is None:
            return None
        return next((i for i in range(len(draft.items)) if draft.position(i) == self.loose), None)

    def lines(self, fitting: Fitting, window: Window) -> Iterator[Line]:
        """System, tools, history, the current message, and what every request has besides."""
        start = len(window.messages)
        while start > window.head and window.messages[start - 1].role == "user":
            start -= 1
        head, history, message = (
            sum(window.tokens[a:b]) for a, b in ((0, window.head), (window.head, start), (start, None))
        )
        asked = max(history, fitting.asked - head - message)
        room = asked
        if self.budget.tokens is not None:
            room = max(0, self.budget.tokens - head - message - fitting.fixed)
        yield _granted("system", head)
        if self.tools:
            yield _granted("tools", fitting.tools)
        yield Line(section="history", asked=asked, granted=min(asked, room), used=history)
        yield _granted("message", message)
        yield _granted("overhead", PRIMING)

    def dropped(self, window: Window) -> Iterator[Dropped]:
        head = self.history.head
        start, stop = window.kept or (window.cut, window.cut)
        if start > head:
            yield Dropped(start=head, stop=start, reason="cut")
        if window.cut > stop:
            yield Dropped(start=stop, stop=window.cut, reason="cut_in_turn")

    def exceeded(self, fitting: Fitting, window: Window) -> BudgetExceeded:
        lines = tuple(self.lines(fitting, window))
        total = sum(line.used for line in lines)
        ledger = Ledger(
            **self.settings(),
            total=total,
            lines=lines,
            dropped=tuple(self.dropped(window)),
            epoch=0,
            why="not sent",
        )
        asked = ", ".join(f"{line.section} {line.used:,}" for line in lines)
        limit = self.budget.tokens or 0
        advice = _ADVICE.get(max(lines, key=lambda line: line.used).section, "shorten the input")
        what = f"the request needs {total:,} tokens of input and may take {limit:,} ({asked})"
        return BudgetExceeded(
            f"{what}; {advice}, or raise the budget",
            ledger=ledger,
            needed=total,
            budget=limit,
        )


@functools.lru_cache(maxsize=64)
def _mark_of(target: Target) -> str:
    """Eight digits that stand for all that a target says: the same in every process, whatever its hash seed."""
    said = {name: sorted(value) if isinstance(value, frozenset) else value for name, value in _fields(target)}
    return hashlib.blake2b(repr(said).encode(), digest_size=4).hexdigest()


def _fields(target: Target) -> Iterator[tuple[str, Any]]:
    return ((field.name, getattr(target, field.name)) for field in dataclasses.fields(target))


def item_tokens(starts: Sequence[int], tokens: Sequence[int]) -> tuple[int, ...]:
    """Tokens of each item: those of the messages from its start up to the next start.

    Several items can be written from one message (media that a result cannot hold follow later on): the first of them
    has its tokens.
    """
    if len(starts) == len(tokens) and all(map(int.__eq__, starts, range(len(starts)))):
        return tuple(tokens)  # an item a message, as mostly
    known = sorted(set(starts))
    sizes = dict(
        zip(known, (sum(tokens[a:b]) for a, b in itertools.pairwise([*known, len(tokens)])), strict=True)
    )
    return tuple(sizes.pop(start, 0) for start in starts)


_OTHER_LIST = "the list is another one than at the last request"
_ADVICE = {
    "system": "shorten the system message",
    "tools": "send fewer tools, or shorter descriptions",
    "message": "shorten the current message; it is never cut in silence",
    "history": "the newest step alone is too big: shorten its tool results or arguments",
}


def _granted(section: str, tokens: int) -> Line:
    return Line(section=section, asked=tokens, granted=tokens, used=tokens)
