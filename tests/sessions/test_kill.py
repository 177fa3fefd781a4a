"""Processes killed with SIGKILL at random instants over turns with tools; several at once; the journal cut anywhere."""

import asyncio
import contextlib
import json
import multiprocessing
import os
import random
import shutil
import signal
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import backstory
from backstory.errors import SessionError
from backstory.formats.synthetic import NOT_STARTED_TEXT
from backstory.messages import texts
from backstory.models.scripted import ScriptedModel, calls
from backstory.records import from_line
from backstory.sessions.view import fold
from backstory.stores import FilesStore, SessionId
from tests.sessions import child
from tests.sessions.support import S, check_log, legal

KILLS = int(os.environ.get("BACKSTORY_TEST_KILLS", "60"))
SEED = int(os.environ.get("BACKSTORY_TEST_SEED", "20251201"))

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by SIGKILL")


@pytest.fixture(scope="module")
def nursery():
    """Processes that begin at once: forked from one that has imported everything."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.sessions.nursery"])
    return context


def begin(nursery, work, *arguments):
    """A child, and what it reports."""
    ours, theirs = nursery.Pipe(duplex=False)
    process = nursery.Process(target=work, args=(*arguments, theirs), daemon=True)
    process.start()
    theirs.close()
    return process, ours


def heard(pipe):
    """All that a child reported, also one that is dead."""
    found = []
    with contextlib.suppress(EOFError, ConnectionError):
        while pipe.poll(0.2):
            found.append(pipe.recv_bytes().decode())
    return found


def effects(root: Path) -> Counter:
    with contextlib.suppress(FileNotFoundError):
        return Counter((root / "effects").read_text().split())
    return Counter()


def leftovers(root: Path) -> list[str]:
    """Files of a store that should not be there when nothing is under way."""
    found = []
    for path in root.rglob("*"):
        name = path.name.lower()
        if path.is_file() and (
            name.endswith((".tmp", ".lock")) or "draft" in name or "incoming" in path.parts
        ):
            found.append(str(path.relative_to(root)))
    return found


def check_acknowledged(log, said, results):
    """Nothing that was acknowledged is lost, and nothing is there twice."""
    ids = Counter(r.message_id for r in log if r.kind == "message" and r.message_id)
    assert max(ids.values(), default=1) == 1
    answers: dict[int, list[str]] = {}
    for record in log:
        if record.kind == "message" and record.message.role == "assistant":
            answers.setdefault(record.turn, []).append(record.message.text)
    turns = {r.message_id: r.turn for r in log if r.kind == "message" and r.message_id}
    for message_id, text in said.items():
        assert answers[turns[message_id]][-1] == text
    real: Counter[str] = Counter()
    for record in log:
        if record.kind == "message":
            real.update(texts(r.content) for r in record.message.results if not r.synthetic)
    assert max(real.values(), default=1) == 1
    for token in results:
        assert real[f"did {token}"] == 1


def check_effects(log, done):
    """What was done was done once; a call that is told as not started had no effect; a result's effect is there."""
    assert max(done.values(), default=1) == 1
    view = {}
    for record in log:
        if record.kind != "message":
            continue
        for call in record.message.calls:
            view[(record.turn, call.id)] = json.loads(call.arguments)["token"]
        for result in record.message.results:
            token = view[(record.turn, result.call_id)]
            if texts(result.content) == NOT_STARTED_TEXT:
                assert done[token] == 0, f"{token} was told as not started"
            elif not result.synthetic:
                assert done[token] == 1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_kill_9_at_random_instants(nursery, tmp_path):
    rng = random.Random(SEED)
    said: dict[str, str] = {}
    results: set[str] = set()
    torn = 0
    for round_ in range(KILLS):
        process, pipe = begin(
            nursery, child.talk, str(tmp_path), f"r{round_}", 1000, "s", child.TTL, rng.random() < 0.5
        )
        assert pipe.poll(30)
        assert pipe.recv_bytes() == b"ready"
        time.sleep(rng.uniform(0, 0.1) + (child.TTL if rng.random() < 0.2 else 0))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        for line in heard(pipe):
            what, _, rest = line.partition(" ")
            if what == "said":
                message_id, _, text = rest.partition(" ")
                said[message_id] = text
            elif what == "result":
                results.add(rest)
        torn += asyncio.run(recovered(tmp_path, rng, said, results))
    assert torn > KILLS // 10, "the kills hit no turn: they prove nothing"
    print(
        f"{KILLS} kills, seed {SEED}: {torn} open turns, {len(said)} answers, {len(results)} results acknowledged"
    )


async def recovered(root, rng, said, results):
    """Look at what a killed process left, and sometimes take it up. Whether a turn was open."""
    bs = child.opened(root)
    assert await bs.store.wait(S, free=True, within=10)
    log = await bs.store.read(S)
    view = fold(log)
    check_acknowledged(log, said, results)
    check_effects(log, effects(root))
    was_open = view.turn is not None
    how = rng.choice(["resume", "same", "other", "leave"])
    if was_open and how == "resume":
        await bs.resume("s")
    elif was_open and how == "same":
        message_id = str(view.turn and view.turn.message_id)
        text = child.asked(message_id, int(message_id.rpartition(".")[2]))
        reply = await bs.say("s", text, message_id=message_id)
        said[message_id] = reply.text
    elif how == "other":
        reply = await bs.say("s", "do nothing act 0")
        assert reply.text.startswith("answer")
    if how != "leave":
        log = await bs.store.read(S)
        assert fold(log).turn is None
        check_log(log)
        check_acknowledged(log, said, results)
        check_effects(log, effects(root))
        assert await bs.store.inbox(S) == []
        assert await bs.store.draft(S) is None
        assert (await bs.store.verify(S)).sound
    model = bs.model
    assert isinstance(model, ScriptedModel)
    legal(model)
    await bs.close()
    if how != "leave":
        assert leftovers(root) == []
    return was_open


# --- several processes at once -----------------------------------------------------------------------


def run_all(processes):
    reports = []
    for process, pipe in processes:
        found: list[str] = []
        while not found or found[-1] != "finished":
            assert pipe.poll(120), f"a child hangs after {len(found)} reports"
            found.append(pipe.recv_bytes().decode())
        process.join(60)
        reports.append([line for line in found if line.startswith("said")])
    return reports


def check_shared(root, key, expected):
    async def look():
        store = FilesStore(root, durability="process")
        session = SessionId(key=key)
        log = await store.read(session)
        check_log(log)
        names = [r.message_id for r in log if r.kind == "message" and r.message_id]
        assert sorted(names) == sorted(expected)
        assert (await store.verify(session)).sound
        assert await store.inbox(session) == []
        assert await store.lease(session) is None
        await store.close()
        return log

    return asyncio.run(look())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_four_processes_take_turns_in_one_session(nursery, tmp_path):
    count = 50
    processes = [
        begin(nursery, child.talk, str(tmp_path), f"p{n}", count, "s", 30.0, False) for n in range(4)
    ]
    reports = run_all(processes)
    log = check_shared(tmp_path, "s", [f"p{n}.{m}" for n in range(4) for m in range(count)])
    said = {}
    for report in reports:
        assert len(report) == count
        for line in report:
            _, message_id, text = line.split(" ", 2)
            said[message_id] = text
    check_acknowledged(log, said, set())
    check_effects(log, effects(tmp_path))
    assert all(r.data["reason"] == "done" for r in log if r.kind == "turn_ended")
    for n in range(4):  # what one process said after another message stands after it
        mine = [
            r.message_id for r in log if r.kind == "message" and (r.message_id or "").startswith(f"p{n}.")
        ]
        assert mine == [f"p{n}.{m}" for m in range(count)]
    assert leftovers(tmp_path) == []


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_eight_processes_in_twenty_five_sessions(nursery, tmp_path):
    keys = [f"chat:{n}" for n in range(25)]
    processes = [begin(nursery, child.sessions, str(tmp_path), f"p{n}", keys, 2) for n in range(8)]
    run_all(processes)
    for key in keys:
        log = check_shared(tmp_path, key, [f"p{n}.{m}" for n in range(8) for m in range(2)])
        asked = [r.message.text.split()[1] for r in log if r.kind == "message" and r.message.role == "user"]
        assert {name.rpartition(".p")[0] for name in asked} == {key}
    assert leftovers(tmp_path) == []


def test_two_processes_take_turns(nursery, tmp_path):
    """The same in small, with every run of the tests."""
    processes = [begin(nursery, child.talk, str(tmp_path), f"p{n}", 5, "s", 30.0, False) for n in range(2)]
    run_all(processes)
    check_shared(tmp_path, "s", [f"p{n}.{m}" for n in range(2) for m in range(5)])


# --- the journal, cut at every byte -------------------------------------------------------------------


async def whole_turn(root):
    """A session of two turns, the second with tools; its log, and the bytes of it."""
    bs = child.opened(root)
    await bs.say("s", "do first act 0")
    await bs.say("s", "do second act 2", message_id="m2")
    await bs.close()
    return (root / "sessions" / "s.jsonl").read_bytes()


def acknowledged(data: bytes, end: int):
    """The records of the batches that lie wholly before a byte: these were acknowledged."""
    found, batch = [], []
    for line in data[:end].split(b"\n")[1:-1]:
        record = from_line(line)
        batch.append(record)
        if record.part[0] == record.part[1]:
            found += batch
            batch = []
    return found


async def check_cut(root, base, data, end, taken_up):
    shutil.rmtree(root, ignore_errors=True)
    shutil.copytree(base / "blobs", root / "blobs")
    (root / "sessions").mkdir()
    log = root / "sessions" / "s.jsonl"
    log.write_bytes(data[:end])
    expected = acknowledged(data, end)
    model = ScriptedModel(child.reply, name="m")
    store = FilesStore(root, durability="process")
    bs = backstory.open(store, model=model, tools=child.tools(root), budget=6000, runtime=False)
    assert [r.line for r in await store.read(S)] == [r.line for r in expected]
    is_open = fold(expected).turn is not None
    if taken_up == "resume" and is_open:
        await bs.resume("s")
    elif taken_up == "resume":
        with pytest.raises(SessionError):
            await bs.resume("s")
    elif taken_up == "same":
        reply = await bs.say("s", "do second act 2", message_id="m2")
        assert reply.reason == "done"
    else:
        await bs.say("s", "do third act 0")
    after = await store.read(S)
    assert [r.line for r in after[: len(expected)]] == [r.line for r in expected]
    check_log(after)
    if is_open or taken_up != "resume":
        assert fold(after).turn is None
    legal(model)
    assert (await store.verify(S)).sound
    if end % 10 == 0:  # and it goes on
        again = ScriptedModel(["fine"], name="m")
        bs = backstory.open(store, model=again, tools=child.tools(root), budget=6000, runtime=False)
        await bs.say("s", "do more act 0")
        legal(again)
        check_log(await store.read(S))
    await store.close()


def ends_to_try(data, step):
    begin = data.index(b'"m2"')
    begin = data.rindex(b"\n", 0, begin)
    boundaries = {n + d for n in range(begin, len(data)) if data[n : n + 1] == b"\n" for d in (0, 1)}
    return sorted(boundaries | set(range(begin, len(data) + 1, step)))


@pytest.mark.parametrize("taken_up", ["resume", "same", "other"])
async def test_the_journal_cut_anywhere_in_a_turn(tmp_path, taken_up):
    data = await whole_turn(tmp_path / "base")
    for end in ends_to_try(data, 397):
        await check_cut(tmp_path / "cut", tmp_path / "base", data, end, taken_up)


@pytest.mark.slow
@pytest.mark.timeout(1200)
async def test_the_journal_cut_at_every_byte_of_a_turn(tmp_path):
    data = await whole_turn(tmp_path / "base")
    for number, end in enumerate(ends_to_try(data, 1)):
        taken_up = ("resume", "same", "other")[number % 3]
        await check_cut(tmp_path / "cut", tmp_path / "base", data, end, taken_up)


def test_calls_are_what_the_child_asks_for():
    body = {"messages": [{"role": "user", "content": child.asked("x", 1)}]}
    assert child.reply(body) == calls(
        *(("act_beside", {"token": f"x/{n}"}) for n in range(3)), text="thinking about it " * 3
    )
