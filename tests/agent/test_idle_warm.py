"""A summary prepared shortly before the provider forgets a silent session's prefix: where it pays, and only there."""

import asyncio
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import backstory
from backstory.agent.compacting import sent_again
from backstory.compaction.policy import Policy, Rates
from backstory.context.prefix import without_markers
from backstory.errors import ConfigurationError
from backstory.formats import wire_format
from backstory.models.scripted import ScriptedModel, calls
from backstory.stores import InMemoryStore, LeaseRequest, ManualClock, SessionId
from backstory.upkeep.summarise import Compaction
from tests.agent.test_compaction import GOOD, kinds, long, settled
from tests.sessions.support import S, check_log, check_prefix, legal, records_of, view_of

BUDGET = 8_000
PAYS = Policy(target=0.3)
"""With which a session of two thirds of the budget has enough to leave out."""


@backstory.tool
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


async def fill(bs, upto, key="s"):
    """Turns until the last request has passed a share of the budget."""
    number, total = 0, 0
    while total < upto * BUDGET:
        await bs.say(key, long(number, 240))
        await settled(bs)
        total = (await view_of(bs.store, SessionId(key=key))).request["ledger"]["total"]
        number += 1


def extends(body, before, target="openai_chat"):
    """Whether one begins with the items of the other, and has the same system and tools; markers are not counted."""
    items = wire_format(target).ITEMS
    body, before = without_markers(body), without_markers(before)
    count = len(before[items])
    return body == {**before, items: body[items]} and without_markers(
        {"content": body[items][:count]}
    ) == without_markers({"content": before[items]})


def reply(body):
    text = str(body)
    if "no part of the conversation" in text or "You keep the memory" in text:
        return GOOD
    return "Noted."


def opened(clock, *, model=None, store=None, tools=(), target="openai_chat", **compaction):
    return backstory.open(
        store or InMemoryStore(clock=clock),
        model=model or ScriptedModel(reply, name="main", target=target, window=12_000),
        budget=BUDGET,
        runtime=False,
        tools=list(tools),
        compaction=Compaction(**{"policy": PAYS, **compaction}),
    )


async def whys(bs):
    return [record.data["why"] for record in await kinds(bs, "summary")]


def asked_of(bs):
    """The requests for a summary that its model got."""
    return [body for body in bs.model.requests if "no part of the conversation" in str(body)]


def talked(bs):
    return [
        body
        for body in bs.model.requests
        if body not in asked_of(bs) and "You keep the memory" not in str(body)
    ]


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic", "gemini"])
async def test_it_is_asked_for_in_the_conversation_that_is_still_cached_and_serves_who_comes_back(target):
    clock = ManualClock()
    bs = opened(clock, target=target, rates=Rates(calls=3))  # its model refuses what a real one would
    await fill(bs, 0.64)
    before = bs.model.requests[-1]
    clock.advance(239)
    assert await bs.idle.keep_up() == []
    clock.advance(2)
    assert await bs.idle.keep_up() == [S]
    await settled(bs)
    (body,) = asked_of(bs)
    items = wire_format(bs.model.target.format).ITEMS
    assert extends(body, before, target)
    assert len(body[items]) == len(before[items]) + 2, "the answer, and what is asked"
    assert await bs.idle.keep_up() == [], "once is enough"
    assert await whys(bs) == [], "nothing is in the log before it is in force"
    clock.advance(600)
    await bs.say("s", "I am back")
    assert await whys(bs) == ["prepared, cold cache"]
    (record,) = await kinds(bs, "summary")
    assert record.data["usage"]["cached"] > 0.7 * record.data["usage"]["input"]
    assert "counts boxes in the harbour" in str(bs.model.requests[-1])
    check_log(await records_of(bs.store))
    await bs.close()


async def test_of_who_never_comes_back_it_is_put_into_force_when_the_cache_is_cold():
    clock = ManualClock()
    bs = opened(clock)
    await fill(bs, 0.68)
    clock.advance(241)
    await bs.idle.keep_up()
    await settled(bs)
    clock.advance(660)
    assert await bs.idle.look() == [S]
    assert await whys(bs) == ["prepared, idle"]
    assert len(asked_of(bs)) == 1
    await bs.close()


async def test_where_it_would_cost_more_than_it_saves_it_is_left_until_somebody_speaks():
    clock = ManualClock()
    bs = opened(clock, policy=Policy())
    await fill(bs, 0.6)
    clock.advance(241)
    assert await bs.idle.keep_up() == []
    clock.advance(660)
    assert await bs.idle.look() == [], "what did not pay then pays less now"
    assert await whys(bs) == []
    await bs.say("s", "one more")
    clock.advance(901)
    assert await bs.idle.look() == [S], "nobody looked before the cache was cold: it is compacted as ever"
    await bs.close()


@pytest.mark.parametrize("rates", [Rates(output=0.0), Rates(calls=10)])
async def test_what_pays_is_said_by_the_rates(rates):
    clock = ManualClock()
    bs = opened(clock, policy=Policy(), rates=rates)
    await fill(bs, 0.68)
    clock.advance(241)
    assert await bs.idle.keep_up() == [S]
    await bs.close()


@pytest.mark.parametrize(
    "how", ["too late", "off", "a turn here", "a turn elsewhere", "compacted", "no model"]
)
async def test_who_is_left_alone(how):
    clock = ManualClock()
    all_options: dict[str, dict[str, Any]] = {"off": {"prepare_at": None}, "no model": {"extract": True}}
    options = all_options.get(how, {})
    bs = opened(clock, **options)
    await fill(bs, 0.68)
    if how == "compacted":
        await bs.compact("s")
    clock.advance(301 if how == "too late" else 241)
    if how == "a turn here":
        async with bs.sessions.hold(S):
            assert await bs.idle.keep_up() == []
    elif how == "a turn elsewhere":
        lease = await bs.store.acquire(S, LeaseRequest(owner="somebody", ttl=10_000))
        assert await bs.idle.keep_up() == []
        await bs.store.release(lease)
    else:
        assert await bs.idle.keep_up() == []
    assert asked_of(bs) == []
    await bs.close()


async def test_who_comes_back_while_the_cache_is_warm_keeps_the_prefix_and_the_summary_waits():
    """Reading the conversation for the summary has kept it warm for another while, too."""
    clock = ManualClock()
    bs = opened(clock)
    await fill(bs, 0.68)
    clock.advance(241)
    await bs.idle.keep_up()
    await settled(bs)
    clock.advance(290)  # 531 s after the last request, 290 after the summariser's
    before = talked(bs)[-1]
    await bs.say("s", "I am back")
    assert await whys(bs) == []
    assert extends(bs.model.requests[-1], before)
    clock.advance(301)
    await bs.say("s", "and again")
    assert await whys(bs) == ["prepared, cold cache"]
    check_prefix(await records_of(bs.store), talked(bs))
    await bs.close()


async def test_nothing_is_put_into_force_while_the_summariser_s_reading_keeps_the_prefix_warm():
    clock = ManualClock()
    bs = opened(clock, cache_ttl=3_600)
    await fill(bs, 0.68)
    clock.advance(3_000)
    assert await bs.idle.keep_up() == [S]
    await settled(bs)
    clock.advance(700)
    assert await bs.idle.look() == []
    clock.advance(3_000)
    assert await bs.idle.look() == [S]
    await bs.close()


async def test_the_timer_comes_in_time():
    clock = ManualClock()
    bs = opened(clock)
    await fill(bs, 0.68)
    for _ in range(20):
        clock.advance(15)
        for _ in range(50):
            await asyncio.sleep(0)
        await settled(bs)
    assert len(asked_of(bs)) == 1
    await bs.close()


async def test_one_that_fails_stops_neither_the_others_nor_the_timer(monkeypatch, caplog):
    clock = ManualClock()
    bs = opened(clock)
    for key in ("a", "b"):
        await fill(bs, 0.68, key)
    frame = bs.idle._frame

    async def failing(session):
        if session.id.key == "a":
            raise RuntimeError("somebody's own section fails")
        return await frame(session)

    monkeypatch.setattr(bs.idle, "_frame", failing)
    clock.advance(241)
    assert [place.key for place in await bs.idle.keep_up()] == ["b"]
    assert "'a' was not compacted" in caplog.text
    await settled(bs)
    await bs.close()


async def test_another_model_s_turn_leaves_nothing_that_ours_has_in_its_cache():
    clock = ManualClock()
    bs = opened(clock)
    other = ScriptedModel(reply, name="other", window=12_000)
    await bs.say("s", "hello", model=other)
    async with bs.sessions.hold(S) as session:
        await session.refresh()
        assert await sent_again(session, bs.shape("s"), bs.model) is None
        assert await sent_again(session, bs.shape("s"), None) is None
    async with bs.sessions.hold(SessionId(key="new")) as session:
        assert await sent_again(session, bs.shape("new"), bs.model) is None
    await bs.close()


async def test_where_what_was_sent_cannot_be_made_again_it_is_compacted_later_as_ever(monkeypatch):
    async def nothing(session):
        return None

    clock = ManualClock()
    bs = opened(clock)
    await fill(bs, 0.68)
    monkeypatch.setattr(bs.idle, "_sent", nothing)
    clock.advance(241)
    assert await bs.idle.keep_up() == []
    clock.advance(660)
    assert await bs.idle.look() == [S]
    await bs.close()


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from(["openai_chat", "openai_responses", "anthropic", "gemini"]))
def test_what_the_provider_has_is_made_again_from_the_log_to_the_byte(seed, target):
    """Whatever was said, by this process or another, what is made again extends the last request and its answer."""
    rng = random.Random(seed)

    def answer(body):
        if rng.random() < 0.4:
            return calls(("look", {"what": "x"}), ("look", {"what": "y"}))
        return "word " * rng.randint(1, 30)

    async def life():
        store = InMemoryStore()
        model = ScriptedModel(answer, name="main", target=target, window=12_000)
        bs = opened(store.clock, model=model, store=store, tools=[look])
        for number in range(rng.randint(1, 6)):
            await bs.say("s", f"{number} " + "boxes " * rng.randint(0, 60))
            if rng.random() < 0.3:
                bs = opened(store.clock, model=model, store=store, tools=[look])
        async with bs.sessions.hold(S) as session:
            await session.refresh()
            made = await sent_again(session, bs.shape("s"), model)
        assert made is not None
        last, items = model.requests[-1], wire_format(model.target.format).ITEMS
        assert extends(made.body, last, target)
        assert len(made.body[items]) > len(last[items])
        request = (await view_of(store)).request
        assert made.tokens > request["ledger"]["total"]

    asyncio.run(life())


@settings(max_examples=25, deadline=None)
@given(
    st.integers(0, 10**6),
    st.lists(st.sampled_from([0, 0, 10, 200, 241, 299, 400, 1_000]), min_size=10, max_size=50),
)
def test_over_whole_lives_with_pauses_no_preparation_costs_more_than_it_saves(seed, gaps):
    """By the rates, the summary's own figures, and the request before the pause; and the laws hold as ever."""
    rng = random.Random(seed)

    async def life():
        clock = ManualClock()
        bs = opened(clock)
        for number, gap in enumerate(gaps):
            await bs.say("s", long(number, rng.choice([5, 240, 240, 800])))
            await settled(bs)
            for part in (min(gap, 250), gap - min(gap, 250)):
                clock.advance(part)
                begun = await bs.idle.keep_up()
                await settled(bs)
                if begun:
                    made = bs.compactor._prepared[S]
                    rates, usage = bs.compactor.settings.rates, made.written.usage
                    costs = (
                        usage.input - usage.cached + rates.cached * usage.cached + rates.output * usage.output
                    )
                    gain = made.plan.leaves + made.plan.told - usage.output
                    assert costs <= gain + 20, "20 for the answer, which it has not cached"
                await bs.idle.look()
        records = await records_of(bs.store)
        check_log(records)
        check_prefix(records, talked(bs))
        legal(bs.model)
        await bs.close()

    asyncio.run(life())


@pytest.mark.parametrize("wrong", [0, 1, 1.5, -0.1])
def test_the_share_is_between_none_and_all(wrong):
    with pytest.raises(ConfigurationError, match="prepare_at"):
        Compaction(prepare_at=wrong)
