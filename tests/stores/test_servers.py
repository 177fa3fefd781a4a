"""What is particular to PostgreSQL and to Redis: set-up, refusals, damage, settings, names."""

import asyncio
import importlib.util
import logging
import time

import pytest

import backstory
from backstory.errors import ConfigurationError, NewerFormat, StaleLease, StoreDamaged, StoreUnavailable
from backstory.models.scripted import ScriptedModel
from backstory.stores import Durability, LeaseRequest, NewEntry, PostgresStore, RedisStore, SessionId, Store
from backstory.stores.conformance import HOSTILE, note, texts
from backstory.stores.redis.keys import Keys
from backstory.stores.redis.persistence import judged, persistence
from backstory.stores.remote.naming import held, holdable
from backstory.stores.remote.places import shown
from tests.servers import running_redis

S = SessionId(key="s")
ENDLESS = 3600.0
"""Seconds. Whoever waits for so long is stopped by the time-out of the test, and has failed."""


# --- both


async def test_open_by_url(kind):
    bs = backstory.open(kind.server.url(), model=ScriptedModel(["Hello."], window=8_000))
    assert str(await bs.say(kind.prefix, "hi")) == "Hello."
    await bs.close()


@pytest.mark.parametrize(("store", "package"), [(PostgresStore, "psycopg"), (RedisStore, "redis")])
def test_a_missing_extra_says_what_to_install(monkeypatch, store, package):
    real = importlib.util.find_spec
    for module in ("postgres", "redis"):
        monkeypatch.setattr(
            f"backstory.stores.{module}.engine.find_spec",
            lambda name: None if name == package else real(name),
        )
    with pytest.raises(ConfigurationError, match=r"pip install 'backstory\[(postgres|redis)\]'"):
        store("redis://localhost")


@pytest.mark.parametrize(
    ("make", "options"),
    [
        (PostgresStore, {"durability": "none"}),
        (PostgresStore, {"schema": ""}),
        (PostgresStore, {"schema": "x" * 64}),
        (PostgresStore, {"min_size": 3, "max_size": 2}),
        (PostgresStore, {"timeout": 0}),
        (RedisStore, {"durability": "none"}),
        (RedisStore, {"prefix": ""}),
        (RedisStore, {"prefix": "a{b}"}),
        (RedisStore, {"max_size": 0}),
        (RedisStore, {"command_timeout": -1}),
    ],
)
def test_settings_that_make_no_sense(make, options):
    with pytest.raises(ConfigurationError):
        make("scheme://nowhere", **options)


@pytest.mark.parametrize("text", [*HOSTILE, "\\u0000", "\\", "a\\u12\0"])
def test_ids_are_held_and_given_back(text):
    assert held(holdable(text)) == text
    holdable(text).encode()
    assert "\0" not in holdable(text)


def test_a_place_is_shown_without_its_secrets():
    assert shown("postgresql://me:secret@db:5432/app?password=secret") == "postgresql://db:5432/app"
    assert shown("rediss://:secret@[::1]/0") == "rediss://::1/0"
    assert shown("host=x password=secret") == "the server"
    assert shown("redis://host:notaport/") == "the server"


async def test_many_first_uses_at_once(kind):
    stores = [kind.store() for _ in range(6)]
    await asyncio.gather(*(one.append(S, [note("x")]) for one in stores))
    assert (await stores[0].head(S)).seq == 6
    await asyncio.gather(*(one.close() for one in stores))


@pytest.mark.parametrize("delay", [0, 0.0005, 0.001, 0.002, 0.003, 0.005, 0.01])
async def test_closing_while_a_call_is_under_way(kind, delay):
    """Whatever the call was at: connecting, sending, waiting for the answer."""
    store = kind.store()
    if delay > 0.002:
        await store.append(S, [note("x")])
    calls = [asyncio.ensure_future(store.append(S, [note("y")])) for _ in range(5)]
    calls += [asyncio.ensure_future(store.append(SessionId(key=f"t{n}"), [note("y")])) for n in range(5)]
    waiting = asyncio.ensure_future(store.wait(S, mail_after=0, within=0.3))
    await asyncio.sleep(delay)
    async with asyncio.timeout(30):
        await store.close()
        results = await asyncio.gather(*calls, waiting, return_exceptions=True)
    for result in results:
        assert not isinstance(result, BaseException) or isinstance(result, StoreUnavailable)


async def test_the_same_bytes_in_both(postgres_server, redis_server):
    clock = backstory.stores.ManualClock()
    stores: list[Store] = [
        PostgresStore(postgres_server.url(), schema="bytes", clock=clock),
        RedisStore(redis_server.url(), prefix="bytes", clock=clock),
        backstory.stores.InMemoryStore(clock=clock),
    ]
    lines = []
    for store in stores:
        await store.append(S, [note("a \ud800 茶"), note("b")], batch="b \0")
        await store.append(S, [note("c")])
        lines.append([record.line for record in await store.read(S)])
        await store.close()
    assert lines[0] == lines[1] == lines[2]


# --- damage


async def damaged(kind, store) -> None:
    """Of ten records: the second is no JSON, the fifth is gone, the seventh has a flipped bit, the last is gone."""
    await store.append(S, [note(f"r{place}") for place in range(1, 11)])
    line = (await store.read(S, after=6, limit=1))[0].line
    flipped = line.replace(b"r7", b"q7")
    if kind.server.url().startswith("postgres"):
        import psycopg

        with psycopg.connect(kind.server.url()) as conn:
            for place, data in ((2, b"\x00garbage"), (7, flipped)):
                conn.execute(f'UPDATE "{kind.prefix}".records SET line = %s WHERE seq = %s', (data, place))
            conn.execute(f'DELETE FROM "{kind.prefix}".records WHERE seq IN (5, 10)')
        return
    from redis import Redis

    log = Keys(kind.prefix).session(S).log
    with Redis.from_url(kind.server.url()) as client:
        for place, data in ((2, b"\x00garbage"), (7, flipped), (5, b""), (10, b"")):
            client.zremrangebyscore(log, place, place)
            if data:
                client.zadd(log, {data: place})


async def test_damage_is_found_reported_and_mended(kind, caplog):
    store = kind.store()
    await damaged(kind, store)
    with caplog.at_level(logging.WARNING, "backstory.stores"):
        assert texts(await store.read(S)) == ["r1", "r3", "r4", "r6", "q7", "r8", "r9"]
    assert "verify" in caplog.text
    report = await store.verify(S)
    assert [damage.kind for damage in report.damage] == ["json", "gap", "checksum", "gap"]
    assert (report.records, report.kept) == (7, ())
    mended = await store.repair(S)
    assert mended.damage == report.damage
    assert len(mended.kept) == 1
    again = await store.verify(S)
    assert again.sound
    assert again.kept == mended.kept
    assert mended.head == again.head == await store.head(S)
    assert again.head.seq == 10
    records = await store.read(S)
    assert [(record.first, record.seq, record.kind) for record in records if record.kind == "erased"] == [
        (2, 2, "erased"),
        (5, 5, "erased"),
        (10, 10, "erased"),
    ]
    assert records[1].data["reason"] == "damaged"
    assert (await store.append(S, [note("on")], expected=10)).head.seq == 11
    await store.rewrite(S, [], expected=11, purge=True)
    assert (await store.verify(S)).kept == ()
    await store.close()


async def test_a_damaged_blob(kind):
    store = kind.store()
    handle = await store.put_blob("a", b"good")
    if kind.server.url().startswith("postgres"):
        import psycopg

        with psycopg.connect(kind.server.url()) as conn:
            conn.execute(f"UPDATE \"{kind.prefix}\".blobs SET data = 'bad'")
    else:
        from redis import Redis

        with Redis.from_url(kind.server.url()) as client:
            client.set(Keys(kind.prefix).blob("a", handle[7:]), b"bad")
    with pytest.raises(StoreDamaged):
        await store.get_blob("a", handle)
    await store.close()


async def test_deleting_leaves_nothing(kind):
    store = kind.store()
    session = SessionId(scope="tenant-of-a-secret-name", key="k")
    await store.append(session, [note("secret")], batch="secret")
    await store.append(session, [note("secret")])
    await store.post(session, NewEntry(kind="message", data={"text": "secret"}, id="secret"))
    await store.delete(session)
    assert await store.scopes() == []
    if kind.server.url().startswith("redis"):
        from redis import Redis

        with Redis.from_url(kind.server.url()) as client:
            assert client.keys(f"{kind.prefix}:*") == [f"{kind.prefix}:format".encode()]
    await store.close()


# --- PostgreSQL


async def test_what_postgres_refuses_is_said_at_once(postgres_server):
    url = postgres_server.url().replace("/postgres", "/nowhere")
    store = PostgresStore(url, timeout=ENDLESS)
    with pytest.raises(StoreUnavailable, match="nowhere"):
        await store.head(S)
    await store.close()


async def test_a_newer_schema_is_not_touched(postgres_server):
    import psycopg

    store = PostgresStore(postgres_server.url(), schema="newer")
    await store.head(S)
    await store.close()
    with psycopg.connect(postgres_server.url()) as conn:
        conn.execute("UPDATE newer.version SET version = 99")
    store = PostgresStore(postgres_server.url(), schema="newer")
    with pytest.raises(NewerFormat, match="99"):
        await store.head(S)
    await store.close()


async def test_a_database_of_another_encoding_is_refused(postgres_server):
    import psycopg

    with psycopg.connect(postgres_server.url(), autocommit=True) as conn:
        conn.execute("CREATE DATABASE latin ENCODING 'LATIN1' TEMPLATE template0")
    store = PostgresStore(postgres_server.url().replace("/postgres", "/latin"))
    with pytest.raises(ConfigurationError, match="UTF8"):
        await store.head(S)
    await store.close()


async def test_a_role_that_may_create_nothing(postgres_server):
    import psycopg

    store = PostgresStore(postgres_server.url(), schema="ready")
    await store.head(S)
    await store.close()
    with psycopg.connect(postgres_server.url()) as conn:
        conn.execute(
            "CREATE ROLE plain LOGIN; GRANT USAGE ON SCHEMA ready TO plain; "
            "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA ready TO plain; "
            "GRANT USAGE ON ALL SEQUENCES IN SCHEMA ready TO plain"
        )
    url = postgres_server.url().replace("tester@", "plain@")
    store = PostgresStore(url, schema="ready")
    await store.append(S, [note("x")])
    await store.close()
    store = PostgresStore(url, schema="notready")
    with pytest.raises(StoreUnavailable, match="permission denied"):
        await store.append(S, [note("x")])
    await store.close()


async def test_a_held_row_is_a_typed_error_in_time(postgres_server):
    import psycopg

    store = PostgresStore(postgres_server.url(), schema="rows", lock_timeout=0.3)
    await store.append(S, [note("x")])
    async with await psycopg.AsyncConnection.connect(postgres_server.url()) as conn:
        await conn.execute("SELECT 1 FROM rows.sessions FOR UPDATE")
        with pytest.raises(StoreUnavailable, match="lock"):
            await store.append(S, [note("y")])
        await store.append(SessionId(key="other"), [note("z")])
        await conn.rollback()
    await store.append(S, [note("y")])
    assert texts(await store.read(S)) == ["x", "y"]
    await store.close()


async def test_commits_are_as_durable_as_was_asked(postgres_server):
    url = postgres_server.url() + "?options=-csynchronous_commit%3Doff"
    asked: list[tuple[Durability, str]] = [("power", "on"), ("process", "off")]
    for durability, wanted in asked:
        store = PostgresStore(url, schema="durable", durability=durability)
        assert await store._database.fetch("SHOW synchronous_commit") == [(wanted,)]
        await store.close()
    store = PostgresStore(url.replace("%3Doff", "%3Dremote_apply"), schema="durable")
    assert await store._database.fetch("SHOW synchronous_commit") == [("remote_apply",)]
    await store.close()


# --- Redis


@pytest.mark.parametrize("name", HOSTILE)
def test_no_id_leaves_its_keys(name):
    keys = Keys("p").session(SessionId(scope=name, key=name))
    for key in keys.all[:6]:
        assert key.startswith("p:{")
        assert key.count("{") == key.count("}") == 1
        assert key.isascii()
        assert len(key) < 400


def test_keys_of_different_sessions_differ():
    ids = [SessionId(scope=scope, key=key) for scope in HOSTILE for key in HOSTILE]
    assert len({Keys("p").session(one).meta for one in ids}) == len(ids)


SAFE = {"appendonly": "yes", "appendfsync": "always"}


@pytest.mark.parametrize(
    ("settings", "version", "durability", "waits", "words"),
    [
        (SAFE, (7, 0), "power", False, []),
        (SAFE | {"maxmemory": "0", "maxmemory-policy": "allkeys-lru"}, (7, 0), "power", False, []),
        (
            SAFE | {"maxmemory": "9", "maxmemory-policy": "allkeys-lru"},
            (7, 0),
            "power",
            False,
            ["noeviction"],
        ),
        (SAFE | {"appendfsync": "everysec"}, (7, 0), "power", False, ["last second or two"]),
        (SAFE | {"appendfsync": "everysec"}, (7, 2), "power", True, ["WAITAOF"]),
        (SAFE | {"appendfsync": "everysec"}, (7, 2), "process", False, []),
        (SAFE | {"appendfsync": "no"}, (8, 0), "power", False, ["had not written"]),
        ({"appendonly": "no", "appendfsync": "always"}, (8, 0), "process", False, ["appendonly is off"]),
        (None, (7, 0), "power", False, ["forbidden"]),
    ],
)
def test_what_persistence_settings_mean(settings, version, durability, waits, words):
    found = judged(settings, version, durability)
    assert found.waits == waits
    assert len(found.warnings) == len(words)
    assert all(word in warning for word, warning in zip(words, found.warnings, strict=True))


async def test_settings_are_looked_at_and_warned_of(caplog):
    with running_redis("--appendonly", "no") as server, caplog.at_level(logging.WARNING, "backstory.stores"):
        store = RedisStore(server.url())
        assert store.warnings == ()
        await store.append(S, [note("x")])
        await store.close()
    assert "appendonly is off" in caplog.text
    assert len(store.warnings) == 1


async def test_forbidden_settings_are_a_warning_and_no_error(redis_server):
    from redis import Redis

    with Redis.from_url(redis_server.url()) as client:
        client.execute_command(
            "ACL", "SETUSER", "plain", "on", ">secret", "~*", "&*", "+@all", "-config", "-info"
        )
    store = RedisStore(redis_server.url().replace("//", "//plain:secret@"), prefix="acl")
    await store.append(S, [note("x")])
    assert "forbidden" in store.warnings[0]
    await store.close()
    store = RedisStore(redis_server.url().replace("//", "//plain:wrong@"), prefix="acl", timeout=ENDLESS)
    with pytest.raises(StoreUnavailable, match="refused"):
        await store.append(S, [note("x")])
    await store.close()


async def test_a_full_server_is_a_typed_error(redis_server):
    with running_redis("--appendonly", "no", "--maxmemory", "3mb") as server:
        store = RedisStore(server.url())
        with pytest.raises(StoreUnavailable, match="maxmemory"):
            await fill(store)
        records = await store.read(S)
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        assert (await store.verify(S)).sound
        await store.close()


async def test_a_newer_format_is_not_touched(redis_server):
    from redis import Redis

    with Redis.from_url(redis_server.url()) as client:
        client.set("newer:format", 99)
    store = RedisStore(redis_server.url(), prefix="newer")
    with pytest.raises(NewerFormat):
        await store.head(S)
    await store.close()


async def fill(store):
    for _ in range(100):
        await store.append(S, [note("x" * 100_000)])


class Waiting:
    """A server of Redis 7.2 that says how far its file is synced."""

    def __init__(self, synced):
        self.synced = list(synced)
        self.asked = []

    async def execute_command(self, *parts):
        self.asked.append(parts)
        return [self.synced.pop(0), 0] if parts[0] == "WAITAOF" else True

    def client(self):
        return self

    async def __aenter__(self):
        return self

    async def __aexit__(self, *_):
        return None

    async def config_get(self, pattern):
        return {b"appendonly": b"yes", b"appendfsync": b"everysec"} if "append" in pattern else {}

    async def info(self, _):
        return {"redis_version": "7.2.4"}


async def test_a_write_waits_for_the_sync_where_the_server_can(redis_server):
    server = Waiting([0, 1])
    store = RedisStore(redis_server.url(), prefix="waits", timeout=2)
    engine = await store._sessions.engine()
    own, engine._client = engine._client, server
    engine.persistence = await persistence(server, "power")
    assert engine.persistence.waits
    assert await store.delete_blob(
        "a", "sha256:" + "0" * 64
    )  # not synced in time at first: the same call again
    assert [parts[0] for parts in server.asked] == ["EVAL", "WAITAOF"] * 2
    engine._client = own
    await store.close()


async def test_pages_of_sessions_of_the_very_same_time(kind):
    store = kind.store(clock=backstory.stores.ManualClock())
    keys = {f"k{number}" for number in range(80)}
    await asyncio.gather(*(store.append(SessionId(scope="same", key=key), [note("x")]) for key in keys))
    found: list[str] = []
    cursor = None
    while True:
        page = await store.sessions("same", limit=7, cursor=cursor)
        found += [info.session.key for info in page.sessions]
        cursor = page.cursor
        if cursor is None:
            break
    assert len(found) == 80
    assert set(found) == keys
    await store.close()


async def test_a_dead_holders_lease_ends_by_the_servers_clock(kind):
    store, other = kind.store(), kind.store()
    lease = await store.acquire(S, LeaseRequest(owner="dead", ttl=0.4))
    assert abs(store.clock.now() - time.time()) < 5
    assert await other.wait(S, free=True, within=ENDLESS)
    assert await other.lease(S) is None
    heir = await other.acquire(S, LeaseRequest(owner="heir", ttl=30))
    assert heir.fence > lease.fence
    with pytest.raises(StaleLease):
        await store.append(S, [note("from the grave")], fence=lease.fence)
    await store.close()
    await other.close()
