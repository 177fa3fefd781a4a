"""Whole lives of a session, simulated: a list that grows, a state that is handed on, and everything that goes wrong.

Of each request is asked what every request must be: legal, within its budget, an honest ledger, the same when made
again, and beginning with the request before, unless the ledger says why not.
"""

from __future__ import annotations

import copy
import json
from collections import Counter
from random import Random
from typing import Any

import backstory
from backstory.errors import BudgetExceeded, InvalidMessage, NothingToSend
from tests.context.judging import faults, head, items
from tests.generators import FORMATS, history

BUDGETS = (None, None, 60, 120, 200, 400, 800, 2000)


def grown(rng: Random, source: str) -> list[dict[str, Any]]:
    """A longer history: several drawn ones in a row, of which the later ones mostly lack a system message."""
    found: list[dict[str, Any]] = []
    for _ in range(rng.randrange(1, 6)):
        more = history(rng, source)
        if found and rng.random() < 0.8:
            more = [item for item in more if item.get("role") not in ("system", "developer")]
        found += more
    return found


def edited(rng: Random, given: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Another list than it was: cut off, a message less, a message more, or two that changed places."""
    copied = copy.deepcopy(given)
    if not copied:
        return copied
    place = rng.randrange(len(copied))
    match rng.randrange(4):
        case 0:
            del copied[place:]
        case 1:
            del copied[place]
        case 2:
            copied.insert(place, copy.deepcopy(rng.choice(copied)))
        case _:
            copied[place], copied[-1] = copied[-1], copied[place]
    return copied


class Life:
    """One session's life, from its first request to its last; `seen` counts what became of the requests."""

    def __init__(self, rng: Random) -> None:
        self.rng = rng
        self.source, self.target = rng.choice(FORMATS), rng.choice(FORMATS)
        self.settings: dict[str, Any] = {
            "budget": rng.choice(BUDGETS),
            "max_turns": rng.choice((None, None, None, 1, 2, 3)),
            "max_messages": rng.choice((None, None, None, 1, 2, 5, 9)),
            "encoding": "o200k_base",
        }
        self.tools = [
            {"type": "function", "function": {"name": f"t{number}", "parameters": {"type": "object"}}}
            for number in range(rng.choice((0, 0, 3)))
        ]
        self.state: dict[str, Any] | None = None
        self.before: tuple[list[bytes], bytes] | None = None
        self.seen: Counter[str] = Counter()

    def run(self) -> None:
        whole, length = grown(self.rng, self.source), 0
        while length < len(whole):
            length += self.rng.choice((1, 1, 1, 2, 3))
            given = whole[:length]
            if self.rng.random() < 0.06:
                given = edited(self.rng, given)
            if self.rng.random() < 0.2:
                self.tools = self.rng.sample(self.tools, len(self.tools))
            if self.rng.random() < 0.02:
                self.target = self.rng.choice(FORMATS)
            self.request(given, ready=self.rng.random() < 0.6)

    def fit(self, given: list[dict[str, Any]], state: Any, *, ready: bool) -> backstory.Fitted:
        return backstory.fit(
            given,
            source=self.source,
            target=self.target,
            tools=self.tools,
            state=state,
            ready=ready,
            **self.settings,
        )

    def request(self, given: list[dict[str, Any]], *, ready: bool) -> None:
        try:
            fitted = self.fit(given, self.state, ready=ready)
        except (InvalidMessage, NothingToSend) as error:
            self.seen[type(error).__name__] += 1
            return
        except BudgetExceeded as error:
            self.refused(error, given, ready=ready)
            return
        self.seen["sent"] += 1
        self.is_sound(fitted, ready=ready)
        self.extends(fitted)
        self.comes_again(fitted, given, ready=ready)
        self.state, self.before = fitted.state, (items(fitted), head(fitted))

    def refused(self, error: BudgetExceeded, given: list[dict[str, Any]], *, ready: bool) -> None:
        """The ledger adds up, and without the state it would not have fitted either."""
        self.seen["BudgetExceeded"] += 1
        total = sum(line.used for line in error.ledger.lines)
        assert error.needed == error.ledger.total == total > self.settings["budget"]
        try:
            self.fit(given, None, ready=ready)
        except (BudgetExceeded, NothingToSend):
            return
        raise AssertionError("what fits without a state must fit with one")

    def is_sound(self, fitted: backstory.Fitted, *, ready: bool) -> None:
        assert faults(fitted, self.target, ready=ready) == []
        ledger = fitted.ledger
        assert ledger.total == sum(line.used for line in ledger.lines)
        assert self.settings["budget"] is None or ledger.total <= self.settings["budget"]
        assert all(line.used <= line.asked and 0 <= line.used <= line.granted for line in ledger.lines)
        assert 0 <= ledger.shared <= ledger.total
        assert len(ledger.items) == len(fitted.messages)

    def extends(self, fitted: backstory.Fitted) -> None:
        """Law 4: within an epoch the bytes before are the bytes now; else the epoch and its reason are told."""
        if self.before is None or self.state is None:
            return
        known, ahead = self.before
        same = head(fitted) == ahead and items(fitted)[: len(known)] == known
        if fitted.ledger.epoch == self.state["epoch"]:
            assert fitted.ledger.why == "goes on"
            assert same
        else:
            assert fitted.ledger.epoch == self.state["epoch"] + 1
            assert fitted.ledger.why not in ("", "goes on")
        self.seen["extended" if same else "changed"] += 1

    def comes_again(self, fitted: backstory.Fitted, given: list[dict[str, Any]], *, ready: bool) -> None:
        """The same from the same; and from the state alone, which is plain JSON."""
        again = self.fit(given, self.state, ready=ready)
        assert (again.messages, again.body, again.state) == (fitted.messages, fitted.body, fitted.state)
        state = json.loads(json.dumps(fitted.state))
        assert state == fitted.state
        if ready:
            resumed = self.fit(given, state, ready=ready)
            assert resumed.messages == fitted.messages
            assert resumed.ledger.why == "goes on"
