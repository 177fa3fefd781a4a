"""A crash at any byte and at any step leaves exactly what was acknowledged, in whole batches."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from backstory.errors import StoreError
from backstory.stores import FilesStore, LeaseRequest, ManualClock, NewEntry, Replacement, SessionId
from backstory.stores.conformance import note, places, texts
from tests.stores.faults import DyingDisk, Killed

S = SessionId(key="s")
CHILD = Path(__file__).with_name("child.py")


def take_away(path) -> bytes:
    content = Path(path).read_bytes()
    Path(path).unlink()
    return content


def environment() -> dict[str, str]:
    import backstory

    source = str(Path(backstory.__file__).parents[1])
    return {**os.environ, "PYTHONPATH": source + os.pathsep + os.environ.get("PYTHONPATH", "")}


@pytest.mark.parametrize("size", [1, 3])
async def test_the_journal_cut_at_every_byte_of_the_last_batch(tmp_path, size):
    store = FilesStore(tmp_path / "ws", durability="process")
    await store.append(S, [note("一"), note("two 🍵")])
    log = tmp_path / "ws" / "sessions" / "s.jsonl"
    before = log.stat().st_size
    await store.append(S, [note(f"last 茶 {number}", more="x" * 20) for number in range(size)])
    await store.close()
    whole = log.read_bytes()
    for end in range(before, len(whole) + 1):
        log.write_bytes(whole[:end])
        found = []
        store = FilesStore(
            tmp_path / "ws",
            durability="process",
            on_damage=lambda _, damage: found.append(damage),  # noqa: B023
        )
        expected = 2 if end < len(whole) else 2 + size
        assert (await store.head(S)).seq == expected
        assert places(await store.read(S)) == list(range(1, expected + 1))
        assert places(await store.read(S, newest_first=True, limit=1)) == [expected]
        torn = end - before if end < len(whole) else 0
        assert [damage.kind for damage in found] == (["torn"] if torn else [])
        if torn:
            assert take_away(found[0].kept) == whole[before:end]
        assert (await store.append(S, [note("after the crash")], expected=expected)).head.seq == expected + 1
        await store.close()
        again = FilesStore(tmp_path / "ws", durability="process")
        assert texts(await again.read(S))[-1] == "after the crash"
        assert (await again.verify(S)).sound
        await again.close()


async def test_a_reader_beside_a_writer_sees_whole_batches(tmp_path):
    """The same cuts as a write under way: a reader that does not get the lock leaves the tail alone."""
    store = FilesStore(tmp_path / "ws", durability="process")
    await store.append(S, [note("one")])
    reader = FilesStore(tmp_path / "ws", durability="process")
    assert (await reader.head(S)).seq == 1
    log = tmp_path / "ws" / "sessions" / "s.jsonl"
    before = log.read_bytes()
    await store.append(S, [note("two"), note("three")])
    whole = log.read_bytes()
    lock = os.open(tmp_path / "ws" / ".backstory" / "leases" / "s.lease", os.O_RDWR)
    fcntl = pytest.importorskip("fcntl")
    fcntl.flock(lock, fcntl.LOCK_EX)
    for end in range(len(before), len(whole)):
        log.write_bytes(whole[:end])
        assert texts(await reader.read(S)) == ["one"]
        assert log.stat().st_size == end
    log.write_bytes(whole)
    assert texts(await reader.read(S)) == ["one", "two", "three"]
    os.close(lock)
    await store.close()
    await reader.close()


async def test_pages_of_zeros_after_a_loss_of_power(tmp_path):
    """The file has grown, but some of the batch's pages never reached the disk."""
    store = FilesStore(tmp_path / "ws")
    await store.append(S, [note("one")])
    log = tmp_path / "ws" / "sessions" / "s.jsonl"
    size = log.stat().st_size
    await store.append(S, [note("x" * 5000), note("y" * 5000), note("z")])
    await store.close()
    raw = bytearray(log.read_bytes())
    for start, end in ((size, size + 4096), (size + 4096, size + 8192), (size, len(raw))):
        torn = bytearray(raw)
        torn[start:end] = bytes(end - start)
        log.write_bytes(torn)
        again = FilesStore(tmp_path / "ws")
        assert texts(await again.read(S)) == ["one"]
        assert (await again.append(S, [note("on")], expected=1)).head.seq == 2
        await again.close()


async def scenario(store, acknowledged):
    """What a session's life does to a disk; `acknowledged` hears of each step that returned."""
    lease = (await store.append(S, [note("q1")], acquire=LeaseRequest(owner="a", ttl=9), expected=0)).lease
    acknowledged.append("q1")
    await store.append(S, [note("a1"), note("a2")], fence=lease.fence, expected=1, batch="a")
    acknowledged.append("a1 a2")
    await store.post(S, NewEntry(kind="message", data={}, id="m1"))
    acknowledged.append("post")
    await store.put_draft(S, {"text": "dra"}, after=3, fence=lease.fence)
    await store.rewrite(
        S, [Replacement(first=1, last=2, record=note("gone"))], expected=3, fence=lease.fence, purge=True
    )
    acknowledged.append("rewrite")
    await store.append(S, [note("m1")], fence=lease.fence, expected=3)
    acknowledged.append("m1")
    await store.take(S, ["m1"], fence=lease.fence)
    acknowledged.append("take")
    await store.put_blob("default", b"blob")
    acknowledged.append("blob")
    await store.append(S, [note("end")], fence=lease.fence, release=True, expected=4)
    acknowledged.append("end")


LOGS = {
    "": [],
    "q1": ["q1"],
    "a1 a2": ["q1", "a1", "a2"],
    "post": ["q1", "a1", "a2"],
    "rewrite": ["gone", "a2"],
    "m1": ["gone", "a2", "m1"],
    "take": ["gone", "a2", "m1"],
    "blob": ["gone", "a2", "m1"],
    "end": ["gone", "a2", "m1", "end"],
}


@pytest.mark.parametrize("torn", [0, 1, 200, 10_000])
async def test_dying_at_every_step(tmp_path, torn):
    steps = list(LOGS)
    for at in range(1000):
        root = tmp_path / f"ws{at}"
        acknowledged = [""]
        store = FilesStore(root, disk=DyingDisk(at, torn), clock=ManualClock())
        try:
            await scenario(store, acknowledged)
            finished = True
        except Killed:
            finished = False
        again = FilesStore(root, clock=ManualClock(1_750_001_000.0))  # its lease has run out by now
        found = texts(await again.read(S))
        last = steps.index(acknowledged[-1])
        allowed = [LOGS[steps[last]], LOGS[steps[min(last + 1, len(steps) - 1)]]]
        assert found in allowed, (at, acknowledged, found)
        if "post" in acknowledged and "take" not in acknowledged:
            assert [entry.id for entry in await again.inbox(S)] in (
                ["m1"],
                [] if acknowledged[-1] == "m1" else ["m1"],
            )
        head = (await again.head(S)).seq
        await again.append(S, [note("life goes on")], acquire=LeaseRequest(owner="b", ttl=9), expected=head)
        assert (await again.verify(S)).sound
        await again.put_blob("default", b"another")
        await again.close()
        left = [path for path in root.rglob("*") if path.is_file() and path.suffix not in KNOWN]
        assert left == [], (at, left)
        await store.close()
        if finished:
            return
    raise AssertionError("the scenario never ends")


KNOWN = {".jsonl", ".lease", ".inbox", ".draft", ".bin", ".torn"}


# --- processes that are killed, and processes that are stopped


def run_child(root, name, *, ttl="0.5"):
    return subprocess.Popen(
        [sys.executable, str(CHILD), str(root), name, ttl],
        stdout=subprocess.PIPE,
        env=environment(),
        text=True,
    )


async def kill_again_and_again(root, times, seed):
    """Children append batches of random sizes and print what was acknowledged; each is killed at some instant."""
    chance = random.Random(seed)
    acknowledged: list[str] = []
    for number in range(times):
        child = run_child(root, f"c{number}", ttl="0.01")
        assert child.stdout is not None
        child.stdout.readline()
        await asyncio.sleep(chance.random() * 0.05)
        child.send_signal(signal.SIGKILL)
        acknowledged += [line for line in child.communicate()[0].splitlines() if line.endswith(".")]
        await asyncio.sleep(0.02)
    store = FilesStore(root)
    records = await store.read(S)
    assert places(records) == list(range(1, len(records) + 1))
    names = texts(records)
    assert len(set(names)) == len(names)
    assert {line[:-1] for line in acknowledged} <= {record.batch for record in records}
    sizes: dict[str, list[tuple[int, int]]] = {}
    for record in records:
        sizes.setdefault(str(record.batch), []).append(record.part)
    for batch, parts in sizes.items():
        assert parts == [(index + 1, parts[0][1]) for index in range(parts[0][1])], batch
    assert (await store.verify(S)).sound
    assert list((root / "sessions").iterdir()) == [root / "sessions" / "s.jsonl"]
    await store.close()
    return len(acknowledged)


async def test_kill_9(tmp_path):
    assert await kill_again_and_again(tmp_path / "ws", 12, seed=1) > 12


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
async def test_kill_9_many_times(tmp_path, seed):
    assert await kill_again_and_again(tmp_path / "ws", 75, seed=seed) > 75


@pytest.mark.skipif(not hasattr(signal, "SIGSTOP"), reason="needs SIGSTOP")
@pytest.mark.parametrize("where", ["anywhere", "write", "sync"])
async def test_a_stopped_process_is_taken_over(tmp_path, where):
    """Also when it stands still while it holds the lock; when it wakes, it is refused."""
    root = tmp_path / "ws"
    child = run_child(root, where, ttl="0.2")
    assert child.stdout is not None
    child.stdout.readline()
    if where != "anywhere":  # in an append, while it holds the lock
        while child.stdout.readline().strip() != "sleeping":
            pass
    child.send_signal(signal.SIGSTOP)
    try:
        await asyncio.sleep(0.3)
        store = FilesStore(root, patience=3)
        head = await store.head(S)
        taken = None
        for _ in range(100):
            try:
                taken = (
                    await store.append(S, [note("heir")], acquire=LeaseRequest(owner="heir", ttl=30))
                ).lease
                break
            except StoreError:
                await asyncio.sleep(0.05)
        assert taken is not None
        child.send_signal(signal.SIGCONT)
        out = child.communicate(timeout=120)[0].splitlines()
        assert out[-1] == "StaleLease", out[-3:]
        acknowledged = {line[:-1] for line in out if line.endswith(".")}
        records = await store.read(S)
        assert texts(records)[-1] == "heir"
        assert acknowledged <= {record.batch for record in records}
        assert places(records) == list(range(1, len(records) + 1))
        assert (await store.append(S, [note("on")], fence=taken.fence)).head.seq == len(records) + 1
        assert (await store.verify(S)).sound
        assert head.seq <= len(records)
        await store.close()
    finally:
        child.kill()
        child.wait()


async def test_processes_that_append_at_once(tmp_path):
    root = tmp_path / "ws"
    children = [run_child(root, f"free{number}") for number in range(4)]
    outputs = await asyncio.gather(*(asyncio.to_thread(child.communicate, None, 60) for child in children))
    assert all(child.returncode == 0 for child in children)
    store = FilesStore(root)
    records = await store.read(S)
    assert places(records) == list(range(1, 4 * 25 * 2 + 1))
    for first, second in zip(records[::2], records[1::2], strict=True):
        assert first.batch == second.batch
    acknowledged = {line[:-1] for out, _ in outputs for line in out.splitlines() if line.endswith(".")}
    assert acknowledged == {record.batch for record in records}
    await store.close()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8"])
def test_any_locale(tmp_path, locale):
    text = "grüße 茶 🍵 \u2028 “q”"
    code = f"""
import asyncio, sys
from backstory.stores import FilesStore, SessionId
from backstory.records import new_message
from backstory.messages import user
text, key, scope = {text!a}, {"微信:张三"!a}, {"租户"!a}
async def main():
    session = SessionId(key=key, scope=scope)
    store = FilesStore(sys.argv[1])
    await store.append(session, [new_message(user(text))])
    await store.close()
    store = FilesStore(sys.argv[1])
    assert [record.message.text for record in await store.read(session)] == [text]
    assert [info.session for info in (await store.sessions(scope)).sessions] == [session]
    assert await store.scopes() == [scope]
    await store.close()
asyncio.run(main())
"""
    env = {
        **environment(),
        "PYTHONUTF8": "0",
        "PYTHONCOERCECLOCALE": "0",
        "LC_ALL": locale,
        "LANG": locale,
    }
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "ws")], env=env, capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr.decode()
    (log,) = (tmp_path / "ws" / "sessions").rglob("*.jsonl")
    assert os.fsencode(log.name) == "微信=张三.jsonl".encode()
    assert json.loads(log.read_bytes().splitlines()[1])["data"]["message"]["parts"][0]["text"] == text
