"""Recovery: a pure function of the view. What a crash left open is closed once, and each call is told what is known."""

from hypothesis import given
from hypothesis import strategies as st

import backstory
from backstory.formats import wire_format
from backstory.formats.synthetic import SYNTHETIC_TEXTS
from backstory.messages import ToolCall, assistant, texts, tool, user
from backstory.records import NewRecord, new_message, stamp
from backstory.sessions.recovery import INTERRUPTED, close_calls, end_turn, open_calls
from backstory.sessions.view import fold

A, B, C = (ToolCall(id=name, name=f"tool_{name}") for name in "abc")


def log(records):
    return stamp(records, seq=1, at="2025-01-01T00:00:00.000Z")


def opened(*records):
    return [NewRecord(kind="turn_started", turn=1), new_message(user("go"), turn=1), *records]


def started(message, call):
    return NewRecord(kind="call_started", data={"message": message, "call": call}, turn=1)


def synthetics(records):
    found = []
    for record in fold(log(records)).messages:
        found += [(r.call_id, r.synthetic) for r in record.message.results if r.synthetic]
    return found


def test_finished_results_are_kept_and_the_others_told_apart():
    records = opened(
        new_message(assistant("", A, B, C), turn=1),
        started(3, 0),
        started(3, 1),
        new_message(tool("a", "real"), turn=1),
    )
    view = fold(log(records))
    assert [(place, call.id) for place, call in open_calls(view)] == [((3, 1), "b"), ((3, 2), "c")]
    closed = [*records, *close_calls(view)]
    assert synthetics(closed) == [("b", "outcome_unknown"), ("c", "not_started")]
    told = [texts(r.message.results[0].content) for r in fold(log(closed)).messages if r.message.results]
    assert told == ["real", SYNTHETIC_TEXTS["outcome_unknown"], SYNTHETIC_TEXTS["not_started"]]


def test_earlier_steps_of_the_turn_keep_their_results_and_a_reused_id_is_another_call():
    records = opened(
        new_message(assistant("", A), turn=1),
        started(3, 0),
        new_message(tool("a", "first"), turn=1),
        new_message(assistant("", A), turn=1),
    )
    view = fold(log(records))
    assert [place for place, _ in open_calls(view)] == [(6, 0)]
    assert synthetics([*records, *close_calls(view)]) == [("a", "not_started")]


def test_a_turn_that_ends_without_an_answer_gets_a_mark_and_its_draft():
    view = fold(log(opened()))
    *_, mark, ended = end_turn(view, "interrupted")
    assert mark.data["message"]["parts"][0]["text"] == INTERRUPTED
    assert ended.data == {"reason": "interrupted"}
    mark, ended = end_turn(view, "stopped", draft="It is forty")
    assert mark.data["message"]["parts"][0]["text"] == f"It is forty\n\n{INTERRUPTED}"
    assert mark.data["mark"] == "stopped"


def test_nothing_is_open_where_no_turn_is():
    for records in (
        [],
        [*opened(new_message(assistant("hi"), turn=1)), NewRecord(kind="turn_ended", turn=1)],
    ):
        view = fold(log(records))
        assert open_calls(view) == []
        assert close_calls(view) == []
        assert end_turn(view, "interrupted") == []


@st.composite
def crashed(draw):
    """A turn that stopped anywhere."""
    records = opened()
    for _ in range(draw(st.integers(0, 3))):
        chosen = draw(st.lists(st.sampled_from([A, B, C]), min_size=1, max_size=3, unique=True))
        place = len(records) + 1
        records.append(new_message(assistant("", *chosen), turn=1))
        for number, call in enumerate(chosen):
            records.append(started(place, number))
            records.append(new_message(tool(call.id, "real"), turn=1))
    return records[: draw(st.integers(2, len(records)))]


@given(crashed(), st.data())
def test_recovery_is_idempotent_also_when_it_crashes_itself(records, data):
    """Cut the recovery's own records anywhere and recover again: the same log in the end, one result for each call."""
    for recover in (close_calls, lambda view: end_turn(view, "interrupted")):
        whole = [*records, *recover(fold(log(records)))]
        cut = data.draw(st.integers(len(records), len(whole)))
        again = [*whole[:cut], *recover(fold(log(whole[:cut])))]
        assert [(r.kind, r.data) for r in again] == [(r.kind, r.data) for r in whole]
        view = fold(log(again))
        assert open_calls(view) == []
        assert recover(view) == []
        results = [r for record in view.messages for r in record.message.results]
        assert len(results) == sum(len(record.message.calls) for record in view.messages)


@given(crashed())
def test_what_was_recovered_is_legal(records):
    whole = [*records, *end_turn(fold(log(records)), "interrupted"), new_message(user("next"), turn=2)]
    items = [
        item
        for record in fold(log(whole)).messages
        for item in wire_format("openai_chat")
        .write([record.message], backstory.Target.of("openai_chat"))
        .items
    ]
    assert backstory.check(items, target="openai_chat") == []
