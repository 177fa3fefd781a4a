"""The failures that users of other systems reported, as far as they concern sessions and turns.

Reads ``../shared/cases/cases.jsonl`` and skips where that is not at hand. What a store alone can get wrong is in
`tests.stores.test_shared_cases`, what pure functions can in `tests.test_cases`.
"""

import asyncio
import json
import os
import subprocess
import sys
import time

import pytest

import backstory
from backstory.agent.tool_context import ToolContext
from backstory.errors import SessionError, StoreUnavailable
from backstory.formats.synthetic import NOT_STARTED_TEXT, OUTCOME_UNKNOWN_TEXT, synthetic_text
from backstory.messages import ToolCall, assistant
from backstory.models.scripted import ScriptedModel, calls
from backstory.records import NewRecord
from backstory.sessions import forks, operations
from backstory.sessions.session import Session
from backstory.stores import FilesStore, InMemoryStore, LeaseRequest, ManualClock, SessionId
from backstory.upkeep import retention
from tests.sessions.support import S, check_log, check_prefix, expire, legal, said, view_of
from tests.stores.faults import FaultyDisk


@pytest.fixture(scope="session")
def cases(shared):
    lines = (shared / "cases" / "cases.jsonl").read_bytes().splitlines()  # a text may hold U+2028
    return {case["id"]: case["input"] for case in map(json.loads, lines)}


def op(case, name):
    return [op[name] for op in case["ops"] if name in op]


def opened(store, *script, **options):
    model = ScriptedModel(list(script), name="m")
    return backstory.open(store, model=model, runtime=False, **{"compaction": False, **options})


def words(view):
    return [text for _, text in said(view)]


async def test_cp_06_after_a_compaction_every_new_message_is_in_the_log(cases):
    (turns, listed) = op(cases["CP-06"], "sync_list")
    ((keep,),) = [list(compact.values()) for compact in op(cases["CP-06"], "compact")]
    *_, said_now, answered = listed
    count = turns["$turns"]
    bs = opened(InMemoryStore(), *["word " * 900] * count, answered["content"], budget=keep * 3_000)
    for number in range(count):
        await bs.say("s", f"turn {number}")
    await bs.command("s", "/compact")
    before = [r for r in await bs.store.read(S) if r.kind == "message"]
    assert len(before) == 2 * count
    assert len(words(await view_of(bs.store))) < len(before), "it was compacted"
    await bs.say("s", said_now["content"])
    after = [r for r in await bs.store.read(S) if r.kind == "message"]
    assert [r.message for r in after[: len(before)]] == [r.message for r in before]
    assert [r.message.text for r in after[len(before) :]] == [said_now["content"], answered["content"]]


async def test_cp_13_forks_show_all_they_inherited_after_reopening(cases, tmp_path):
    case = cases["CP-13"]
    (first, second), (third,) = op(case, "append_turns")
    (at, at2), ((_, in_fork),) = op(case, "fork_at"), op(case, "append_on")
    bs = opened(str(tmp_path), "a1", "a2", "b2", "a3")
    await bs.say("s", first)
    await bs.say("s", second)
    turns = {first: 1, second: 2, in_fork: 2}
    await operations.fork(Session(bs.store, S), SessionId(key="b"), turn=turns[at])
    await bs.say("b", in_fork)
    await bs.say("s", third)
    await operations.fork(Session(bs.store, SessionId(key="b")), SessionId(key="c"), turn=turns[at2])
    await bs.close()
    store = FilesStore(tmp_path)
    listed = {info.session.key for info in (await store.sessions("default")).sessions}
    assert listed == {"s", "b", "c"}
    assert words(await view_of(store)) == [first, "a1", second, "a2", third, "a3"]
    for key in ("b", "c"):
        assert words(await view_of(store, SessionId(key=key))) == [first, "a1", in_fork, "b2"]
    await store.delete(S)  # behind our back: what `b` refers to is gone, and nothing else is
    bs = opened(store, "goes on")
    assert (await bs.say("c", "more")).text == "goes on"
    view = await Session(store, SessionId(key="c")).refresh()
    assert [r async for r in forks.older(store, "default", forks.refers(view))] == []
    await store.close()


async def test_tp_19_a_call_that_was_running_is_not_told_as_never_executed(cases):
    case = cases["TP-19"]
    (asked,) = op(case, "append")
    (wire,) = asked["tool_calls"]
    ((_, so_far),) = op(case, "tool_partial")
    begun = asyncio.Event()

    @backstory.tool(name=wire["function"]["name"])
    async def move_files(item: str, context: ToolContext) -> str:
        """Move files."""
        context.so_far(so_far)
        begun.set()
        await asyncio.sleep(60)
        return "never"

    arguments = wire["function"]["arguments"]
    bs = opened(
        InMemoryStore(),
        calls((wire["function"]["name"], arguments), ("later", {})),
        "next",
        tools=[move_files],
    )
    task = asyncio.create_task(bs.say("s", "go"))
    await begun.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await bs.say("s", "what happened?")
    assert isinstance(bs.model, ScriptedModel)
    told = [item["content"] for item in bs.model.requests[-1]["messages"] if item["role"] == "tool"]
    assert synthetic_text("outcome_unknown", so_far) in told
    assert "may or may not have taken effect" in OUTCOME_UNKNOWN_TEXT
    log = await bs.store.read(S)
    kinds = [r.synthetic for record in log if record.kind == "message" for r in record.message.results]
    assert kinds == [None, "outcome_unknown"] or kinds == ["outcome_unknown", "not_started"]
    legal(bs.model)


@pytest.mark.parametrize("calls_made", [1, 2, 3])
async def test_st_06_a_full_disk_is_an_error_in_the_turn_and_the_session_recovers(
    cases, tmp_path, calls_made
):
    case = cases["ST-06"]
    first, *failing, last = (message["content"] for message in op(case, "append"))
    disk = FaultyDisk()
    store = FilesStore(tmp_path, disk=disk, durability="process")

    @backstory.tool
    async def look(what: int) -> str:
        """Look."""
        if what == calls_made:
            disk.fail("write", "write_at", times=10**9)
        return "seen"

    step = calls(*(("look", {"what": n}) for n in range(1, calls_made + 1)))
    bs = opened(store, "fine", step, "after", tools=[look])
    await bs.say("s", first)
    with pytest.raises(StoreUnavailable):
        await bs.say("s", failing[0])
    with pytest.raises(StoreUnavailable):
        await bs.say("s", failing[1])
    disk.fail(times=0)
    await expire(store)
    assert (await bs.say("s", last)).text == "after"
    log = await store.read(S)
    check_log(log)
    users = [r.message.text for r in log if r.kind == "message" and r.message.role == "user"]
    assert users == [first, failing[0], last]
    assert isinstance(bs.model, ScriptedModel)
    legal(bs.model)
    await store.close()


async def test_st_11_hostile_ids_are_sessions_like_any_other(cases, tmp_path):
    ids = cases["ST-11"]["ids"]
    root = tmp_path / "root"
    bs = opened(str(root), *(f"answer {n}" for n in range(2 * len(ids))))
    for number, key in enumerate(ids):
        assert (await bs.say(key, f"I am {number}")).text == f"answer {2 * number}"
        assert (await bs.say("inside", f"scope {number}", scope=key)).text == f"answer {2 * number + 1}"
    for number, key in enumerate(ids):
        assert words(await view_of(bs.store, SessionId(key=key)))[0] == f"I am {number}"
        assert words(await view_of(bs.store, SessionId(scope=key, key="inside")))[0] == f"scope {number}"
        await operations.delete(Session(bs.store, SessionId(key=key)))
        assert (await bs.store.head(SessionId(scope=key, key="inside"))).seq > 0
    assert (await bs.store.sessions("default")).sessions == ()
    assert [path.name for path in tmp_path.iterdir()] == ["root"], "nothing was written outside"
    with pytest.raises(backstory.errors.InvalidInput):
        await bs.say("", "no key")
    await bs.close()


def test_st_12_the_locale_makes_no_difference(cases, tmp_path):
    case = cases["ST-12"]
    (message,) = op(case, "append")
    script = (
        "import asyncio, sys, backstory\n"
        "from backstory.models.scripted import ScriptedModel\n"
        "async def main():\n"
        "    async with backstory.open(sys.argv[1], model=ScriptedModel(['抹茶 🍵'])) as bs:\n"
        "        await bs.say('茶:🍵', bytes.fromhex(sys.argv[2]).decode())\n"
        "asyncio.run(main())\n"
    )
    script = script.encode("ascii", "backslashreplace").decode()  # the command line is no place for them
    environment = {**os.environ, **case["env"]}
    text = message["content"].encode().hex()
    subprocess.run(
        [sys.executable, "-c", script, str(tmp_path), text], env=environment, check=True, timeout=60
    )

    async def look():
        store = FilesStore(tmp_path)
        view = await view_of(store, SessionId(key="茶:🍵"))
        await store.close()
        return words(view)

    assert asyncio.run(look()) == [message["content"], "抹茶 🍵"]


@pytest.mark.parametrize("limits", [{"max_messages": 3}, {"max_turns": 1}])
async def test_st_14_limits_of_messages_and_turns_cut_no_step(cases, limits):
    case = cases["ST-14"]
    assert case["limit_items"] == 3

    @backstory.tool
    async def lookup_stock(item: str) -> str:
        """Look up the stock."""
        return f"{item}: 3"

    step = calls(("lookup_stock", {"item": "tea"}))
    bs = opened(InMemoryStore(), step, "done", step, "done again", tools=[lookup_stock], **limits)
    await bs.say("s", "q")
    await bs.say("s", "q2")
    assert isinstance(bs.model, ScriptedModel)
    legal(bs.model)
    for body in bs.model.requests:
        roles = [item["role"] for item in body["messages"] if item["role"] != "system"]
        assert roles[0] == "user"
        assert len(roles) <= 3
    assert len([r for r in await bs.store.read(S) if r.kind == "message"]) == 8, "the log keeps all"


async def test_st_15_a_turn_that_is_aborted_keeps_its_calls_and_not_the_blocked_answer(cases):
    case = cases["ST-15"]
    asked = op(case, "append")
    blocked = next(m["content"] for m in asked if m["role"] == "assistant" and m["content"])
    bs = opened(InMemoryStore(), "fine")
    async with bs.turn("s", asked[0]["content"]) as turn:
        await turn.request()
        (wire,) = asked[1]["tool_calls"]
        call = ToolCall(id=wire["id"], name=wire["function"]["name"], arguments=wire["function"]["arguments"])
        await turn.record(assistant("", call))
        await turn.result(turn.open_calls[0], asked[2]["content"])
        await turn.request()
        await turn.end("blocked")  # what the model answered is not recorded
    await bs.say("s", asked[-1]["content"])
    assert isinstance(bs.model, ScriptedModel)
    body = bs.model.requests[-1]
    assert blocked not in str(body)
    assert asked[2]["content"] in [item["content"] for item in body["messages"]]
    legal(bs.model)


async def test_st_15_a_recorded_answer_is_retracted_and_never_replayed(cases):
    """Streamed or not: what was blocked after it was recorded stays in the log, and leaves every view."""
    case = cases["ST-15"]
    asked = op(case, "append")
    blocked = next(m["content"] for m in asked if m["role"] == "assistant" and m["content"])
    (wire,) = asked[1]["tool_calls"]

    @backstory.tool(name=wire["function"]["name"])
    def tool(item: str) -> str:
        """Look."""
        return asked[2]["content"]

    call = calls((wire["function"]["name"], wire["function"]["arguments"]))
    bs = opened(InMemoryStore(), call, blocked, "fine", tools=[tool])
    with pytest.raises(SessionError, match="no answer"):
        await bs.retract("s")
    await bs.say("s", asked[0]["content"])
    assert (await bs.retract("s", "policy")).text == blocked
    with pytest.raises(SessionError, match="no answer"):
        await bs.retract("s")
    await bs.say("s", asked[-1]["content"])
    assert isinstance(bs.model, ScriptedModel)
    body = bs.model.requests[-1]
    assert blocked not in str(body)
    assert asked[2]["content"] in [item["content"] for item in body["messages"]]
    legal(bs.model)
    log = await bs.store.read(S)
    assert blocked in [record.message.text for record in log if record.kind == "message"]
    check_log(log)


async def test_st_16_an_expired_session_is_gone_and_what_is_asked_says_so(cases):
    """By its own time of writing; reads renew nothing; a session that comes after it is a new one."""
    case = cases["ST-16"]
    (made,), (seconds,) = op(case, "create"), op(case, "advance")
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    bs = opened(store, "one", "two", "three")
    await bs.say(made["session"], "one", scope=made["user"])
    await bs.say("other", "one", scope="kept")
    keep = retention.Retention(max_age=made["ttl"], scopes={"kept": None})
    clock.advance(seconds - 2)
    assert [each async for each in retention.expire(store, keep)] == []
    clock.advance(1)
    await store.read(SessionId(scope=made["user"], key=made["session"]))
    clock.advance(1)
    named = [each async for each in retention.expire(store, keep, act=False)]
    assert [each.session.key for each in named] == [made["session"]]
    assert [each.problem async for each in retention.expire(store, keep)] == [""]
    assert await store.scopes() == ["kept"]
    with pytest.raises(SessionError):
        await bs.retract(made["session"], scope=made["user"])
    with pytest.raises(SessionError):
        await bs.resume(made["session"], scope=made["user"])
    await bs.say(made["session"], "two", scope=made["user"])
    again = await store.read(SessionId(scope=made["user"], key=made["session"]))
    assert "one" not in str([record.message.text for record in again if record.kind == "message"])


async def test_who_writes_meanwhile_keeps_a_session_from_expiring():
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    bs = opened(store, "one", "two")
    await bs.say("s", "one")
    await bs.say("held", "one")
    clock.advance(100)
    lease = await store.acquire(SessionId(key="held"), LeaseRequest(owner="somebody", ttl=1_000))

    class Written(InMemoryStore):
        async def acquire(self, session, request):
            taken = await store.acquire(session, request)
            await store.append(session, [NewRecord(kind="meta", data={})], fence=taken.fence)
            return taken

    written = Written(clock=clock)
    written.__dict__.update({k: v for k, v in store.__dict__.items() if k != "clock"})
    found = {
        e.session.key: e.problem async for e in retention.expire(written, retention.Retention(max_age=10))
    }
    assert "by now" in found["s"]
    assert "held" in found["held"]
    assert (await store.head(S)).seq
    await store.release(lease)


async def test_st_16_a_session_that_is_not_there_is_not_made_by_accident(cases):
    assert op(cases["ST-16"], "create")
    bs = opened(InMemoryStore())
    with pytest.raises(SessionError, match="no open turn"):
        await bs.resume("gone")
    for operation in (operations.undo, operations.redo, operations.delete):
        with pytest.raises(SessionError):
            await operation(Session(bs.store, SessionId(key="gone")))
    await operations.begin_anew(Session(bs.store, SessionId(key="gone")))
    assert (await bs.store.sessions("default")).sessions == ()


async def test_pc_01_volatile_data_never_changes_the_prefix(cases):
    case = cases["PC-01"]

    @backstory.tool
    async def one(n: int) -> str:
        """One."""
        return str(n)

    @backstory.tool
    async def two(n: int) -> str:
        """Two."""
        return str(n)

    @backstory.tool
    async def three(n: int) -> str:
        """Three."""
        return str(n)

    orders = [[one, two, three], [three, one, two], [two, three, one]]
    bs = backstory.open("memory:", model=ScriptedModel(["fine"] * case["turns"], name="m"))
    for number in range(case["turns"]):
        bs.runtime = {"step": f"{number}", "memory": f"{case['memories'][0]} {number}"}
        await bs.say("s", f"turn {number}", tools=orders[number % 3])
    assert isinstance(bs.model, ScriptedModel)
    check_prefix(await bs.store.read(S), bs.model.requests)
    assert {r.data["state"]["epoch"] for r in await bs.store.read(S) if r.kind == "request"} == {1}


async def test_tb_09_a_request_costs_the_window_and_not_the_log(cases):
    """The count of turns is kept small here; `benchmarks/` measures at full length."""
    case = cases["TB-09"]
    (timed,) = op(case, "time_assemble")
    spent = []
    for turns in (200, 2000):
        store = InMemoryStore()
        bs = opened(store, *["ok"] * 4, budget=timed["budget_tokens"])
        await bs.say("s", "first")
        session = bs.sessions.peek(S)[0]
        await grown(session, turns)
        await bs.say("s", "warm")
        began = time.process_time()
        await bs.say("s", "timed")
        await bs.say("s", "timed")
        spent.append(time.process_time() - began)
    assert spent[1] < 4 * spent[0] + 0.05, spent


async def grown(session, turns):
    from backstory.messages import user
    from backstory.records import NewRecord, new_message

    for number in range(2, turns):
        batch = [
            NewRecord(kind="turn_started", turn=number),
            new_message(user(f"q{number} " + "word " * 20), turn=number),
            new_message(assistant(f"a{number} " + "word " * 20), turn=number),
            NewRecord(kind="turn_ended", data={"reason": "done"}, turn=number),
        ]
        await operations.write(session, batch)


async def test_tp_10_an_open_call_of_an_earlier_turn_is_closed_and_blocks_nothing(cases):
    case = cases["TP-10"]
    (asked,) = op(case, "append")
    (wire,) = asked["tool_calls"]
    store = InMemoryStore()
    bs = opened(store, *["a"] * 30, budget=900)
    async with bs.turn("s", "look it up") as turn:
        await turn.request()
        call = ToolCall(id=wire["id"], name=wire["function"]["name"], arguments=wire["function"]["arguments"])
        await turn.record(assistant("", call), started=())
    for number in range(30):
        await bs.say("s", f"q{number} " + "word " * 30)
    log = await store.read(S)
    check_log(log)
    assert [r.synthetic for record in log if record.kind == "message" for r in record.message.results] == [
        "not_started"
    ]
    assert NOT_STARTED_TEXT in str([r.message for r in log if r.kind == "message"])
    assert any(r.kind == "cut" for r in log), "the lost call did not keep the window from being cut"
    assert isinstance(bs.model, ScriptedModel)
    legal(bs.model)
