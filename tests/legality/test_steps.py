"""Turns, steps, pairs and cut points of hand-made lists."""

from __future__ import annotations

import pytest

from backstory.legality.steps import Cut, Place, Step, cut_points, head_length, pair, turns
from backstory.messages import Message, ToolCall, assistant, system, tool, user


def call(call_id: str, name: str = "f") -> ToolCall:
    return ToolCall(id=call_id, name=name)


def response(*ids: str, joined: bool = False) -> Message:
    return assistant("", *(call(each) for each in ids), joined=joined)


def answered(messages: list[Message]) -> dict[int, int]:
    """Message of the call to message of its result, where each message holds one."""
    return {asked.message: given.message for asked, given in pair(messages).answer.items()}


def test_a_turn_runs_from_the_users_words_to_the_answer():
    messages = [
        system("s"),
        user("a"),
        response("1"),
        tool("1", "A"),
        assistant("A"),
        user("b"),
        assistant("B"),
    ]
    first, second = turns(messages)
    assert (first.start, first.stop, second.start, second.stop) == (1, 5, 5, 7)
    assert first.steps == (Step(2, 4), Step(4, 5))
    assert cut_points(messages) == [
        Cut(1, "turn"),
        Cut(2, "step"),
        Cut(4, "step"),
        Cut(5, "turn"),
        Cut(6, "step"),
    ]


def test_leading_system_messages_take_no_part():
    developer = Message(role="developer", parts=system("d").parts)
    messages = [system("a"), developer, user("b"), system("late")]
    assert head_length(messages) == 2
    assert cut_points(messages) == [Cut(2, "turn")]


def test_a_response_in_several_items_is_one_step():
    messages = [user("a"), assistant("thinking"), response("1", joined=True), tool("1", "A")]
    assert turns(messages)[0].steps == (Step(1, 4),)


def test_words_between_a_call_and_its_result_begin_no_turn():
    messages = [
        user("a"),
        response("1", "2"),
        user("hurry"),
        tool("1", "A"),
        user("up"),
        tool("2", "B"),
        user("next"),
    ]
    assert [turn.start for turn in turns(messages)] == [0, 6]


def test_words_that_came_with_results_steer_the_turn_under_way():
    steering = user("faster", joined=True)
    messages = [user("a"), response("1"), tool("1", "A"), steering, assistant("A")]
    assert len(turns(messages)) == 1


def test_a_late_result_holds_no_cut_up():
    """Else one call that is answered hours later would keep a session from ever being cut."""
    messages = [
        user("a"),
        response("1"),
        user("b"),
        assistant("B"),
        user("c"),
        tool("1", "late"),
        assistant("C"),
    ]
    assert Cut(2, "turn") in cut_points(messages)
    assert answered(messages) == {1: 5}
    assert pair(messages[2:]).orphans == [Place(3, 0)]


def test_a_reused_id_is_another_call():
    messages = [response("0"), tool("0", "A"), response("0"), tool("0", "B")]
    assert answered(messages) == {0: 1, 2: 3}


def test_an_id_twice_in_one_step_takes_results_in_order():
    messages = [response("0", "0"), tool("0", "A"), tool("0", "B")]
    assert pair(messages).answer == {Place(0, 0): Place(1, 0), Place(0, 1): Place(2, 0)}


def test_a_result_goes_to_the_newest_step_that_waits():
    messages = [response("0"), response("0"), tool("0", "B"), tool("0", "A")]
    assert answered(messages) == {1: 2, 0: 3}


def test_a_further_answer_and_an_orphan():
    pairs = pair([tool("9", "nobody asked"), response("1"), tool("1", "A"), tool("1", "again")])
    assert pairs.orphans == [Place(0, 0)]
    assert pairs.duplicates == {Place(3, 0): Place(1, 0)}


@pytest.mark.parametrize("real_first", [True, False])
def test_a_real_result_wins_over_a_synthetic_one(real_first: bool):
    real, stand_in = tool("1", "A"), tool("1", "…", synthetic="outcome_unknown")
    messages = [response("1"), *((real, stand_in) if real_first else (stand_in, real))]
    pairs = pair(messages)
    winner = 1 if real_first else 2
    assert answered(messages) == {0: winner}
    assert list(pairs.duplicates) == [Place(3 - winner, 0)]


def test_without_ids_the_name_stands_in():
    messages = [
        assistant("", call("", "f"), call("", "g"), call("", "f")),
        tool("", "G", name="g"), tool("", "F", name="f"), tool("", "F2", name="f"), tool("", "H", name="h"),
    ]  # fmt: skip
    pairs = pair(messages)
    assert pairs.answer == {Place(0, 1): Place(1, 0), Place(0, 0): Place(2, 0), Place(0, 2): Place(3, 0)}
    assert pairs.orphans == [Place(4, 0)]


def test_without_id_and_name_a_result_goes_to_the_step_before_it():
    messages = [response("1"), user("b"), response("2", "3"), tool("", "A"), tool("", "B"), tool("", "C")]
    pairs = pair(messages)
    assert pairs.answer == {Place(2, 0): Place(3, 0), Place(2, 1): Place(4, 0)}
    assert pairs.unanswered == [Place(0, 0)]


def test_pairing_is_linear():
    """50,000 steps that reuse one id, and results that name nothing."""
    messages: list[Message] = []
    for _ in range(25_000):
        messages += [response("0"), tool("0", "A"), response("0"), tool("", "B")]
    assert len(pair(messages).answer) == 50_000
    assert len(cut_points(messages)) == 50_000


def test_nothing_at_all():
    assert turns([]) == []
    assert cut_points([]) == []
    assert pair([]).answer == {}
