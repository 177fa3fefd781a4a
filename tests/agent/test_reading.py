"""`read_result` is declared from when there is something to read, and from then on for good."""

import asyncio
import contextlib
import json

from hypothesis import example, given, settings
from hypothesis import strategies as st

import backstory
from backstory.agent.explain import explain
from backstory.agent.reading import WHY, is_declared, long_results, shows_handles
from backstory.errors import SessionError
from backstory.messages import Message, Text, ToolResult, user
from backstory.models.scripted import ScriptedModel, calls
from backstory.sessions import operations
from backstory.sessions.transfer import import_messages
from backstory.stores import InMemoryStore, SessionId
from backstory.tokens import Counter
from tests.agent.turns import look, opened, play, records, scripted
from tests.sessions.support import Dying, Killed, S, check_log, check_prefix, expire, killed, legal


@backstory.tool(max_result=1_000)
async def story() -> str:
    """A long story."""
    return "".join(f"line {n}\n" for n in range(2_000))


@backstory.tool
async def glance() -> str:
    """A short story."""
    return "all quiet"


def declared(body):
    return is_declared(body.get("tools", []))


def shown(body):
    return any(
        "read_result(handle=" in str(i.get("content")) for i in body["messages"] if i["role"] == "tool"
    )


async def whys(bs, key="s"):
    return [record.data["why"] for record in await records(bs, key) if record.kind == "epoch"]


async def test_a_session_that_has_nothing_to_read_never_pays_for_it():
    bs = opened(calls("glance"), "one", "two", tools=[glance])
    await bs.say("s", "look")
    await bs.say("s", "again")
    assert not any(map(declared, scripted(bs).requests))
    assert await whys(bs) == ["first request"]


async def test_a_long_result_opens_one_epoch_and_the_tool_stays():
    bs = opened(calls("glance"), calls("story"), "one", calls("story"), "two", tools=[glance, story])
    await bs.say("s", "tell me")
    await bs.say("s", "another")
    bodies = scripted(bs).requests
    assert list(map(declared, bodies)) == [False, False, True, True, True]
    assert await whys(bs) == ["first request", WHY]
    check_prefix(await records(bs), bodies)
    for number in (1, 3):  # before and after: both requests are made again from the log, to the byte
        told = await explain(bs.store, S, number)
        assert told.proven
        assert declared(told.body) == (number == 3)


async def test_a_process_that_has_seen_a_tool_tell_long_stories_declares_it_from_the_first_request():
    bs = opened(calls("story"), "one", calls("story"), "two", "three", tools=[glance, story])
    await bs.say("s", "tell me")
    await bs.say("t", "tell me, too")
    assert await whys(bs, "t") == ["first request"]
    assert declared(scripted(bs).requests[2])
    await bs.say("u", "hello", tools=[])
    assert declared(scripted(bs).requests[4]), "the tools of `open` are its own, too"


async def test_after_a_restart_it_is_declared_where_it_was_and_nowhere_else():
    store = InMemoryStore()
    await opened(calls("story"), "one", store=store, tools=[story]).say("s", "tell me")
    await opened("one", store=store, tools=[story]).say("t", "hello")
    again = opened("two", "three", store=store, tools=[story])
    await again.say("s", "and then?")
    await again.say("t", "and then?")
    assert list(map(declared, scripted(again).requests)) == [True, False]
    assert len(await whys(again)) == 2
    assert len(await whys(again, "t")) == 1


async def test_a_turn_that_a_crash_left_open_after_a_long_result_goes_on_with_it():
    store = InMemoryStore()
    dying = Dying(store)
    assert not await killed(opened("hello", store=store, tools=[story]).say("s", "hello"))

    def answer(body):
        if body["messages"][-1]["role"] == "tool":
            dying.dead = True
            raise Killed
        return calls("story")

    assert await killed(opened(play(answer, answer), store=dying, tools=[story]).say("s", "tell me"))
    await expire(store)
    other = opened("done", store=store, tools=[story])
    assert (await other.resume("s")).text == "done"
    assert declared(scripted(other).requests[0])
    assert await whys(other) == ["first request", WHY], "what the dead process had sent was not answered"


async def test_a_fork_and_an_import_that_hold_previews_declare_it_at_once():
    store = InMemoryStore()
    bs = opened(calls("story"), "one", "two", store=store, tools=[story])
    await bs.say("s", "tell me")
    async with bs.sessions.hold(S) as session:
        await operations.fork(session, SessionId(key="fork"))
    await bs.say("fork", "and then?")
    other = opened("three", store=store, tools=[story])
    history = [record.message for record in await records(bs) if record.kind == "message"]
    await import_messages(
        store,
        SessionId(key="imported"),
        history,
        source="elsewhere",
        counter=Counter(name="o200k_base"),
        format="openai_chat",
    )
    await other.say("imported", "and then?")
    assert declared(scripted(bs).requests[-1])
    assert await whys(bs, "fork") == ["first request"]
    assert declared(scripted(other).requests[-1])
    check_log(await records(other, "imported"))


async def test_tools_that_come_back_find_what_they_left():
    store = InMemoryStore()
    await opened(calls("story"), "one", store=store, tools=[story]).say("s", "tell me")
    await opened("two", store=store, tools=()).say("s", "without")
    back = opened("three", store=store, tools=[story])
    await back.say("s", "and with it")
    assert declared(scripted(back).requests[0])


async def test_an_application_s_own_tool_of_that_name_is_left_alone():
    @backstory.tool
    async def read_result(handle: str) -> str:
        """My own."""
        return handle

    bs = opened(calls("story"), "one", tools=[story, read_result])
    await bs.say("s", "tell me")
    assert all(map(declared, scripted(bs).requests))
    assert await whys(bs) == ["first request"]


async def test_what_is_condensed_later_can_be_read_from_then_on():
    @backstory.tool
    async def page(n: int) -> str:
        """A page: long, and not so long that it would be kept aside."""
        return json.dumps({"page": n, "text": "word " * 1_200})

    script = [
        reply for turn in range(5) for reply in (*(calls(("page", {"n": turn})) for _ in range(4)), "x")
    ]
    bs = opened(*script, tools=[page], budget=12_000)
    for turn in range(5):
        await bs.say("s", f"read on, {turn}")
    bodies = scripted(bs).requests
    firsts = [n for n, body in enumerate(bodies) if shown(body)]
    assert firsts
    assert list(map(declared, bodies)) == [n >= firsts[0] for n in range(len(bodies))]
    assert sum(why == WHY for why in await whys(bs)) == 1
    check_prefix(await records(bs), bodies)
    legal(scripted(bs))


STEPS = st.lists(st.sampled_from(("talk", "glance", "story", "undo", "restart", "fork", "bare")), max_size=9)


@settings(max_examples=40, deadline=None)
@given(STEPS)
@example(["story", "undo", "talk", "restart", "story"])
@example(["story", "bare", "undo", "talk", "fork", "talk"])
def test_whatever_happens_a_preview_is_never_shown_without_the_tool_and_never_declared_twice(steps):
    """And nothing declares it but what was shown."""

    def answer(body):
        last = body["messages"][-1]
        asked = last["content"] if last["role"] == "user" else ""
        return calls(asked) if asked in ("glance", "story") else "fine"

    async def life():
        store = InMemoryStore()
        key, seen = "s", False
        bs = opened(ScriptedModel(answer, name="m"), store=store, tools=[glance, story])
        for step in steps:
            if step == "restart":
                bs = opened(ScriptedModel(answer, name="m"), store=store, tools=[glance, story])
            elif step == "fork" and (await store.head(SessionId(key=key))).seq:
                async with bs.sessions.hold(SessionId(key=key)) as session:
                    await operations.fork(session, SessionId(key=key + "f"))
                key += "f"
            elif step == "undo":
                with contextlib.suppress(SessionError):  # nothing that could be undone is left
                    await bs.command(key, "/undo")
            elif step == "bare":
                await opened(ScriptedModel(answer, name="m"), store=store, tools=()).say(key, "bare")
            elif step != "fork":
                before = len(scripted(bs).requests)
                await bs.say(key, step)
                for body in scripted(bs).requests[before:]:
                    seen = seen or shown(body)
                    assert declared(body) or not shown(body)
                    assert seen or not declared(body)
            assert (await whys(bs, key)).count(WHY) <= 1 + steps.count("bare")
        legal(scripted(bs))

    asyncio.run(life())


def test_what_counts_as_something_to_read():
    def told(text):
        message = Message(role="tool", parts=(ToolResult(call_id="c", name="t", content=(Text(text=text),)),))
        return type("Logged", (), {"message": message})()

    assert long_results([told('… Read on with read_result(handle="ab", offset=3).]')]) == {"t"}
    assert long_results([told("read_result is a tool"), told("")]) == set()
    said = type("Logged", (), {"message": user('read_result(handle="ab")')})()
    assert long_results([said]) == set(), "words of the user's are no preview"
    assert shows_handles({"condensed": {"1.0": [400, 900, True]}})
    assert not shows_handles({"condensed": {"1.0": [400, 900, False], "2.0": [400, 900]}})
    assert not shows_handles({})


def test_it_is_found_in_every_format():
    from backstory.agent.toolbox import read_result

    tool = read_result(lambda handle, context: handle)
    for target in ("openai_chat", "openai_responses", "anthropic", "gemini"):
        assert is_declared([tool.schema(target)])
        assert not is_declared([look.schema(target)])
    assert play("x").name == "m"
