"""The file below the records: are its pages sound, what can be saved of it, what an erasure leaves. Blocking.

A salvage builds the whole file anew from every row that can still be read, and puts it in place by SQLite's own backup
(https://www.sqlite.org/backup.html): one transaction, which other processes see as any other.
"""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from itertools import chain
from time import sleep, time
from typing import Any

from backstory.errors import StoreUnavailable
from backstory.stores.sqlite import rewriting, schema
from backstory.stores.sqlite.database import Database
from backstory.stores.sqlite.failures import is_busy, is_damage
from backstory.stores.sqlite.log import SEQ, find
from backstory.stores.sqlite.schema import SHIFT
from backstory.stores.values import Damage, Report, SessionId

logger = logging.getLogger("backstory.stores")

_FAULTS = 5
_GUESS = 10_000
"""So many numbers are tried behind a hole where nothing says how many there may be."""


def faults(connection: sqlite3.Connection) -> list[str]:
    """What SQLite itself finds wrong with the file; reads all of it."""
    try:
        found = [str(text) for (text,) in connection.execute(f"PRAGMA integrity_check({_FAULTS})")]
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return [str(error)]
    return [] if found == ["ok"] else found


def verify(connection: sqlite3.Connection, session: SessionId, broken: Iterable[str]) -> Report:
    """The records of a session, and what is known to be wrong with the file."""
    try:
        report = rewriting.verify(connection, session)
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        try:
            head = find(connection, session).ends()
        except sqlite3.DatabaseError:
            raise error from None
        report = Report(session=session, head=head, records=0, damage=(_of_file(str(error)),))
    known = {damage.detail for damage in report.damage}
    more = tuple(damage for text in broken if (damage := _of_file(text)).detail not in known)
    return replace(report, damage=(*report.damage, *more)) if more else report


def _of_file(text: str) -> Damage:
    return Damage(kind="checksum", offset=0, length=0, after=0, detail=f"the file itself: {text}")


def with_copy(mended: Report, found: Report, copy: str) -> Report:
    """The report of a repair that began with a salvage."""
    known = {(damage.kind, damage.detail) for damage in mended.damage}
    earlier = tuple(
        replace(damage, kept=copy) for damage in found.damage if (damage.kind, damage.detail) not in known
    )
    return replace(mended, damage=(*earlier, *mended.damage), kept=(*mended.kept, copy))


# --- salvage


class _ChangedMeanwhile(Exception):
    """Somebody wrote between the reading and the putting in place."""


def salvage(database: Database) -> str:
    """Build the file anew from what can be read. Returns the path of a copy of it as it was."""
    copy = database.copy("damaged")
    for _ in range(5):
        try:
            _rebuild(database)
        except _ChangedMeanwhile:
            continue
        logger.warning("%s was built anew; the file as it was: %s", database.path, copy)
        return copy
    raise StoreUnavailable(
        f"{database.path} is damaged, and is written to all the time: stop the writers first"
    )


def _rebuild(database: Database) -> None:
    temporary = database.path + ".salvage"
    try:
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        with (
            closing(database.connect()) as source,
            closing(database.connect()) as monitor,
            closing(database.connect()) as target,
            closing(sqlite3.connect(temporary, isolation_level=None)) as fresh,
        ):
            before = _version(monitor)
            with schema.transaction(fresh):
                schema.migrate(fresh)
                _copy_rows(source, fresh)
            source.close()

            def unchanged(status: int, left: int, total: int) -> None:
                """Called after each page; from the first one on the target is ours."""
                if left >= total - 1 and _version(monitor) != before:
                    raise _ChangedMeanwhile

            fresh.backup(target, pages=1, progress=unchanged, sleep=0.01)
    finally:
        for end in ("", "-journal"):
            if os.path.exists(temporary + end):
                os.unlink(temporary + end)


def _version(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


def _copy_rows(source: sqlite3.Connection, fresh: sqlite3.Connection) -> None:
    fresh.execute("DELETE FROM highest")
    sessions = list(_rows(source, "sessions", None))
    _insert(fresh, "sessions", sessions)
    heads = sorted((row[1], row[4], row[-1]) for row in sessions)
    _insert(fresh, "records", _rows(source, "records", [(number, head) for number, head, _ in heads]))
    _insert(fresh, "inbox", _rows(source, "inbox", [(number, last) for number, _, last in heads]))
    for table in ("drafts", "blobs", "kept", "highest"):
        _insert(fresh, table, _rows(source, table, None))
    fresh.execute("INSERT OR IGNORE INTO highest VALUES (1, ?)", (int(time() * 1_000_000),))


def _insert(fresh: sqlite3.Connection, table: str, rows: Iterable[tuple[Any, ...]]) -> None:
    columns = [name for _, name, *_ in fresh.execute(f"PRAGMA table_info({table})")]
    marks = ", ".join("?" * len(columns))
    sql = f"INSERT OR IGNORE INTO {table} ({', '.join(columns)}) VALUES ({marks})"
    fresh.executemany(sql, (row[1:] for row in rows))


def _rows(
    connection: sqlite3.Connection, table: str, spans: list[tuple[int, int]] | None
) -> Iterator[tuple[Any, ...]]:
    """Each row that can be read, its rowid first; `spans` says which places there are: (session, largest `seq`)."""
    start, last = 1, 0
    while True:
        try:
            for row in connection.execute(
                f"SELECT rowid, * FROM {table} NOT INDEXED WHERE rowid >= ? ORDER BY rowid", (start,)
            ):
                last = row[0]
                yield row
            return
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
        last = max(last, start - 1)
        found = _behind(connection, table, last, spans)
        while found is not None and found == start:  # its page is sound, and what it holds is not
            last += 1
            found = _behind(connection, table, last, spans)
        if found is None:
            return
        start = found


def _behind(
    connection: sqlite3.Connection, table: str, last: int, spans: list[tuple[int, int]] | None
) -> int | None:
    """The next row that can be read behind a hole."""
    numbers: Iterable[int]
    if spans is None:
        numbers = range(last + 1, last + _GUESS)
    else:
        number, seq = last >> SHIFT, last & SEQ
        numbers = chain.from_iterable(
            range((one << SHIFT) + (seq if one == number else 0) + 1, (one << SHIFT) + most + 1)
            for one, most in spans
            if one >= number
        )
    for place in numbers:
        try:
            found = connection.execute(f"SELECT 1 FROM {table} NOT INDEXED WHERE rowid = ?", (place,))
            if found.fetchone() is not None:
                return place
        except sqlite3.DatabaseError as error:
            if not is_damage(error):
                raise
    return None


# --- erasure


def forget(connection: sqlite3.Connection, database: Database) -> None:
    """What was erased also leaves SQLite's log (the file itself is zeroed there: `secure_delete`), and all copies."""
    database.remove_copies()
    for _ in range(50):
        try:
            if not connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
                return
        except sqlite3.OperationalError as error:
            if not is_busy(error):
                raise
        sleep(0.01)
    logger.warning(
        "%s is in use all the time: what was erased leaves its log (%s-wal) with a later write",
        database.path,
        database.path,
    )
