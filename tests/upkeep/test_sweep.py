"""The sweep takes what nothing names, and nothing else: a model of logs and blobs against it, and the cases by hand."""

import asyncio
import json
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from backstory.cli.main import main
from backstory.errors import ConfigurationError, StoreDamaged
from backstory.messages import Message, Text, assistant, user
from backstory.records import NewRecord, new_message
from backstory.sessions.forks import older, pages, refers
from backstory.sessions.operations import delete, fork
from backstory.sessions.session import Session
from backstory.stores import FilesStore, InMemoryStore, SessionId
from backstory.stores.clock import ManualClock
from backstory.stores.large_parts import with_large_parts
from backstory.upkeep.archive import Cap, archive, restore
from backstory.upkeep.sweep import sweep

S = SessionId(key="s")
KEYS = ["a", "b", "c"]


def long(number: int) -> str:
    return f"{number} 茶 " * 12_000


async def swept(store, **options) -> list[str]:
    return [each.handle async for each in sweep(store, **options)]


async def turns(store, id: SessionId, number: int, text: str = "") -> None:
    session = Session(store, id)
    for _ in range(number):
        view = await session.refresh()
        turn = view.turns + 1
        said = [
            NewRecord(kind="turn_started", turn=turn),
            new_message(user(text or "hello"), turn=turn),
            new_message(assistant("fine"), turn=turn),
            NewRecord(kind="turn_ended", data={"reason": "done"}, turn=turn),
        ]
        await session.append(said)


class Sweeping(RuleBasedStateMachine):
    """What was said is always there again, whatever was swept; and what is garbage goes once it is old enough."""

    def __init__(self):
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.clock = ManualClock()
        self.folder = Path(tempfile.mkdtemp())
        self.store = with_large_parts(FilesStore(self.folder, durability="process", clock=self.clock))
        self.said: dict[str, list[str]] = {}
        self.count = 0

    def run(self, call):
        return self.loop.run_until_complete(call)

    def teardown(self):
        self.run(self.store.close())
        self.loop.close()
        shutil.rmtree(self.folder)

    @rule(key=st.sampled_from(KEYS), number=st.integers(0, 4), few=st.integers(1, 4))
    def say(self, key, number, few):
        self.run(turns(self.store, SessionId(key=key), few, long(number)))
        self.said.setdefault(key, []).extend([long(number)] * few)

    @rule(key=st.sampled_from(KEYS))
    def remove(self, key):
        if self.said.pop(key, None) is not None:
            self.run(delete(Session(self.store, SessionId(key=key))))

    @rule(source=st.sampled_from(KEYS), to=st.sampled_from(KEYS))
    def forked(self, source, to):
        if source in self.said and to not in self.said:
            self.run(fork(Session(self.store, SessionId(key=source)), SessionId(key=to)))
            self.said[to] = list(self.said[source])

    @rule(key=st.sampled_from(KEYS))
    def archived(self, key):
        """What was said so far is cut off, and so may be archived once enough was said since."""
        if key in self.said:
            session = Session(self.store, SessionId(key=key))
            self.run(session.refresh())
            start = session.next_seq() + 2  # where the next turn begins: after the cut, and a snapshot
            self.run(
                session.append([NewRecord(kind="cut", data={"start": start, "why": "new", "anew": True})])
            )
            self.run(turns(self.store, SessionId(key=key), 30))
            self.said[key] += ["hello"] * 30
            assert self.run(archive(Session(self.store, SessionId(key=key)), Cap(messages=50))) is not None

    @rule(key=st.sampled_from(KEYS))
    def restored(self, key):
        if key in self.said:
            self.run(restore(Session(self.store, SessionId(key=key))))

    @rule(number=st.integers(0, 4))
    def dropped(self, number):
        """Somebody put a blob and was killed before the record that names it."""
        self.run(self.store.put_blob("default", f"{number}".encode()))

    @rule(seconds=st.sampled_from([1.0, 30.0]))
    def later(self, seconds):
        self.clock.advance(seconds)

    @rule(seconds=st.sampled_from([0.0, 100.0]))
    def sweeps(self, seconds):
        self.clock.advance(seconds)
        self.run(swept(self.store, grace=60.0))

    @precondition(lambda self: not self.said)
    @rule()
    def nothing_is_left(self):
        self.clock.advance(100.0)
        self.run(swept(self.store, grace=60.0))
        assert self.run(self.store.blob_scopes()) == []

    @invariant()
    def all_is_there(self):
        async def read(key):
            session = Session(self.store, SessionId(key=key))
            view = await session.refresh()
            records = [record async for record in older(self.store, "default", refers(view))]
            records += [record async for page in pages(self.store, session.id) for record in page]
            return [r.message.text for r in records if r.kind == "message" and r.message.role == "user"]

        for key, said in self.said.items():
            assert self.run(read(key)) == said


TestSweeping = Sweeping.TestCase
TestSweeping.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)


async def test_what_is_young_or_put_again_stays():
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    old = await store.put_blob("default", b"old")
    again = await store.put_blob("default", b"again")
    clock.advance(3_000)
    young = await store.put_blob("default", b"young")
    await store.put_blob("default", b"again")
    clock.advance(1_000)
    assert await swept(store, act=False) == [old]
    assert await swept(store) == [old]
    assert await store.get_blob("default", again) == b"again"
    assert await store.get_blob("default", young) == b"young"
    assert await swept(store, grace=10.0) == sorted([again, young])


async def test_one_scope_is_not_anothers():
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    one = await store.put_blob("one", b"x")
    await store.put_blob("two", b"x")
    await store.append(SessionId(scope="two", key="s"), [new_message(user(f"see {one}"))])
    clock.advance(10_000)
    assert await swept(store, scope="two") == []
    assert [each.scope async for each in sweep(store)] == ["one"]


async def test_a_handle_inside_a_long_text_names_its_blob():
    clock = ManualClock()
    store = with_large_parts(InMemoryStore(clock=clock))
    kept = await store.put_blob("default", b"the whole of it")
    await store.append(S, [new_message(user(f"{long(1)} and {kept}"))])
    clock.advance(10_000)
    assert await swept(store) == []


async def test_what_is_put_while_it_is_swept_stays():
    clock = ManualClock()
    store = InMemoryStore(clock=clock)
    handle = await store.put_blob("default", b"x")
    clock.advance(10_000)
    marking = store.scopes, store.sessions

    async def sessions(scope, **options):
        await store.put_blob("default", b"x")  # somebody is about to name it
        return await marking[1](scope, **options)

    store.sessions = sessions  # type: ignore[method-assign]
    assert await swept(store) == []
    assert await store.get_blob("default", handle) == b"x"


async def test_a_missing_segment_of_the_archive_stops_the_sweep(tmp_path):
    clock = ManualClock()
    store = with_large_parts(FilesStore(tmp_path, durability="process", clock=clock))
    await turns(store, S, 3, long(1))
    session = Session(store, S)
    await session.refresh()
    await session.append(
        [NewRecord(kind="cut", data={"start": session.view.head + 1, "why": "x", "anew": True})]
    )
    await turns(store, S, 30)
    assert await archive(Session(store, S), Cap(messages=50)) is not None
    (record, *_) = await store.read(S, limit=1)
    segment = record.data["segments"][0]["blob"]
    clock.advance(10_000)
    assert await swept(store) == []
    await store.delete_blob("default", segment)
    await store.put_blob("default", b"garbage")
    clock.advance(10_000)
    with pytest.raises(StoreDamaged, match=segment):
        await swept(store)
    await store.close()


async def test_a_grace_time_is_above_zero():
    with pytest.raises(ConfigurationError, match="above 0"):
        await swept(InMemoryStore(), grace=0.0)


def test_the_command(tmp_path, capsys):
    async def made():
        clock = ManualClock(1_000_000.0)
        store = with_large_parts(FilesStore(tmp_path, durability="process", clock=clock))
        await store.append(S, [new_message(Message(role="user", parts=(Text(text=long(1)),)))])
        garbage = await store.put_blob("default", b"garbage")
        await store.close()
        return garbage

    garbage = asyncio.run(made())
    place = ["--workspace", str(tmp_path)]
    assert main(["sessions", "sweep", "--dry-run", *place]) == 0
    assert capsys.readouterr().out.split() == [garbage]
    assert main(["sessions", "sweep", "--json", "--grace", "2h", *place]) == 0
    assert json.loads(capsys.readouterr().out) == [{"scope": "default", "handle": garbage}]
    assert main(["sessions", "sweep", *place]) == 0
    assert capsys.readouterr().out == ""
    assert main(["sessions", "sweep", "--grace", "soon", *place]) != 0
    assert "--grace" in capsys.readouterr().err
