"""Idle compaction: after its time, by whom it is to be done, and never against a user who comes back."""

import asyncio

import pytest

import backstory
from backstory.errors import ConfigurationError
from backstory.models.scripted import Play, ScriptedModel
from backstory.stores import InMemoryStore, LeaseRequest, ManualClock, SessionId
from backstory.upkeep import idle
from backstory.upkeep.summarise import Compaction
from tests.agent.test_compaction import GOOD, fill, kinds, opened, settled, teller
from tests.sessions.support import S, check_log, legal, records_of


def clocked():
    clock = ManualClock()
    return clock, InMemoryStore(clock=clock)


async def summaries(bs):
    return [record.data["why"] for record in await kinds(bs, "summary")]


async def test_after_its_time_a_session_is_compacted_and_the_user_answered_from_it():
    clock, store = clocked()
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser, store=store)
    await fill(bs, 0.6)
    assert await summaries(bs) == []
    clock.advance(899)
    assert await bs.idle.look() == []
    clock.advance(2)
    assert await bs.idle.look() == [S]
    assert await summaries(bs) == ["prepared, idle"]
    assert await bs.idle.look() == [], "once is enough"
    await bs.say("s", "and how many now?")
    body = bs.model.requests[-1]
    assert "counts boxes in the harbour" in str(body["messages"][0])
    legal(bs.model)
    check_log(await records_of(store))
    await bs.close()


async def test_the_timer_looks_by_itself_and_ends_with_the_process():
    clock, store = clocked()
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), store=store)
    await fill(bs, 0.6)
    for _ in range(20):
        clock.advance(idle.EVERY)
        for _ in range(200):
            await asyncio.sleep(0)
        await settled(bs)
    for _ in range(400):
        await asyncio.sleep(0)
    assert await summaries(bs) == ["prepared, idle"]
    await bs.close()
    assert bs.idle._timer.done()


async def test_of_two_processes_the_one_that_ran_the_last_turn_does_it_and_the_other_only_when_it_is_gone():
    clock, store = clocked()
    asked: list[str] = []

    def by(name):
        def told(body):
            asked.append(name)
            return GOOD

        return ScriptedModel(told, name=name)

    a, b = opened(by("a"), store=store), opened(by("b"), store=store)
    await fill(a, 0.6)
    await b.say("other", "hi")
    clock.advance(901)
    assert await b.idle.look() == []
    assert await a.idle.look() == [S]
    assert await b.idle.look() == []
    assert asked == ["a"]
    await fill(a, 0.6)
    await a.idle.close()
    clock.advance(901)
    assert await b.idle.look() == [], "a may still do it"
    clock.advance(2 * 900)
    assert await b.idle.look() == [S], "it did not"
    assert await a.idle.look() == [], "nothing was said since"
    assert asked == ["a", "b"]


async def test_a_user_who_comes_back_waits_for_nothing():
    clock, store = clocked()
    gate, entered = asyncio.Event(), asyncio.Event()

    async def slowly(body):
        entered.set()
        await gate.wait()
        return GOOD

    bs = opened(ScriptedModel(slowly, name="slow"), store=store)
    await fill(bs, 0.6)
    clock.advance(901)
    looking = asyncio.create_task(bs.idle.look())
    await entered.wait()
    assert (await bs.say("s", "I am back")).text == "Noted."
    gate.set()
    assert await looking == []
    assert await summaries(bs) == [], "what is prepared waits for its time"
    assert S in bs.compactor._prepared


@pytest.mark.parametrize(
    "how", ["a turn here", "a turn elsewhere", "left open", "nothing to gain", "given up", "off"]
)
async def test_who_is_left_alone(how):
    clock, store = clocked()
    settings = {"idle_after": None} if how == "off" else {}
    model = (
        teller()
        if how != "a turn here"
        else ScriptedModel(lambda body: Play(step="x", stall=True), name="main")
    )
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), store=store, **settings)
    if how == "nothing to gain":
        await bs.say("s", "hi")
    else:
        await fill(bs, 0.6)
    clock.advance(901 if how != "given up" else idle.GIVEN_UP + 1)
    lease = None
    if how in ("a turn elsewhere", "left open"):
        lease = await store.acquire(S, LeaseRequest(owner="somebody", ttl=10_000))
    if how == "a turn here":
        async with bs.sessions.hold(S):
            assert await bs.idle.look() == []
    else:
        assert await bs.idle.look() == []
    assert await summaries(bs) == []
    assert model is not None
    if lease is not None:
        await store.release(lease)


async def test_a_look_takes_so_many_and_the_next_one_the_rest(monkeypatch):
    monkeypatch.setattr(idle, "A_LOOK", 2)
    clock, store = clocked()
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), store=store)
    for key in ("a", "b", "c"):
        for number in range(12):
            await bs.say(key, f"number {number}: " + "they stand in a row " * 12)
        await settled(bs)
    clock.advance(901)
    first = await bs.idle.look()
    second = await bs.idle.look()
    assert len(first) <= 2
    assert {place.key for place in (*first, *second)} == {"a", "b", "c"}
    assert all(place.scope == "default" for place in first)


async def test_without_a_model_it_is_extracted():
    clock, store = clocked()
    bs = opened(None, store=store, compaction=Compaction(extract=True))
    await fill(bs, 0.6)
    clock.advance(901)
    assert await bs.idle.look() == [SessionId(key="s")]
    (record,) = await kinds(bs, "summary")
    assert record.data["summary"]["by"] == "extract" or record.data.get("by") == "extract"


async def test_one_that_cannot_be_compacted_does_not_stop_the_others(monkeypatch, caplog):
    clock, store = clocked()
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), store=store)
    for key in ("a", "b"):
        for number in range(12):
            await bs.say(key, f"number {number}: " + "they stand in a row " * 12)
        await settled(bs)
    clock.advance(901)
    frame = bs.idle._frame

    async def failing(session):
        if session.id.key == "a":
            raise RuntimeError("somebody's own section fails")
        return await frame(session)

    monkeypatch.setattr(bs.idle, "_frame", failing)
    assert [place.key for place in await bs.idle.look()] == ["b"]
    assert "'a' was not compacted" in caplog.text
    assert await bs.idle.look() == [], "and it is not tried again and again"


async def test_not_before_the_cache_is_cold_too():
    clock, store = clocked()
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), store=store, cache_ttl=3_600)
    await fill(bs, 0.6)
    clock.advance(3_599)
    assert await bs.idle.look() == []
    clock.advance(2)
    assert await bs.idle.look() == [S]


def test_times_are_above_zero():
    with pytest.raises(ConfigurationError, match="idle_after"):
        Compaction(idle_after=0)
    assert backstory.Compaction(idle_after=None).idle_after is None
