"""The tables of a store's file, its version, and the way from an older version to this one.

Who owns the file is written into its header (`application_id`), and so is the version of its tables
(`user_version`): https://www.sqlite.org/pragma.html#pragma_application_id. A newer version is refused, an older one is
copied and then taken forward; another application's file is left alone.

`records.place` is ``session number << 32 | seq``: the records of a session lie side by side, in order, in one tree,
and need no index beside it. Ids are text; one with a lone surrogate, which text cannot hold, is a blob (`to_sql`).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from backstory.errors import ConfigurationError, NewerFormat

APPLICATION = 0x42535459
"""``BSTY``"""

SHIFT = 32
"""Bits of a place that are the `seq`."""

TABLES = (
    """CREATE TABLE sessions (
        number INTEGER PRIMARY KEY AUTOINCREMENT,
        scope TEXT NOT NULL,
        key TEXT NOT NULL,
        head INTEGER NOT NULL DEFAULT 0,
        generation INTEGER NOT NULL DEFAULT 0,
        at TEXT,
        active REAL,
        activity INTEGER,
        owner TEXT,
        fence INTEGER NOT NULL DEFAULT 0,
        expires REAL NOT NULL DEFAULT 0,
        position INTEGER NOT NULL DEFAULT 0,
        UNIQUE (scope, key)
    )""",
    "CREATE INDEX sessions_by_activity ON sessions (scope, activity) WHERE activity IS NOT NULL",
    "CREATE TABLE records (place INTEGER PRIMARY KEY, batch TEXT, line BLOB NOT NULL)",
    f"CREATE INDEX records_by_batch ON records (place >> {SHIFT}, batch) WHERE batch IS NOT NULL",
    """CREATE TABLE inbox (
        place INTEGER PRIMARY KEY,
        id TEXT NOT NULL,
        at TEXT NOT NULL,
        kind TEXT NOT NULL,
        data BLOB NOT NULL
    )""",
    """CREATE TABLE drafts (
        number INTEGER PRIMARY KEY,
        after INTEGER NOT NULL,
        fence INTEGER NOT NULL,
        data BLOB NOT NULL
    )""",
    """CREATE TABLE blobs (
        scope TEXT NOT NULL,
        digest TEXT NOT NULL,
        at REAL NOT NULL,
        data BLOB NOT NULL,
        UNIQUE (scope, digest)
    )""",
    """CREATE TABLE kept (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        number INTEGER NOT NULL,
        at TEXT NOT NULL,
        lines BLOB NOT NULL
    )""",
    "CREATE INDEX kept_by_number ON kept (number)",
    # One row: no fence and no generation up to `gone` is given again, since a deleted session had it.
    "CREATE TABLE highest (id INTEGER PRIMARY KEY CHECK (id = 1), gone INTEGER NOT NULL)",
    "INSERT INTO highest VALUES (1, 0)",
)

MIGRATIONS: tuple[Sequence[str], ...] = (TABLES,)
"""Statements that lead from version n to n + 1. What has been released stays as it is; new ones go to the end."""


def to_sql(text: str) -> str | bytes:
    """A text as SQLite takes it: one that UTF-8 cannot hold becomes a blob, and so differs from every text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-8", "surrogatepass")
    return text


def from_sql(value: str | bytes) -> str:
    return value if isinstance(value, str) else bytes(value).decode("utf-8", "surrogatepass")


def version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def check(connection: sqlite3.Connection, path: str) -> int:
    """The version of the file's tables, 0 for an empty file.

    Raises `NewerFormat`, and `ConfigurationError` for a file that is not ours.
    """
    owner = int(connection.execute("PRAGMA application_id").fetchone()[0])
    found = version(connection)
    if owner != APPLICATION:
        if owner or found or connection.execute("SELECT 1 FROM sqlite_schema LIMIT 1").fetchone():
            raise ConfigurationError(f"{path} is another application's database; name a file of its own")
        return 0
    refuse_newer(found, path)
    return found


def refuse_newer(found: int, path: str) -> None:
    if found > len(MIGRATIONS):
        raise NewerFormat(
            f"{path} has tables of version {found}, and this Backstory knows {len(MIGRATIONS)}: "
            "it was written by a newer one; upgrade to use it"
        )


def migrate(connection: sqlite3.Connection) -> None:
    """Take the tables from the version they have to this one. Within a transaction of the caller's."""
    found = version(connection)
    for statements in MIGRATIONS[found:]:
        for statement in statements:
            connection.execute(statement)
    connection.execute(f"PRAGMA application_id = {APPLICATION}")
    connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


@contextmanager
def transaction(connection: sqlite3.Connection, kind: str = "IMMEDIATE") -> Iterator[None]:
    """All or nothing; with the right to write from the start, or (``DEFERRED``) one look at one state."""
    connection.execute(f"BEGIN {kind}")
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
