"""Damage in a log: set aside with a report, the rest loads; repair keeps the original."""

import os
import shutil
from pathlib import Path

import pytest

from backstory.errors import HeadMoved, StoreDamaged
from backstory.records import NewRecord
from backstory.stores import FilesStore, ManualClock, NewEntry, Replacement, SessionId
from backstory.stores.conformance import note, places, texts

S = SessionId(key="s")


def contents(paths) -> list[bytes]:
    return [Path(path).read_bytes() for path in paths]


class Workspace:
    """A folder whose one log can be ruined."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.log = root / "sessions" / "s.jsonl"
        self.damage: list = []
        self.stores: list[FilesStore] = []

    def open(self) -> FilesStore:
        store = FilesStore(
            self.root, clock=ManualClock(), on_damage=lambda _, damage: self.damage.append(damage)
        )
        self.stores.append(store)
        return store

    async def fill(self, number: int) -> None:
        store = self.open()
        for place in range(1, number + 1):
            await store.append(S, [note(f"r{place}")])
        await store.close()

    def lines(self) -> list[bytes]:
        return self.log.read_bytes().splitlines(keepends=True)

    def ruin(self, lines: list[bytes]) -> bytes:
        self.log.write_bytes(b"".join(lines))
        return self.log.read_bytes()


@pytest.fixture
async def ws(tmp_path):
    made = Workspace(tmp_path / "ws")
    yield made
    for store in made.stores:
        await store.close()


RUINS = {
    "zeros": b"\0" * 300 + b"\n",
    "zeros without a line break": b"\0" * 300,
    "half a line": b'{"type":"note","te\n',
    "not UTF-8": b'{"seq":3,"at":"\xff\xfe"}\n',
    "another object": b'{"hello":"world"}\n',
    "an empty line": b"\n",
    "a raw line break": b'{"seq":3,"at":"x","kind":"meta","data":{"text":"two\nlines"}}\n',
}


@pytest.mark.parametrize("ruin", RUINS.values(), ids=RUINS)
@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_ruined_line_hides_nothing_else(ws, ruin, newest_first):
    await ws.fill(6)
    lines = ws.lines()
    lines[3] = ruin  # record 3
    before = ws.ruin(lines)
    store = ws.open()
    lost = ["r3", "r4"] if not ruin.endswith(b"\n") else ["r3"]
    expected = [f"r{place}" for place in range(1, 7) if f"r{place}" not in lost]
    assert texts(await store.read(S, newest_first=newest_first)) == (
        expected[::-1] if newest_first else expected
    )
    assert ws.damage
    assert all(damage.after == 2 for damage in ws.damage)
    told = len(ws.damage)
    await store.read(S, newest_first=newest_first)
    assert len(ws.damage) == told  # once is enough
    assert texts(await store.read(S, after=4, limit=1)) == ["r5"]
    assert (await store.append(S, [note("r7")], expected=6)).head.seq == 7
    report = await store.verify(S)
    assert not report.sound
    assert report.records == len(expected) + 1
    assert report.damage[0].offset == sum(len(line) for line in lines[:3])
    assert ws.log.read_bytes()[: len(before)] == before  # a check changes nothing


@pytest.mark.parametrize("ruin", RUINS.values(), ids=RUINS)
async def test_repair(ws, ruin):
    await ws.fill(6)
    lines = ws.lines()
    lines[3] = ruin
    ws.ruin([*lines, b'{"seq":7,"at'])
    before = ws.log.read_bytes()
    store = ws.open()
    mended = await store.repair(S)
    assert {damage.kind for damage in mended.damage} > {"torn"}
    assert before in contents(mended.kept)
    assert all(damage.kept in mended.kept for damage in mended.damage)
    assert (await store.verify(S)).sound
    records = await store.read(S)
    lost = [record for record in records if record.kind == "erased"]
    assert [(record.first, record.data) for record in lost] == [(3, {"reason": "damaged"})]
    ends = [0, *places(records)]
    assert [record.first - 1 for record in records] == ends[:-1]
    assert (await store.append(S, [note("r7")], expected=6)).head.seq == 7
    assert await store.repair(S) == await store.verify(S)
    other = ws.open()
    assert await other.read(S) == await store.read(S)


async def test_a_hand_edit_loads_and_is_reported(ws):
    await ws.fill(3)
    lines = ws.lines()
    lines[2] = lines[2].replace(b'"r2"', b'"REDACTED"')
    ws.ruin(lines)
    store = ws.open()
    assert texts(await store.read(S)) == ["r1", "REDACTED", "r3"]
    assert [damage.kind for damage in (await store.verify(S)).damage] == ["checksum"]
    await store.repair(S)
    assert (await store.verify(S)).sound
    assert texts(await store.read(S)) == ["r1", "REDACTED", "r3"]


async def test_records_that_are_missing_or_twice(ws):
    await ws.fill(5)
    head, one, two, three, four, five = ws.lines()
    ws.ruin([head, one, four, two, four, five])
    del three
    store = ws.open()
    assert texts(await store.read(S)) == ["r1", "r4", "r5"]
    report = await store.verify(S)
    assert [damage.kind for damage in report.damage] == ["gap", "order", "order"]
    await store.repair(S)
    assert (await store.verify(S)).sound
    assert [(record.first, record.seq) for record in await store.read(S)] == [(1, 1), (2, 3), (4, 4), (5, 5)]


async def test_without_its_header_a_log_still_loads(ws):
    await ws.fill(3)
    lines = ws.lines()
    for header in (b"", b"what is this\n", b"\0" * 100 + b"\n", b'{"format"'):
        ws.ruin([header, *lines[1:]] if header.endswith(b"\n") or not header else [header, *lines])
        store = ws.open()
        assert texts(await store.read(S))[-2:] == ["r2", "r3"]
        assert "header" in [damage.kind for damage in (await store.verify(S)).damage]
        await store.append(S, [note("r4")], expected=3)
        await store.repair(S)
        assert (await store.verify(S)).sound
        assert texts(await ws.open().read(S))[-1] == "r4"


@pytest.mark.parametrize(
    "content", [b"PK\x03\x04 something else\nentirely\n", b"\0" * 5000 + b"\n", b"[1]\n" * 50]
)
async def test_what_cannot_be_read_is_never_taken_for_a_new_session(ws, content):
    await ws.fill(2)
    ws.log.write_bytes(content)
    store = ws.open()
    for call in (
        store.head(S),
        store.read(S),
        store.append(S, [note("x")]),
        store.append(S, [note("x")], expected=0),
    ):
        with pytest.raises(StoreDamaged, match="repair"):
            await call
    assert ws.log.read_bytes() == content
    report = await store.repair(S)
    assert contents(report.kept) == [content]
    assert (await store.head(S)).seq == 0
    await store.append(S, [note("a new one")], expected=0)


async def test_an_empty_file_is_no_session(ws):
    await ws.fill(1)
    ws.log.write_bytes(b"")
    store = ws.open()
    assert (await store.head(S)).seq == 0
    await store.append(S, [note("new")], expected=0)
    assert texts(await ws.open().read(S)) == ["new"]
    assert (await store.verify(S)).sound


async def test_a_copied_file_is_a_session_of_its_own_name(ws):
    await ws.fill(2)
    shutil.copy(ws.log, ws.log.with_name("copy.jsonl"))
    store = ws.open()
    copy = SessionId(key="copy")
    assert texts(await store.read(copy)) == ["r1", "r2"]
    assert [damage.kind for damage in (await store.verify(copy)).damage] == ["header"]
    await store.repair(copy)
    assert (await store.verify(copy)).sound
    long = [SessionId(key="k" * 300 + end) for end in "ab"]
    for one in long:
        await store.append(one, [note(one.key[-1])])
    first, second = sorted(path for path in ws.log.parent.iterdir() if "~" in path.name)
    os.replace(first, second)  # a shortened name cannot vouch for its key
    raised = 0
    for one in long:
        try:
            await store.read(one)
        except StoreDamaged:
            raised += 1
    assert raised == 1


async def test_purging_leaves_no_trace(ws):
    await ws.fill(3)
    secret = b"r2"
    lines = ws.lines()
    ws.ruin([*lines[:2], lines[2][:-9] + b"\n", lines[3], b'{"seq":4,"secret":"r2'])
    store = ws.open()
    await store.repair(S)
    await store.append(S, [note("r4")])
    assert any(secret in path.read_bytes() for path in ws.root.rglob("*") if path.is_file())
    await store.rewrite(
        S, [Replacement(first=2, last=2, record=NewRecord(kind="erased"))], expected=4, purge=True
    )
    assert not any(secret in path.read_bytes() for path in ws.root.rglob("*") if path.is_file())
    await store.delete(S)
    assert [path for path in ws.root.rglob("*") if path.is_file()] == []


async def test_a_rewrite_of_a_damaged_log_keeps_the_damage(ws):
    await ws.fill(5)
    lines = ws.lines()
    lines[3] = b"garbage\n"
    before = ws.ruin(lines)
    store = ws.open()
    await store.rewrite(S, [Replacement(first=1, last=2, record=NewRecord(kind="archived"))], expected=5)
    report = await store.verify(S)
    assert report.sound
    assert contents(report.kept) == [before]
    assert [record.kind for record in await store.read(S)] == ["archived", "erased", "meta", "meta"]


async def test_a_damaged_inbox(ws):
    store = ws.open()
    for number in range(3):
        await store.post(S, NewEntry(kind="message", data={"n": number}))
    inbox = ws.root / ".backstory" / "inbox" / "s.inbox"
    lines = inbox.read_bytes().splitlines(keepends=True)
    inbox.write_bytes(b"".join([lines[0], lines[1], b"garbage\n", lines[3], b'{"torn' + b"x" * 999]))
    assert [entry.data["n"] for entry in await store.inbox(S)] == [0, 2]
    posted = await store.post(S, NewEntry(kind="message", data={"n": 3}))
    waiting = await store.inbox(S)
    assert [entry.data["n"] for entry in waiting] == [0, 2, 3]
    assert waiting[-1] == posted.entry
    assert ws.damage


async def test_a_lease_file_of_zeros_is_free(ws):
    store = ws.open()
    await store.append(S, [note("x")])
    lease = ws.root / ".backstory" / "leases" / "s.lease"
    lease.write_bytes(b"\0" * 512)
    assert await store.lease(S) is None
    await store.append(S, [note("y")])


async def test_opening_reads_what_is_needed(ws):
    class Counting:
        read = 0

    from backstory.stores.disk import Disk

    class CountingDisk(Disk):
        def read_at(self, fd, length, offset):
            data = super().read_at(fd, length, offset)
            Counting.read += len(data)
            return data

    store = FilesStore(ws.root, durability="process")
    text = "x" * 900
    for _ in range(50):
        await store.append(S, [note(text) for _ in range(1000)])
    await store.close()
    size = ws.log.stat().st_size
    assert size > 50_000_000
    again = FilesStore(ws.root, disk=CountingDisk())
    assert (await again.head(S)).seq == 50_000
    assert Counting.read < 1 << 22  # its last batch holds a thousand records
    Counting.read = 0
    assert places(await again.read(S, newest_first=True, limit=50)) == list(range(50_000, 49_950, -1))
    assert Counting.read < 300_000
    Counting.read = 0
    assert places(await again.read(S, after=25_000, limit=5)) == list(range(25_001, 25_006))
    assert Counting.read < 600_000
    Counting.read = 0
    assert places(await again.read(S, before=25_000, limit=5, newest_first=True)) == list(
        range(24_999, 24_994, -1)
    )
    assert Counting.read < 600_000
    await again.close()


async def test_a_head_that_moved_back(ws):
    """Another process took back a batch that this one had seen, and wrote another in its place."""
    store, reader = ws.open(), ws.open()
    await store.append(S, [note("one")])
    before = ws.log.read_bytes()
    await store.append(S, [note("unlucky")])
    assert (await reader.head(S)).seq == 2
    with ws.log.open("r+b") as file:
        file.truncate(len(before))
    await store.append(S, [note("much longer than what was there before " * 9), note("three")], expected=1)
    assert (await reader.head(S)).seq == 3
    assert texts(await reader.read(S))[0] == "one"
    assert texts(await reader.read(S))[2] == "three"
    with pytest.raises(HeadMoved):
        await reader.append(S, [note("x")], expected=2)


async def test_a_batch_that_was_taken_back_and_written_otherwise(ws):
    """As above, with a single longer record in its place: what the reader knew ends in the midst of it."""
    store, reader = ws.open(), ws.open()
    await store.append(S, [note("one")])
    before = ws.log.read_bytes()
    await store.append(S, [note("unlucky")])
    assert (await reader.head(S)).seq == 2
    with ws.log.open("r+b") as file:
        file.truncate(len(before))
    longer = "much longer than what was there before " * 9
    await store.append(S, [note(longer)], expected=1)
    assert texts(await reader.read(S)) == ["one", longer]
    await reader.append(S, [note("three")], expected=2)
    assert texts(await ws.open().read(S)) == ["one", longer, "three"]
    assert not ws.damage
