"""What the files store does when the disk fails it: a typed error, and nothing acknowledged that is not there."""

import asyncio
import errno
import os
import stat
import time

import pytest

from backstory.errors import HeadMoved, NewerFormat, StoreDamaged, StoreUnavailable
from backstory.records import NewRecord
from backstory.stores import FilesStore, LeaseRequest, ManualClock, NewEntry, Replacement, SessionId
from backstory.stores.conformance import note, places, texts
from backstory.stores.disk import Disk
from tests.stores.faults import FaultyDisk

S = SessionId(key="s")


@pytest.fixture
def disk():
    return FaultyDisk()


@pytest.fixture
async def store(tmp_path, disk):
    store = FilesStore(tmp_path / "ws", disk=disk, clock=ManualClock())
    yield store
    await store.close()


@pytest.fixture
async def fresh(tmp_path):
    """A store as the next process would open it."""
    stores = []

    def make():
        stores.append(FilesStore(tmp_path / "ws", clock=ManualClock()))
        return stores[-1]

    yield make
    for store in stores:
        await store.close()


@pytest.mark.parametrize("partial", [0, 1, 40, 100_000])
@pytest.mark.parametrize("call", ["write", "sync"])
async def test_a_failed_append_changes_nothing(store, fresh, disk, call, partial):
    await store.append(S, [note("one")])
    disk.fail(call, times=2, partial=partial)
    for text in ("two", "three"):
        with pytest.raises(StoreUnavailable, match="disk is full"):
            await store.append(S, [note(text), note("more")], expected=1)
    assert texts(await store.read(S)) == ["one"]
    assert (await store.append(S, [note("four")], expected=1)).head.seq == 2
    assert texts(await store.read(S)) == texts(await fresh().read(S)) == ["one", "four"]
    assert (await store.verify(S)).sound


@pytest.mark.parametrize("call", ["write", "sync", "link", "open"])
async def test_a_session_that_could_not_be_made_is_not_there(store, fresh, disk, tmp_path, call):
    disk.fail(call)
    with pytest.raises(StoreUnavailable):
        await store.append(S, [note("one")])
    assert (await fresh().sessions("default")).sessions == ()
    assert await store.append(S, [note("one")], expected=0)
    assert [path.name for path in (tmp_path / "ws" / "sessions").iterdir()] == ["s.jsonl"]


@pytest.mark.parametrize("partial", [5, 100_000])
async def test_when_even_taking_back_fails_the_log_is_looked_at_anew(store, fresh, disk, partial):
    await store.append(S, [note("one")])
    disk.fail("write", "truncate", times=2, partial=partial)
    with pytest.raises(StoreUnavailable):
        await store.append(S, [note("two"), note("more")], expected=1, batch="b")
    again = await store.append(S, [note("two"), note("more")], expected=1, batch="b")
    assert places(list(again.records)) == [2, 3]
    assert again.repeated == (partial > 1000)
    assert texts(await fresh().read(S)) == ["one", "two", "more"]


async def test_a_failed_append_gives_the_lease_back(store, disk):
    await store.append(S, [note("one")])
    disk.fail("sync")
    with pytest.raises(StoreUnavailable):
        await store.append(S, [note("two")], acquire=LeaseRequest(owner="me", ttl=10))
    assert await store.lease(S) is None


@pytest.mark.parametrize("call", ["write", "sync", "replace"])
async def test_a_failed_rewrite_changes_nothing(store, fresh, disk, tmp_path, call):
    await store.append(S, [note("one"), note("two")])
    before = await store.head(S)
    disk.fail(call)
    with pytest.raises(StoreUnavailable):
        await store.rewrite(S, [Replacement(first=1, last=1, record=NewRecord(kind="erased"))], expected=2)
    assert await store.head(S) == await fresh().head(S) == before
    assert texts(await store.read(S)) == ["one", "two"]
    assert len(list((tmp_path / "ws" / "sessions").iterdir())) == 1
    await store.append(S, [note("three")], expected=2)


@pytest.mark.parametrize("call", ["write_at", "sync"])
async def test_a_failed_post_is_not_there(store, disk, call):
    await store.post(S, NewEntry(kind="message", data={"n": 1}))
    disk.fail(call)
    with pytest.raises(StoreUnavailable):
        await store.post(S, NewEntry(kind="message", data={"n": 2}))
    await store.post(S, NewEntry(kind="message", data={"n": 3}))
    assert [entry.data["n"] for entry in await store.inbox(S)] == [1, 3]


async def test_a_failed_blob_leaves_nothing(store, disk, tmp_path):
    disk.fail("write")
    with pytest.raises(StoreUnavailable):
        await store.put_blob("default", b"data")
    assert [path for path in (tmp_path / "ws").rglob("*") if path.is_file()] == []
    handle = await store.put_blob("default", b"data")
    assert await store.get_blob("default", handle) == b"data"
    (blob,) = (tmp_path / "ws" / "blobs").rglob("*.bin")
    blob.write_bytes(b"dada")
    with pytest.raises(StoreDamaged):
        await store.get_blob("default", handle)
    assert await store.put_blob("default", b"data") == handle  # and so it is mended
    assert await store.get_blob("default", handle) == b"data"


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission"),
        (errno.EIO, "error"),
        (errno.EMFILE, "open files"),
    ],
)
async def test_errors_say_what_is_wrong(store, disk, error, words):
    await store.append(S, [note("one")])
    disk.fail("write", error=error)
    with pytest.raises(StoreUnavailable, match=words) as raised:
        await store.append(S, [note("two")])
    assert isinstance(raised.value.__cause__, OSError)


async def test_a_workspace_that_may_only_be_read(store, tmp_path):
    await store.append(S, [note("one"), note("two")])
    await store.close()
    log = tmp_path / "ws" / "sessions" / "s.jsonl"
    log.write_bytes(log.read_bytes() + b'{"seq":3,"to')

    class ReadOnly(Disk):
        def open(self, path, flags):
            if flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT):
                raise PermissionError(errno.EACCES, "Permission denied", path)
            return super().open(path, flags)

        def truncate(self, fd, size):
            raise PermissionError(errno.EACCES, "Permission denied")

    reading = FilesStore(tmp_path / "ws", disk=ReadOnly())
    assert texts(await reading.read(S)) == ["one", "two"]
    assert (await reading.head(S)).seq == 2
    assert len((await reading.sessions("default")).sessions) == 1
    assert [damage.kind for damage in (await reading.verify(S)).damage] == ["torn"]
    with pytest.raises(StoreUnavailable, match="permission"):
        await reading.append(S, [note("three")])
    await reading.close()


async def test_a_file_deleted_under_us(store, tmp_path):
    await store.append(S, [note("one")])
    log = tmp_path / "ws" / "sessions" / "s.jsonl"
    log.unlink()
    with pytest.raises(HeadMoved) as moved:
        await store.append(S, [note("two")])
    assert moved.value.actual == 0
    assert not log.exists()
    assert (await store.append(S, [note("a new one")])).head.seq == 1


async def test_a_file_put_in_the_place_of_ours(store, fresh, tmp_path):
    await store.append(S, [note("one")])
    log = tmp_path / "ws" / "sessions" / "s.jsonl"
    old = log.read_bytes()
    await store.append(S, [note("two")])
    log.with_suffix(".tmp2").write_bytes(old)
    os.replace(log.with_suffix(".tmp2"), log)  # somebody restored a backup
    with pytest.raises(HeadMoved):
        await store.append(S, [note("three")], expected=2)
    assert texts(await store.read(S)) == ["one"]
    await store.append(S, [note("again")], expected=1)
    assert texts(await fresh().read(S)) == ["one", "again"]


async def test_a_newer_format_is_refused(store, tmp_path):
    await store.append(S, [note("one")])
    log = tmp_path / "ws" / "sessions" / "s.jsonl"
    newer = log.read_bytes().replace(b'"version":1', b'"version":2')
    log.write_bytes(newer)
    for call in (
        store.append(S, [note("two")]),
        store.read(S),
        store.head(S),
        store.repair(S),
        store.verify(S),
    ):
        with pytest.raises(NewerFormat, match="upgrade"):
            await call
    assert log.read_bytes() == newer


async def test_a_slow_disk_stalls_nobody_else(tmp_path):
    class Slow(Disk):
        def sync(self, fd):
            time.sleep(0.3)

    store = FilesStore(tmp_path / "ws", disk=Slow())
    await store.append(S, [note("one")])
    slow = asyncio.ensure_future(store.append(S, [note("two")]))
    await asyncio.sleep(0)
    ticks = 0
    while not slow.done():
        await asyncio.sleep(0.005)
        ticks += 1
    assert ticks > 2
    await store.close()


async def test_files_are_private(store, tmp_path):
    await store.append(S, [note("one")])
    await store.post(S, NewEntry(kind="message"))
    await store.put_blob("default", b"data")
    for path in (tmp_path / "ws").rglob("*"):
        assert not stat.S_IMODE(path.stat().st_mode) & 0o077, path


async def test_no_sync_is_spared_and_none_is_made_twice(store, disk):
    await store.append(S, [note("one")])
    disk.seen.clear()
    await store.append(S, [note("two"), note("three")])
    assert [call for call in disk.seen if call in ("write", "sync", "sync_folder")] == ["write", "sync"]


async def test_a_thousand_sessions_do_not_keep_a_thousand_files_open(store):
    before = len(open_files())
    for number in range(400):
        await store.append(SessionId(key=f"s{number}"), [note("x")])
    assert len(open_files()) - before < 220
    assert texts(await store.read(SessionId(key="s0"))) == ["x"]


def open_files():
    return os.listdir("/proc/self/fd") if os.path.isdir("/proc/self/fd") else []


async def test_symbolic_links_lead_nowhere(store, tmp_path):
    await store.append(S, [note("one")])
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "x.jsonl").write_bytes((tmp_path / "ws" / "sessions" / "s.jsonl").read_bytes())
    (tmp_path / "ws" / "sessions" / "link.jsonl").symlink_to(outside / "x.jsonl")
    (tmp_path / "ws" / "sessions" / "@tenant").symlink_to(outside)
    (tmp_path / "ws" / "blobs").mkdir()
    (tmp_path / "ws" / "blobs" / "@tenant").symlink_to(outside)
    before = sorted(outside.iterdir())
    tenant = SessionId(scope="tenant", key="x")
    link = SessionId(key="link")
    for call in (
        store.read(link),
        store.append(link, [note("x")]),
        store.read(tenant),
        store.append(tenant, [note("x")]),
        store.put_blob("tenant", b"x"),
    ):
        with pytest.raises(StoreUnavailable, match="symbolic link"):
            await call
    assert sorted(outside.iterdir()) == before
