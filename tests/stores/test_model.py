"""A rule-based machine: the files store, with crashes and a second process, against plain lists."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from backstory.errors import HeadMoved, LeaseHeld, StaleLease
from backstory.stores import (
    FilesStore,
    InMemoryStore,
    LeaseRequest,
    ManualClock,
    NewEntry,
    Replacement,
    SessionId,
)
from backstory.stores.conformance import note

SESSIONS = [SessionId(key="a"), SessionId(key="A"), SessionId(scope="a/b", key="..")]
sessions = st.sampled_from(range(len(SESSIONS)))
sizes = st.integers(1, 4)


class Model:
    """What one session holds: (first, seq, text), and who may write."""

    def __init__(self) -> None:
        self.records: list[tuple[int, int, str]] = []
        self.inbox: list[str] = []
        self.owner: str | None = None
        self.fence = 0
        self.expires = 0.0
        self.batch: tuple[str, int, list[str]] | None = None

    @property
    def head(self) -> int:
        return self.records[-1][1] if self.records else 0


class StoreMachine(RuleBasedStateMachine):
    """Every rule does the same to the store and to the model, and compares what they say."""

    lasting = True

    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.root = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.models = [Model() for _ in SESSIONS]
        self.texts = 0
        self.store = self.open()
        self.other = self.open()

    def open(self):
        return FilesStore(self.root, clock=self.clock, durability="process")

    def do(self, call):
        return self.loop.run_until_complete(call)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for store in {self.store, self.other}:
                self.do(store.close())
            self.loop.close()
            shutil.rmtree(self.root)

    def fresh(self, size):
        self.texts += size
        return [f"t{self.texts - size + part}" for part in range(1, size + 1)]

    def writer(self, model):
        """How to write now: the keyword arguments, or the error that comes."""
        if model.owner is None:
            return {}
        return {"fence": model.fence}

    def written(self, model, names):
        for name in names:
            model.records.append((model.head + 1, model.head + 1, name))

    @rule(index=sessions, size=sizes, other=st.booleans(), expect=st.booleans())
    def append(self, index, size, other, expect):
        model, names = self.models[index], self.fresh(size)
        batch = f"b{self.texts}"
        store = self.other if other else self.store
        done = self.do(
            store.append(
                SESSIONS[index],
                [note(name) for name in names],
                expected=model.head if expect or not model.records else None,
                batch=batch,
                **self.writer(model),
            )
        )
        model.batch = (batch, model.head, names)
        self.written(model, names)
        assert done.head.seq == model.head

    @rule(index=sessions, with_expected=st.booleans())
    def retry_the_last_batch(self, index, with_expected):
        model = self.models[index]
        if model.batch is None:
            return
        batch, head, names = model.batch
        done = self.do(
            self.other.append(
                SESSIONS[index],
                [note(name) for name in names],
                batch=batch,
                expected=head if with_expected else None,
                **self.writer(model),
            )
        )
        assert done.repeated
        assert [record.data["text"] for record in done.records] == names

    @rule(index=sessions, off=st.sampled_from([-1, 1, 5]))
    def append_at_a_wrong_head(self, index, off):
        model = self.models[index]
        with pytest.raises(HeadMoved):
            self.do(
                self.store.append(
                    SESSIONS[index], [note("never")], expected=model.head + off, **self.writer(model)
                )
            )

    @rule(index=sessions, size=sizes, data=st.data())
    def crash_in_an_append(self, index, size, data):
        """The process dies with a part of the batch on disk: nobody was told, so it must not be there."""
        model, names = self.models[index], self.fresh(size)
        if not model.records or not self.lasting:
            return
        log = self.log(index)
        before = log.read_bytes()
        self.do(self.store.append(SESSIONS[index], [note(name) for name in names], **self.writer(model)))
        after = log.read_bytes()
        end = data.draw(st.integers(len(before), len(after)))
        log.write_bytes(after[:end])
        if end == len(after):
            self.written(model, names)
            model.batch = None
        self.reopen()

    def log(self, index):
        from backstory.stores.session_files import log_path

        return Path(log_path(str(self.root), SESSIONS[index]))

    @rule()
    def reopen(self):
        if self.lasting:
            self.do(self.store.close())
            self.do(self.other.close())
            self.store, self.other = self.open(), self.open()

    @rule(index=sessions, owner=st.sampled_from(["x", "y"]), ttl=st.sampled_from([5, 50]))
    def acquire(self, index, owner, ttl):
        model = self.models[index]
        request = LeaseRequest(owner=owner, ttl=ttl)
        if model.owner not in (None, owner) and model.expires > self.clock.now():
            with pytest.raises(LeaseHeld):
                self.do(self.other.acquire(SESSIONS[index], request))
            return
        lease = self.do(self.other.acquire(SESSIONS[index], request))
        if model.owner == owner:
            assert lease.fence == model.fence
        else:
            assert lease.fence > model.fence
        model.owner, model.fence, model.expires = owner, lease.fence, lease.expires

    @rule(index=sessions)
    def give_back_with_a_batch(self, index):
        model = self.models[index]
        (name,) = self.fresh(1)
        call = self.store.append(SESSIONS[index], [note(name)], fence=model.fence or 1, release=True)
        if model.owner is None:
            with pytest.raises(StaleLease):
                self.do(call)
            return
        self.do(call)
        self.written(model, [name])
        model.owner = None

    @rule(index=sessions)
    def append_without_the_lease(self, index):
        model = self.models[index]
        if model.owner is not None and model.expires > self.clock.now():
            with pytest.raises(LeaseHeld):
                self.do(self.store.append(SESSIONS[index], [note("never")]))
        with pytest.raises(StaleLease):
            self.do(self.store.append(SESSIONS[index], [note("never")], fence=model.fence + 1))

    @rule(seconds=st.sampled_from([1, 6, 60]))
    def time_passes(self, seconds):
        self.clock.advance(seconds)

    @rule(index=sessions, data=st.data())
    def rewrite(self, index, data):
        model = self.models[index]
        if not model.records:
            return
        begin = data.draw(st.integers(0, len(model.records) - 1))
        end = data.draw(st.integers(begin, len(model.records) - 1))
        first, last = model.records[begin][0], model.records[end][1]
        head = self.do(
            self.store.rewrite(
                SESSIONS[index],
                [Replacement(first=first, last=last, record=note("tomb"))],
                expected=model.head,
                purge=data.draw(st.booleans()),
                **self.writer(model),
            )
        )
        model.records[begin : end + 1] = [(first, last, "tomb")]
        model.batch = None
        assert head.seq == model.head

    @rule(index=sessions)
    def delete(self, index):
        model = self.models[index]
        gone = self.do(self.store.delete(SESSIONS[index], **self.writer(model)))
        assert gone == bool(model.records)
        fence = model.fence
        self.models[index] = Model()
        self.models[index].fence = fence
        self.clock.advance(0.001)

    @rule(index=sessions, name=st.sampled_from(["m1", "m2", "m3"]))
    def post(self, index, name):
        model = self.models[index]
        posted = self.do(
            self.other.post(SESSIONS[index], NewEntry(kind="message", data={"of": name}, id=name))
        )
        assert posted.repeated == (name in model.inbox)
        if not posted.repeated:
            model.inbox.append(name)

    @rule(index=sessions, count=st.integers(0, 2))
    def take(self, index, count):
        model = self.models[index]
        self.do(self.store.take(SESSIONS[index], model.inbox[:count], **self.writer(model)))
        del model.inbox[:count]

    @invariant()
    def both_stores_say_what_the_model_says(self):
        if not hasattr(self, "store"):
            return
        for session, model in zip(SESSIONS, self.models, strict=True):
            for store in {self.store, self.other}:
                records = self.do(store.read(session))
                assert [
                    (record.first, record.seq, record.data["text"]) for record in records
                ] == model.records
                assert self.do(store.head(session)).seq == model.head
                newest = self.do(store.read(session, newest_first=True, limit=3))
                assert newest == records[::-1][:3]
                assert [entry.id for entry in self.do(store.inbox(session))] == model.inbox
                lease = self.do(store.lease(session))
                held = model.owner if model.expires > self.clock.now() else None
                assert (lease.owner if lease else None) == held
        for scope in ("default", "a/b"):
            listed = {info.session for info in self.do(self.store.sessions(scope)).sessions}
            assert listed == {
                session
                for session, model in zip(SESSIONS, self.models, strict=True)
                if session.scope == scope and model.records
            }


class MemoryMachine(StoreMachine):
    lasting = False

    def open(self):
        if not hasattr(self, "store"):
            return InMemoryStore(clock=self.clock)
        return self.store


TestFilesMachine = StoreMachine.TestCase
TestFilesMachine.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
TestMemoryMachine = MemoryMachine.TestCase
TestMemoryMachine.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
