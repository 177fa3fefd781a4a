"""The cases of `../shared/cases` that are about token budgets and the provider's cache, and need no store."""

from __future__ import annotations

import time
from collections.abc import Callable
from random import Random
from typing import Any

import pytest

import backstory
from backstory.context.budget import Budget
from backstory.context.builder import build, compose
from backstory.context.history import History
from backstory.context.sections import Passage, Section
from backstory.errors import BudgetExceeded, ConfigurationError
from backstory.messages import Text
from backstory.targets import Target
from backstory.tokens import Counter, count_text
from tests.context.judging import head, items
from tests.test_cases import cases, expanded

FORMATS = ("openai_chat", "openai_responses", "anthropic", "gemini")
Case = dict[str, Any]


def arguments_count(given: Case) -> None:
    """TB-04: a message that consists of calls costs what its arguments cost."""
    items = [{"role": "user", "content": "write"}, *given["messages"]]
    arguments = items[1]["tool_calls"][0]["function"]["arguments"]
    for target in FORMATS:
        fitted = backstory.fit(items, target=target, encoding="o200k_base", ready=False)
        assert fitted.ledger.total > count_text(arguments)


def output_is_reserved(given: Case) -> None:
    """TB-05: input and output fit the window together; what makes no sense is refused."""
    items, window = given["messages"], given["window"]
    with pytest.raises(BudgetExceeded) as raised:
        backstory.fit(items, window=window, reserve=given["max_output"])
    assert raised.value.budget == window - given["max_output"]
    too_much, none = (variant["max_output"] for variant in given["variants"])
    with pytest.raises(ConfigurationError):
        backstory.fit(items, window=window, reserve=too_much)
    fitted = backstory.fit(items, window=window, reserve=none)
    assert fitted.ledger.total <= window
    assert fitted.messages == items


def control_words(given: Case) -> None:
    """TB-06: a tokenizer's control words are text."""
    assert backstory.fit(given["messages"]).messages == given["messages"]


def fixed_part_too_big(given: Case) -> None:
    """TB-08: a typed error says what asked for how much, and what is needed at least."""
    with pytest.raises(BudgetExceeded) as raised:
        backstory.fit(given["messages"], budget=given["budget_tokens"])
    ledger = raised.value.ledger
    assert ledger.line("system").used > 300
    assert raised.value.needed == sum(line.used for line in ledger.lines)
    assert all(line.used >= 0 and line.granted >= 0 for line in ledger.lines)
    assert backstory.fit(given["messages"], budget=raised.value.needed).messages == given["messages"]


def cost_of_a_long_log(given: Case) -> None:
    """TB-09: what one request costs depends on its window, not on the length of the log."""
    count = given["ops"][0]["append_turns"]["$count"]
    budget = given["ops"][1]["time_assemble"]["budget_tokens"]
    turn = [("user", "question"), ("assistant", "answer")]
    long = [{"role": role, "content": f"{what} {n} " * 8} for n in range(count) for role, what in turn][:-1]

    def cost(given: list[dict[str, str]]) -> float:
        start = time.process_time()
        assert backstory.fit(given, budget=budget).ledger.total > budget * 0.95
        return time.process_time() - start

    few = long[-len(long) // 20 :]
    assert min(cost(long) for _ in range(4)) < 5 * min(cost(few) for _ in range(4))


def the_prefix_holds(given: Case) -> None:
    """PC-01: a clock, memories and shuffled tools change nothing of what was sent."""
    target, counter, rng = Target.of("openai_chat"), Counter(name="o200k_base"), Random(1)
    tools = [{"type": "function", "function": {"name": name}} for name in ("a", "b", "c", "d")]
    sections = [Section(name="identity", text="You run a tea shop.")]
    log: list[dict[str, Any]] = []
    state, before = None, None
    for turn in range(given["turns"]):
        said = compose(
            (Text(text=f"Question {turn}"),),
            passages=[Passage(text=f"{memory} {turn}") for memory in given["memories"]],
            runtime={"time": str(turn * given["clock_step"])},
        )
        content = [{"type": "text", "text": part.text} for part in said if isinstance(part, Text)]
        log.append({"role": "user", "content": content})
        fitted = build(
            History(log), sections, target, counter, Budget(tokens=8_000),
            tools=rng.sample(tools, 4), state=state,
        ).fitted  # fmt: skip
        if before is not None:
            assert fitted.ledger.why == "goes on"
            assert (head(fitted), items(fitted)[: len(before[1])]) == before
            assert fitted.ledger.shared > 0
        state, before = fitted.state, (head(fitted), items(fitted))
        log.append({"role": "assistant", "content": f"Answer {turn}"})


RUN: dict[str, Callable[[Case], None]] = {
    "TB-04": arguments_count,
    "TB-05": output_is_reserved,
    "TB-06": control_words,
    "TB-08": fixed_part_too_big,
    "TB-09": cost_of_a_long_log,
    "PC-01": the_prefix_holds,
}
ELSEWHERE = {"TB-11": "the limit that a provider's error tells is the models' and the server's"}


@pytest.mark.parametrize("name", list(RUN))
def test_case(name: str, shared: object) -> None:
    case = next(each for each in cases() if each["id"] == name)
    RUN[name](expanded(case["input"]))


def test_every_case_of_these_kinds_is_run(shared: object) -> None:
    kinds = ("token_budget", "prompt_cache")
    known = {case["id"] for case in cases() if case["category"] in kinds}
    assert known <= RUN.keys() | ELSEWHERE.keys()
