"""Several processes on one file; processes that are killed or stopped at any instant."""

import asyncio
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backstory.errors import StoreError
from backstory.stores import LeaseRequest, NewEntry, SessionId, SqliteStore
from backstory.stores.conformance import note, places, texts
from tests.stores.sqlite_child import SESSIONS
from tests.stores.test_files_crash import environment

CHILD = Path(__file__).with_name("sqlite_child.py")


def run_child(path, name, most=0):
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(path), name, str(most)],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )


async def check_logs(path, acknowledged):
    """Whole batches, dense places, each once, and all that was acknowledged."""
    store = SqliteStore(path)
    seen = set()
    for number in range(SESSIONS):
        session = SessionId(key=f"s{number}")
        records = await store.read(session)
        assert places(records) == list(range(1, len(records) + 1))
        start = 0
        while start < len(records):
            batch, size = records[start].batch, records[start].part[1]
            part = records[start : start + size]
            assert [record.part for record in part] == [(index + 1, size) for index in range(size)]
            assert {record.batch for record in part} == {batch}
            assert batch not in seen
            seen.add(batch)
            start += size
        assert (await store.verify(session)).sound
    await store.close()
    assert acknowledged <= seen
    return len(seen)


async def kill_again_and_again(path, times, seed):
    chance = random.Random(seed)
    acknowledged: set[str] = set()
    for number in range(times):
        child = run_child(path, f"c{number}")
        assert child.stdout is not None
        child.stdout.readline()
        await asyncio.sleep(chance.random() * 0.15)
        child.send_signal(signal.SIGKILL)
        acknowledged |= {line[:-1] for line in child.communicate()[0].splitlines() if line.endswith(".")}
    await check_logs(path, acknowledged)
    return len(acknowledged)


async def test_kill_9(tmp_path):
    assert await kill_again_and_again(tmp_path / "chat.db", 6, seed=1) > 6


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
async def test_kill_9_many_times(tmp_path, seed):
    assert await kill_again_and_again(tmp_path / "chat.db", 40, seed=seed) > 100


async def test_processes_that_append_at_once(tmp_path):
    path = tmp_path / "chat.db"
    children = [run_child(path, f"p{number}", 10) for number in range(4)]
    outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, None, 120) for child in children))
    assert [child.returncode for child in children] == [0] * 4
    acknowledged = {line[:-1] for out, _ in outputs for line in out.splitlines() if line.endswith(".")}
    assert len(acknowledged) == 4 * 10 * SESSIONS
    assert await check_logs(path, acknowledged) == len(acknowledged)


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
async def test_a_stopped_process_is_taken_over_and_refused(tmp_path):
    """Unless it stands still in the midst of a commit, which nobody can take from it: then it is let go on a little."""
    path = tmp_path / "chat.db"
    child = run_child(path, "holder")
    assert child.stdout is not None
    child.stdout.readline()
    session = SessionId(key="s0")
    store = SqliteStore(path, patience=0.5)
    taken = None
    try:
        while taken is None:
            child.send_signal(signal.SIGSTOP)
            await asyncio.sleep(0.3)
            try:
                done = await store.append(session, [note("heir")], acquire=LeaseRequest(owner="heir", ttl=60))
                taken = done.lease
            except StoreError:
                child.send_signal(signal.SIGCONT)
                await asyncio.sleep(0.01)
        child.send_signal(signal.SIGCONT)
        lines = (await asyncio.to_thread(child.communicate, None, 60))[0].splitlines()
        assert lines[-1] == "StaleLease"
        assert texts(await store.read(session))[-1] == "heir"
        await store.close()
        await check_logs_of_one(path, session, {line[:-1] for line in lines if line.endswith(".")})
    finally:
        child.kill()
        child.wait()


async def check_logs_of_one(path, session, acknowledged):
    store = SqliteStore(path)
    records = await store.read(session)
    assert places(records) == list(range(1, len(records) + 1))
    assert acknowledged <= {record.batch for record in records}
    await store.close()


async def test_mail_from_another_process_wakes(tmp_path):
    store = SqliteStore(tmp_path / "chat.db")
    session = SessionId(key="s")
    await store.append(session, [note("a")])
    waiting = asyncio.ensure_future(store.wait(session, mail_after=0, within=60))
    await asyncio.sleep(0.1)
    assert not waiting.done()
    code = (
        "import asyncio, sys\n"
        "from backstory.stores import NewEntry, SessionId, SqliteStore\n"
        "async def main():\n"
        "    store = SqliteStore(sys.argv[1])\n"
        "    await store.post(SessionId(key='s'), NewEntry(kind='message', id='m1'))\n"
        "    await store.close()\n"
        "asyncio.run(main())\n"
    )
    child = await asyncio.create_subprocess_exec(
        sys.executable, "-c", code, str(tmp_path / "chat.db"), env=environment()
    )
    assert await child.wait() == 0
    assert await asyncio.wait_for(waiting, 60)
    assert (await store.post(session, NewEntry(kind="message", id="m1"))).repeated
    await store.close()
