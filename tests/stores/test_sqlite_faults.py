"""What goes wrong under SQLite comes out as an error of ours, alone, and nothing is acknowledged that is not there."""

import asyncio
import sqlite3
import threading
from contextlib import closing, suppress
from pathlib import Path
from typing import ClassVar

import pytest

import backstory
from backstory.errors import (
    ConfigurationError,
    HeadMoved,
    InvalidInput,
    NewerFormat,
    StaleLease,
    StoreDamaged,
    StoreUnavailable,
)
from backstory.stores import LeaseRequest, ManualClock, NewEntry, Replacement, SessionId, SqliteStore
from backstory.stores.conformance import note, places, texts
from backstory.stores.large_parts import plain
from backstory.stores.sqlite import schema
from backstory.stores.sqlite.database import file_of

S = SessionId(key="s")
CODES = {
    "SQLITE_FULL": 13,
    "SQLITE_IOERR_WRITE": 778,
    "SQLITE_IOERR_FSYNC": 1034,
    "SQLITE_READONLY": 8,
    "SQLITE_NOMEM": 7,
    "SQLITE_CORRUPT": 11,
    "SQLITE_NOTADB": 26,
}


class Faulty(sqlite3.Connection):
    """Raises an error for the next statements that begin with a word; `undo`: SQLite takes back the transaction."""

    word = ""
    times = 0
    code = 13
    undo = False
    statements: ClassVar[list[str]] = []

    @classmethod
    def fail(cls, word, code=13, times=1, undo=False):
        cls.word, cls.code, cls.times, cls.undo = word, code, times, undo

    def execute(self, sql, *args):
        Faulty.statements.append(sql)
        if Faulty.times and sql.startswith(Faulty.word):
            Faulty.times -= 1
            if Faulty.undo and self.in_transaction:
                super().execute("ROLLBACK")
            error = sqlite3.OperationalError("injected")
            error.sqlite_errorcode = Faulty.code
            raise error
        return super().execute(sql, *args)


@pytest.fixture
async def make(tmp_path):
    Faulty.times = 0
    Faulty.statements.clear()
    stores = []

    def make(**options):
        options.setdefault("factory", Faulty)
        stores.append(SqliteStore(tmp_path / "chat.db", **options))
        return stores[-1]

    yield make
    Faulty.times = 0
    for store in stores:
        await store.close()


def count_of(word):
    return sum(sql.startswith(word) for sql in Faulty.statements)


def raw(path, sql, *values):
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        return connection.execute(sql, values).fetchall()


# --- group commit


async def burst(store, number, size=1):
    """Appends of so many sessions at once."""
    return await asyncio.gather(
        *(
            store.append(SessionId(key=f"s{one}"), [note(f"{one}.{part}") for part in range(size)])
            for one in range(number)
        ),
        return_exceptions=True,
    )


async def test_a_burst_shares_commits_and_a_lone_append_does_not_wait(make):
    store = make()
    await burst(store, 2)
    before = count_of("COMMIT")
    await burst(store, 64)
    assert count_of("COMMIT") - before <= 3
    before = count_of("COMMIT")
    for number in range(20):
        await store.append(S, [note(str(number))])
    assert count_of("COMMIT") - before == 20
    assert places(await store.read(S)) == list(range(1, 21))


async def test_each_of_a_group_has_its_own_checks(make):
    store = make()
    await burst(store, 8)
    mine = await store.acquire(SessionId(key="s1"), LeaseRequest(owner="me", ttl=9))
    results = await asyncio.gather(
        store.append(SessionId(key="s0"), [note("good")], expected=1),
        store.append(SessionId(key="s1"), [note("stale")], fence=mine.fence + 1),
        store.append(SessionId(key="s2"), [note("moved")], expected=7),
        store.append(SessionId(key="s3"), [note("x"), note("y")], batch="b"),
        store.append(SessionId(key="s3"), [note("x"), note("y")], batch="b"),
        store.append(SessionId(key="s1"), [note("held")], fence=mine.fence),
        return_exceptions=True,
    )
    assert [type(result) for result in results] == [
        type(results[0]),
        StaleLease,
        HeadMoved,
        type(results[0]),
        type(results[0]),
        type(results[0]),
    ]
    assert getattr(results[4], "repeated", False)
    for key, expected in (("s0", ["0.0", "good"]), ("s1", ["1.0", "held"]), ("s2", ["2.0"])):
        assert texts(await store.read(SessionId(key=key))) == expected
    assert texts(await store.read(SessionId(key="s3"))) == ["3.0", "x", "y"]


async def test_callers_that_are_cancelled_in_a_group(make):
    store = make()
    await burst(store, 4)
    tasks = [asyncio.ensure_future(store.append(S, [note(str(number))])) for number in range(8)]
    await asyncio.sleep(0)
    for task in tasks[::2]:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert places(await store.read(S)) == list(range(1, len(await store.read(S)) + 1))
    assert {"1", "3", "5", "7"} <= set(texts(await store.read(S)))


def test_two_event_loops(tmp_path):
    """One store, two threads with a loop each."""
    store = SqliteStore(tmp_path / "chat.db")

    async def work(name):
        await asyncio.gather(*(store.append(SessionId(key=f"{name}{n % 3}"), [note("x")]) for n in range(60)))

    async def both():
        await asyncio.gather(
            asyncio.to_thread(asyncio.run, work("a")), asyncio.to_thread(asyncio.run, work("b"))
        )
        for name in "ab":
            for number in range(3):
                assert (await store.head(SessionId(key=f"{name}{number}"))).seq == 20
        await store.close()

    asyncio.run(both())


# --- failures


@pytest.mark.parametrize("undo", [False, True])
@pytest.mark.parametrize("name", CODES)
@pytest.mark.parametrize("word", ["INSERT INTO records", "UPDATE sessions", "COMMIT", "SAVEPOINT"])
async def test_one_failed_statement(make, word, name, undo):
    store = make()
    await burst(store, 4)
    Faulty.fail(word, code=CODES[name], undo=undo)
    results = await burst(store, 4)
    failed = [result for result in results if isinstance(result, BaseException)]
    expected = StoreDamaged if name in ("SQLITE_CORRUPT", "SQLITE_NOTADB") else StoreUnavailable
    assert all(isinstance(error, expected) for error in failed)
    assert len(failed) <= 1
    Faulty.times = 0
    for number, result in enumerate(results):
        length = 1 if isinstance(result, BaseException) else 2
        assert (await store.head(SessionId(key=f"s{number}"))).seq == length
    assert all(not isinstance(result, BaseException) for result in await burst(store, 4))


@pytest.mark.parametrize("word", ["BEGIN", "SELECT number", "INSERT INTO records", "COMMIT"])
async def test_a_lone_append_that_fails(make, word):
    store = make()
    await store.append(S, [note("a")])
    Faulty.fail(word)
    with pytest.raises(StoreUnavailable, match="full"):
        await store.append(S, [note("b")], acquire=LeaseRequest(owner="o", ttl=9))
    assert texts(await store.read(S)) == ["a"]
    assert await store.lease(S) is None
    await store.append(S, [note("c")], expected=1)
    assert texts(await store.read(S)) == ["a", "c"]


async def test_a_really_full_disk(make, monkeypatch):
    class Small(sqlite3.Connection):
        def execute(self, sql, *args):
            if sql == "BEGIN IMMEDIATE":
                super().execute("PRAGMA max_page_count = 40")
            return super().execute(sql, *args)

    store = make(factory=Small)
    big = [note("x" * 3000) for _ in range(80)]
    small = SessionId(key="small")
    await store.append(S, [note("a")])
    await asyncio.gather(*(store.append(small, [note("b")]) for _ in range(2)))
    done = await asyncio.gather(
        store.append(small, [note("c")]),
        store.append(S, big),
        store.append(small, [note("d")]),
        return_exceptions=True,
    )
    assert isinstance(done[1], StoreUnavailable)
    assert "full" in str(done[1])
    assert texts(await store.read(small)) == ["b", "b", "c", "d"]
    assert texts(await store.read(S)) == ["a"]
    assert (await store.verify(S)).sound


async def test_a_mistake_in_one_write_reaches_its_caller_alone(make):
    store = make()
    await burst(store, 2)

    def mistake(connection):
        connection.execute("UPDATE sessions SET head = 99")
        raise TypeError("a bug")

    failed = asyncio.ensure_future(store._writer.do(mistake))
    assert (await store.append(S, [note("a")])).head.seq == 1
    with pytest.raises(TypeError):
        await failed
    assert (await store.head(SessionId(key="s0"))).seq == 1
    with pytest.raises(TypeError):
        await store._writer.do(mistake)
    await store.append(S, [note("b")], expected=1)


async def test_another_process_that_writes(make, tmp_path):
    store = make(patience=5)
    await store.append(S, [note("a")])
    with closing(sqlite3.connect(tmp_path / "chat.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.append(S, [note("b")]))
        await asyncio.sleep(0.05)
        assert not waiting.done()
        assert texts(await store.read(S)) == ["a"]  # reads do not wait
        other.execute("COMMIT")
        assert (await waiting).head.seq == 2
        impatient = make(patience=0.05)
        assert texts(await impatient.read(S)) == ["a", "b"]
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match="another process"):
            await impatient.append(S, [note("c")])
        other.execute("ROLLBACK")
        await impatient.append(S, [note("d")])
    assert texts(await store.read(S)) == ["a", "b", "d"]


async def test_a_long_read_holds_up_nobody(make):
    store = make()
    await store.append(S, [note("a")])
    ended = threading.Event()
    long = [
        asyncio.ensure_future(store._reader.do(key, lambda _: ended.wait(), brief=False)) for key in range(8)
    ]
    await asyncio.sleep(0.02)
    try:
        await store.append(S, [note("b")])
        assert texts(await store.read(S)) == ["a", "b"]
        assert not any(one.done() for one in long)
    finally:
        ended.set()
    await asyncio.gather(*long)


@pytest.mark.parametrize("call", ["append", "post"])
async def test_a_repeat_is_synced_again(make, call):
    """A process that died between write and sync left what the next one finds: that must last as well."""
    store = make()

    async def again():
        if call == "append":
            return (await store.append(S, [note("a")], batch="b")).repeated
        return (await store.post(S, NewEntry(kind="message", id="m"))).repeated

    assert not await again()
    before = len(Faulty.statements)
    assert await again()
    assert [sql for sql in Faulty.statements[before:] if sql.startswith("UPDATE")]


async def test_a_file_that_was_removed(make, tmp_path):
    store = make()
    await store.append(S, [note("a")])
    await store.read(S)
    for path in tmp_path.glob("chat.db*"):
        path.unlink()
    await asyncio.sleep(0.11)
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await store.append(S, [note("b")])
    with pytest.raises(HeadMoved):
        await store.append(S, [note("b")], expected=1)
    await store.append(S, [note("c")])
    assert texts(await store.read(S)) == ["c"]


async def test_what_cannot_be_opened(tmp_path):
    (tmp_path / "text.db").write_bytes(b"This is no database. " * 400)
    raw(tmp_path / "theirs.db", "CREATE TABLE t (x)")
    (tmp_path / "folder.db").mkdir()
    for name, error in (
        ("text.db", StoreDamaged),
        ("theirs.db", ConfigurationError),
        ("folder.db", StoreUnavailable),
        ("text.db/x.db", StoreUnavailable),
    ):
        before = (tmp_path / name).read_bytes() if (tmp_path / name).is_file() else b""
        store = SqliteStore(tmp_path / name)
        for call in (store.append(S, [note("a")]), store.read(S)):
            with pytest.raises(error):
                await call
        await store.close()
        if before:
            assert (tmp_path / name).read_bytes() == before


def test_urls(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    here = str(Path.cwd())
    assert file_of("sqlite:///chat.db") == f"{here}/chat.db"
    assert file_of("sqlite:////var/my%20chat.db") == "/var/my chat.db"
    assert file_of("plain.db") == f"{here}/plain.db"
    for bad in (
        "sqlite://host/chat.db",
        "sqlite:///:memory:",
        "sqlite://",
        "sqlite:///",
        ":memory:",
        "sqlite:///a?mode=ro",
        "sqlite:///a%00b",
    ):
        with pytest.raises(ConfigurationError):
            file_of(bad)
    with pytest.raises(ConfigurationError, match="memory:"):
        backstory.open("sqlite:///:memory:", target="openai_chat", budget=1000)
    with pytest.raises(ConfigurationError):
        SqliteStore("x.db", durability="none")  # type: ignore[arg-type]


async def test_open_by_url(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    store = backstory.open("sqlite:///chat.db", target="openai_chat", budget=1000).store
    assert isinstance(plain(store), SqliteStore)
    await store.append(S, [note("a")])
    await store.close()
    assert (tmp_path / "chat.db").stat().st_mode & 0o077 == 0
    assert raw("chat.db", "PRAGMA journal_mode") == [("wal",)]


async def test_synchronous_as_the_durability_says(make):
    store = make()
    await store.append(S, [note("a")])
    lease = await store.acquire(S, LeaseRequest(owner="o", ttl=9))
    await store.put_draft(S, {"text": "x"}, after=1, fence=lease.fence)
    await store.append(S, [note("b")], fence=lease.fence)
    pragmas = [sql for sql in Faulty.statements if sql.startswith("PRAGMA synchronous")]
    assert pragmas == [
        "PRAGMA synchronous = FULL",
        "PRAGMA synchronous = NORMAL",
        "PRAGMA synchronous = FULL",
    ]
    Faulty.statements.clear()
    process = make(durability="process")
    await process.append(S, [note("c")], fence=lease.fence)
    assert [sql for sql in Faulty.statements if "synchronous" in sql] == ["PRAGMA synchronous = NORMAL"]


async def test_the_log_of_sqlite_stays_short(make, tmp_path):
    store = make(durability="process", factory=sqlite3.Connection)
    for _ in range(60):
        await burst(store, 64, size=2)
        await asyncio.sleep(0)
    for number in range(1500):
        await store.append(S, [note(f"{number} " + "x" * 1000)])
    assert (tmp_path / "chat.db-wal").stat().st_size < 25_000_000


async def test_an_index_serves_each_question(make, tmp_path):
    store = make()
    await store.append(S, [note("a")], batch="b")
    from backstory.stores.sqlite import beside, log

    for sql, values in (
        (log._ROW_TO_APPEND, ("a", "b")),
        (log._OLDEST_FIRST, ("a", "b", 1, 9, 5)),
        (log._NEWEST_FIRST, ("a", "b", 1, 9, 5)),
        (log._BATCH, (1, "b")),
        (beside._LIST, ("a", 5, 5)),
        (beside._DRAFT, ("a", "b")),
    ):
        plan = [row[3] for row in raw(tmp_path / "chat.db", "EXPLAIN QUERY PLAN " + sql, *values)]
        assert not [step for step in plan if step.startswith("SCAN") or "TEMP B-TREE" in step], (sql, plan)


# --- versions


async def test_a_newer_schema_is_refused(make, tmp_path):
    store = make()
    await store.append(S, [note("a")])
    raw(tmp_path / "chat.db", f"PRAGMA user_version = {len(schema.MIGRATIONS) + 1}")
    with pytest.raises(NewerFormat):  # also while it is open
        await store.append(S, [note("b")])
    late = make()
    for call in (late.read(S), late.append(S, [note("c")]), late.head(S)):
        with pytest.raises(NewerFormat):
            await call
    assert raw(tmp_path / "chat.db", "SELECT count(*) FROM records") == [(1,)]


async def test_migration_forward_with_a_copy(make, tmp_path, monkeypatch):
    old = make()
    await old.append(S, [note("a")])
    await old.close()
    more = (*schema.MIGRATIONS, ["ALTER TABLE sessions ADD COLUMN colour TEXT"])
    monkeypatch.setattr(schema, "MIGRATIONS", more)
    monkeypatch.setattr("backstory.stores.sqlite.writer.MIGRATIONS", more)
    stores = [make() for _ in range(3)]
    await asyncio.gather(*(store.append(S, [note("b")]) for store in stores))
    assert texts(await stores[0].read(S)) == ["a", "b", "b", "b"]
    assert raw(tmp_path / "chat.db", "PRAGMA user_version") == [(2,)]
    assert raw(tmp_path / "chat.db", "SELECT colour FROM sessions") == [(None,)]
    (copy,) = tmp_path.glob("chat.db.before-v2-*")
    assert raw(copy, "PRAGMA user_version") == [(1,)]
    assert raw(copy, "SELECT count(*) FROM records") == [(1,)]
    await stores[0].delete(S)
    assert not list(tmp_path.glob("chat.db.before-v2-*"))  # erased is erased


async def test_a_migration_that_fails_changes_nothing(make, tmp_path, monkeypatch):
    old = make()
    await old.append(S, [note("a")])
    await old.close()
    broken = (*schema.MIGRATIONS, ["ALTER TABLE sessions ADD COLUMN colour TEXT", "NONSENSE"])
    monkeypatch.setattr(schema, "MIGRATIONS", broken)
    with pytest.raises(StoreDamaged):
        await make().append(S, [note("b")])
    monkeypatch.undo()
    again = make()
    assert texts(await again.read(S)) == ["a"]
    assert raw(tmp_path / "chat.db", "PRAGMA user_version") == [(1,)]


# --- damage


async def fill(make, number=6, size=0):
    store = make()
    for place in range(1, number + 1):
        await store.append(S, [note(f"r{place}", more="x" * size)])
    await store.close()


RUINS = {
    "cut": "substr(line, 1, 20)",
    "zeros": "zeroblob(300)",
    "a bit": "replace(cast(line AS TEXT), 'r3', 'r8')",
    "no record": "cast('{\"hello\":1}' AS BLOB)",
    "not UTF-8": "x'7bfffe7d'",
    "another place": "(SELECT line FROM records WHERE place = (1 << 32) + 5)",
    "gone": None,
}


@pytest.mark.parametrize("ruin", RUINS.values(), ids=RUINS)
@pytest.mark.parametrize("newest_first", [False, True])
async def test_a_ruined_record_hides_nothing_else(make, tmp_path, ruin, newest_first):
    await fill(make)
    third = (1 << 32) + 3
    if ruin is None:
        raw(tmp_path / "chat.db", "DELETE FROM records WHERE place = ?", third)
    else:
        raw(tmp_path / "chat.db", f"UPDATE records SET line = {ruin} WHERE place = ?", third)
    heard = []
    store = make(on_damage=lambda session, damage: heard.append(damage))
    edited = ruin == RUINS["a bit"]
    expected = ["r1", "r2", *(["r8"] if edited else []), "r4", "r5", "r6"]
    assert texts(await store.read(S, newest_first=newest_first)) == expected[:: -1 if newest_first else 1]
    assert len(heard) == (not edited and ruin is not None)
    assert texts(await store.read(S, after=1, limit=2)) == expected[1:3]
    assert (await store.append(S, [note("r7")], expected=6)).head.seq == 7
    report = await store.verify(S)
    assert not report.sound
    mended = await store.repair(S)
    assert {damage.kind for damage in mended.damage} == {damage.kind for damage in report.damage}
    assert all(damage.kept in mended.kept for damage in mended.damage)
    assert (await store.verify(S)).sound
    records = await store.read(S)
    assert [record.first for record in records] == [1, 2, 3, 4, 5, 6, 7]
    if not edited:
        assert (records[2].kind, records[2].data) == ("erased", {"reason": "damaged"})
    assert (await store.append(S, [note("r8")], expected=7)).head.seq == 8
    await store.rewrite(S, [Replacement(first=1, last=1, record=note("x"))], expected=8, purge=True)
    assert (await store.verify(S)).kept == ()


async def test_the_end_of_a_log_that_is_missing(make, tmp_path):
    await fill(make)
    raw(tmp_path / "chat.db", "DELETE FROM records WHERE place > ?", (1 << 32) + 4)
    store = make()
    assert [damage.kind for damage in (await store.verify(S)).damage] == ["gap"]
    await store.repair(S)
    assert [(record.first, record.seq) for record in await store.read(S)][-1] == (5, 6)
    assert (await store.verify(S)).sound
    assert (await store.append(S, [note("on")], expected=6)).head.seq == 7


def ruin_leaves(path, number):
    """Overwrite so many leaf pages of the table of records, from its middle on. The places that lay on them."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        (root,) = connection.execute("SELECT rootpage FROM sqlite_schema WHERE name = 'records'").fetchone()
    content = bytearray(Path(path).read_bytes())
    pages = [
        page
        for page in range(1, len(content) // size)
        if content[page * size] == 13 and b'"kind":"meta"' in content[page * size : (page + 1) * size]
    ]
    assert root - 1 not in pages
    middle = len(pages) // 2
    for page in pages[middle : middle + number]:
        content[page * size : page * size + 200] = b"\xa5" * 200
    Path(path).write_bytes(content)


async def test_corrupt_pages(make, tmp_path):
    await fill(make, 200, size=500)
    other = SessionId(scope="o", key="\ud800")
    store = make()
    lease = await store.acquire(other, LeaseRequest(owner="me", ttl=1000))
    await store.append(other, [note("there")], fence=lease.fence)
    await store.post(other, NewEntry(kind="message", data={"n": 1}))
    handle = await store.put_blob("o", b"blob" * 5000)
    await store.close()
    ruin_leaves(tmp_path / "chat.db", 2)
    store = make()
    with pytest.raises(StoreDamaged):
        await store.read(S)
    assert texts(await store.read(S, limit=3)) == ["r1", "r2", "r3"]
    assert texts(await store.read(S, newest_first=True, limit=2)) == ["r200", "r199"]
    await store.append(other, [note("life goes on")], fence=lease.fence)
    report = await store.verify(S)
    assert not report.sound
    bystander = make()
    assert texts(await bystander.read(other)) == ["there", "life goes on"]
    mended = await store.repair(S)
    assert mended.kept
    assert any(name.startswith(str(tmp_path / "chat.db.damaged-")) for name in mended.kept)
    for one in (store, bystander):
        assert (await one.verify(S)).sound
        records = await one.read(S)
        assert [record.first - 1 for record in records] == [0, *places(records)][:-1]
        assert len([record for record in records if record.kind == "meta"]) > 150
        assert texts(await one.read(other)) == ["there", "life goes on"]
        assert (await one.lease(other)).owner == "me"
        assert [entry.data for entry in await one.inbox(other)] == [{"n": 1}]
        assert await one.get_blob("o", handle) == b"blob" * 5000
    assert (await bystander.append(S, [note("on")], expected=200)).head.seq == 201
    assert (await store.append(S, [note("on")], expected=201)).head.seq == 202
    assert raw(tmp_path / "chat.db", "PRAGMA integrity_check") == [("ok",)]


async def test_a_blob_that_was_changed(make, tmp_path):
    store = make()
    handle = await store.put_blob("default", b"abc")
    raw(tmp_path / "chat.db", "UPDATE blobs SET data = x'00'")
    with pytest.raises(StoreDamaged):
        await store.get_blob("default", handle)
    assert await store.put_blob("default", b"abc") == handle
    assert await store.get_blob("default", handle) == b"abc"


async def test_erased_is_erased(make, tmp_path):
    store = make()
    await store.append(S, [note("the secret is swordfish"), note("b")])
    await store.rewrite(S, [Replacement(first=1, last=1, record=note("gone"))], expected=2, purge=True)
    other = SessionId(key="other")
    await store.append(other, [note("also swordfish")])
    await store.delete(other)
    for path in tmp_path.iterdir():
        assert b"swordfish" not in path.read_bytes(), path


async def test_batch_ids_of_any_kind_survive_a_repair(make, tmp_path):
    store = make()
    await store.append(S, [note("a"), note("b")], batch="half \ud83d")
    await store.append(S, [note("c")])
    raw(tmp_path / "chat.db", "UPDATE records SET line = x'00' WHERE place = ?", (1 << 32) + 3)
    assert (await store.repair(S)).kept == ("kept:1",)
    assert b'"a"' in raw(tmp_path / "chat.db", "SELECT lines FROM kept WHERE id = 1")[0][0]
    assert (await store.append(S, [note("a"), note("b")], batch="half \ud83d")).repeated
    assert (await store.head(S)).seq == 3


async def test_cursors(make):
    store = make()
    for bad in ("x", "-1", "9" * 30, ""):
        with pytest.raises(InvalidInput):
            await store.sessions("default", cursor=bad)


async def test_a_writer_whose_lease_ran_out_while_it_stood_still(make):
    clock = ManualClock()
    mine, other = make(clock=clock), make(clock=clock)
    lease = await mine.acquire(S, LeaseRequest(owner="a", ttl=1))
    clock.advance(2)
    await other.append(S, [note("heir")], acquire=LeaseRequest(owner="b", ttl=9))
    with pytest.raises(StaleLease):
        await mine.append(S, [note("ghost")], fence=lease.fence)
    with suppress(StoreUnavailable):
        await mine.close()
    assert texts(await other.read(S)) == ["heir"]
