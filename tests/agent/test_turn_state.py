"""The table of a turn's states: each can be reached, and what the log says along any run follows it."""

import asyncio

import pytest

from backstory.agent.turn import NEXT, TABLE, Facts, State, facts_of, state_of
from backstory.models.scripted import calls
from backstory.sessions.view import fold
from tests.agent.turns import look, opened, records, scripted


def test_every_state_can_be_reached_and_every_row_counts():
    assert {state for _, state in TABLE} | {State.RESTORE} == set(State)
    reached = {State.DONE}
    while more := {after for state in reached for after in NEXT[state]} - reached:
        reached |= more
    assert reached == set(State)
    assert set(NEXT) == set(State)
    for row, state in TABLE:
        assert state_of(row) is state
    assert len({row for row, _ in TABLE}) == len(TABLE)


def test_an_open_turn_that_nobody_holds_is_restored_whatever_it_says_last():
    for last in ("none", "user", "results", "calls", "answer"):
        assert state_of(Facts(open=True, held=False, last=last)) is State.RESTORE


async def runs():
    """Logs of turns of every kind."""
    found = []
    bs = opened("hi", calls(("look", {"what": 1}), ("peek", {"what": 2})), "done", ValueError, "again")
    await bs.say("s", "hello")
    await bs.say("s", "look")
    with pytest.raises(ValueError, match="script"):
        await bs.say("s", "fail", message_id="m")
    await bs.say("s", "fail", message_id="m")
    found.append(await records(bs))

    bs = opened(calls(("look", {"what": 1})), "never", "after")
    async with bs.turn("s", "go") as turn:
        request = await turn.request()
        await turn.record(await scripted(bs).complete(request.body))
        open_log = await records(bs)
    found += [open_log, await records(bs)]
    bs = opened("one " * 300, "two " * 300, "three", "four", budget=900, tools=())
    for text in ("alpha " * 90, "beta " * 300, "gamma " * 90):
        await bs.say("s", text)
    found.append(await records(bs))
    return found


async def test_along_recorded_runs_each_state_follows_the_one_before():
    """Record by record, held until its `turn_ended`: RESTORE → (COMPACT) → BUILD → RUN … → SAVE → RESPOND → DONE."""
    seen = set()
    for log in await runs():
        view = fold([])
        before = State.DONE
        held = False
        for record in log:
            if record.kind == "turn_started":
                held = True
                assert State.RESTORE in NEXT[before]
                before = State.RESTORE
                seen.add(before)
            view.apply(record)
            state = state_of(facts_of(view, held=held))
            assert state is before or state in NEXT[before], (before, state, record)
            before = state
            seen.add(state)
            if record.kind == "turn_ended":
                held = False
                state = state_of(facts_of(view, held=held))
                assert state in NEXT[before]
                before = state
                seen.add(state)
    assert seen == set(State) - {State.COMMAND}
    assert state_of(facts_of(fold([]), held=True, command=True)) is State.COMMAND


async def test_a_turn_tells_its_state():
    bs = opened()
    states = []
    async with bs.turn("s", "go") as turn:
        states.append(turn.state)
        await turn.request()
        await turn.record(
            {
                "role": "assistant",
                "tool_calls": [
                    {
                        "id": "c1",
                        "type": "function",
                        "function": {"name": "look", "arguments": '{"what": "x"}'},
                    }
                ],
            }
        )
        states.append(turn.state)
        (call,) = turn.open_calls
        await turn.result(call, "seen")
        states.append(turn.state)
        await turn.request()
        await turn.record("done")
        states.append(turn.state)
    assert states == [State.BUILD, State.RUN, State.BUILD, State.DONE]
    assert look.name == "look"
    await asyncio.sleep(0)
