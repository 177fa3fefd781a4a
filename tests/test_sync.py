"""The synchronous face: the same sessions and turns, from code without `async`."""

import asyncio
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import backstory
from backstory.agent.runner import ToolFinished, TurnEnded
from backstory.errors import BudgetExceeded, ConfigurationError, SessionError
from backstory.models import Play, ScriptedModel, TextDelta, calls

KEY = "cli:direct"


@backstory.tool
def look(place: str) -> str:
    """What there is to see."""
    return f"rain in {place}"


def opened(*steps: Any, **settings: Any) -> backstory.SyncBackstory:
    return backstory.open_sync("memory:", model=ScriptedModel(list(steps)), **settings)


def test_say_stream_and_a_turn_of_ones_own(tmp_path: Path):
    with backstory.open_sync(tmp_path, model=ScriptedModel(["Hello.", "Ada, it is."])) as bs:
        assert str(bs.say(KEY, "I am Ada.")) == "Hello."
        events = list(bs.stream(KEY, "Who am I?"))
        assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Ada, it is."
        assert isinstance(events[-1], TurnEnded)
        with bs.turn(KEY, "Look around", tools=[look]) as turn:
            assert "I am Ada." in str(turn.request().body)
            turn.record(
                {"role": "assistant", "content": None, "tool_calls": [
                    {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}
            )  # fmt: skip
            (call,) = turn.open_calls
            turn.start(call)
            turn.result(call, "rain")
            turn.request()
            turn.record("It rains.")
            assert (turn.done, turn.text, turn.number, turn.reason) == (True, "It rains.", 3, "done")
            assert turn.answer is not None
            assert len(turn.steps) == 1
            assert turn.usage.output >= 0
            assert turn.recovered == ()
        assert "turns        3" in bs.command(KEY, "/status").text
        assert not bs.stop(KEY)
    with backstory.open_sync(tmp_path, model=ScriptedModel(["Still here."])) as bs:
        assert bs.say(KEY, "Again").turn == 4


def test_tools_run_and_their_events_are_seen():
    with opened(calls(("look", {"place": "Rome"})), "Rain.", tools=[look]) as bs:
        events = list(bs.stream(KEY, "How is Rome?"))
        assert [event.call.name for event in events if isinstance(event, ToolFinished)] == ["look"]


def test_errors_come_through():
    with opened("x" * 10, budget=1_000) as bs:
        with pytest.raises(BudgetExceeded):
            bs.say(KEY, "word " * 2_000)
        with pytest.raises(SessionError):
            bs.resume(KEY)
        with pytest.raises(ZeroDivisionError), bs.turn(KEY, "Hi"):
            _ = 1 / 0
        assert "interrupted" not in bs.command(KEY, "/status").text


def test_leaving_a_stream_early_ends_the_turn():
    with opened(Play(step="A long answer, piece by piece.", between=0.01), "Yes.") as bs:
        stream = bs.stream(KEY, "Tell me")
        next(stream)
        stream.close()  # type: ignore[attr-defined]
        assert bs.say(KEY, "Still there?").text == "Yes."


def test_a_turn_that_is_left_open_is_interrupted():
    with opened("Yes.") as bs:
        with bs.turn(KEY, "Hi") as turn:
            turn.request()
        assert turn.reason == "interrupted"
        assert bs.say(KEY, "Again").text == "Yes."


def test_stop_from_another_thread():
    with opened(Play(step="Slowly, slowly.", between=0.2)) as bs:
        stopper = threading.Timer(0.1, lambda: bs.stop(KEY))
        stopper.start()
        assert bs.say(KEY, "Go on").reason == "stopped"
        stopper.join()


def test_many_threads_share_one_face():
    with opened(*["Yes."] * 8) as bs:
        threads = [threading.Thread(target=bs.say, args=(KEY, f"number {n}")) for n in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert "turns        8" in bs.command(KEY, "/status").text


def test_late_results_are_taken():
    with opened("Hello.") as bs:
        bs.say(KEY, "Hi")
        bs.late_result(KEY, "call_1", "it rains", name="look")


def test_it_is_closed_once_and_for_all():
    bs = opened("Hello.")
    bs.close()
    bs.close()
    with pytest.raises(ConfigurationError, match="closed"):
        bs.say(KEY, "Hi")
    assert not any(thread.name == "backstory-sync" for thread in threading.enumerate())


def test_closing_ends_what_is_under_way():
    bs = opened(Play(step="Never said.", between=5.0))
    raised: list[BaseException] = []

    def talk() -> None:
        try:
            bs.say(KEY, "Hi")
        except BaseException as error:
            raised.append(error)

    thread = threading.Thread(target=talk)
    thread.start()
    time.sleep(0.2)
    bs.close()
    thread.join(60)
    assert not thread.is_alive()
    assert raised


def test_calling_it_from_its_own_loop_is_an_error_and_no_deadlock():
    with opened("Hello.") as bs:

        async def wrong() -> None:
            await asyncio.sleep(0)
            bs.say(KEY, "Hi")

        with pytest.raises(ConfigurationError, match="await"):
            bs.run(wrong())


async def test_it_may_be_used_where_a_loop_runs():
    def talk() -> str:
        with opened("Hello.") as bs:
            return bs.say(KEY, "Hi").text

    assert await asyncio.to_thread(talk) == "Hello."
