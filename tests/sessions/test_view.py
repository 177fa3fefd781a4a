"""The fold: with and without snapshots it agrees, and what is undone or cut is what the records say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.errors import StoreDamaged
from backstory.messages import ToolCall, assistant, tool, user
from backstory.records import NewRecord, new_message, stamp
from backstory.sessions.view import KNOWN_CUTS, KNOWN_MESSAGES, SNAPSHOT_EVERY, View, fold
from tests.sessions.support import coverage, whole


def log(*records):
    return stamp(list(records), seq=1, at="2025-01-01T00:00:00.000Z")


def turn(number, text="q", *, id=None, steps=0, ended="done"):
    made = [
        NewRecord(kind="turn_started", data={"id": id} if id else {}, turn=number),
        new_message(user(text), turn=number, message_id=id, digest=f"d{text}"),
    ]
    for step in range(steps):
        call = ToolCall(id=f"c{step}", name="look")
        made += [
            new_message(assistant("", call), turn=number),
            new_message(tool(f"c{step}", "seen"), turn=number),
        ]
    if ended:
        made += [
            new_message(assistant("a"), turn=number),
            NewRecord(kind="turn_ended", data={"reason": ended}, turn=number),
        ]
    return made


def texts(view):
    return [record.message.text for record in view.live() if record.message.text]


KINDS = (
    *("turn", "turn", "turn", "cut", "undo", "redo", "request", "meta", "anew"),
    *("summary", "summary", "lift", "relift", "pin", "unpin"),
)


@st.composite
def logs(draw):
    """Turns, cuts, undos, redos, requests, metadata, in any order that a session could write."""
    records: list[NewRecord] = []
    spans: list[tuple[int, int]] = []
    free: list[int] = []
    undos: list[tuple[int, list[int]]] = []
    summaries: list[int] = []
    lifts: list[int] = []
    pins: list[int] = []
    for _ in range(draw(st.integers(1, 12))):
        head = len(records)
        match draw(st.sampled_from(KINDS)):
            case "turn":
                made = turn(len(spans) + 1, f"q{head}", id=f"m{head}", steps=draw(st.integers(0, 2)))
                spans.append((head + 1, head + len(made)))
                free.append(len(spans) - 1)
                records += made
            case "cut" if spans:
                first, last = draw(st.sampled_from(spans))
                kept = [first + 1, first + 2] if last - first > 5 else None
                start = first + 4 if kept else first + 1
                records.append(NewRecord(kind="cut", data={"start": start, "kept": kept}))
            case "summary" if spans:
                first, last = draw(st.sampled_from(spans))
                kept = [first + 1, first + 2] if last - first > 5 else None
                data = {"text": f"s{head}", "start": first + 4 if kept else first + 1, "kept": kept}
                if draw(st.booleans()):
                    data["since"] = draw(st.integers(1, data["start"]))
                records.append(NewRecord(kind="summary", data=data))
                summaries.append(head + 1)
            case "pin":
                about = {"message": spans[-1][0] + 1} if spans and draw(st.booleans()) else {}
                records.append(NewRecord(kind="pin", data={"text": f"p{head}", **about}))
                pins.append(head + 1)
            case "unpin" if pins:
                records.append(NewRecord(kind="unpin", data={"pin": pins.pop()}))
            case "lift" if summaries:
                lifted = summaries.pop()
                records.append(NewRecord(kind="undo", data={"of": "summary", "lifts": lifted}))
                lifts.append(head + 1)
            case "relift" if lifts:
                records.append(NewRecord(kind="undo", data={"of": "undo", "undoes": lifts.pop()}))
            case "anew":
                records.append(NewRecord(kind="cut", data={"start": head + 2, "kept": None, "anew": True}))
            case "undo" if free:
                chosen = free[draw(st.integers(0, len(free) - 1)) :]
                free = free[: -len(chosen)]
                given = [list(spans[index]) for index in chosen]
                records.append(NewRecord(kind="undo", data={"of": "turn", "spans": given}))
                undos.append((head + 1, chosen))
            case "redo" if undos:
                seq, chosen = undos.pop()
                records.append(NewRecord(kind="undo", data={"of": "undo", "undoes": seq}))
                free = sorted([*free, *chosen])
            case "request":
                data = {"state": {"length": head + 1, "epoch": 1}, "ledger": {"total": 1, "budget": 10}}
                records += [NewRecord(kind="epoch", data={"number": 1}), NewRecord(kind="request", data=data)]
            case "meta":
                records.append(NewRecord(kind="meta", data={"title": f"t{head}"}))
                records.append(
                    NewRecord(kind="variable", data={"name": "v", "value": draw(st.none() | st.just(1))})
                )
    return records


@given(logs(), st.data())
def test_a_view_is_the_same_from_a_snapshot_on(records, data):
    """Fold all; or put a snapshot anywhere, and fold from there; or from the beginning over it: the same view."""
    cut = data.draw(st.integers(0, len(records)))
    before = fold(log(*records[:cut]))
    shifted = [_shift(record, cut) for record in records]
    snapshot = NewRecord(kind="snapshot", data=before.to_json())
    made = log(*records[:cut], snapshot, *shifted[cut:])
    folded, cold = whole(made), fold(made[cut:])
    assert cold.to_json() == folded.to_json()
    assert cold.loaded >= cut + 1
    cold.load([record for record in made if record.seq < cold.loaded])
    assert [r.seq for r in cold.live()] == [r.seq for r in folded.live()]
    assert texts(folded) == texts(whole(log(*records)))


def _shift(record, cut):
    """A record as it would be, had a snapshot come after `cut` records: places after it go up by one."""

    def moved(place):
        return place + 1 if place > cut else place

    data = dict(record.data)
    if record.kind in ("cut", "summary"):
        data["start"] = moved(data["start"])
        data |= {"since": moved(data["since"])} if "since" in data else {}
        data["kept"] = [moved(place) for place in data["kept"]] if data["kept"] else None
    for name in ("message", "pin"):
        if record.kind in ("pin", "unpin") and name in data:
            data[name] = moved(data[name])
    if record.kind == "undo":
        if "undoes" in data:
            data["undoes"] = moved(data["undoes"])
        elif "lifts" in data:
            data["lifts"] = moved(data["lifts"])
        else:
            data["spans"] = [[moved(a), moved(b)] for a, b in data["spans"]]
    if record.kind == "request":
        data["state"] = {**data["state"], "length": moved(data["state"]["length"])}
    return NewRecord(kind=record.kind, data=data, turn=record.turn)


@given(logs())
def test_every_message_is_in_the_view_or_covered_once(records):
    """Law 5."""
    made = log(*records)
    covered = coverage(made)
    assert set(covered) == {record.seq for record in made if record.kind == "message"}
    view = whole(made)
    assert [r.seq for r in view.live()] == [seq for seq, by in covered.items() if by == "view"]
    assert {seq: view.coverage(seq)[0] for seq in covered} == covered


@given(logs())
def test_a_snapshot_survives_json(records):
    view = fold(log(*records))
    (record,) = stamp([NewRecord(kind="snapshot", data=view.to_json())], seq=view.head + 1, at="x")
    again = View.from_snapshot(record)
    assert {**again.to_json(), "before": 0} == {**view.to_json(), "before": 0}


def test_an_undo_takes_the_cut_out_of_force_that_stands_for_what_it_hides():
    records = [*turn(1, "one"), *turn(2, "two"), *turn(3, "three")]
    spans = fold(log(*records)).spans
    cut = NewRecord(kind="cut", data={"start": spans[3].first + 1, "kept": None})
    undo = NewRecord(kind="undo", data={"of": "turn", "spans": [[spans[3].first, spans[3].last]]})
    view = fold(log(*records, cut))
    assert texts(view) == ["three", "a"]
    view = fold(log(*records, cut, undo))
    assert view.start == 1
    redo = NewRecord(kind="undo", data={"of": "undo", "undoes": len(records) + 2})
    view = fold(log(*records, cut, undo, redo))
    assert view.cut.start == spans[3].first + 1, "redone, the cut is in force again"


def test_what_was_begun_anew_stays_so_whatever_is_undone():
    records = turn(1, "one")
    anew = NewRecord(kind="cut", data={"start": len(records) + 2, "kept": None, "anew": True})
    records = [*records, anew, *turn(2, "two")]
    span = fold(log(*records)).spans[2]
    view = fold(
        log(*records, NewRecord(kind="undo", data={"of": "turn", "spans": [[span.first, span.last]]}))
    )
    assert texts(view) == []


def test_a_user_message_that_is_kept_before_a_cut_is_in_the_view():
    records = turn(1, "the question", steps=4)
    cut = NewRecord(kind="cut", data={"start": 7, "kept": [2, 3]})
    view = fold(log(*records, cut))
    assert [record.seq for record in view.live()] == [2, 7, 8, 9, 10, 11]


def test_only_so_many_ids_and_cuts_are_remembered_and_the_last_cut_is_the_floor():
    records = []
    for number in range(1, KNOWN_MESSAGES + 40):
        records += turn(number, f"q{number}", id=f"m{number}")
        records.append(NewRecord(kind="cut", data={"start": len(records) - 2, "kept": None}))
    view = fold(log(*records))
    assert len(view.known) == KNOWN_MESSAGES
    assert len(view.spans) == KNOWN_MESSAGES
    assert len(view.cuts) == KNOWN_CUTS
    everything = [[span.first, span.last] for span in view.spans.values()]
    view = fold(log(*records, NewRecord(kind="undo", data={"of": "turn", "spans": everything})))
    assert view.cut == view.cuts[0], "what is before the oldest known cut is not brought back by accident"


def test_a_snapshot_is_due_after_a_cut_and_every_so_often():
    view = fold(log(*turn(1)))
    assert not view.snapshot_due
    view = fold(log(*turn(1), NewRecord(kind="cut", data={"start": 2, "kept": None})))
    assert view.snapshot_due
    many = [NewRecord(kind="meta", data={"n": n}) for n in range(SNAPSHOT_EVERY)]
    view = fold(log(*many))
    assert view.snapshot_due


def test_records_out_of_order_and_damaged_snapshots_are_refused():
    records = log(*turn(1))
    view = fold(records)
    with pytest.raises(StoreDamaged, match="comes after"):
        view.apply(records[0])
    (damaged,) = stamp([NewRecord(kind="snapshot", data={"cuts": 3})], seq=1, at="x")
    with pytest.raises(StoreDamaged, match="snapshot"):
        View.from_snapshot(damaged)
