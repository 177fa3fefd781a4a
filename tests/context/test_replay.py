"""A recording walked as if it were live: where calls stand, what each strategy sends, what it costs."""

import json
from pathlib import Path
from typing import Any

import pytest

import backstory
from backstory.context.budget import Budget
from backstory.context.history import History
from backstory.context.replay import STRATEGIES, Price, Strategy, Walk, replay
from backstory.errors import ConfigurationError, InvalidMessage
from backstory.targets import Target
from backstory.tokens import Counter


@pytest.fixture(scope="session")
def run(root: Path) -> list[Any]:
    text = (root / "examples" / "agent_run.jsonl").read_text(encoding="utf-8")
    return [json.loads(line) for line in text.splitlines()]


def walk(
    messages: list[Any], strategy: Strategy = "stepped", *, target: str = "openai_chat", **settings: Any
) -> Walk:
    budget = Budget(tokens=settings.pop("budget", None))
    return replay(
        History(messages),
        Target.of(target),
        Counter(name="o200k_base"),
        budget,
        strategy=strategy,
        **settings,
    )


@pytest.fixture(scope="session")
def walks(run: list[Any]) -> dict[str, Walk]:
    """The run under each strategy, every request kept."""
    return {strategy: walk(run, strategy, budget=5_000, keep=range(1, 100)) for strategy in STRATEGIES}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def says(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def calls(*ids: str) -> dict[str, Any]:
    made = [{"id": each, "type": "function", "function": {"name": "look", "arguments": "{}"}} for each in ids]
    return {"role": "assistant", "content": None, "tool_calls": made}


def result(call_id: str, text: str = "seen") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


SYSTEM = {"role": "system", "content": "Be brief."}


def test_a_call_stands_at_each_answer_and_at_the_open_end():
    found = walk([SYSTEM, user("a"), calls("1", "2"), result("1"), result("2"), says("b"), user("c")])
    assert [(call.number, call.turn, call.at, call.sent) for call in found.calls] == [
        (1, 1, 2, ((1, 2),)),
        (2, 1, 5, ((1, 5),)),
        (3, 2, 7, ((1, 7),)),
    ]
    assert [call.items for call in found.calls] == [2, 5, 7]
    assert [message.text for message in found.calls[1].answer] == ["b"]
    assert [message.text for message in found.calls[2].asked] == ["c"]
    assert found.calls[2].answer == ()
    assert found.calls[2].output == 0
    assert all(call.output > 0 for call in found.calls[:2])


def test_no_open_end_no_last_call():
    assert [call.at for call in walk([user("a"), says("b")]).calls] == [1]


def test_nothing_at_all():
    assert walk([]).calls == ()
    assert walk([SYSTEM]).calls == ()


def test_an_answer_of_several_items_is_one_call():
    items = [
        {"type": "message", "role": "user", "content": "a"},
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "x"},
        {"type": "function_call", "call_id": "1", "name": "look", "arguments": "{}"},
        {"type": "function_call", "call_id": "2", "name": "look", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "1", "output": "x"},
        {"type": "function_call_output", "call_id": "2", "output": "y"},
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "b"}]},
    ]
    found = walk(items, target="openai_responses")
    assert [call.at for call in found.calls] == [1, 6]


def test_an_answer_to_nothing_is_skipped_with_its_reason():
    found = walk([SYSTEM, says("Welcome!"), user("a"), says("b"), says("c"), user("d")])
    assert [call.at for call in found.calls] == [3, 5 + 1]
    assert [skipped.at for skipped in found.skipped] == [1, 4]
    assert "no message to answer" in found.skipped[0].why


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_is_sent_is_what_fit_sends(run: list[Any], walks: dict[str, Walk], strategy: Strategy):
    """Call by call: `full` as fit without limits, `stepped` as fit with its state, `sliding` as fit without one."""
    found = walks[strategy]
    assert len(found.calls) == 49
    state = None
    for call in found.calls:
        assert call.fitted
        own = backstory.fit(
            run[: call.at],
            budget=None if strategy == "full" else 5_000,
            state=None if strategy == "sliding" else state,
            encoding="o200k_base",
        )
        state = own.state
        assert call.fitted.body == own.body
        assert call.input == own.ledger.total
        if strategy != "sliding":
            assert call.cached == own.ledger.shared


def test_what_a_sliding_window_shares_with_the_request_before(walks: dict[str, Walk]):
    """The same figure as that of a request made with a state, where both send the same."""
    fixed = [SYSTEM, user("a"), says("b"), user("c"), says("d"), user("e"), says("f")]
    for target in ("openai_chat", "anthropic", "gemini"):
        with_state, without = (walk(fixed, strategy, target=target) for strategy in ("stepped", "sliding"))
        assert [call.cached for call in with_state.calls] == [call.cached for call in without.calls]
        assert [call.ledger.why for call in without.calls] == ["first request", "goes on", "goes on"]
    found = walks["sliding"]
    for before, after in zip(found.calls, found.calls[1:], strict=False):
        assert before.fitted
        assert after.fitted
        extends = after.fitted.messages[: before.items] == before.fitted.messages
        assert after.opened is not extends
        assert after.cached < after.input
        if after.cut:
            assert after.ledger.why.startswith("the window moved: replay begins at message")


def test_requests_extend_each_other_between_cuts(walks: dict[str, Walk]):
    found = walks["stepped"]
    cuts = 0
    for before, after in zip(found.calls, found.calls[1:], strict=False):
        assert before.fitted
        assert after.fitted
        cuts += after.opened
        if not after.opened:
            assert after.fitted.messages[: before.items] == before.fitted.messages
            assert after.cached == before.input - before.ledger.line("overhead").used
    assert cuts == found.cuts > 1


def test_every_request_is_within_the_budget_and_full_is_not(walks: dict[str, Walk]):
    for strategy in ("sliding", "stepped"):
        found = walks[strategy]
        assert found.largest <= 5_000
        assert (found.over(5_000), found.failed) == (0, 0)
    full = walks["full"]
    assert full.largest > 20_000
    assert full.over(5_000) > 10
    assert full.cuts == 0


def test_stepped_reads_more_from_the_cache_and_costs_less(walks: dict[str, Walk]):
    price = Price(input=1.0, cached=0.1, output=4.0)
    full, sliding, stepped = walks.values()
    assert sliding.cached / sliding.input < stepped.cached / stepped.input < full.cached / full.input
    assert stepped.cost(price) < sliding.cost(price) < full.cost(price)


def test_what_was_healed_is_told_once(walks: dict[str, Walk]):
    rules = [repair.rule for call in walks["full"].calls for repair in call.repairs]
    assert sorted(rules) == sorted(set(rules))
    assert {"call.arguments", "result.duplicate", "result.missing", "order.alternation"} <= set(rules)


def test_a_big_result_is_previewed(run: list[Any], walks: dict[str, Walk]):
    found = walks["stepped"]
    (index,) = {result.index for call in found.calls for result in call.ledger.condensed}
    assert run[index]["role"] == "tool"


def test_a_call_that_cannot_be_made_does_not_end_the_walk():
    messages = [SYSTEM, user("a"), says("b"), user("long " * 500), says("c"), user("d"), says("e")]
    found = walk(messages, budget=100)
    assert [call.error is not None for call in found.calls] == [False, True, False]
    failed = found.calls[1]
    assert (failed.input, failed.cached, failed.cost(Price(input=1, cached=1, output=1))) == (0, 0, 0)
    assert failed.ledger.total > 500
    assert (found.failed, found.output) == (1, found.calls[0].output + found.calls[2].output)


def test_turns_and_messages_bind_too(run: list[Any]):
    assert all(len({*call.sent}) == 1 for call in walk(run, max_turns=2).calls)
    assert max(call.items for call in walk(run, max_messages=10).calls) <= 12
    assert max(call.items for call in walk(run, "full", max_messages=10).calls) > 100


def test_the_recording_is_not_touched(run: list[Any]):
    before = json.dumps(run)
    walk(run, budget=3_000, target="anthropic")
    assert json.dumps(run) == before


@pytest.mark.parametrize("target", ["openai", "openai_responses", "anthropic", "gemini", "vllm"])
def test_every_target(run: list[Any], target: str):
    found = walk(run, target=target, budget=5_000)
    assert len(found.calls) == 49
    assert found.failed == 0


def test_a_price():
    price = Price(input=2.0, cached=0.2, output=10.0)
    assert price.of(fresh=1_000_000, cached=500_000, output=100_000) == pytest.approx(2.0 + 0.1 + 1.0)
    written = Price(input=2.0, cached=0.2, output=10.0, written=2.5)
    assert written.of(fresh=1_000_000, cached=0, output=0) == pytest.approx(2.5)
    for bad in (-1.0, float("nan"), float("inf")):
        with pytest.raises(ConfigurationError):
            Price(input=bad, cached=0, output=0)


def test_bad_settings_and_bad_messages():
    with pytest.raises(ConfigurationError, match="unknown strategy"):
        walk([], "nonsense")  # type: ignore[arg-type]
    with pytest.raises(InvalidMessage, match="message 1"):
        walk([user("a"), {"role": "nobody"}])
