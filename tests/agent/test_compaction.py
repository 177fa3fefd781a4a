"""Compaction of whole sessions: prepared in the background, put into force by one record, never in anybody's way."""

import asyncio
import itertools
import re

import pytest

import backstory
from backstory.agent.sources.base import as_source
from backstory.compaction.policy import Policy
from backstory.errors import BudgetExceeded, ConfigurationError, ModelUnavailable, SessionBusy
from backstory.formats import wire_format
from backstory.messages import assistant, system, user
from backstory.models.base import Answer
from backstory.models.scripted import Play, Reply, ScriptedModel, calls
from backstory.sessions.summaries import summary_of
from backstory.sessions.transfer import import_messages
from backstory.stores.clock import ManualClock
from backstory.stores.in_memory import InMemoryStore
from backstory.tokens import Counter
from backstory.upkeep.summarise import Compaction
from tests.sessions.support import S, check_log, coverage, extends, legal, records_of, view_of

BUDGET = 2_000
GOOD = "## Facts\n- The user counts boxes in the harbour.\n\n## To do\n- Go on counting."


def teller(reply="Noted."):
    """A main model that always says the same."""
    return ScriptedModel(lambda body: reply, name="main")


def opened(summariser=None, *, model=None, store=None, budget=BUDGET, **settings):
    compaction = settings.pop("compaction", None) or Compaction(model=summariser, **settings)
    return backstory.open(
        store or InMemoryStore(),
        model=model or teller(),
        budget=budget,
        runtime=False,
        compaction=compaction,
    )


def long(number, words=60):
    return f"number {number}: " + "they stand in a row " * (words // 5)


async def settled(bs):
    """Wait for what is under way in the background."""
    tasks = list(bs.compactor._tasks.values())
    if tasks:
        await asyncio.wait(tasks)


async def fill(bs, upto, start=0, key="s"):
    """Turns until the last request has passed a share of the budget; the next number."""
    number = start
    while True:
        await bs.say(key, long(number))
        await settled(bs)
        number += 1
        view = await view_of(bs.store)
        if not view.request or view.request["ledger"]["total"] >= upto * BUDGET:
            return number


async def kinds(bs, kind):
    return [record for record in await records_of(bs.store) if record.kind == kind]


def system_of(body):
    return body["messages"][0]["content"]


# --- prepared, and put into force -------------------------------------------------------------


async def test_a_summary_is_prepared_at_the_soft_mark_and_put_into_force_at_the_hard_mark():
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser)
    async with bs:
        number = await fill(bs, 0.72)
        assert len(summariser.requests) == 1, "asked once, in the background"
        assert not await kinds(bs, "summary"), "and nothing of it is in the log yet"
        while not await kinds(bs, "summary"):
            await bs.say("s", long(number))
            number += 1
        assert len(summariser.requests) == 1, "what was prepared is used"
        (record,) = await kinds(bs, "summary")
        data = record.data
        assert data["why"] == "prepared, full"
        assert data["model"] == data["summary"]["by"] == "cheap"
        assert data["tokens"][1] < data["tokens"][0]
        assert data["usage"]["output"] > 0
        assert not await kinds(bs, "cut"), "no cut but the summary's own"
        view = await view_of(bs.store)
        assert "The user counts boxes" in system_of(bs.model.requests[-1])
        assert view.request["ledger"]["total"] <= 0.6 * BUDGET, "the target, though prepared long before"
        check_log(await records_of(bs.store))
        legal(bs.model)


async def test_messages_that_arrive_while_a_summary_is_written_stay():
    gate = asyncio.Event()

    async def slow(body):
        await gate.wait()
        return GOOD

    bs = opened(ScriptedModel(slow, name="slow"))
    async with bs:
        number = 0
        while not bs.compactor._tasks:
            await bs.say("s", long(number))
            number += 1
        waited_for = number
        await bs.say("s", "while it is written")
        assert bs.compactor._tasks, "the turn did not wait for it"
        gate.set()
        await settled(bs)
        while not await kinds(bs, "summary"):
            await bs.say("s", long(number))
            number += 1
        said = [m["content"] for m in bs.model.requests[-1]["messages"]]
        assert "while it is written" in said
        assert number > waited_for
        check_log(await records_of(bs.store))


async def test_no_turn_below_the_hard_mark_waits_for_a_summariser_that_takes_for_ever():
    """The issue's twenty seconds, as an event that never comes: a turn that waited for it would never end."""
    bs = opened(ScriptedModel([Play(step=GOOD, stall=True)] * 9, name="slow"))
    async with bs:
        number = 0
        while not bs.compactor._tasks:
            await bs.say("s", long(number))
            number += 1
        for _ in range(4):
            await bs.say("s", "short")
        assert bs.compactor._tasks
        assert not await kinds(bs, "summary")


@pytest.mark.parametrize("opens", ["another epoch", "cold cache"])
async def test_what_is_prepared_is_put_into_force_when_the_prefix_is_lost_anyway(opens, tmp_path):
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), store=store)
    async with bs:
        await fill(bs, 0.72)
        if opens == "cold cache":
            clock.advance(301)
            await bs.say("s", "hello")
        else:
            await bs.say("s", "hello", model=ScriptedModel(["Hi."], name="other"))
        (record,) = await kinds(bs, "summary")
        assert record.data["why"] == f"prepared, {opens}"


async def test_a_prepared_summary_whose_span_was_undone_is_dropped():
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser)
    async with bs:
        number = await fill(bs, 0.72)
        await bs.command("s", f"/undo {number}")
        await bs.say("s", "hello", model=ScriptedModel(["Hi."], name="other"))
        assert not await kinds(bs, "summary")
        assert not bs.compactor._prepared


async def test_at_the_hard_mark_with_nothing_prepared_it_is_written_before_the_request():
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser)
    async with bs:
        for number in range(4):
            await bs.say("s", long(number))
        await bs.say("s", long(99, 1500))
        (record,) = await kinds(bs, "summary")
        assert record.data["why"] == "full"
        assert len(summariser.requests) == 1
        (last,) = [r for r in await kinds(bs, "message") if r.message.text.startswith("number 99")]
        assert (await view_of(bs.store)).replayed(last.seq)
        assert record.seq > last.seq, "the user's message was durable before anything else"


async def test_a_smaller_window_compacts_before_its_first_request():
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), budget=20_000)
    small = ScriptedModel(lambda body: "Hi.", name="small", window=3_000)
    async with bs:
        for number in range(12):
            await bs.say("s", long(number, 240))
        bs.settings = type(bs.settings)(window=None, compaction=bs.settings.compaction)
        await bs.say("s", "hello", model=small)
        assert len(small.requests) == 1
        assert await kinds(bs, "summary")
        assert "The user counts boxes" in system_of(small.requests[0])


async def test_by_number_of_turns_the_newest_are_kept():
    bs = opened(
        ScriptedModel(lambda body: GOOD, name="cheap"),
        budget=200_000,
        policy=Policy(every_turns=8, keep_turns=3),
    )
    async with bs:
        for number in range(8):
            await bs.say("s", long(number, 240))
            await settled(bs)
        assert bs.compactor._prepared
        await bs.say("s", "hello", model=ScriptedModel(["Hi."], name="other"))
        view = await view_of(bs.store)
        assert view.cut.start == view.spans[6].first + 1, "turns 6 to 8, and the newest"


async def test_one_giant_turn_is_compacted_inside_itself():
    steps = [calls(("look", {"n": n}), text=f"looking {n} " + "word " * 60) for n in range(16)]
    model = ScriptedModel([*steps, "done"], name="main")
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"), model=model)

    async def look(n: int) -> str:
        """Look."""
        return f"saw {n} " + "thing " * 30

    async with bs:
        assert (await bs.say("s", "the great task", tools=[look])).text == "done"
        assert await kinds(bs, "summary")
        view = await view_of(bs.store)
        assert view.cut.kept is not None
        assert view.live()[0].message.text == "the great task"
        check_log(await records_of(bs.store))
        legal(model)


# --- who is asked, and how ---------------------------------------------------------------------


def both(asked, *, within=GOOD, alone=GOOD):
    """A model that answers, and writes summaries in the conversation itself, or alone: it says in `asked` which."""

    def reply(body):
        text = str(body)
        if "You keep the memory" in text:
            asked.append(("alone", body))
            return alone
        if "no part of the conversation" in text:
            asked.append(("within", body))
            return within
        return "Noted."

    return reply


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic", "gemini"])
async def test_the_sessions_own_model_is_asked_in_the_conversation_that_it_has_in_its_cache(target):
    """And what is sent with its summary is legal for each API (CP-09): the model refuses what a real one would."""
    asked: list[tuple[str, dict]] = []
    model = ScriptedModel(both(asked), name="main", target=target, window=9_000)
    bs = opened(model=model)
    async with bs:
        number = await fill(bs, 0.72)
        assert [how for how, _ in asked] == ["within"]
        place = next(n for n, b in enumerate(model.requests) if "no part of the conversation" in str(b))
        before, body = model.requests[place - 1 : place + 1]
        form = wire_format(model.target.format)
        assert body[form.ITEMS][: len(before[form.ITEMS])] == before[form.ITEMS]
        assert len(body[form.ITEMS]) == len(before[form.ITEMS]) + 2, "the answer, and what is asked"
        while not await kinds(bs, "summary"):
            await bs.say("s", long(number))
            number += 1
        (record,) = await kinds(bs, "summary")
        assert record.data["summary"]["by"] == "main"
        assert record.data["usage"]["cached"] > 0.7 * record.data["usage"]["input"]


async def test_where_the_conversation_leads_it_astray_the_model_is_asked_alone():
    asked: list[tuple[str, dict]] = []
    model = ScriptedModel(
        both(asked, within=calls(("look", {"n": 1}))), name="main", legal=False, window=9_000
    )
    bs = opened(model=model)
    async with bs:
        number = await fill(bs, 0.72)
        assert [how for how, _ in asked] == ["within", "alone"]
        while not await kinds(bs, "summary"):
            await bs.say("s", long(number))
            number += 1
        (record,) = await kinds(bs, "summary")
        assert record.data["summary"]["by"] == "main"
        assert record.data["refused"] == ["it is a tool call"]


async def test_an_item_of_a_providers_own_compaction_goes_back_to_it_verbatim_and_to_nobody_else():
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "gAAA"}
    said = [{"role": "user", "content": "hi"}, item, {"role": "user", "content": "go on"}]
    again = backstory.convert(said, source="openai_responses", target="openai_responses")
    assert item in again.messages
    for target in ("openai_chat", "anthropic", "gemini"):
        converted = backstory.convert(said, source="openai_responses", target=target)
        assert "gAAA" not in str(converted.messages)
        assert converted.losses
    block = {"type": "compaction", "content": "what was said", "signature": "sig1"}
    blocks = [
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": [block, {"type": "text", "text": "hello"}]},
        {"role": "user", "content": "go on"},
    ]
    again = backstory.convert(blocks, source="anthropic", target="anthropic")
    assert block in again.messages[1]["content"]
    for target in ("openai_chat", "openai_responses", "gemini"):
        assert "sig1" not in str(backstory.convert(blocks, source="anthropic", target=target).messages)


# --- what goes wrong ---------------------------------------------------------------------------


def lies(body):
    return "ok"


async def cancelled(body):
    raise ModelUnavailable("429")


WRONG: dict[str, Reply] = {
    "empty": lambda body: "",
    "fails": cancelled,
    "stalls": lambda body: Play(step=GOOD, stall=True),
    "returns too much": lambda body: "word " * 5_000,
    "calls a tool": lambda body: calls(("look", {"n": 1})),
    "is cut off": lambda body: Play(step="The user wan", finish="length"),
}


@pytest.mark.parametrize("how", WRONG)
async def test_a_summariser_that_fails_loses_nothing_and_the_extract_holds_the_place(how):
    """CP-01, CP-07."""
    summariser = ScriptedModel(WRONG[how], name="bad", legal=False)
    bs = opened(summariser, timeout=0.05)
    async with bs:
        await bs.say("s", "My locker code is 4711 and the ship is called Aurora.")
        number = 0
        while not await kinds(bs, "summary"):
            await bs.say("s", long(number))
            await settled(bs)
            number += 1
        record = (await kinds(bs, "summary"))[0]
        assert record.data["summary"]["by"] == "extract"
        assert "4711" in record.data["summary"]["text"]
        assert record.data.get("refused") or bs.compactor._breaker.is_open("bad")
        assert set(coverage(await records_of(bs.store)).values()) == {"view", "summary"}
        check_log(await records_of(bs.store))
        legal(bs.model)


async def test_a_failing_model_is_not_hammered():
    clock = ManualClock()
    summariser = ScriptedModel(cancelled, name="bad")
    bs = opened(summariser, store=InMemoryStore(clock=clock), failures=2, rest=600.0)
    async with bs:
        for number in range(40):
            await bs.say("s", long(number))
            await settled(bs)
        assert len(summariser.requests) == 2
        assert len(await kinds(bs, "summary")) > 1
        clock.advance(601)
        for number in range(40, 60):
            await bs.say("s", long(number))
            await settled(bs)
        assert len(summariser.requests) == 3


async def test_a_stop_ends_a_turn_that_waits_for_a_summary():
    begun = asyncio.Event()

    async def never(body):
        begun.set()
        await asyncio.Event().wait()

    bs = opened(ScriptedModel(never, name="never"))
    async with bs:
        for number in range(4):
            await bs.say("s", long(number))
        saying = asyncio.create_task(bs.say("s", long(99, 1500)))
        async with asyncio.timeout(60):
            await begun.wait()
        assert await bs.stop("s")
        assert (await saying).reason == "stopped"
        assert not await kinds(bs, "summary")
        check_log(await records_of(bs.store))


async def test_what_cannot_fit_is_refused_and_kept():
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"))
    async with bs:
        for number in range(6):
            await bs.say("s", long(number))
        with pytest.raises(BudgetExceeded):
            await bs.say("s", "word " * 3_000)
        assert (await kinds(bs, "message"))[-2].message.text.startswith("word word")
        assert (await bs.say("s", "hello")).reason == "done"
        check_log(await records_of(bs.store))


async def test_a_span_longer_than_the_summarisers_window_is_told_piece_by_piece():
    """CP-03."""
    summariser = ScriptedModel(lambda body: GOOD, name="tiny", window=4_000)
    bs = opened(summariser, budget=9_000)
    async with bs:
        for number in range(9):
            await bs.say("s", f"{number} " + "long note " * 500)
            await settled(bs)
        assert len(summariser.requests) > 1
        assert max(Counter(name="o200k_base").count(str(b)) for b in summariser.requests) < 4_000
        assert await bs.compact("s") or await kinds(bs, "summary")
        assert "carried on" in str(summariser.requests)


async def test_a_long_import_is_summarised_from_its_newest_part_back():
    store = InMemoryStore()
    said = [m for n in range(600) for m in (user(long(n)), assistant(f"Noted {n}."))]
    await import_messages(
        store, S, said, source="test", counter=Counter(name="o200k_base"), format="openai_chat"
    )
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser, store=store)
    async with bs:
        await bs.say("s", "hello")
        (record,) = await kinds(bs, "summary")
        records = await records_of(store)
        covered = coverage(records)
        assert record.data["since"] == record.data["spans"][0][0] > 1_000
        assert {covered[seq] for seq in covered if seq < record.data["since"]} == {"cut"}
        view = await view_of(store)
        assert {seq: view.coverage(seq)[0] for seq in covered} == covered
        assert "number 599:" in str(bs.model.requests[-1])
        assert len(summariser.requests) < 4


async def test_where_the_fixed_part_is_over_the_mark_nothing_is_tried_and_what_does_not_fit_is_a_clear_error():
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    large = as_source("rules", lambda context: "Keep to the rules. " * 345)
    bs = backstory.open(
        "memory:",
        model=teller(),
        budget=BUDGET,
        runtime=False,
        sources=[large],
        compaction=Compaction(model=summariser),
    )
    async with bs:
        await bs.say("s", "hello")
        view = await view_of(bs.store)
        assert view.request["ledger"]["total"] > 0.9 * BUDGET
        for number in range(6):
            await bs.say("s", f"hello {number}")
        with pytest.raises(BudgetExceeded) as refused:
            await bs.say("s", "word " * 1_500)
        assert refused.value.ledger.line("system").used > 0.9 * BUDGET
        assert len(summariser.requests) <= 1
        assert (await bs.say("s", "still there?")).reason == "done"


async def test_what_the_system_block_says_is_never_summarised_and_a_later_notice_is():
    """CP-08."""
    store = InMemoryStore()
    said = [m for n in range(30) for m in (user(long(n)), assistant("Noted."))]
    said[7:7] = [system("The user was idle; the code word is Falke77.")]
    await import_messages(
        store, S, said, source="test", counter=Counter(name="o200k_base"), format="openai_chat"
    )
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser, store=store)
    async with bs:
        await bs.say("s", "hello")
        assert await kinds(bs, "summary")
        assert "Falke77" in str(summariser.requests)
        assert "You are a helpful assistant" not in str(summariser.requests)
        block = system_of(bs.model.requests[-1])
        assert block.startswith("You are a helpful assistant")
        assert [m["role"] for m in bs.model.requests[-1]["messages"]].count("system") == 1
        legal(bs.model)


# --- asked for, undone, rolling ----------------------------------------------------------------


async def test_the_second_summary_is_told_of_the_first_and_of_what_it_kept():
    """CP-04: what the first compaction kept is in the second's account."""
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser, budget=6_000)
    async with bs:
        for number in range(12):
            await bs.say("s", long(number, 600))
            if number == 7:
                await settled(bs)
                assert await bs.compact("s")
        await settled(bs)
        assert await bs.compact("s")
        told = [set(re.findall(r"number (\d+):", str(body["messages"]))) for body in summariser.requests]
        view = await view_of(bs.store)
        shown = {m for r in view.live() for m in re.findall(r"number (\d+):", r.message.text)}
        assert set.union(*told) | shown == {str(n) for n in range(12)}
        assert all("The user counts boxes" in str(body["messages"]) for body in summariser.requests[1:])
        records = await records_of(bs.store)
        assert set(coverage(records).values()) == {"view", "summary"}


async def test_who_speaks_while_a_summary_is_asked_for_does_not_wait_for_it():
    begun, gate = asyncio.Event(), asyncio.Event()

    async def slow(body):
        begun.set()
        await gate.wait()
        return GOOD

    bs = opened(ScriptedModel(slow, name="slow"), budget=6_000)
    async with bs:
        for number in range(6):
            await bs.say("s", long(number, 600))
        compacting = asyncio.create_task(bs.compact("s"))
        async with asyncio.timeout(60):
            await begun.wait()
            assert (await bs.say("s", "meanwhile")).reason == "done"
            gate.set()
            done = await compacting
        assert done is not None
        assert done.after < done.before
        assert (await view_of(bs.store)).live()[-2].message.text == "meanwhile"
        check_log(await records_of(bs.store))


async def test_compact_with_a_topic_and_its_undo_by_command():
    summariser = ScriptedModel(lambda body: GOOD, name="cheap")
    bs = opened(summariser, budget=6_000)
    async with bs:
        for number in range(7):
            await bs.say("s", long(number, 600))
        before = [r.seq for r in (await view_of(bs.store)).live()]
        await settled(bs)
        done = await bs.command("s", "/compact the boxes")
        assert "a summary by cheap" in done.text
        assert "the boxes" in str(summariser.requests[-1]["messages"])
        assert "by cheap" in (await bs.command("s", "/status")).text
        assert "nothing to compact" in (await bs.command("s", "/compact")).text
        assert "undone" in (await bs.command("s", "/undo compact")).text
        view = await view_of(bs.store)
        assert summary_of(view) is None
        assert [r.seq for r in view.live()] == before
        await bs.command("s", "/redo")
        assert (await view_of(bs.store)).summary["summary"]["text"] == GOOD


async def test_pins_by_command_and_standing_instructions_are_offered():
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"))
    async with bs:
        await bs.say("s", "From now on always answer in metres, never in feet.")
        listed = (await bs.command("s", "/pin")).text
        assert "Nothing is pinned" in listed
        assert "metres" in listed
        (place,) = re.findall(r"as (\d+)", (await bs.command("s", "/pin answer in metres")).text)
        await bs.say("s", "How high?")
        assert "## Pinned\n\n- answer in metres" in system_of(bs.model.requests[-1])
        assert "answer in metres" in (await bs.command("s", "/pin")).text
        assert "No longer pinned" in (await bs.command("s", f"/unpin {place}")).text
        await bs.say("s", "And now?")
        assert "## Pinned" not in system_of(bs.model.requests[-1])


async def test_off_by_wish_and_refused_while_a_turn_is_open():
    bs = backstory.open("memory:", model=teller(), compaction=False)
    async with bs:
        with pytest.raises(ConfigurationError, match="off"):
            await bs.compact("s")
    bs = opened(budget=20_000)
    async with bs, bs.turn("s", "hello"):
        session, _ = bs.sessions.peek(S)
        with pytest.raises(SessionBusy):
            await bs.compacted(session)
    with pytest.raises(ConfigurationError, match="timeout"):
        Compaction(timeout=0)


async def test_with_ones_own_client_the_extract_stands():
    store = InMemoryStore()
    bs = backstory.open(store, target="openai_chat", budget=BUDGET, runtime=False)
    async with bs:
        for number in range(30):
            async with bs.turn("s", long(number)) as turn:
                await turn.request()
                await turn.record(Answer(messages=(assistant("Noted."),)))
        records = [r for r in await records_of(store) if r.kind == "summary"]
        assert records
        assert {r.data["summary"]["by"] for r in records} == {"extract"}


async def test_between_two_compactions_each_request_extends_the_one_before():
    """Law 4 over a long life; identity where everything fits."""
    bs = opened(ScriptedModel(lambda body: GOOD, name="cheap"))
    async with bs:
        for number in range(60):
            await bs.say("s", long(number))
            await settled(bs)
        bodies = bs.model.requests
        broken = sum(not extends(later, earlier) for earlier, later in itertools.pairwise(bodies))
        records = await records_of(bs.store)
        assert broken == sum(r.kind == "summary" for r in records) > 2
        assert not any(r.kind == "cut" for r in records)
        assert all(r.data["ledger"]["total"] <= BUDGET for r in records if r.kind == "request")
