"""Makes the schema and brings an older one forward: one transaction, under an advisory lock, once for all processes."""

from __future__ import annotations

from typing import Any

from backstory.errors import ConfigurationError, NewerFormat
from backstory.stores.postgres.schema import MIGRATIONS, VERSION, lock_key, quoted


async def migrate(conn: Any, schema: str) -> None:
    """`conn` is in autocommit mode. Nothing is written where the schema is up to date. Raises `NewerFormat`."""
    encoding = conn.info.parameter_status("server_encoding")
    if encoding != "UTF8":
        raise ConfigurationError(f"the database must be encoded in UTF8, and is in {encoding}")
    if await _version(conn, schema) == VERSION:
        return
    async with conn.transaction():
        await conn.execute("SELECT pg_advisory_xact_lock(%s)", (lock_key(schema),), prepare=False)
        version = await _version(conn, schema)
        if version == 0:
            await _run(conn, "CREATE SCHEMA IF NOT EXISTS {s}", schema)
            await _run(conn, "CREATE TABLE {s}.version (version int NOT NULL)", schema)
            await _run(conn, "INSERT INTO {s}.version VALUES (0)", schema)
        for statements in MIGRATIONS[version:]:
            for statement in statements:
                await _run(conn, statement, schema)
        await _run(conn, f"UPDATE {{s}}.version SET version = {VERSION}", schema)


async def _run(conn: Any, statement: str, schema: str) -> None:
    await conn.execute(statement.replace("{s}", quoted(schema)), prepare=False)


async def _version(conn: Any, schema: str) -> int:
    """0 where there is none yet. Raises `NewerFormat`."""
    # By a scan and not by to_regclass, whose cache may be older than the lock that we waited for.
    found = await conn.execute(
        "SELECT count(*) FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace "
        "WHERE n.nspname = %s AND c.relname = 'version'",
        (schema,),
        prepare=False,
    )
    if (await found.fetchone())[0] == 0:
        return 0
    found = await conn.execute(f"SELECT max(version) FROM {quoted(schema)}.version", prepare=False)
    version = int((await found.fetchone())[0])
    if version > VERSION:
        raise NewerFormat(
            f"schema {schema!r} is of version {version}, and this Backstory knows {VERSION}: it must not touch it"
        )
    return version
