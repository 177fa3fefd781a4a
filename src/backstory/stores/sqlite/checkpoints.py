"""Moves what was committed from the write-ahead log into the file, beside the writes, so that the log stays short.

SQLite would do it in the middle of some unlucky commit (https://www.sqlite.org/wal.html#checkpointing). Here a thread
does it on a connection of its own, and holds up the writer only for the last few pages, without which the log never
begins anew.
"""

from __future__ import annotations

import logging
import sqlite3
import threading

from backstory.errors import StoreError
from backstory.stores.sqlite.database import Database
from backstory.stores.sqlite.failures import is_busy

logger = logging.getLogger("backstory.stores")

_PAGE = 4096
_EVERY = 1000
"""Pages written between two, as SQLite itself has it."""
_FEW = 256
"""Pages for which the writer may be held up."""


class Checkpoints:
    """`wrote` is called by the writer, `run` and `finish` by its thread."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._pages = 0
        self._moved = 0
        self.rest = False
        """Whether `run` could not have the writer's turn for the last pages."""

    @property
    def due(self) -> bool:
        return self._pages >= _EVERY

    def wrote(self, size: int, jobs: int) -> None:
        """Guess how many pages a commit had: some for each job, and its bytes."""
        self._pages += 2 + jobs * 2 + size // _PAGE

    def run(self, turn: threading.Lock) -> None:
        """Beside the writer; it never raises: what it does not do now it does the next time."""
        self._pages = 0
        moved = self._move()
        while moved > _FEW:  # so many were there, and more may have come meanwhile
            moved = self._move()
        self.rest = True
        if turn.acquire(blocking=False):
            try:
                self.finish()
            finally:
                turn.release()

    def finish(self) -> None:
        """What was written during `run`, by whoever has the writer's turn: after this the log begins anew."""
        self.rest = False
        self._move()

    def _move(self) -> int:
        """How many pages were moved."""
        try:
            if self._connection is None:
                self._connection = self._database.connect()
                self._moved = 0
            _, _, moved = self._connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        except (sqlite3.Error, StoreError) as error:
            if not (isinstance(error, sqlite3.Error) and is_busy(error)):
                logger.warning("%s: its log could not be moved into it now (%s)", self._database.path, error)
            self.close()
            return 0
        before, self._moved = self._moved, int(moved)
        return self._moved - before if self._moved >= before else self._moved

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None
