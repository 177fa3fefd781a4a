"""A whole store into another: the same lines, blobs and inboxes, whichever stores, also after a kill in the middle."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
import zlib
from random import Random

import pytest

import backstory
from backstory.cli.main import main
from backstory.errors import InvalidInput
from backstory.messages import user
from backstory.models.scripted import ScriptedModel, calls
from backstory.records import NewRecord, copied, new_message, stamp, to_line
from backstory.sessions import operations
from backstory.sessions.session import Session
from backstory.stores import (
    FilesStore,
    InMemoryStore,
    NewEntry,
    PostgresStore,
    RedisStore,
    Replacement,
    SessionId,
    SqliteStore,
    Store,
)
from backstory.stores.large_parts import with_large_parts
from backstory.upkeep.migrate import compare, listed, migrate

KINDS = ("memory", "files", "sqlite", "postgres", "redis")
names = itertools.count(1)


@pytest.fixture
async def make(tmp_path, request):
    made = []

    def store(kind):
        number = next(names)
        opened: Store
        if kind == "memory":
            opened = InMemoryStore()
        elif kind == "files":
            opened = FilesStore(tmp_path / f"ws{number}", durability="process")
        elif kind == "sqlite":
            opened = SqliteStore(f"sqlite:///{tmp_path}/db{number}.db", durability="process")
        elif kind == "postgres":
            opened = PostgresStore(
                request.getfixturevalue("postgres_server").url(), schema=f"migrate{number}"
            )
        else:
            opened = RedisStore(request.getfixturevalue("redis_server").url(), prefix=f"migrate{number}")
        made.append(opened)
        return opened

    yield store
    for opened in made:
        await opened.close()


async def filled(store, seed=1, sessions=4):
    """Sessions with batches, tombstones, forks, blobs of blobs and mail, in two scopes."""
    chance = Random(seed)
    blob = await store.put_blob("default", b"big " * 100)
    packed = await store.put_blob("default", zlib.compress(f"it names {blob}".encode()))
    for number in range(sessions):
        session = SessionId(scope="default" if number % 2 else "租户/\0 one", key=f"s/{number} 你好")
        for batch in range(chance.randrange(1, 9)):
            records = [
                new_message(user(f"{batch}.{n} " + "字" * chance.randrange(40)), turn=batch + 1)
                for n in range(chance.randrange(1, 200))
            ]
            if session.scope == "default":
                records.append(NewRecord(kind="meta", data={"frozen": packed}))
            await store.append(session, records, batch=f"b{batch}" if chance.random() < 0.5 else None)
        await store.post(session, NewEntry(kind="message", data={"n": number}, id=f"m{number}"))
    head = (await store.head(session)).seq
    if head > 8:
        erased = Replacement(first=2, last=6, record=NewRecord(kind="erased", data={"reason": "asked"}))
        await store.rewrite(session, [erased], expected=head)


async def copy(source, target):
    sessions = await listed(source)
    return [each async for each in migrate(source, target, sessions)]


async def everything(store):
    found = {}
    for session in await listed(store):
        lines = [to_line(record) for record in await store.read(session)]
        found[session] = (lines, [(e.id, e.kind, dict(e.data)) for e in await store.inbox(session)])
    return found


PAIRS = [pair for pair in itertools.product(KINDS, KINDS) if pair[0] != pair[1] or pair[0] == "files"]


@pytest.mark.parametrize(("here", "there"), PAIRS)
async def test_from_any_store_to_any_other(make, here, there):
    source, target = make(here), make(there)
    await filled(source)
    copies = await copy(source, target)
    assert [each.problem for each in copies] == [""] * 4
    assert await everything(target) == await everything(source)
    assert sum(each.blobs for each in copies) == 2, "each once, and what it names"
    compared = [each async for each in compare(source, target, await listed(source))]
    assert [(each.problem, each.records) for each in compared] == [("", each.records) for each in copies]
    again = await copy(source, target)
    assert [(each.new, each.waiting, each.problem) for each in again] == [(0, 0, "")] * 4
    session = copies[0].session
    await target.append(session, [NewRecord(kind="meta", data={"goes": "on"})], expected=copies[0].records)
    assert (await target.verify(session)).sound


@pytest.mark.parametrize("there", KINDS)
async def test_a_copy_that_was_stopped_goes_on(make, there):
    """Whatever page it was stopped after, and by whatever batch the target ends."""
    source = make("memory")
    await filled(source, seed=5, sessions=2)
    sessions = await listed(source)
    target = make(there)
    records = await source.read(sessions[0])
    ends = [record.seq for record in records if record.part[0] == record.part[1]]
    at = 0
    for end in ends[:: max(1, len(ends) // 3)]:
        part = [copied(record) for record in records if at < record.seq <= end]
        if part:
            await target.append(sessions[0], part, expected=at)
            at = end
    assert [each.problem for each in await copy(source, target)] == ["", ""]
    assert await everything(target) == await everything(source)


async def test_another_session_of_that_name_is_left_alone(make):
    source, target = make("memory"), make("sqlite")
    await filled(source)
    sessions = await listed(source)
    await target.append(sessions[1], [new_message(user("mine"))])
    longer = sessions[2]
    await copy(source, target)
    await target.append(longer, [new_message(user("more"))])
    copies = {each.session: each for each in await copy(source, target)}
    assert "other content" in copies[sessions[1]].problem
    assert "other content" in copies[longer].problem
    assert [record.message.text for record in await target.read(sessions[1])] == ["mine"]
    assert sum(not each.problem for each in copies.values()) == 2


async def test_what_is_missing_or_damaged_is_said(make, tmp_path):
    source, target = make("files"), make("memory")
    await filled(source, sessions=2)
    copies = await copy(source, target)
    assert not any(each.problem for each in copies)
    sessions = await listed(source)
    await source.append(sessions[0], [new_message(user("more"))])
    await source.post(sessions[1], NewEntry(kind="message", id="late"))
    problems = [each.problem async for each in compare(source, target, sessions)]
    assert "written to meanwhile" in problems[0]
    assert "inbox" in problems[1]
    handle = await source.put_blob("default", b"one more")
    default = next(session for session in sessions if session.scope == "default")
    await source.append(default, [NewRecord(kind="meta", data={"frozen": handle})])
    await copy(source, target)
    assert [each.problem async for each in compare(source, target, sessions)] == ["", ""]
    await target.delete_blob("default", handle)
    problems = [each.problem async for each in compare(source, target, sessions)]
    assert any("not there" in problem for problem in problems)


def test_a_copied_record_keeps_its_place_or_is_refused():
    records = stamp([new_message(user("a")), new_message(user("b"))], seq=1, at="t", batch="x")
    assert stamp([copied(record) for record in records], seq=1, at="other") == records
    with pytest.raises(InvalidInput, match="place 2"):
        stamp([copied(records[1])], seq=1, at="other")


@pytest.mark.parametrize("there", ["files", "postgres", "redis"])
async def test_large_parts_come_along(make, there):
    source, target = make("sqlite"), make(there)
    said = [user("茶 " * 40_000), user("short"), user("茶 " * 40_000)]
    await with_large_parts(source).append(SessionId(key="s"), [new_message(one) for one in said])
    (done,) = [one async for one in migrate(source, target, await listed(source))]
    assert (done.records, done.blobs, done.problem) == (3, 1, "")
    (same,) = [one async for one in compare(source, target, await listed(source))]
    assert not same.problem
    assert [r.line for r in await target.read(SessionId(key="s"))] == [
        r.line for r in await source.read(SessionId(key="s"))
    ]
    assert [r.message for r in await with_large_parts(target).read(SessionId(key="s"))] == said


async def test_gaps_are_refused(make):
    class Gapped(InMemoryStore):
        async def read(self, session, **options):
            return [record for record in await super().read(session, **options) if record.seq != 3]

    source, target = Gapped(), make("memory")
    await source.append(SessionId(key="s"), [new_message(user(f"{n}")) for n in range(6)])
    (made,) = await copy(source, target)
    assert "gaps" in made.problem


# --- the command


async def talked(folder):
    model = ScriptedModel([calls("look"), *["fine, " + "word " * 30] * 40], name="m")

    @backstory.tool
    def look() -> str:
        """Look."""
        return "line\n" * 20_000

    async with backstory.open(folder, model=model, tools=[look], durability="process") as bs:
        for number in range(6):
            await bs.say(f"telegram:{number}", "hello " * 20)
            await bs.say(f"telegram:{number}", "and again")
        await operations.fork(Session(bs.store, SessionId(key="telegram:0")), SessionId(key="forked"))


def test_the_command_copies_compares_and_goes_on(tmp_path, capsys):
    here = tmp_path / "ws"
    asyncio.run(talked(here))
    (here / "memory").mkdir()
    (here / "memory" / "MEMORY.md").write_text("- tea")
    (here / "AGENTS.md").write_text("Be brief.")
    url = f"sqlite:///{tmp_path}/chat.db"
    assert main(["migrate", str(here), url]) == 0
    said = capsys.readouterr()
    assert "7 sessions" in said.err
    assert "the same" in said.err
    back = tmp_path / "back"
    assert main(["migrate", url, str(back), "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told["whole"] is True
    assert {row["key"] for row in told["sessions"]} >= {"forked", "telegram:0"}
    for path in (here / "sessions").rglob("*.jsonl"):
        there = back / path.relative_to(here)
        assert there.read_bytes().splitlines()[1:] == path.read_bytes().splitlines()[1:], "but for the header"
    assert main(["migrate", str(here), str(back)]) == 0
    assert "files: AGENTS.md, memory/MEMORY.md" in capsys.readouterr().err
    assert (back / "memory" / "MEMORY.md").read_text() == "- tea"

    async def goes_on():
        async with backstory.open(url, model=ScriptedModel(["still here"], name="m")) as bs:
            return (await bs.say("telegram:0", "are you there?")).text

    assert asyncio.run(goes_on()) == "still here"
    assert main(["migrate", str(here), url]) == 1
    assert "other content" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("source", "target", "why"),
    [
        ("same", "same", "same place"),
        ("nowhere", "memory:", "no sessions"),
        ("sqlite:///no.db", "memory:", "no file"),
    ],
)
def test_wrong_places_are_refused(tmp_path, monkeypatch, capsys, source, target, why):
    monkeypatch.chdir(tmp_path)
    assert main(["migrate", source, target]) == 2
    assert why in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize("there", ["files", "sqlite"])
def test_killed_in_the_middle_it_goes_on(tmp_path, there):
    source = FilesStore(tmp_path / "ws", durability="process")

    async def fill():
        await filled(source, seed=9, sessions=12)
        await source.close()

    asyncio.run(fill())
    url = str(tmp_path / "to") if there == "files" else f"sqlite:///{tmp_path}/to.db"
    command = [sys.executable, "-m", "backstory", "migrate", str(tmp_path / "ws"), url]
    chance = Random(3)
    for _ in range(5):
        child = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env={**os.environ}
        )
        time.sleep(0.25 + chance.random() * 0.35)
        child.send_signal(signal.SIGKILL)
        child.wait()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr

    async def same():
        target = FilesStore(url) if there == "files" else SqliteStore(url)
        source = FilesStore(tmp_path / "ws")
        assert await everything(target) == await everything(source)
        for session in await listed(target):
            assert (await target.verify(session)).sound
        await target.close()
        await source.close()

    asyncio.run(same())
