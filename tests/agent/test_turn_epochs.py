"""Epochs: what opens one at once, what waits and is told as a note, and what a cold open reads."""

import asyncio
import itertools
import json
import os
import subprocess
import sys

import pytest

import backstory
from backstory.agent import requests
from backstory.context.sections import Passage
from backstory.messages import assistant, user
from backstory.models.scripted import ScriptedModel, calls
from backstory.records import NewRecord, new_message
from backstory.sessions.session import PAGE
from backstory.sessions.view import SNAPSHOT_EVERY
from backstory.stores import FilesStore, InMemoryStore
from tests.agent.turns import S, look, opened, peek, play, records, scripted
from tests.sessions.support import Counting, check_prefix, extends, legal


async def epochs(bs):
    return [record.data["why"] for record in await records(bs) if record.kind == "epoch"]


def system(body):
    return body["messages"][0]["content"]


async def test_an_edit_of_instructions_opens_an_epoch_at_once(tmp_path):
    (tmp_path / "AGENTS.md").write_text("Answer in English.")
    bs = opened("one", "two", "three", store=str(tmp_path))
    await bs.say("s", "hello")
    (tmp_path / "AGENTS.md").write_text("Answer in French, and briefly.")
    await bs.say("s", "again")
    await bs.say("s", "and again")
    assert await epochs(bs) == ["first request", "agents changed"]
    assert "French" in system(scripted(bs).requests[1])
    check_prefix(await records(bs), scripted(bs).requests)
    await bs.close()


async def test_an_edit_of_memory_waits_and_is_told_once(tmp_path):
    (tmp_path / "memory").mkdir()
    memory = tmp_path / "memory" / "MEMORY.md"
    memory.write_text("- Her name is Ada.\n")
    bs = opened(*["fine"] * 6, store=str(tmp_path))
    await bs.say("s", "hello")
    memory.write_text("- Her name is Ada.\n- She moved to Turin.\n")
    await bs.say("s", "two")
    await bs.say("s", "three")
    bodies = scripted(bs).requests
    assert extends(bodies[2], bodies[1])
    assert extends(bodies[1], bodies[0])
    assert "Turin" not in system(bodies[2])
    assert str(bodies[1]["messages"][-1]).count("Turin") == 1
    assert "Turin" not in str(bodies[2]["messages"][-1]), "told once, it stands in the history"
    memory.write_text("- Her name is Ada.\n- She moved to Turin.\n- She has a cat.\n")
    await bs.say("s", "four")
    assert "cat" in str(bodies[3]["messages"][-1])
    assert await epochs(bs) == ["first request"]
    (tmp_path / "AGENTS.md").write_text("Be brief.")
    await bs.say("s", "five")
    assert "Turin" in system(bodies[4]), "another new epoch takes in what waited"
    await bs.say("s", "six")
    assert "new in memory" not in str(bodies[5]["messages"][-1])
    check_prefix(await records(bs), bodies)
    await bs.close()


async def test_another_list_of_tools_another_model_other_settings():
    store = InMemoryStore()
    bs = opened("one", "two", store=store, tools=[look, peek])
    await bs.say("s", "hello")
    await bs.say("s", "hello", tools=[peek, look])
    assert await epochs(bs) == ["first request"], "another order of the same tools changes nothing"
    bs = opened("three", store=store, tools=[look])
    await bs.say("s", "hello")
    bs = backstory.open(store, model=ScriptedModel(["four"], name="other"), tools=[look])
    await bs.say("s", "hello")
    bs = backstory.open(store, model=ScriptedModel(["five"], name="other", temperature=0.5), tools=[look])
    await bs.say("s", "hello")
    assert await epochs(bs) == [
        "first request",
        "the tools changed",
        "the model changed from m to other",
        "the model's settings changed",
    ]
    numbers = [r.data["state"]["epoch"] for r in await records(bs) if r.kind == "request"]
    assert numbers == [1, 1, 2, 3, 4]


async def test_a_full_window_is_cut_and_the_ledger_says_why():
    bs = opened(*["answer " * 60] * 8, budget=1200, tools=())
    for number in range(8):
        await bs.say("s", f"{number} " + "word " * 60)
    log = await records(bs)
    cuts = [r for r in log if r.kind == "cut"]
    assert cuts
    assert len(cuts) < 5, "it steps, and does not slide"
    for cut in cuts:
        where = log[cut.data["start"] - 1]
        assert where.kind == "message"
        assert where.message.role == "user"
        snapshots = [r.seq for r in log if r.kind == "snapshot" and r.seq > cut.seq]
        assert not [r for r in log if r.seq > cut.seq + 4] or snapshots[0] <= cut.seq + 4, (
            "a snapshot after each cut"
        )
    assert any("full" in why for why in await epochs(bs))
    check_prefix(log, scripted(bs).requests)
    legal(scripted(bs))


async def test_after_reopening_the_next_request_extends_the_last_one(tmp_path):
    """Cut, condensed, made up: whatever was decided before is decided again, and the bytes are the same."""

    @backstory.tool
    async def long(n: int) -> str:
        """Long."""
        return f"{n} " + "result " * 900

    bodies: list = []
    for number in range(9):
        model = play(calls(("long", {"n": number})), "answer " * 30, "short")
        async with backstory.open(tmp_path, model=model, tools=[long], budget=3600, compaction=False) as bs:
            await bs.say("s", f"{number} " + "word " * 40)
            await bs.say("s", "and?")
            log = await records(bs)
        legal(model)
        bodies += model.requests
    check_prefix(log, bodies)
    assert any(r.kind == "cut" for r in log)
    whys = [r.data["why"] for r in log if r.kind == "epoch"]
    assert all("again" not in why for why in whys), whys


SAYS = """
import asyncio, json, sys
import backstory
from backstory.models.scripted import ScriptedModel

async def main():
    model = ScriptedModel(["fine"], name="m")
    async with backstory.open(sys.argv[1], model=model, target=sys.argv[2], budget=4000, compaction=False) as bs:
        await bs.say("s", "hello")
    print(json.dumps(model.requests[0]))

asyncio.run(main())
"""


@pytest.mark.parametrize("target", ["openai_chat", "qwen"])
def test_another_process_goes_on_whatever_its_hash_seed(tmp_path, target):
    """What stands for a target held a set, whose order is another one in each process: all of them began anew."""
    bodies = []
    for seed in range(4):
        done = subprocess.run(
            [sys.executable, "-c", SAYS, str(tmp_path), target],
            env={**os.environ, "PYTHONHASHSEED": str(seed)},
            capture_output=True,
            text=True,
            check=True,
        )
        bodies.append(json.loads(done.stdout))
    assert all(extends(after, before) for before, after in itertools.pairwise(bodies))

    async def why():
        async with backstory.open(tmp_path) as bs:
            return await epochs(bs)

    assert asyncio.run(why()) == ["first request"]


@pytest.mark.parametrize("proof", ["its own first items", "an old log", "what is written again"])
async def test_after_reopening_the_prefix_is_proven(monkeypatch, proof):
    """By the new request itself where it extends the last one, else by writing that again: with the same outcome."""
    again: list[int] = []
    extended, made_again = requests._extended, requests._made_again

    def counted(*given):
        again.append(1)
        return made_again(*given)

    monkeypatch.setattr(requests, "_made_again", counted)
    if proof == "an old log":
        monkeypatch.setattr(requests, "_extended", lambda last, make: extended({**last, "sent": None}, make))
    if proof == "what is written again":
        monkeypatch.setattr(requests, "_extended", lambda last, make: None)
    store = InMemoryStore()
    bodies: list = []
    for number in range(12):
        model = play(calls(("look", {"what": "x" * 400})), f"answer {number} " * 40)
        await opened(model, store=store, budget=1800).say("s", f"{number} " + "word " * 40)
        bodies += model.requests
    log = await records(bs := opened(store=store))
    check_prefix(log, bodies)
    whys = await epochs(bs)
    assert whys[0] == "first request"
    assert 2 <= len(whys) <= 5
    assert all("full" in why for why in whys[1:])
    quick = proof == "its own first items"
    assert len(again) <= len(whys) if quick else len(again) == 11


async def test_after_undo_and_beginning_anew_a_new_epoch_says_so():
    bs = opened(*["fine"] * 5)
    await bs.say("s", "one")
    await bs.say("s", "two")
    await bs.command("s", "/undo")
    await bs.say("s", "three")
    await bs.command("s", "/new")
    await bs.say("s", "four")
    assert len(await epochs(bs)) == 3
    assert "undone" in (await epochs(bs))[1]
    body = str(scripted(bs).requests[-1]["messages"])
    assert "one" not in body.replace("none", "")
    check_prefix(await records(bs), scripted(bs).requests)


async def test_a_lost_blob_of_an_epoch_bricks_nothing():
    store = InMemoryStore()
    bs = opened("one", store=store)
    await bs.say("s", "hello")
    (epoch,) = [r for r in await records(bs) if r.kind == "epoch"]
    await store.delete_blob("default", epoch.data["frozen"])
    bs = opened("two", "three", store=store)
    assert (await bs.say("s", "again")).text == "two"
    assert (await bs.say("s", "again")).text == "three"
    assert len(await epochs(bs)) == 2


async def test_small_passages_stay_with_their_message_and_large_ones_go_once():
    async def lookup(query, context):
        size = 400 if "much" in query else 3
        return [Passage(text="fact " * size, score=1.0, source="book")]

    bs = opened("one", "two", "three", budget=4000, tools=(), retrievers=[lookup])
    await bs.say("s", "little")
    await bs.say("s", "much")
    await bs.say("s", "little")
    bodies = scripted(bs).requests
    assert extends(bodies[1], bodies[0])
    assert str(bodies[1]).count("fact ") > 400
    assert str(bodies[2]).count("fact ") < 20
    whys = await epochs(bs)
    assert whys[0] == "first request"
    assert "passages_dropped" in whys[1]
    check_prefix(await records(bs), bodies)


# --- what a cold open reads --------------------------------------------------------------------


async def test_a_cold_open_reads_the_window_and_not_the_session():
    read = []
    for turns in (300, 1500):
        store = Counting(InMemoryStore())
        bs = opened(*["hi"] * 3, store=store, budget=2000, tools=())
        await grown_with(bs, turns)
        store.read_records = 0
        cold = opened("warm", "again", store=store, budget=2000, tools=())
        await cold.say("s", "hello")
        read.append(store.read_records)
        store.read_records = 0
        await cold.say("s", "hello")
        assert store.read_records == 0, "a session in hand reads nothing"
    assert max(read) <= 2 * SNAPSHOT_EVERY + 4 * PAGE, read


async def grown_with(bs, turns):
    from backstory.sessions.operations import write

    await bs.say("s", "first")
    session = bs.sessions.peek(S)[0]
    for number in range(2, turns):
        await write(
            session,
            [
                NewRecord(kind="turn_started", turn=number),
                new_message(user(f"q{number} " + "word " * 20), turn=number),
                new_message(assistant(f"a{number} " + "word " * 20), turn=number),
                NewRecord(kind="turn_ended", data={"reason": "done"}, turn=number),
            ],
        )
    await bs.say("s", "last")


async def test_snapshots_come_every_so_many_records(tmp_path):
    store = FilesStore(tmp_path, durability="process")
    bs = opened(*["hi"] * 3, store=store, budget=100_000, tools=())
    await grown_with(bs, 300)
    places = [r.seq for r in await records(bs) if r.kind == "snapshot"]
    assert len(places) >= 4
    assert all(b - a <= SNAPSHOT_EVERY + 8 for a, b in zip([0, *places], places, strict=False))
    await store.close()


async def test_providers_counts_correct_ours():
    from backstory.models.base import Usage
    from backstory.models.scripted import Play

    bs = opened(*[Play(step="hi", usage=Usage(input=1000, output=1))] * 4, tools=())
    for _ in range(4):
        await bs.say("s", "hello")
    assert bs.learned.calibrations["m"].observations == 4
