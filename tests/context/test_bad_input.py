"""What a caller can get wrong, item by item: a typed error, or a request that can be sent all the same."""

from __future__ import annotations

import time
from typing import Any

import pytest

import backstory
from backstory.errors import BudgetExceeded, ConfigurationError, InvalidInput, InvalidMessage, NothingToSend
from tests.context.judging import faults
from tests.context.test_epochs import assistant, call, chat, result, system, user
from tests.generators import FORMATS


@pytest.mark.parametrize("given", [None, 5, "hello", {"role": "user", "content": "x"}, {1, 2}, iter([])])
def test_what_is_no_list_is_refused(given: Any) -> None:
    with pytest.raises(InvalidInput, match="list of messages"):
        backstory.fit(given)


def test_a_whole_body_says_which_field_to_pass() -> None:
    with pytest.raises(InvalidInput, match="'messages'"):
        backstory.fit({"messages": [user("hi")]})


def test_a_tuple_is_a_list() -> None:
    assert backstory.fit((user("hi"),)).messages == [user("hi")]


@pytest.mark.parametrize("target", FORMATS)
def test_nothing_to_answer(target: str) -> None:
    for given in ([], [system()], [user("hi"), assistant("Hello.")]):
        with pytest.raises(NothingToSend):
            backstory.fit(given, target=target)
    assert backstory.fit([], target=target, ready=False).messages == []
    assert len(backstory.fit([user("hi"), assistant("Hello.")], target=target, ready=False).messages) == 2


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ({"role": "wizard", "content": "x"}, "wizard"),
        ({"content": "x"}, "role"),
        ("hello", "object"),
        (None, "object"),
        ({"role": "user", "content": 5}, "content"),
        ({"role": "assistant", "content": None, "tool_calls": "x"}, "tool_calls"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place_where_it_is_needed(item: Any, what: str) -> None:
    with pytest.raises(InvalidMessage, match=what) as raised:
        backstory.fit([system(), user("hi"), item, user("go")], source="openai_chat")
    assert raised.value.index == 2
    long = [system(), item, *chat(200)]
    assert backstory.fit(long, budget=300, source="openai_chat").ledger.total <= 300
    assert [
        p.index for p in backstory.check(long, source="openai_chat") if p.rule == "message.unreadable"
    ] == [1]


@pytest.mark.parametrize(
    "settings",
    [
        {"budget": 0},
        {"budget": -1},
        {"budget": 1.5},
        {"budget": "8000"},
        {"budget": True},
        {"window": 0},
        {"budget": 100, "window": 100},
        {"reserve": 10},
        {"window": 100, "reserve": 100},
        {"window": 100, "reserve": -1},
        {"max_turns": 0},
        {"max_messages": -3},
        {"max_turns": 1.5},
        {"max_messages": True},
        {"target": "nobody"},
        {"target": None},
        {"source": "nobody"},
        {"encoding": "nobody"},
        {"encoding": "o200k_base", "model": "gpt-4o"},
        {"tools": {"name": "x"}},
        {"tools": "x"},
        {"tools": [{"x": float("nan")}]},
        {"tools": [{"x": {1, 2}}]},
        {"tools": [{"x": "\ud800"}]},
    ],
)
def test_settings_that_make_no_sense_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises((ConfigurationError, InvalidInput)):
        backstory.fit([user("hi")], **settings)


def test_a_tool_nested_too_deep_is_refused() -> None:
    deep: dict[str, Any] = {}
    for _ in range(3_000):
        deep = {"x": deep}
    with pytest.raises(InvalidInput, match="tools"):
        backstory.fit([user("hi")], tools=[deep])


def test_the_output_is_reserved_from_the_window() -> None:
    given = [user("word " * 700)]
    assert backstory.fit(given, window=1_000).ledger.budget == 800
    assert backstory.fit(given, window=1_000).ledger.reserve == 200
    with pytest.raises(BudgetExceeded) as raised:
        backstory.fit(given, window=1_000, reserve=400)
    assert raised.value.budget == 600
    assert backstory.fit(given, window=1_000, reserve=0).ledger.budget == 1_000


@pytest.mark.parametrize("target", FORMATS)
def test_a_result_of_ten_megabytes(target: str) -> None:
    text = f"{FORMATS.index(target)}123456789\n" * 950_000  # another for each target: none is counted already
    given = [user("go"), call("c1"), result("c1", text)]
    start = time.process_time()
    fitted = backstory.fit(given, budget=4_000, target=target, source="openai_chat", encoding="o200k_base")
    assert fitted.ledger.total <= 4_000
    assert fitted.ledger.condensed[0].before > 3_000_000
    assert faults(fitted, target) == []
    first = time.process_time() - start
    start = time.process_time()
    again = backstory.fit(
        given, budget=4_000, target=target, source="openai_chat", encoding="o200k_base", state=fitted.state
    )
    assert again.messages == fitted.messages
    assert time.process_time() - start < first / 10


def test_a_hundred_thousand_messages() -> None:
    given = [system(), *chat(50_000)]
    fitted = backstory.fit(given, budget=8_000)
    assert 7_900 < fitted.ledger.total <= 8_000
    assert backstory.fit(given, budget=8_000, state=fitted.state).messages == fitted.messages


def deep(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"x": [value]}
    return value


@pytest.mark.parametrize("target", FORMATS)
@pytest.mark.parametrize("levels", [100, 1_000, 100_000])
def test_nesting_without_end(target: str, levels: int) -> None:
    arguments = '{"a":' * levels + "1" + "}" * levels
    nested = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "c1", "type": "function", "function": {"name": "look", "arguments": arguments}}
        ],
    }
    odd = {**user("hi"), "x_field": deep(levels)}
    given = [odd, nested, result("c1", "ok")]
    fitted = backstory.fit(given, target=target, source="openai_chat", encoding="o200k_base")
    assert faults(fitted, target) == []


@pytest.mark.parametrize("target", FORMATS)
def test_lone_surrogates_and_numbers_that_json_has_not(target: str) -> None:
    given = [
        {**user("half \ud83d of it"), "x_field": float("nan")},
        {**call("c\udc00"), "x_field": float("inf")},
        result("c\udc00", "\ud800"),
        assistant("fine \udfff"),
        user("go"),
    ]
    fitted = backstory.fit(given, target=target, source="openai_chat", encoding="o200k_base")
    assert faults(fitted, target) == []
    assert backstory.fit(given, target=target, source="openai_chat", state=fitted.state).messages


@pytest.mark.parametrize("target", FORMATS)
def test_a_budget_below_the_fixed_part_says_what_asked_for_how_much(target: str) -> None:
    given = [system("rule " * 300), user("hi")]
    with pytest.raises(BudgetExceeded, match="shorten the system") as raised:
        backstory.fit(given, budget=100, target=target, encoding="o200k_base")
    ledger = raised.value.ledger
    assert ledger.line("system").used > 300
    assert ledger.total == raised.value.needed > raised.value.budget == 100
    assert all(line.granted >= 0 for line in ledger.lines)


def test_a_current_message_beyond_the_window_is_never_cut_in_silence() -> None:
    given = [system(), *chat(3), assistant("ok"), user("word " * 1_000)]
    with pytest.raises(BudgetExceeded, match="never cut in silence") as raised:
        backstory.fit(given, budget=500)
    assert raised.value.ledger.line("message").used > 1_000
    first = backstory.fit(given[:-2], budget=500)
    with pytest.raises(BudgetExceeded):
        backstory.fit(given, budget=500, state=first.state)


def test_tools_beyond_the_budget_are_named() -> None:
    tools = [
        {"type": "function", "function": {"name": f"t{i}", "description": "word " * 50}} for i in range(20)
    ]
    with pytest.raises(BudgetExceeded, match="send fewer tools"):
        backstory.fit([user("hi")], tools=tools, budget=500)
