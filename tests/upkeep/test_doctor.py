"""The doctor finds what was done to a session, says why, and mends it without losing the rest."""

from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

import backstory
from backstory.messages import user
from backstory.models import ScriptedModel, calls
from backstory.records import NewRecord, new_message
from backstory.sessions.view import SNAPSHOT_EVERY
from backstory.stores.files import FilesStore
from backstory.stores.in_memory import InMemoryStore
from backstory.stores.values import DamageKind, LeaseRequest, NewEntry, Replacement, SessionId
from backstory.upkeep.checks import DAMAGE
from backstory.upkeep.doctor import Checkup, examine, examine_all

ID = SessionId(key="cli:direct")


@backstory.tool
def look(place: str) -> str:
    """What there is to see."""
    return f"rain in {place}" * 1


@pytest.fixture
async def folder(tmp_path: Path) -> Path:
    model = ScriptedModel(["Hello.", calls(("look", {"place": "Rome"})), "Rain.", "Bye."])
    async with backstory.open(tmp_path, model=model, tools=[look]) as bs:
        await bs.say("cli:direct", "I am Ada.")
        await bs.say("cli:direct", "How is Rome?")
        await bs.say("cli:other", "Hi", scope="ada")
    return tmp_path


def log(folder: Path) -> Path:
    return folder / "sessions" / "cli=direct.jsonl"


def kept(found: Checkup) -> list[bytes]:
    return [Path(path).read_bytes() for path in found.kept]


def levels(found: Checkup) -> list[str]:
    return [finding.level for finding in found.findings]


def whats(found: Checkup) -> str:
    return "\n".join(f"{finding.what} | {finding.cause} | {finding.remedy}" for finding in found.findings)


async def checked(folder: Path, *, repair: bool = False) -> Checkup:
    store = FilesStore(folder)
    try:
        return await examine(store, ID, repair=repair)
    finally:
        await store.close()


async def test_a_whole_store_has_nothing(folder: Path):
    store = FilesStore(folder)
    found = [each async for each in examine_all(store)]
    await store.close()
    assert {str(each.session) for each in found} == {"cli:direct", "ada/cli:other"}
    assert all(each.sound and not each.findings for each in found), [whats(each) for each in found]
    assert sorted(each.turns for each in found) == [1, 2]


def edit(change: Callable[[list[bytes]], list[bytes]]) -> Callable[[Path], None]:
    def do(folder: Path) -> None:
        lines = log(folder).read_bytes().split(b"\n")
        log(folder).write_bytes(b"\n".join(change(lines)))

    return do


DAMAGES: dict[str, Callable[[Path], None]] = {
    "json": edit(lambda lines: [*lines[:4], b'{"seq":', *lines[5:]]),
    "encoding": edit(lambda lines: [*lines[:4], b"\xff\xfe\xff", *lines[5:]]),
    "zeros": edit(lambda lines: [*lines[:4], b"\0" * 80, *lines[5:]]),
    "checksum": edit(lambda lines: [line.replace(b"I am Ada.", b"I am Bob.") for line in lines]),
    "gap": edit(lambda lines: [*lines[:5], *lines[7:]]),
    "order": edit(lambda lines: [*lines[:5], lines[3], *lines[5:]]),
}


@pytest.mark.parametrize("kind", DAMAGES)
async def test_damage_is_named_mended_and_kept(folder: Path, kind: str):
    DAMAGES[kind](folder)
    before = log(folder).read_bytes()
    found = await checked(folder)
    assert not found.sound
    assert kind in whats(found)
    assert DAMAGE[kind][0] in whats(found)
    mended = await checked(folder, repair=True)
    assert mended.sound
    assert "mended" in levels(mended)
    assert before in kept(mended)
    again = await checked(folder)
    assert again.sound, whats(again)
    async with backstory.open(folder, model=ScriptedModel(["Yes."]), tools=[look]) as bs:
        assert (await bs.say("cli:direct", "Still there?")).text == "Yes."


async def test_every_kind_of_damage_has_a_cause():
    assert set(DAMAGE) == set(get_args(DamageKind))


async def test_a_torn_end_is_no_more_than_a_note(folder: Path):
    log(folder).write_bytes(log(folder).read_bytes() + b'{"seq":99,"at":"2026')
    found = await checked(folder)
    assert found.sound
    assert "crash" in whats(found)


async def test_a_snapshot_that_lies():
    store = InMemoryStore()
    async with backstory.open(store, model=ScriptedModel(["Hi."] * 200), runtime=False) as bs:
        for number in range(SNAPSHOT_EVERY // 4):
            await bs.say("cli:direct", f"number {number}")
        records = await store.read(ID)
        snapshots = [record for record in records if record.kind == "snapshot"]
        assert snapshots
        assert (await examine(store, ID)).sound
        bent = NewRecord(kind="snapshot", data={**snapshots[-1].data, "turns": 1})
        place = snapshots[-1].seq
        await store.rewrite(ID, [Replacement(first=place, last=place, record=bent)], expected=records[-1].seq)
        found = await examine(store, ID)
        assert not found.sound
        assert f"snapshot at record {place} differs" in whats(found)
        assert "turns" in whats(found)
        assert (await examine(store, ID, repair=True)).sound
        session, _ = bs.sessions.peek(ID)
        assert (await bs.say("cli:direct", "Next")).turn == SNAPSHOT_EVERY // 4 + 1
        assert session.view.turns == SNAPSHOT_EVERY // 4 + 1


async def test_what_a_crash_leaves_is_worth_a_note():
    store = InMemoryStore()
    done = await store.append(
        ID,
        [NewRecord(kind="turn_started", data={}, turn=1), new_message(user("Look"), turn=1)],
        acquire=LeaseRequest(owner="a process", ttl=60),
    )
    assert done.lease is not None
    await store.put_draft(ID, {"text": "It"}, after=2, fence=done.lease.fence)
    await store.post(ID, NewEntry(kind="message", data={}))
    held = await examine(store, ID)
    assert held.sound
    assert "a process holds it" in whats(held)
    await store.release(done.lease)
    found = await examine(store, ID)
    assert found.sound
    for note in ("turn 1 is open", "1 message waits", "an answer that was being written is kept"):
        assert note in whats(found)


async def test_broken_messages_calls_and_blobs():
    store = InMemoryStore()
    message = {"role": "assistant", "parts": [{"part": "tool_call", "id": "a", "name": "look"}]}
    orphan = {"role": "tool", "parts": [{"part": "tool_result", "call_id": "zz", "content": [
        {"part": "text", "text": "more in sha256:" + "0" * 64}]}]}  # fmt: skip
    await store.append(
        ID,
        [
            NewRecord(
                kind="message", data={"message": {"role": "user", "parts": [{"part": "text", "text": "Hi"}]}}
            ),
            NewRecord(kind="message", data={"message": message}),
            NewRecord(kind="message", data={"message": orphan}),
            NewRecord(kind="message", data={"message": {"role": "martian"}}),
        ],
    )
    found = await examine(store, ID)
    assert not found.sound
    told = whats(found)
    assert "record 4 holds no readable message" in told
    assert "call of look in record 2 has no result" in told
    assert "record 3 answers no call" in told
    assert "long result in record 3 is gone" in told


async def test_records_that_cannot_be_folded():
    store = InMemoryStore()
    await store.append(ID, [NewRecord(kind="cut", data={"nothing": 1})])
    found = await examine(store, ID)
    assert "record 1 (cut) cannot be folded" in whats(found)


async def test_a_session_in_use_is_not_mended(folder: Path):
    DAMAGES["json"](folder)
    store = FilesStore(folder)
    await store.acquire(ID, LeaseRequest(owner="somebody", ttl=60))
    found = await examine(store, ID, repair=True)
    await store.close()
    assert not found.sound
    assert "not mended: a turn is under way" in whats(found)


async def test_a_newer_log_is_left_alone(folder: Path):
    text = log(folder).read_bytes().replace(b'"version":1', b'"version":99', 1)
    assert b"99" in text.split(b"\n")[0]
    log(folder).write_bytes(text)
    found = await checked(folder, repair=True)
    assert not found.sound
    assert log(folder).read_bytes() == text
