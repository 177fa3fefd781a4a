"""The guard against loops: what it lets run, what it refuses, when it stops."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.loop_guard import LoopGuard, Verdict, canonical
from backstory.errors import ConfigurationError
from backstory.messages import ToolCall

GO = Verdict()


def call(name: str, arguments: str = "{}") -> ToolCall:
    return ToolCall(id="x", name=name, arguments=arguments)


def verdicts(guard: LoopGuard, names: list[list[str]]) -> list[Verdict]:
    steps = [[call(name) for name in step] for step in names]
    return [guard.judge(steps[:end]) for end in range(1, len(steps) + 1)]


def test_the_same_call_is_warned_then_stopped():
    *before, warned, stopped = verdicts(LoopGuard(max_repeats=3), [["a"]] * 5)
    assert before == [GO] * 3
    assert list(warned.refused) == [0]
    assert "called 3 times" in warned.refused[0]
    assert warned.stop is None
    assert stopped.stop == "repeats"
    assert list(stopped.refused) == [0]


def test_going_to_and_fro_is_a_circle_too():
    found = verdicts(LoopGuard(max_repeats=2), [["a"], ["b"]] * 4)
    assert [bool(verdict.refused) for verdict in found] == [False] * 5 + [True] * 3
    assert [verdict.stop for verdict in found] == [None] * 7 + ["repeats"]


def test_repeats_among_new_calls_are_no_circle():
    names = [[name] for number in range(20) for name in (f"edit{number}", "test")]
    assert verdicts(LoopGuard(max_repeats=2), names) == [GO] * 40


def test_after_a_warning_something_else_goes_on():
    found = verdicts(LoopGuard(max_repeats=1), [["a"], ["a"], ["b"], ["a"]])
    assert [bool(verdict.refused) for verdict in found] == [False, True, False, False]


def test_within_one_step_the_surplus_is_refused_and_the_rest_runs():
    (verdict,) = verdicts(LoopGuard(max_repeats=2), [["a", "b", "a", "a", "a"]])
    assert sorted(verdict.refused) == [3, 4]
    assert verdict.stop is None


def test_iterations():
    found = verdicts(LoopGuard(max_iterations=3), [["a"], ["b"], ["c"], ["d", "e"]])
    assert found[:3] == [GO] * 3
    assert found[3].stop == "iterations"
    assert sorted(found[3].refused) == [0, 1]


def test_bounds():
    assert LoopGuard().judge([]) == GO
    for options in ({"max_iterations": 0}, {"max_repeats": 0}):
        with pytest.raises(ConfigurationError):
            LoopGuard(**options)


@pytest.mark.parametrize(
    ("one", "two", "same"),
    [
        ('{"a":1,"b":2}', '{ "b": 2, "a": 1 }', True),
        ('{"a":1}', '{"a":1.0}', True),
        ('{"a":1}', '{"a":1e0}', True),
        ('{"a":"\\u4e2d"}', '{"a":"中"}', True),
        ("", "{}", True),
        (" {broken", "{broken ", True),
        ('{"a":1}', '{"a":"1"}', False),
        ('{"a":1}', '{"a":true}', False),
        ('{"a":9007199254740993}', '{"a":9007199254740992}', False),
        ('{"a":[1,2]}', '{"a":[2,1]}', False),
        ("1" * 5_000, "1" * 5_000, True),
        ("[" * 100_000, "[" * 100_000, True),
    ],
)
def test_canonical_arguments(one: str, two: str, same: bool):
    assert (canonical(call("f", one)) == canonical(call("f", two))) is same


def test_names_and_kinds_keep_calls_apart():
    assert canonical(call("f")) != canonical(call("g"))
    assert canonical(call("f")) != canonical(ToolCall(id="", name="f", kind="custom"))


steps = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=4), max_size=30)
limits = st.integers(1, 5)


@given(steps, limits, limits)
def test_it_is_a_function_of_the_calls(names: list[list[str]], repeats: int, iterations: int):
    guard = LoopGuard(max_repeats=repeats, max_iterations=iterations)
    assert verdicts(guard, names) == verdicts(guard, names)


@given(steps, limits)
def test_no_call_runs_too_often_in_a_row_of_nothing_new(names: list[list[str]], repeats: int):
    """Replays what a runner does, and counts what really ran since something new was tried."""
    guard = LoopGuard(max_repeats=repeats, max_iterations=1_000)
    seen: set[str] = set()
    ran: dict[str, int] = {}
    for step, verdict in zip(names, verdicts(guard, names), strict=True):
        if verdict.stop:
            assert sorted(verdict.refused) == list(range(len(step)))
            return
        if not seen.issuperset(step):
            ran.clear()
        seen.update(step)
        for place, name in enumerate(step):
            if place not in verdict.refused:
                ran[name] = ran.get(name, 0) + 1
        assert all(count <= repeats for count in ran.values())


@given(st.lists(st.sampled_from("ab"), min_size=1, max_size=3), limits)
def test_a_circle_ends(circle: list[str], repeats: int):
    guard = LoopGuard(max_repeats=repeats, max_iterations=1_000)
    found = verdicts(guard, [[name] for name in circle] * (repeats + 3))
    assert any(verdict.stop == "repeats" for verdict in found)


@given(st.lists(st.text(max_size=5), unique=True, max_size=40), limits)
def test_new_calls_are_never_refused(names: list[str], repeats: int):
    assert all(
        verdict == GO for verdict in verdicts(LoopGuard(max_repeats=repeats), [[name] for name in names])
    )


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=4),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), json_values, max_size=4), st.randoms())
def test_order_and_blanks_make_no_difference(value: dict, dice: random.Random):
    keys = list(value)
    dice.shuffle(keys)
    other = json.dumps({key: value[key] for key in keys}, ensure_ascii=False, indent=2)
    assert canonical(call("f", json.dumps(value))) == canonical(call("f", other))
