"""Nothing that did not change is tokenised again, and a fit costs what its window costs."""

from __future__ import annotations

from typing import Any

import backstory
from backstory.tokens.text import tokenizer
from tests.context.test_epochs import assistant, call, result, system, user


def unlike(name: str, turns: int) -> list[dict[str, Any]]:
    """Turns with a tool call, no two texts alike; seven texts a turn: question, id, tool, arguments, result, answer."""
    found: list[dict[str, Any]] = [system(f"{name} be brief")]
    for number in range(turns):
        step = call(f"{name}_{number}")
        step["tool_calls"][0]["function"]["arguments"] = f'{{"{name}": {number}}}'
        found += [
            user(f"{name} question {number} of many"),
            step,
            result(f"{name}_{number}", f"{name} result {number}: " + "word " * 30),
            assistant(f"{name} answer {number} at last"),
        ]
    return found


def calls(work: Any) -> int:
    counter = tokenizer("o200k_base")
    before = counter.calls
    work()
    return counter.calls - before


def test_a_life_of_hundreds_of_fits_tokenises_each_text_once() -> None:
    whole = unlike("life", 150)
    state: Any = None
    spent = []
    for length in range(2, len(whole) + 1):
        if whole[length - 1]["role"] == "assistant":
            continue

        def step(length: int = length) -> None:
            nonlocal state
            state = backstory.fit(whole[:length], budget=3_000, state=state).state

        spent.append(calls(step))
    assert len(spent) == 300
    assert max(spent) <= 7
    assert sum(spent) <= 5 * 150 + 2


def test_a_second_fit_tokenises_nothing() -> None:
    whole = unlike("second", 40)[:-1]
    assert calls(lambda: backstory.fit(whole, budget=2_000)) > 40
    assert calls(lambda: backstory.fit(whole, budget=2_000)) == 0
    assert calls(lambda: backstory.fit(whole, budget=1_000)) == 0
    assert calls(lambda: backstory.fit(whole, budget=1_000, target="openai_responses")) <= 2


def test_what_is_not_needed_is_never_looked_at() -> None:
    class Watched(list[Any]):
        seen: set[int]

        def __getitem__(self, index: Any) -> Any:
            if isinstance(index, int):
                self.seen.add(index % len(self))
            return super().__getitem__(index)

    whole = Watched(unlike("watched", 2_000)[:-1])
    whole.seen = set()
    fitted = backstory.fit(whole, budget=2_000)
    sent = len(fitted.messages)
    # the window, the step that no longer fitted, what `detect` looks at on both ends
    assert len(whole.seen) < sent + 100
    whole.seen = set()
    backstory.fit(whole, budget=2_000, state=fitted.state)
    assert len(whole.seen) < sent + 100


def test_a_cut_tokenises_nothing_but_what_is_new() -> None:
    whole = unlike("cut", 60)[:-1]
    state = backstory.fit(whole[:-4], budget=1_500).state
    assert calls(lambda: backstory.fit(whole, budget=1_500, state=state)) <= 10
