"""Moves into the archive while others read, move or crash: each record is in one place, and is found there."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.toolbox.offloaded import logged_result
from backstory.errors import LeaseHeld
from backstory.messages import Message, ToolCall, ToolResult, assistant, tool, user
from backstory.records import NewRecord, new_message, to_line
from backstory.sessions import archive as segments_module
from backstory.sessions import operations
from backstory.sessions.archive import pages_through, read_through
from backstory.sessions.session import Session
from backstory.stores import FilesStore, InMemoryStore, SqliteStore, Store
from backstory.stores.values import LeaseRequest
from backstory.upkeep import archive as archive_module
from backstory.upkeep import migrate
from backstory.upkeep.archive import Archived, Cap, archive, restore
from backstory.upkeep.doctor import examine
from tests.sessions.support import S
from tests.upkeep.test_archive import CAP, grown, lines
from tests.upkeep.test_archive import store as store


class Crash(BaseException):
    """A process that ends here."""


class Stepwise:
    """A store that calls `at` before and after each write that a move makes, with a number that grows."""

    def __init__(self, store: Store, at: Any) -> None:
        self._store, self._at, self._step = store, at, 0

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)
        if name not in ("put_blob", "rewrite", "acquire", "release"):
            return found

        async def stepped(*args: Any, **options: Any) -> Any:
            self._now()
            done = await found(*args, **options)
            self._now()
            return done

        return stepped

    def _now(self) -> None:
        self._step += 1
        self._at(self._step)


async def let_go(store: Store) -> None:
    """A crash leaves its lease behind, which nobody renews: here its time is over at once."""
    lease = await store.lease(S)
    if lease is not None:
        await store.release(lease)


@pytest.mark.parametrize("move", ["archive", "restore"])
async def test_ended_at_any_step_every_record_is_there_and_the_next_move_is_whole(store, move, monkeypatch):
    monkeypatch.setattr(archive_module, "SEGMENT", 60)
    session = Session(store, S)
    await grown(session, 60)
    before = await lines(store)
    for step in range(1, 100):
        if move == "restore":
            await archive(Session(store, S), CAP)

        def crash(number: int, wanted: int = step) -> None:
            if number == wanted:
                raise Crash

        stepwise: Any = Stepwise(store, crash)
        try:
            moved = Session(stepwise, S)
            await (archive(moved, CAP) if move == "archive" else restore(moved))
        except Crash:
            await let_go(store)
            assert await lines(store) == before
            assert (await store.verify(S)).sound
            assert (await examine(store, S)).sound
            if move == "archive":  # from the beginning again, with what the crash left lying about
                await restore(Session(store, S))
        else:
            break
    assert step > (10 if move == "archive" else 4)
    assert await lines(store) == before
    assert ((await store.read(S, limit=1))[0].kind == "archived") is (move == "archive")


@given(st.data())
def test_readers_get_each_record_once_whatever_moves_meanwhile(data):
    async def run() -> None:
        store = InMemoryStore()
        session = Session(store, S)
        for _ in range(2):
            await grown(session, 40)
        whole = await store.read(S)
        head = whole[-1].seq
        if data.draw(st.booleans(), label="archived before"):
            await archive(Session(store, S), Cap(messages=data.draw(st.integers(50, 140), label="cap")))
        after = data.draw(st.integers(0, head), label="after")
        before = data.draw(st.none() | st.integers(1, head + 2), label="before")
        limit = data.draw(st.integers(5, 200), label="page")
        found = []
        async for page in pages_through(store, S, after=after, before=before, limit=limit):
            found += page
            what = data.draw(st.sampled_from(["nothing", "archive", "restore"]), label="meanwhile")
            if what == "archive":
                await archive(Session(store, S), Cap(messages=data.draw(st.integers(50, 140), label="cap")))
            elif what == "restore":
                await restore(Session(store, S))
        wanted = [r for r in whole if r.seq > after and (before is None or r.seq < before)]
        assert found == wanted
        assert await read_through(store, S, after=after, before=before) == wanted

    asyncio.run(run())


async def test_an_export_during_a_move_is_whole(store):
    session = Session(store, S)
    await grown(session, 180)
    before = await lines(store)
    found: list[bytes] = []
    async for page in operations.pages(store, S):
        if not found:
            assert await archive(Session(store, S), CAP) is not None
        found += [to_line(record) for record in page]
    assert found == before


async def test_a_session_that_is_opened_during_a_move_is_what_it_is(store):
    await grown(Session(store, S), 100)
    wanted = (await Session(store, S).refresh()).to_json()
    opening = Session(store, S)
    read = store.read
    moved: list[bool] = []

    async def first_page_and_a_move(id, **options):
        found = await read(id, **{**options, "limit": 8} if not moved else options)
        if not moved and options.get("newest_first"):
            moved.append(True)
            assert await archive(Session(store, S), Cap(messages=50)) is not None
        return found

    store.read = first_page_and_a_move
    opened = await opening.refresh()
    store.read = read
    assert moved
    assert {**opened.to_json(), "before": 0} == {**wanted, "before": 0}


async def test_of_two_that_move_one_does(store):
    """The other one finds that the log is no longer the one that it read, wherever that happens."""
    session = Session(store, S)
    await grown(session, 150)
    before = await lines(store)
    put = store.put_blob
    moved: list[Archived | None] = []

    async def after_the_other(scope, data):
        if not moved:
            moved.append(None)
            moved[0] = await archive(Session(store, S), CAP)
        return await put(scope, data)

    store.put_blob = after_the_other
    assert await archive(session, Cap(messages=50)) is None
    store.put_blob = put
    assert moved[0] is not None
    assert await lines(store) == before
    assert (await examine(store, S)).sound


async def test_restoring_waits_for_nobody_and_leaves_no_lease(store):
    session = Session(store, S)
    await grown(session, 60)
    assert await restore(session) == 0
    assert await store.lease(S) is None
    await archive(session, CAP)
    lease = await store.acquire(S, LeaseRequest(owner="somebody", ttl=60))
    with pytest.raises(LeaseHeld):
        await restore(session)
    await store.release(lease)
    assert await restore(session) > 0
    assert await store.lease(S) is None


async def with_large(store: Store) -> str:
    """A session whose first turn is archived, and names a blob that nothing else names."""
    session = Session(store, S)
    handle = await store.put_blob(S.scope, b"a long result " * 99)
    call = Message(role="assistant", parts=(ToolCall(id="c", name="look", arguments='{"at": 1}'),))
    await session.append(
        [
            NewRecord(kind="turn_started", data={}, turn=1),
            new_message(user("look"), turn=1),
            NewRecord(kind="epoch", data={"number": 1, "blob": handle}, turn=1),
            new_message(call, turn=1),
            new_message(tool("c", "what was found"), turn=1),
            new_message(assistant("so it is"), turn=1),
            NewRecord(kind="turn_ended", data={"reason": "done"}, turn=1),
            NewRecord(kind="epoch", data={"number": 2}, turn=1),
        ]
    )
    await grown(session, 60)
    assert await archive(session, CAP) is not None
    return handle


async def test_blobs_that_archived_records_name_go_along_and_are_looked_after(store, monkeypatch):
    handle = await with_large(store)
    target = InMemoryStore()
    (copied,) = [done async for done in migrate.migrate(store, target, [S])]
    assert copied.problem == ""
    assert await target.get_blob(S.scope, handle) == b"a long result " * 99
    assert await lines(target) == await lines(store)
    (compared,) = [done async for done in migrate.compare(store, target, [S])]
    assert compared.problem == ""
    await target.delete_blob(S.scope, handle)
    (compared,) = [done async for done in migrate.compare(store, target, [S])]
    assert handle in compared.problem
    checkup = await examine(target, S)
    assert [finding.what for finding in checkup.findings if "epoch 1" in finding.what]
    monkeypatch.setattr(segments_module, "find_spec", lambda name: None)
    (refused,) = [done async for done in migrate.migrate(store, InMemoryStore(), [S])]
    assert "zstandard" in refused.problem, "and not: copied, without what is named inside"
    assert refused.records == 0


async def test_archived_records_are_read_and_pinned_by_their_place(store):
    await with_large(store)
    (called, told) = [r for r in await read_through(store, S, after=3, before=6) if r.kind == "message"]
    assert isinstance(told.message.parts[0], ToolResult)
    assert await logged_result(store, S, f"{told.seq}.0") == "what was found"
    assert await logged_result(store, S, f"{called.seq}.0") == '{"at": 1}'
    session = Session(store, S)
    pin = await operations.pin(session, message=told.seq + 1)
    assert (await session.refresh()).pins[pin]["text"] == "so it is"


KILLED = """
import asyncio, os, signal, sys
from backstory.sessions.session import Session
from backstory.stores import FilesStore, SqliteStore, SessionId
from backstory.upkeep import archive as module
from tests.upkeep.test_archive_moves import S, Stepwise

async def main():
    kind, place, move, wanted = sys.argv[1:]
    module.SEGMENT = 200
    store = FilesStore(place) if kind == "files" else SqliteStore(place)
    def at(step):
        if step == int(wanted):
            os.kill(os.getpid(), signal.SIGKILL)
    session = Session(Stepwise(store, at), S)
    await (module.archive(session, module.Cap(messages=60)) if move == "archive" else module.restore(session))
    await store.close()

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["files", "sqlite"])
def test_killed_at_each_step_of_a_move_and_of_its_way_back(tmp_path, kind):
    place = str(tmp_path / "ws") if kind == "files" else f"sqlite:///{tmp_path}/db.db"

    async def look(*, fill: bool = False) -> list[bytes]:
        store = FilesStore(place) if kind == "files" else SqliteStore(place)
        if fill:
            await grown(Session(store, S), 150)
        await let_go(store)
        found = await lines(store)
        assert (await store.verify(S)).sound
        assert (await examine(store, S)).sound
        await store.close()
        return found

    before = asyncio.run(look(fill=True))
    for move in ("archive", "restore"):
        for step in range(1, 40):
            command = [sys.executable, "-c", KILLED, kind, place, move, str(step)]
            ended = subprocess.run(command, check=False).returncode
            assert asyncio.run(look()) == before
            if ended == 0:
                break
            assert ended == -signal.SIGKILL
        assert ended == 0
        assert step > 4
