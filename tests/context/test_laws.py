"""The pure laws, as properties of whole lives and of single requests: 1, 2, 3, 4 and 8, and determinism."""

from __future__ import annotations

import copy
import os
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backstory
from backstory.context.budget import Budget
from backstory.context.fit import Fitted, assemble
from backstory.context.history import History
from backstory.errors import BudgetExceeded
from backstory.formats import wire_format
from backstory.legality.steps import turns
from backstory.targets import Target
from backstory.tokens import Counter, count_tools
from backstory.tokens.messages import PRIMING, count_message
from tests.context.judging import faults
from tests.context.lives import Life
from tests.generators import FORMATS, history
from tests.strategies import formats, histories, legal_histories

ENCODING = "o200k_base"
randoms = st.randoms(use_true_random=False)


@given(rng=randoms)
@settings(max_examples=40)
def test_every_request_of_a_life_is_legal_fits_and_extends_the_one_before(rng: Random) -> None:
    Life(rng).run()


def test_a_life_whose_changed_list_fits_without_its_state_only() -> None:
    """Found among 2,800: after a change in the list the old window, mended, no longer fits; a new one does."""
    _lived("lives:3:158")


LIVES = int(os.environ.get("BACKSTORY_TEST_LIVES", "400"))
"""In each of four parts, so that processors share them; more for one long run."""


@pytest.mark.slow
@pytest.mark.timeout(3_600)
@pytest.mark.parametrize("part", range(4))
def test_many_lives(part: int) -> None:
    seen = sum((_lived(f"lives:{part}:{number}") for number in range(LIVES // 4)), start=0)
    print(f"\n{seen:,} requests in {LIVES // 4:,} lives")


def _lived(seed: str) -> int:
    life = Life(Random(seed))
    life.run()
    return life.seen["sent"]


@given(data=st.data(), name=formats)
@settings(max_examples=60)
def test_where_all_fits_and_is_legal_the_very_objects_come_back(data: st.DataObject, name: str) -> None:
    items = data.draw(legal_histories(name))
    fitted = backstory.fit(items, source=name, target=name, budget=1_000_000, ready=False)
    assert len(fitted.messages) == len(items)
    assert all(sent is given for sent, given in zip(fitted.messages, items, strict=True))
    assert fitted.repairs == ()
    assert fitted.losses == ()
    assert fitted.ledger.dropped == ()
    assert fitted.ledger.condensed == ()


@given(data=st.data(), name=formats, target=formats, budget=st.integers(1, 1_500))
@settings(max_examples=120)
def test_it_fits_or_says_what_asked_for_how_much(
    data: st.DataObject, name: str, target: str, budget: int
) -> None:
    items = data.draw(histories(name))
    tools = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}] * 2
    error: BudgetExceeded | None = None
    try:
        fitted = backstory.fit(
            items, source=name, target=target, budget=budget, tools=tools, encoding=ENCODING, ready=False
        )
    except BudgetExceeded as raised:
        error = raised
    if error is not None:
        assert error.ledger.total == sum(line.used for line in error.ledger.lines) == error.needed > budget
        assert error.budget == error.ledger.budget == budget
        return
    counter = Counter(name=ENCODING)
    whole = sum(fitted.ledger.items) + count_tools(tools, counter) + PRIMING
    assert fitted.ledger.total == sum(line.used for line in fitted.ledger.lines) <= budget
    apart = fitted.ledger.total - whole  # the system, where it has a field of its own
    assert apart >= 0
    assert (apart == 0) or target in ("anthropic", "gemini")
    assert faults(fitted, target, ready=False) == []


@given(rng=randoms, budget=st.integers(40, 700))
@settings(max_examples=80)
def test_the_count_is_the_one_that_a_reader_of_the_request_makes(rng: Random, budget: int) -> None:
    """An independent recount: the request that was written, read anew, with no cache but the texts'."""
    items = history(rng, "openai_chat", legal=True)
    try:
        fitted = backstory.fit(items, budget=budget, ready=False)
    except BudgetExceeded:
        return
    form, counter = wire_format("openai_chat"), Counter(name=ENCODING)
    read = [form.read(item, index=0, origin=form.ORIGIN)[0] for item in fitted.messages]
    assert fitted.ledger.total == PRIMING + sum(count_message(m, counter, "openai_chat") for m in read)


@given(rng=randoms, budget=st.integers(40, 700))
@settings(max_examples=80)
def test_a_window_is_maximal_the_next_older_turn_would_not_fit(rng: Random, budget: int) -> None:
    items = [item for _ in range(4) for item in history(rng, "openai_chat", legal=True)]
    items = [item for i, item in enumerate(items) if not i or item["role"] not in ("system", "developer")]
    try:
        fitted = backstory.fit(items, budget=budget, ready=False)
    except BudgetExceeded:
        return
    cut = fitted.state["cut"]
    if not fitted.ledger.dropped or fitted.state["kept"]:
        return
    older = _turn_before(items, cut)
    system = items[: 1 if items[0]["role"] in ("system", "developer") else 0]
    with_it = backstory.fit(system + items[older:], ready=False)
    assert with_it.ledger.total > budget


def _turn_before(items: list[dict[str, object]], cut: int) -> int:
    form = wire_format("openai_chat")
    read = [form.read(item, index=0, origin=form.ORIGIN)[0] for item in items]
    return max(turn.start for turn in turns(read) if turn.start < cut)


@given(data=st.data(), name=formats, target=st.sampled_from(FORMATS))
@settings(max_examples=60)
def test_the_list_that_was_passed_in_is_never_changed(data: st.DataObject, name: str, target: str) -> None:
    items = data.draw(histories(name))
    before = copy.deepcopy(items)
    backstory.fit(items, source=name, target=target, ready=False)
    assert repr(items) == repr(before)


def _assembled(source: History, target: str, budget: int, state: object) -> Fitted | None:
    goal, counter = Target.of(target), Counter(name=ENCODING)
    try:
        return assemble(source, goal, counter, Budget.of(budget=budget), state=state, ready=False)
    except BudgetExceeded:
        return None


@given(rng=randoms, name=formats, others=st.lists(formats, max_size=3), budget=st.integers(60, 2_000))
@settings(max_examples=80)
def test_what_is_kept_with_messages_changes_nothing(
    rng: Random, name: str, others: list[str], budget: int
) -> None:
    """The short way, over messages that were counted, judged, written and digested before, is the long way."""
    items = [item for _ in range(3) for item in history(rng, name, legal=True)]
    kept, state = History(items, name), None
    for target in (name, *others, name, name):
        short = _assembled(kept, target, budget, state)
        long = _assembled(History(copy.deepcopy(items), name), target, budget, copy.deepcopy(state))
        assert short == long
        state = short.state if short is not None else None


@pytest.mark.parametrize("place", ["content", "arguments"])
def test_an_item_that_is_changed_in_a_body_that_we_gave_is_told_of(place: str) -> None:
    call = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    items: list[dict[str, object]] = [
        {"role": "user", "content": "hello"},
        {"role": "assistant", "content": "one moment", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "three"},
    ]
    kept = History(items, "openai_chat")
    before = _assembled(kept, "openai_chat", 1_000, None)
    assert before is not None
    asked = before.body["messages"][1]
    changed = asked if place == "content" else asked["tool_calls"][0]["function"]
    changed[place] = '{"other": 1}'
    after = _assembled(kept, "openai_chat", 1_000, before.state)
    assert after is not None
    assert after.ledger.epoch == 2
    assert "message 1 is not as it was sent" in after.ledger.why
