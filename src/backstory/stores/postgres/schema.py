"""The tables, and how an older set of them becomes the newest: statements only, nothing is run here.

One row of `sessions` a session is what everything about it is locked by. Ids are kept readable (`scope`, `key`, with
the few characters escaped that a text cannot hold) and found by digests of fixed length, since an index takes 2,700
bytes and an id may have 8,192. Blobs and lines are `bytea`: the same bytes as in every store.
"""

from __future__ import annotations

from hashlib import sha256

VERSION = 1

# Each brings the schema from the version before to the next; never change one that was released.
MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        "CREATE SEQUENCE {s}.generations",
        "CREATE SEQUENCE {s}.activities",
        "CREATE SEQUENCE {s}.positions",
        """CREATE TABLE {s}.sessions (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            name bytea NOT NULL UNIQUE,
            scope_digest bytea NOT NULL,
            scope text NOT NULL,
            key text NOT NULL,
            seq bigint NOT NULL DEFAULT 0,
            generation bigint NOT NULL DEFAULT 0,
            at text,
            active double precision NOT NULL DEFAULT 0,
            activity bigint NOT NULL DEFAULT 0,
            owner text,
            fence bigint NOT NULL DEFAULT 0,
            expires double precision NOT NULL DEFAULT 0
        ) WITH (fillfactor = 80)""",
        "CREATE INDEX sessions_by_activity ON {s}.sessions (scope_digest, activity) WHERE seq > 0",
        """CREATE TABLE {s}.records (
            session bigint NOT NULL,
            seq bigint NOT NULL,
            batch bytea,
            line bytea NOT NULL,
            PRIMARY KEY (session, seq)
        )""",
        "CREATE INDEX records_by_batch ON {s}.records (session, batch) WHERE batch IS NOT NULL",
        """CREATE TABLE {s}.inbox (
            session bigint NOT NULL,
            position bigint NOT NULL,
            id_digest bytea NOT NULL,
            id text NOT NULL,
            at text NOT NULL,
            kind text NOT NULL,
            data bytea NOT NULL,
            PRIMARY KEY (session, position),
            UNIQUE (session, id_digest)
        )""",
        """CREATE TABLE {s}.drafts (
            session bigint PRIMARY KEY,
            after bigint NOT NULL,
            fence bigint NOT NULL,
            data bytea NOT NULL
        )""",
        """CREATE TABLE {s}.quarantine (
            id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
            session bigint NOT NULL,
            seq bigint NOT NULL,
            repaired timestamptz NOT NULL DEFAULT now(),
            line bytea NOT NULL
        )""",
        "CREATE INDEX quarantine_by_session ON {s}.quarantine (session)",
        """CREATE TABLE {s}.blobs (
            scope_digest bytea NOT NULL,
            digest bytea NOT NULL,
            scope text NOT NULL,
            stored timestamptz NOT NULL DEFAULT now(),
            data bytea NOT NULL,
            PRIMARY KEY (scope_digest, digest)
        )""",
        "ALTER TABLE {s}.blobs ALTER COLUMN data SET STORAGE EXTERNAL",
    ),
)


def quoted(schema: str) -> str:
    """An identifier as SQL takes it."""
    return '"' + schema.replace('"', '""') + '"'


def channel(schema: str) -> str:
    """Where the news of a schema's sessions are told."""
    return f"backstory_{sha256(schema.encode()).hexdigest()[:16]}"


def lock_key(schema: str) -> int:
    """The advisory lock under which the schema is made and migrated."""
    return int.from_bytes(sha256(b"backstory schema " + schema.encode()).digest()[:8], signed=True)


class Statements:
    """Every statement that the store makes, for one schema. `%b` asks for the parameter in binary."""

    def __init__(self, schema: str) -> None:
        s = quoted(schema).replace("%", "%%")
        columns = (
            "id, seq, generation, at, owner, fence, expires, extract(epoch FROM clock_timestamp())::float8"
        )
        of = f"(SELECT id FROM {s}.sessions WHERE name = %b)"
        self.begin = "BEGIN ISOLATION LEVEL READ COMMITTED"
        self.lightly = "SET LOCAL synchronous_commit = off"
        self.lock = f"SELECT {columns} FROM {s}.sessions WHERE name = %b FOR UPDATE"
        self.look = f"SELECT {columns} FROM {s}.sessions WHERE name = %b"
        self.now = "SELECT extract(epoch FROM clock_timestamp())::float8"
        self.create = (
            f"INSERT INTO {s}.sessions (name, scope_digest, scope, key) VALUES (%b, %b, %s, %s) "
            "ON CONFLICT (name) DO NOTHING"
        )
        self.batch = f"SELECT line FROM {s}.records WHERE session = {of} AND batch = %b ORDER BY seq"
        self.insert = f"INSERT INTO {s}.records (session, seq, batch, line) VALUES (%b, %b, %b, %b)"
        self.insert_many = (
            f"INSERT INTO {s}.records (session, seq, batch, line) "
            "SELECT %b, made.seq, %b, made.line FROM unnest(%b::bigint[], %b::bytea[]) AS made (seq, line)"
        )
        self.advance = (
            f"UPDATE {s}.sessions SET seq = %b, at = %s, active = %b, activity = nextval('{_text(s)}.activities'), "
            f"generation = CASE generation WHEN 0 THEN nextval('{_text(s)}.generations') ELSE generation END, "
            "owner = %s, fence = %b, expires = %b WHERE id = %b RETURNING generation"
        )
        self.hold = f"UPDATE {s}.sessions SET owner = %s, fence = %b, expires = %b WHERE id = %b"
        read = f"SELECT line FROM {s}.records WHERE session = {of} AND seq > %b AND seq < %b ORDER BY seq"
        self.read = f"{read} LIMIT %b"
        self.read_newest = f"{read} DESC LIMIT %b"
        self.first_from = (
            f"SELECT line FROM {s}.records WHERE session = %b AND seq >= %b ORDER BY seq LIMIT 1"
        )
        self.rows = f"SELECT seq, line FROM {s}.records WHERE session = {of} ORDER BY seq"
        self.head = f"SELECT seq, generation, at FROM {s}.sessions WHERE name = %b"
        self.list = (
            f"SELECT key, active, activity FROM {s}.sessions "
            "WHERE scope_digest = %b AND seq > 0 AND activity < %b ORDER BY activity DESC LIMIT %b"
        )
        self.scopes = f"SELECT DISTINCT scope FROM {s}.sessions WHERE seq > 0"
        self.drop_records = f"DELETE FROM {s}.records WHERE session = %b AND seq BETWEEN %b AND %b"
        self.rewritten = (
            f"UPDATE {s}.sessions SET generation = nextval('{_text(s)}.generations'), at = %s WHERE id = %b "
            "RETURNING generation"
        )
        self.keep = (
            f"INSERT INTO {s}.quarantine (session, seq, line) SELECT session, seq, line FROM {s}.records "
            "WHERE session = %b RETURNING id"
        )
        self.kept = f"SELECT DISTINCT session FROM {s}.quarantine WHERE session = %b"
        self.forget = tuple(
            f"DELETE FROM {s}.{table} WHERE {column} = %b"
            for table, column in (
                ("quarantine", "session"),
                ("drafts", "session"),
                ("inbox", "session"),
                ("records", "session"),
                ("sessions", "id"),
            )
        )
        self.waiting = f"SELECT position, id, at, kind, data FROM {s}.inbox WHERE session = {of}"
        self.inbox = f"{self.waiting} ORDER BY position"
        self.inbox_one = f"{self.waiting} AND id_digest = %b"
        self.post = (
            f"INSERT INTO {s}.inbox (session, position, id_digest, id, at, kind, data) "
            f"VALUES (%b, nextval('{_text(s)}.positions'), %b, %s, %s, %s, %b) RETURNING position"
        )
        self.take = f"DELETE FROM {s}.inbox WHERE session = %b AND id_digest = ANY(%b::bytea[])"
        self.news = (
            f"SELECT owner, expires, extract(epoch FROM clock_timestamp())::float8, "
            f"(SELECT max(position) FROM {s}.inbox WHERE session = sessions.id) "
            f"FROM {s}.sessions WHERE name = %b"
        )
        self.put_draft = (
            f"INSERT INTO {s}.drafts (session, after, fence, data) VALUES (%b, %b, %b, %b) "
            "ON CONFLICT (session) DO UPDATE SET after = EXCLUDED.after, fence = EXCLUDED.fence, data = EXCLUDED.data"
        )
        self.drop_draft = f"DELETE FROM {s}.drafts WHERE session = %b"
        self.draft = (
            f"SELECT d.after, d.fence, d.data FROM {s}.drafts d JOIN {s}.sessions ON d.session = sessions.id "
            "WHERE name = %b AND d.after = sessions.seq"
        )
        self.put_blob = (
            f"INSERT INTO {s}.blobs (scope_digest, digest, scope, data, stored) "
            "VALUES (%b, %b, %s, %b, to_timestamp(%b::float8)) "
            "ON CONFLICT (scope_digest, digest) DO UPDATE SET stored = EXCLUDED.stored"
        )
        self.get_blob = f"SELECT data FROM {s}.blobs WHERE scope_digest = %b AND digest = %b"
        older = "stored < to_timestamp(%b::float8)"
        self.delete_blob = f"DELETE FROM {s}.blobs WHERE scope_digest = %b AND digest = %b AND {older}"
        self.old_blobs = (
            f"SELECT digest FROM {s}.blobs WHERE scope_digest = %b AND {older} AND digest > %b "
            "ORDER BY digest LIMIT %b"
        )
        self.blob_scopes = f"SELECT DISTINCT scope FROM {s}.blobs"
        self.notify = f"SELECT pg_notify('{channel(schema)}', %s)"


def _text(identifier: str) -> str:
    """A quoted identifier inside a string constant."""
    return identifier.replace("'", "''")
