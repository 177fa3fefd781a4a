"""The hard cap: what moves, what stays, and that every record is in one place or the other, whole, at every instant."""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
import sys
import time
from random import Random

import pytest

import backstory
from backstory.errors import ConfigurationError, SessionError, SessionNotFound, StoreDamaged
from backstory.messages import assistant, user
from backstory.models.scripted import ScriptedModel
from backstory.records import NewRecord, new_message, to_line
from backstory.sessions import archive as segments_module
from backstory.sessions import operations
from backstory.sessions.archive import packed, segments, unpacked
from backstory.sessions.session import Session
from backstory.stores import (
    FilesStore,
    InMemoryStore,
    PostgresStore,
    RedisStore,
    SessionId,
    SqliteStore,
    Store,
)
from backstory.upkeep.archive import Cap, archive, restore
from backstory.upkeep.doctor import examine
from tests.sessions.support import S, check_log, legal, said, view_of

CAP = Cap(messages=60)
names = itertools.count(1)


def grown_records(first, turns):
    for number in range(first, first + turns):
        yield [
            NewRecord(kind="turn_started", data={}, turn=number),
            new_message(user(f"question {number} " + "word " * 20), turn=number, message_id=f"m{number}"),
            new_message(assistant(f"answer {number} " + "word " * 20), turn=number),
            NewRecord(kind="turn_ended", data={"reason": "done"}, turn=number),
        ]


async def grown(session, turns):
    """So many turns more, and a cut that leaves ten of them."""
    view = await session.refresh()
    starts = []
    for batch in grown_records(view.turns + 1, turns):
        done = await session.append(batch)
        starts.append(done[0].seq)
    await session.append(
        [NewRecord(kind="cut", data={"start": starts[-10] + 1, "kept": None, "reason": "full"})]
    )


async def lines(store, id=S):
    return [to_line(r) async for page in operations.pages(store, id) for r in page]


@pytest.fixture(params=["memory", "files", "sqlite", "postgres", "redis"])
async def store(request, tmp_path):
    number = next(names)
    made: Store
    if request.param == "memory":
        made = InMemoryStore()
    elif request.param == "files":
        made = FilesStore(tmp_path / "ws", durability="process")
    elif request.param == "sqlite":
        made = SqliteStore(f"sqlite:///{tmp_path}/db.db", durability="process")
    elif request.param == "postgres":
        made = PostgresStore(request.getfixturevalue("postgres_server").url(), schema=f"archive{number}")
    else:
        made = RedisStore(request.getfixturevalue("redis_server").url(), prefix=f"archive{number}")
    yield made
    await made.close()


async def test_the_oldest_turns_move_and_everything_is_still_there(store):
    session = Session(store, S)
    for _ in range(3):
        await grown(session, 60)
        before, view = await lines(store), session.view.to_json()
        done = await archive(session, CAP)
        assert done is not None
        assert done.messages >= 60
        raw = await store.read(S)
        assert raw[0].kind == "archived"
        assert raw[0].first == 1
        assert sum(r.kind == "message" for r in raw) <= 48
        assert await lines(store) == before
        fresh = await view_of(store)
        assert {k: v for k, v in fresh.to_json().items() if k != "before"} == {
            k: v for k, v in view.items() if k != "before"
        }
        assert await archive(session, CAP) is None, "once is enough"
        checkup = await examine(store, S)
        assert checkup.sound, checkup.findings
    records = [r async for page in operations.pages(store, S) for r in page]
    check_log(records)
    assert await restore(session) > 400
    assert [to_line(r) for r in await store.read(S)] == [to_line(r) for r in records]
    assert (await store.verify(S)).sound
    assert await restore(session) == 0
    assert await archive(session, CAP) is not None


async def test_what_is_replayed_stays_whatever_the_cap(store):
    session = Session(store, S)
    for batch in grown_records(1, 100):
        await session.append(batch)
    assert await archive(session, CAP) is None, "nothing was cut: all of it is replayed"
    await grown(session, 10)
    done = await archive(session, Cap(messages=50))
    assert done is not None
    assert done.last < session.view.start


async def test_forks_undos_and_known_messages_reach_into_the_archive(store):
    session = Session(store, S)
    await grown(session, 60)
    child = SessionId(key="child")
    await operations.fork(session, child)
    await grown(session, 60)
    before = await lines(store)
    assert await archive(session, CAP) is not None
    bs = backstory.open(store, model=ScriptedModel(["new"], name="m"), runtime=False)
    log = [r async for page in operations.pages(store, S) for r in page]
    digests = {r.message_id: r.data.get("digest", "") for r in log if r.message_id}
    assert digests
    shown = [record.message.text async for record in _older(store, child)]
    assert any(text.startswith("question 3 ") for text in shown)
    await operations.edit(session, session.view.turns - 40)  # a turn that is archived, and the cut above it
    await session.load(None)
    assert (await session.refresh()).start < (await store.read(S))[0].seq
    texts = [text for _, text in said(session.view)]
    assert any(text.startswith("question 75 ") for text in texts)
    reply = await bs.say(S.key, "and now?")
    assert reply.text == "new"
    assert isinstance(bs.model, ScriptedModel)
    legal(bs.model)
    await operations.undo(session)
    await operations.redo(session)
    assert (await lines(store))[: len(before)] == before
    moved = SessionId(key="elsewhere")
    await operations.move(store, S, moved)
    assert len(await store.read(moved)) == len([r async for p in operations.pages(store, moved) for r in p])


async def _older(store, child):
    from backstory.sessions import forks

    view = await Session(store, child).refresh()
    async for record in forks.older(store, child.scope, forks.refers(view)):
        if record.kind == "message":
            yield record


async def test_a_damaged_or_missing_segment_is_named_and_nothing_else_is_lost(store):
    session = Session(store, S)
    await grown(session, 80)
    await archive(session, CAP)
    (record, *_) = await store.read(S, limit=1)
    (named, *_) = segments(record)
    await store.delete_blob(S.scope, named["blob"])
    with pytest.raises(StoreDamaged):
        await restore(session)
    with pytest.raises(StoreDamaged):
        await lines(store)
    checkup = await examine(store, S)
    assert not checkup.sound
    assert any(named["blob"] in finding.what for finding in checkup.findings)
    bs = backstory.open(store, model=ScriptedModel(["goes on"], name="m"), runtime=False)
    assert (await bs.say(S.key, "hello?")).text == "goes on"


async def test_a_capped_session_stays_small_and_loses_nothing(store):
    model = ScriptedModel(["fine " * 40] * 160, name="m", window=3_000)
    bs = backstory.open(store, model=model, runtime=False, cap_messages=50, compaction=False, budget=1_200)
    most = 0
    for number in range(160):
        assert (await bs.say(S.key, f"turn {number} " + "word " * 30)).reason == "done"
        assert bs.archiver is not None
        await bs.archiver.close()
        most = max(most, sum(r.kind == "message" for r in await store.read(S)))
    assert most <= 50 + 40
    legal(model)
    records = [r async for page in operations.pages(store, S) for r in page]
    check_log(records)
    assert sum(r.kind == "message" for r in records) == 320


async def test_who_holds_the_session_or_writes_meanwhile_is_left_alone():
    store = InMemoryStore()
    session = Session(store, S)
    await grown(session, 60)
    bs = backstory.open(store, model=ScriptedModel(["x"], name="m"), runtime=False)
    async with bs.turn(S.key, "hi"):
        assert await archive(Session(store, S), CAP) is None
    rewrite = store.rewrite

    async def late(id, replacements, **options):
        await store.append(id, [NewRecord(kind="meta", data={})], fence=options["fence"])
        return await rewrite(id, replacements, **options)

    store.rewrite = late  # type: ignore[method-assign, assignment]
    before = len(await store.read(S))
    assert await archive(session, CAP) is None
    assert len(await store.read(S)) == before + 1


def test_segments_are_lines_and_are_checked(monkeypatch):
    from backstory.records import stamp

    records = stamp([new_message(user(f"{n} \ud800 中")) for n in range(9)], seq=4, at="t")
    data = packed(records)
    assert data[:4] == b"\x28\xb5\x2f\xfd"
    assert unpacked(data) == records
    monkeypatch.setattr(segments_module, "find_spec", lambda name: None)
    plain = packed(records)
    assert unpacked(plain) == records
    with pytest.raises(ConfigurationError, match="archive"):
        unpacked(data)
    monkeypatch.undo()
    for broken in (data[:-3], data[:40] + b"x" + data[41:], plain[:-3], b"nothing"):
        with pytest.raises(StoreDamaged):
            unpacked(broken)


def test_caps_that_make_no_sense():
    for wrong in ({"messages": 3}, {"bytes": 10}):
        with pytest.raises(ConfigurationError):
            Cap(**wrong)
    assert not Cap().exceeded(10**9, 10**12)
    assert Cap(bytes=100_000).exceeded(1, 100_001)


async def test_restoring_what_is_not_there():
    with pytest.raises(SessionNotFound):
        await restore(Session(InMemoryStore(), S))
    with pytest.raises(SessionError):
        await operations.retract(Session(InMemoryStore(), S))


KILLED = """
import asyncio, sys
from backstory.sessions.session import Session
from backstory.stores import FilesStore, SqliteStore, SessionId
from backstory.upkeep.archive import Cap, archive, restore

async def main():
    kind, place = sys.argv[1:]
    store = FilesStore(place) if kind == "files" else SqliteStore(place)
    session = Session(store, SessionId(key="s"))
    print("ready", flush=True)
    while True:
        await archive(session, Cap(messages=60))
        await restore(session)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_killed_at_any_moment_every_record_is_in_one_place(tmp_path, kind):
    place = str(tmp_path / "ws") if kind == "files" else f"sqlite:///{tmp_path}/db.db"

    def opened():
        return FilesStore(place) if kind == "files" else SqliteStore(place)

    async def fill():
        store = opened()
        await grown(Session(store, SessionId(key="s")), 150)
        found = await lines(store, SessionId(key="s"))
        await store.close()
        return found

    async def check():
        store = opened()
        session = SessionId(key="s")
        found = await lines(store, session)
        assert (await store.verify(session)).sound
        assert (await examine(store, session)).sound
        await store.close()
        return found

    before = asyncio.run(fill())
    chance = Random(11)
    for _ in range(12):
        child = subprocess.Popen([sys.executable, "-c", KILLED, kind, place], stdout=subprocess.PIPE)
        assert child.stdout is not None
        child.stdout.readline()
        time.sleep(chance.random() * 0.15)
        child.send_signal(signal.SIGKILL)
        child.communicate()
        assert asyncio.run(check()) == before
