"""Real agent runs: every model call of 120 recorded runs, and forty of them joined into one long session.

The runs are tau-bench's (`../shared/data`), all counted with o200k_base whatever the target.
"""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import backstory
from backstory.context.budget import Budget
from backstory.context.fit import assemble
from backstory.context.history import History
from backstory.errors import BudgetExceeded
from backstory.targets import Target
from backstory.tokens import Counter as TokenCounter
from tests.context.judging import faults
from tests.generators import FORMATS

BUDGETS = (2_000, 4_000, 8_000, None)
ENCODING = "o200k_base"
PRICE = 2.5
"""Dollars for a million tokens of input; a tenth of it for those that the cache serves."""

Run = list[dict[str, Any]]


@pytest.fixture(scope="module")
def runs(shared: Path) -> list[Run]:
    path = shared / "data" / "tau_airline_dev.jsonl"
    return [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]


def calls(run: Run) -> list[Run]:
    """The list as it stood at each model call."""
    return [run[:index] for index, message in enumerate(run) if message["role"] == "assistant"]


def every_call(runs: list[Run], target: str, budget: int | None) -> Counter[str]:
    """Each call judged; what became of them."""
    seen: Counter[str] = Counter()
    for run in runs:
        state = None
        for given in calls(run):
            seen["calls"] += 1
            try:
                fitted = backstory.fit(
                    given, budget=budget, target=target, source="openai_chat", encoding=ENCODING
                )
                stepped = backstory.fit(
                    given, budget=budget, target=target, source="openai_chat", encoding=ENCODING, state=state
                )
            except BudgetExceeded:
                seen["errors"] += 1
                continue
            state = stepped.state
            for one in (fitted, stepped):
                assert faults(one, target) == []
                assert budget is None or one.ledger.total <= budget
            seen["previewed"] += bool(fitted.ledger.condensed)
    return seen


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_calls_of_twelve_runs(runs: list[Run], target: str, budget: int | None) -> None:
    seen = every_call(runs[::10], target, budget)
    print(f"\n{target} {budget}: {dict(seen)}")
    assert seen["errors"] == 0


@pytest.mark.slow
@pytest.mark.timeout(1_200)
@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("budget", BUDGETS)
def test_every_call_of_all_runs(runs: list[Run], target: str, budget: int | None) -> None:
    seen = every_call(runs, target, budget)
    print(f"\n{target} {budget}: {dict(seen)}")
    assert seen["calls"] == 1_481
    assert seen["previewed"] + seen["errors"] <= {2_000: 30, 4_000: 2}.get(budget or 0, 0)


# --- one long session ----------------------------------------------------------------------


class Cost(NamedTuple):
    """Of a whole session: tokens sent, those of them that the cache could serve, requests and epochs."""

    sent: int
    shared: int
    requests: int
    epochs: int

    @property
    def share(self) -> float:
        return self.shared / self.sent

    @property
    def dollars(self) -> float:
        return (self.sent - self.shared + self.shared / 10) * PRICE / 1_000_000


def session(whole: Run, budget: int | None, *, low_mark: float) -> Cost:
    """What a session costs. With a low mark of 1 the window slides by a turn, and without a budget it is whole."""
    target, counter = Target.of("openai_chat"), TokenCounter(name=ENCODING)
    state, sent, shared, requests, epochs = None, 0, 0, 0, 1
    for given in calls(whole):
        fitted = assemble(
            History(given, "openai_chat"),
            target,
            counter,
            Budget(tokens=budget),
            state=state,
            low_mark=low_mark,
        )
        state, ledger = fitted.state, fitted.ledger
        sent, shared, requests, epochs = (
            sent + ledger.total,
            shared + ledger.shared,
            requests + 1,
            ledger.epoch,
        )
    return Cost(sent, shared, requests, epochs)


def joined(runs: list[Run]) -> Run:
    """Forty runs as one session, with the first system message only."""
    return [runs[0][0], *(message for run in runs[:40] for message in run[1:])]


@pytest.mark.slow
def test_nearly_all_input_of_a_long_session_is_in_a_prefix_that_was_sent_before(runs: list[Run]) -> None:
    whole = joined(runs)
    costs = {
        "stepped": session(whole, 16_000, low_mark=0.5),
        "sliding": session(whole, 16_000, low_mark=1.0),
        "full": session(whole, None, low_mark=0.5),
    }
    print(f"\n{len(whole)} messages, budget 16,000, ${PRICE} a million tokens, cached a tenth")
    print(f"{'':9}{'requests':>9}{'epochs':>8}{'input tokens':>14}{'in the prefix':>15}{'cost':>9}")
    for name, cost in costs.items():
        print(
            f"{name:9}{cost.requests:9}{cost.epochs:8}{cost.sent:14,}{cost.share:15.2%}{cost.dollars:8.2f}$"
        )
    assert costs["stepped"].share >= 0.96
    assert costs["sliding"].share < 0.8
    assert costs["full"].share > 0.99
    assert costs["stepped"].dollars < costs["sliding"].dollars < costs["full"].dollars
