"""Builds one request from its sources: sections, history, passages, tools. It decides shares; `fit` does the rest.

The system block comes first and holds nothing volatile. What was looked up, and what holds at this moment, stands at
the end of the user's message: `compose` puts it there when the message is logged, so that it stays where it was sent.
Passages too big to stay (`loose`) go with their message once, and the ledger of the next request says that they left.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.context.budget import LOW_MARK, Budget, allocate
from backstory.context.fit import Fitted, assemble
from backstory.context.history import Source
from backstory.context.sections import (
    Passage,
    Section,
    choose_passages,
    in_order,
    render,
    retrieved_block,
    runtime_block,
    shrink,
)
from backstory.context.state import Claim
from backstory.messages import Message, Part, Text
from backstory.messages import system as system_message
from backstory.targets import Target
from backstory.tokens import Counter, count_tools
from backstory.tokens.messages import count_message

STICKY = 0.05
"""Of the window: passages above this together are not kept with their message (DESIGN, Retrieved passages)."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A fitted request, the system text that it begins with, and what gave way before it was fitted.

    `shrunk` maps a section to its tokens before and after, `passages_left` are passages there was no room for.
    """

    fitted: Fitted
    system: str
    shrunk: Mapping[str, tuple[int, int]]
    passages_left: tuple[Passage, ...] = ()


class _WithSystem:
    """A history under another system block, and with loose passages after its last user message."""

    def __init__(self, history: Source, system: str, loose: str, loose_at: int | None) -> None:
        self._history = history
        self.head = history.head
        own = [(-1, system_message(system))] if system else []
        self.system: list[tuple[int, Message]] = own + list(history.system)
        self._loose_at = loose_at if loose else None
        self._loose = Text(text=loose)

    def __len__(self) -> int:
        return len(self._history)

    def at(self, position: int) -> list[Message]:
        found = self._history.at(position)
        if position != self._loose_at:
            return found
        *before, last = found
        return [*before, last.evolve(parts=(*last.parts, self._loose))]

    def between(self, start: int, stop: int) -> list[tuple[int, Message]]:
        if self._loose_at is None or not start <= self._loose_at < stop:
            return self._history.between(start, stop)
        return [(position, message) for position in range(start, stop) for message in self.at(position)]


def compose(
    parts: Sequence[Part], *, passages: Sequence[Passage] = (), runtime: Mapping[str, str] | None = None
) -> tuple[Part, ...]:
    """A user's parts with passages and the runtime block after them, as they are logged and sent."""
    blocks = (retrieved_block(passages), runtime_block(runtime or {}))
    return (*parts, *(Text(text=block) for block in blocks if block))


def is_sticky(passages: Sequence[Passage], window: int | None, counter: Counter) -> bool:
    """Whether passages are small enough to stay with their message."""
    return window is None or counter.count(retrieved_block(passages)) <= window * STICKY


def build(
    history: Source,
    sections: Sequence[Section],
    target: Target,
    counter: Counter,
    budget: Budget,
    *,
    passages: Sequence[Passage] = (),
    tools: Sequence[Any] | None = None,
    state: Any = None,
    max_turns: int | None = None,
    max_messages: int | None = None,
    factor: float = 1.0,
    not_started: Collection[str] = (),
    low_mark: float = LOW_MARK,
    claim: Claim | None = None,
    governed: bool = False,
    readable: bool = False,
) -> Built:
    """One request. `passages` are the loose ones; sticky ones are in the history already.

    `claim`, `governed` and `readable`: see `assemble`.

    Raises what `backstory.fit` raises, and `Unproven`.
    """
    ordered = in_order(sections)
    shrunk: dict[str, tuple[int, int]] = {}
    kept: list[Passage] = list(passages)
    left: list[Passage] = []
    loose_at = last_user(history) if passages else None
    if budget.tokens is not None:
        newest = message_tokens(history, counter, target)
        room = system_room(budget, newest, count_tools(tools, counter) if tools else 0)
        ordered, shrunk = shrink(ordered, room, counter.count)
        if passages:
            room = budget.tokens - counter.count(render(ordered)) - newest
            granted = passage_room(history, passages, counter, target, budget, max(0, room))
            kept, left = choose_passages(passages, granted, counter.count)
    system = render(ordered)
    fitted = assemble(
        _WithSystem(history, system, retrieved_block(kept), loose_at),
        target,
        counter,
        budget,
        tools=tools,
        state=state,
        max_turns=max_turns,
        max_messages=max_messages,
        factor=factor,
        not_started=not_started,
        low_mark=low_mark,
        loose=loose_at if kept else None,
        claim=claim,
        governed=governed,
        readable=readable,
    )
    return Built(fitted=fitted, system=system, shrunk=shrunk, passages_left=tuple(left))


def last_user(history: Source) -> int | None:
    """The position of the last message of the user's."""
    for position in range(len(history) - 1, history.head - 1, -1):
        found = history.at(position)
        if found and found[-1].role == "user":
            return position
    return None


def message_tokens(history: Source, counter: Counter, target: Target) -> int:
    """Tokens of the user's words that stand at the end."""
    tokens = 0
    for position in range(len(history) - 1, history.head - 1, -1):
        found = history.at(position)
        if found and found[-1].role != "user":
            break
        tokens += sum(count_message(message, counter, target.format) for message in found)
    return tokens


def system_room(budget: Budget, message: int, tools: int) -> int:
    """What the system block may take: all but the tools and the shares of the message and of tool results.

    The system gives way last, and depends on nothing that changes from call to call (but a message above its share),
    since another system block is another prefix.
    """
    total = budget.tokens or 0
    shares = budget.shares.get("message", 0.0) + budget.shares.get("tool_results", 0.0)
    return max(0, total - tools - max(int(total * shares), message))


def passage_room(
    history: Source, passages: Sequence[Passage], counter: Counter, target: Target, budget: Budget, total: int
) -> int:
    """What passages may take of `total`, beside a history that is read only until it asks for all of it."""
    asked = 0
    for position in range(len(history) - 1, history.head - 1, -1):
        asked += sum(count_message(message, counter, target.format) for message in history.at(position))
        if asked >= total:
            break
    asks = {"retrieved": counter.count(retrieved_block(passages)), "history": min(asked, total)}
    return allocate(asks, total, budget.shares)["retrieved"]
