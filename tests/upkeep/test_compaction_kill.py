"""Processes killed with SIGKILL around compactions: never half of one, never a lost message."""

import asyncio
import multiprocessing
import os
import random
import signal
import sys
import time

import pytest

from backstory.models.scripted import ScriptedModel
from backstory.sessions.summaries import summary_of
from backstory.sessions.view import fold
from tests.sessions.support import S, check_log, coverage, legal
from tests.sessions.test_kill import begin, check_acknowledged, heard
from tests.upkeep import compacting_child as child

KILLS = int(os.environ.get("BACKSTORY_TEST_COMPACTION_KILLS", "40"))
SEED = int(os.environ.get("BACKSTORY_TEST_SEED", "20251201"))

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(sys.platform == "win32", reason="processes are killed by SIGKILL"),
]


@pytest.mark.timeout(900)
def test_kill_9_around_compactions(tmp_path):
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["tests.sessions.nursery"])
    rng = random.Random(SEED)
    said: dict[str, str] = {}
    ended: set[str] = set()
    for round_ in range(KILLS):
        process, pipe = begin(context, child.talk, str(tmp_path), f"r{round_}")
        assert pipe.poll(60)
        assert pipe.recv_bytes() == b"ready"
        time.sleep(rng.uniform(0, 0.15))
        os.kill(process.pid, signal.SIGKILL)
        process.join()
        for line in heard(pipe):
            message_id, _, text = line.removeprefix("said ").partition(" ")
            said[message_id] = text
        ended.add(asyncio.run(recovered(tmp_path, rng, said)))
    log = asyncio.run(written(tmp_path))
    summaries = sum(record.kind == "summary" for record in log)
    assert summaries, "there was no compaction: the kills prove nothing"
    print(f"{KILLS} kills, seed {SEED}: {len(said)} answers acknowledged, {summaries} compactions;")
    print(f"newest records were {sorted(ended)}")


async def written(root):
    async with child.opened(root) as bs:
        return await bs.store.read(S)


async def recovered(root, rng, said):
    """Look at what a killed process left, and go on with it now and then. The kind of its newest record."""
    bs = child.opened(root)
    assert await bs.store.wait(S, free=True, within=30)
    log = await bs.store.read(S)
    if rng.random() < 0.5:
        message_id = f"x{len(log)}"
        reply = await bs.say("s", child.asked(message_id), message_id=message_id)
        said[message_id] = reply.text
    now = await bs.store.read(S)
    view = fold(now)
    covered = coverage(now)
    assert {seq: view.coverage(seq)[0] for seq in covered} == covered
    if view.turn is None:
        check_log(now)
    check_acknowledged(now, said, ())
    assert (await bs.store.verify(S)).sound
    cold = await bs.sessions.peek(S)[0].refresh()
    assert summary_of(cold) == summary_of(view)
    assert cold.cut == view.cut
    assert isinstance(bs.model, ScriptedModel)
    legal(bs.model)
    await bs.close()
    return log[-1].kind if log else ""
