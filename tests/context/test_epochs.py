"""The state: what it reproduces, what opens an epoch and what the ledger says of it, and damaged states."""

from __future__ import annotations

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backstory
from backstory.context.budget import Budget
from backstory.context.fit import assemble
from backstory.context.history import History
from backstory.errors import InvalidInput
from backstory.targets import Target
from backstory.tokens import Counter
from tests.context.judging import faults, items
from tests.generators import FORMATS

WORDS = "one two three four five six seven eight nine ten"


def system(text: str = "Be brief.") -> dict[str, Any]:
    return {"role": "system", "content": text}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, Any]:
    return {"role": "assistant", "content": text}


def call(*ids: str) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def chat(turns: int, *, start: int = 0) -> list[dict[str, Any]]:
    """Turns of a user's and an assistant's message, about 35 tokens each, without the last answer."""
    found: list[dict[str, Any]] = []
    for number in range(start, start + turns):
        found += [user(f"Question {number}: {WORDS}"), assistant(f"Answer {number}: {WORDS}")]
    return found[:-1]


def tool(name: str, *, description: str = "") -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description}}


# --- within an epoch -----------------------------------------------------------------------


def test_a_window_steps_it_fills_up_is_cut_to_half_and_fills_again() -> None:
    whole, state, cuts, totals = [system(), *chat(60)], None, [], []
    for length in range(2, len(whole) + 1, 2):
        fitted = backstory.fit(whole[:length], budget=600, state=state)
        if state is None or fitted.state["cut"] != state["cut"]:
            cuts.append(fitted.state["cut"])
            assert state is None or fitted.ledger.why.startswith("the window was full")
            assert state is None or fitted.ledger.total <= 300
        else:
            assert fitted.ledger.why == "goes on"
        totals.append(fitted.ledger.total)
        state = fitted.state
    assert len(cuts) < 10
    assert max(totals) > 550


def test_shuffled_tools_are_sent_in_the_order_that_is_known() -> None:
    tools = [tool("a"), tool("b"), tool("c")]
    first = backstory.fit([user("hi")], tools=tools)
    again = backstory.fit([user("hi")], tools=tools[::-1], state=first.state)
    assert again.body["tools"] == tools
    assert again.ledger.why == "goes on"


def test_a_result_that_comes_late_is_told_as_a_note_and_finds_its_place_at_the_next_epoch() -> None:
    given = [system(), user("go"), call("c1")]
    first = backstory.fit(given)
    assert "outcome is unknown" in first.messages[-1]["content"]
    given += [result("c1", "42"), assistant("It was 42."), user("thanks")]
    second = backstory.fit(given, state=first.state)
    assert second.ledger.why == "goes on"
    assert "came late" in second.messages[-3]["content"]
    third = backstory.fit([system("Be long."), *given[1:]], state=second.state)
    assert third.ledger.why == "the system changed"
    assert third.messages[3] == given[3]
    assert not third.repairs


def test_a_made_up_result_says_the_same_as_long_as_the_epoch_lasts() -> None:
    given = [user("go"), call("c1")]
    first = backstory.fit(given, not_started=["c1"])
    assert "before it started" in first.messages[-1]["content"]
    given += [assistant("Well."), user("and?")]
    assert backstory.fit(given, state=first.state).ledger.why == "goes on"


def test_a_real_result_beside_a_logged_synthetic_one_waits_for_the_next_epoch() -> None:
    first = backstory.fit([user("go"), call("c1")])
    given = [user("go"), call("c1"), first.messages[-1], assistant("Hm."), user("and?")]
    second = backstory.fit(given)
    given = [*given, result("c1", "42")]
    third = backstory.fit(given, state=second.state)
    assert third.ledger.why == "goes on"
    assert "came late" in third.messages[-1]["content"]


@pytest.mark.parametrize("target", FORMATS)
def test_a_second_message_of_the_users_leaves_the_first_as_it_was_sent(target: str) -> None:
    first = backstory.fit([user("hi")], target=target)
    for more in ([user("there")], [system("Late."), user("there")]):
        second = backstory.fit([user("hi"), *more], target=target, state=first.state)
        assert second.ledger.why == "goes on"
        assert items(second)[0] == items(first)[0]
        third = backstory.fit(
            [user("hi"), *more, assistant("Yes?"), user("!")], target=target, state=second.state
        )
        assert third.ledger.why == "goes on"
        assert faults(third, target) == []


def test_without_a_state_neighbours_are_one_message() -> None:
    assert len(backstory.fit([user("hi"), user("there")]).messages) == 1


def test_calibration_is_frozen_within_an_epoch() -> None:
    whole, state = [system(), *chat(12)], None
    counter, target = Counter(name="o200k_base"), Target.of("openai_chat")
    known: dict[bytes, int] = {}
    for number, length in enumerate(range(2, len(whole) + 1, 2)):
        fitted = assemble(
            History(whole[:length]),
            target,
            counter,
            Budget(tokens=400),
            state=state,
            factor=1.0 + number / 50,
        )
        if state is not None and fitted.state["cut"] != state["cut"]:
            assert fitted.state["factor"] == 1.0 + number / 50
            known = {}
        for item, tokens in zip(items(fitted), fitted.ledger.items, strict=True):
            assert known.setdefault(item, tokens) == tokens
        state = fitted.state
    assert state is not None
    assert state["factor"] > 1.0


def test_a_calibration_scales_everything_that_is_counted() -> None:
    reports = backstory.Calibration()
    for _ in range(5):
        reports = reports.observe(100, 150)
    plain = backstory.fit([system(), user(WORDS)], tools=[tool("look")])
    scaled = backstory.fit([system(), user(WORDS)], tools=[tool("look")], calibration=reports)
    for line, more in zip(plain.ledger.lines[:-1], scaled.ledger.lines[:-1], strict=True):
        assert line.used == 0 or 1.4 * line.used <= more.used <= 1.5 * line.used + 2


# --- inside a turn, and previews -----------------------------------------------------------


def long_turn(steps: int, *, size: int = 40) -> list[dict[str, Any]]:
    found = [system(), *chat(3), assistant("Done."), user("Now the long one.")]
    for number in range(steps):
        found += [call(f"c{number}"), result(f"c{number}", f"{number} " + "word " * size)]
    return found


def test_a_turn_that_alone_is_too_big_is_cut_at_a_step_and_keeps_the_users_message() -> None:
    given = long_turn(20)
    fitted = backstory.fit(given, budget=400)
    assert [m["role"] for m in fitted.messages[:3]] == ["system", "user", "assistant"]
    assert fitted.messages[1] is given[7]
    assert fitted.messages[-1] is given[-1]
    assert [drop.reason for drop in fitted.ledger.dropped] == ["cut", "cut_in_turn"]
    assert fitted.ledger.dropped[1].stop == fitted.state["cut"]


def test_a_cut_inside_a_turn_is_gone_on_from() -> None:
    given, state, cuts = long_turn(40), None, set()
    for length in range(8, len(given) + 1, 2):
        fitted = backstory.fit(given[:length], budget=500, state=state)
        assert fitted.messages[1] is given[7] or not fitted.state["kept"]
        assert fitted.messages[-1] is given[length - 1]
        assert fitted.ledger.why in ("first request", "goes on") or "was full" in fitted.ledger.why
        cuts.add(fitted.state["cut"])
        state = fitted.state
    assert 4 <= len(cuts) <= 16


def test_a_conversation_that_begins_with_the_assistant_is_cut_between_whole_steps() -> None:
    given = long_turn(20)[8:]
    fitted = backstory.fit(given, budget=400)
    assert fitted.messages[0]["role"] == "user"
    assert fitted.state["kept"] is None
    assert not any(repair.rule.startswith("result.") for repair in fitted.repairs)
    again = backstory.fit(given, budget=400, state=fitted.state)
    assert again.messages == fitted.messages


def test_a_newest_step_that_is_too_big_shows_previews_and_keeps_them() -> None:
    given = [system(), user("go"), call("c1", "c2"), result("c1", "small"), result("c2", "line\n" * 2_000)]
    first = backstory.fit(given, budget=400)
    assert first.ledger.total <= 400
    assert first.messages[3] is given[3]
    assert "characters left out" in first.messages[4]["content"]
    (condensed,) = first.ledger.condensed
    assert (condensed.index, condensed.before) == (4, 4_002)  # the call's id and all
    assert condensed.after < 400
    second = backstory.fit([*given, call("c3"), result("c3", "x")], budget=500, state=first.state)
    assert second.ledger.why == "goes on"
    assert second.messages[4] == first.messages[4]
    assert second.ledger.condensed == first.ledger.condensed


def test_previews_leave_room_where_the_window_steps() -> None:
    given, state, why = [user("go")], None, []
    for number in range(30):
        given += [call(f"c{number}"), result(f"c{number}", "line\n" * 3_000)]
        fitted = backstory.fit(given, budget=4_000, state=state)
        state = fitted.state
        why.append(fitted.ledger.why)
    assert all(reason == "goes on" or "was full" in reason for reason in why[1:])


def test_previews_are_the_same_whatever_the_calibration_says_later() -> None:
    given = [user("go"), call("c1"), result("c1", "line\n" * 2_000)]
    counter, target, budget = Counter(name="o200k_base"), Target.of("openai_chat"), Budget(tokens=400)
    first = assemble(History(given), target, counter, budget, factor=1.2)
    second = assemble(History(given), target, counter, budget, factor=1.5, state=first.state)
    assert second.messages == first.messages


def test_words_between_a_call_and_its_result_do_not_part_them() -> None:
    given = [user("go " * 100), call("c1"), user("hurry"), result("c1", "42")]
    for budget in range(20, 300, 5):
        roles = [message["role"] for message in backstory.fit(given, budget=budget).messages]
        assert roles in (["user"], ["user", "assistant", "tool", "assistant", "user"])


def test_the_items_of_one_response_are_one_step() -> None:
    given: list[dict[str, Any]] = [{"type": "message", "role": "user", "content": "go"}]
    for number in range(12):
        for part in ("a", "b"):
            name = f"{part}{number}"
            given.append({"type": "function_call", "call_id": name, "name": "look", "arguments": "{}"})
        given += [
            {"type": "function_call_output", "call_id": f"{part}{number}", "output": "word " * 20}
            for part in ("a", "b")
        ]
    for budget in range(150, 400, 10):
        fitted = backstory.fit(given, budget=budget, target="openai_responses", source="openai_responses")
        assert fitted.repairs == ()
        assert fitted.messages[0] is given[0]
        assert len(fitted.messages) % 4 == 1


# --- what opens an epoch -------------------------------------------------------------------


def test_changed_tools_and_a_changed_system_open_an_epoch_and_keep_the_window() -> None:
    given = [system(), *chat(6)]
    first = backstory.fit(given, budget=200, tools=[tool("a")])
    second = backstory.fit(given, budget=200, tools=[tool("b")], state=first.state)
    assert (second.ledger.epoch, second.ledger.why, second.ledger.shared) == (2, "the tools changed", 0)
    assert second.messages == first.messages
    third = backstory.fit([system("Be long."), *given[1:]], budget=200, tools=[tool("b")], state=second.state)
    assert (third.ledger.epoch, third.ledger.why) == (3, "the system changed")
    assert third.ledger.shared == third.ledger.line("tools").used
    assert third.messages[1:] == second.messages[1:]


@pytest.mark.parametrize("target", ["anthropic", "gemini"])
def test_a_system_that_stands_apart_is_seen_to_change(target: str) -> None:
    first = backstory.fit([user("hi")], system="Be brief.", target=target)
    second = backstory.fit([user("hi")], system="Be long.", target=target, state=first.state)
    assert (second.ledger.epoch, second.ledger.why) == (2, "the system changed")


def test_an_edited_message_keeps_what_stands_before_it() -> None:
    given = [system(), *chat(5)]
    first = backstory.fit(given)
    edited = copy.deepcopy(given)
    edited[5]["content"] = "Another question."
    second = backstory.fit(edited, state=first.state)
    assert second.ledger.why == "message 5 is not as it was sent"
    assert second.ledger.shared == sum(first.ledger.items[:5])


def test_a_shorter_list_keeps_what_it_shares() -> None:
    given = [system(), *chat(12)]
    first = backstory.fit(given, budget=250)
    assert first.ledger.dropped
    second = backstory.fit(given[:-2], budget=250, state=first.state)
    assert second.ledger.why.startswith("the list has")
    assert second.state["cut"] == first.state["cut"]
    assert second.messages == first.messages[:-2]


def test_another_list_is_begun_anew() -> None:
    first = backstory.fit([system(), *chat(12)], budget=250)
    second = backstory.fit([system(), *chat(12, start=100)], budget=250, state=first.state)
    assert second.ledger.why == "the list is another one than at the last request"
    stateless = backstory.fit([system(), *chat(12, start=100)], budget=250)
    assert second.messages == stateless.messages


def test_a_decision_is_taken_back_with_the_message_that_it_was_about() -> None:
    given = [user("go"), call("c1")]
    first = backstory.fit(given)
    other = [user("go"), call("other"), result("other", "42")]
    second = backstory.fit(other, state=first.state)
    assert second.ledger.why == "message 1 is not as it was sent"
    assert second.messages == other


def test_another_target_begins_anew() -> None:
    first = backstory.fit([system(), *chat(3)])
    second = backstory.fit([system(), *chat(3)], target="anthropic", state=first.state)
    assert (second.ledger.epoch, second.ledger.why) == (2, "the target or the way of counting changed")


def test_reasoning_that_a_provider_wants_within_its_turn_only() -> None:
    thought = {**call("c1"), "reasoning_content": "Let me look."}
    given = [user("go"), thought, result("c1", "42")]
    first = backstory.fit(given, target="deepseek")
    assert first.messages[1] is thought
    second = backstory.fit([*given, assistant("42."), user("thanks")], target="deepseek", state=first.state)
    assert second.ledger.why.startswith("reasoning_expired")


def test_passages_that_were_sent_once_leave_with_a_reason() -> None:
    target, counter = Target.of("openai_chat"), Counter(name="o200k_base")
    bearing = [user("hi\n<retrieved>long</retrieved>")]
    first = assemble(History(bearing), target, counter, Budget(), loose=0)
    second = assemble(
        History([user("hi"), assistant("yes"), user("go")]), target, counter, Budget(), state=first.state
    )
    assert second.ledger.why.startswith("passages_dropped")


def test_a_larger_budget_keeps_the_prefix_and_a_smaller_one_cuts() -> None:
    given = [system(), *chat(12)]
    first = backstory.fit(given, budget=250)
    wide = backstory.fit(given, budget=2_500, state=first.state)
    assert wide.ledger.why == "goes on"
    assert wide.messages == first.messages
    tight = backstory.fit(given, budget=150, state=first.state)
    assert "was full" in tight.ledger.why
    assert tight.ledger.total <= 150


# --- damaged states ------------------------------------------------------------------------

STATE = backstory.fit([system(), *long_turn(20)[1:]], budget=400).state


@pytest.mark.parametrize("value", [5, "state", [1], True])
def test_what_never_was_a_state_is_refused(value: Any) -> None:
    with pytest.raises(InvalidInput, match="state must be"):
        backstory.fit([user("hi")], state=value)


numbers = st.integers(-3, 60)
places = st.sampled_from(["1.0", "x", "9.9", "-1.0"])
junk = st.one_of(
    st.none(),
    st.booleans(),
    numbers,
    st.floats(),
    st.text(max_size=5),
    st.lists(st.one_of(numbers, st.text(max_size=3), st.none()), max_size=4),
    st.dictionaries(places, st.one_of(numbers, st.lists(numbers, max_size=3)), max_size=2),
)


@given(name=st.sampled_from(sorted(STATE)), value=junk)
@settings(max_examples=300)
def test_a_damaged_state_is_never_an_error_and_never_lets_anything_illegal_out(name: str, value: Any) -> None:
    given = long_turn(22)
    fitted = backstory.fit(given, budget=400, state={**STATE, name: value})
    assert faults(fitted, "openai_chat") == []
    assert fitted.ledger.total <= 400
    json.dumps(fitted.state, allow_nan=False)
    less = {key: held for key, held in STATE.items() if key != name}
    assert faults(backstory.fit(given, budget=400, state=less), "openai_chat") == []


def test_a_state_of_another_version_begins_anew() -> None:
    fitted = backstory.fit(long_turn(20), budget=400, state={**STATE, "version": 99})
    assert "version 99" in fitted.ledger.why
