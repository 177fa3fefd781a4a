"""Connections that only read: they see what is committed, and never wait for who writes.

A short read runs where it is asked for, since the way to a thread costs more than the read; what is long, or meets a
slow disk or a locked file, goes to a thread, which has patience.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from time import monotonic, sleep
from typing import TypeVar

from backstory.errors import StoreUnavailable
from backstory.stores.sqlite.database import Database
from backstory.stores.sqlite.failures import explained, is_busy
from backstory.stores.workers import Workers

T = TypeVar("T")
_THREADS = 3
"""The first for what is brief, the others for what may take long: nobody waits for a check of the whole file."""
_BRIEF = 0.005
_CALM = 16
"""After a read of more than so many seconds, so many go to the threads."""

_LOOK = 0.1
"""Seconds between two looks at whether the file still stands under its name."""


class _Busy(Exception):
    """Another process holds the whole file: the thread waits, the event loop does not."""


class Reader:
    """One connection for each of a few threads."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._workers = Workers(_THREADS, "backstory-sqlite")
        self._connections: list[sqlite3.Connection | None] = [None] * _THREADS
        self._identities: list[tuple[int, int] | None] = [None] * _THREADS
        self._looked = [0.0] * _THREADS
        self._slow = 0

    async def do(self, key: object, call: Callable[[sqlite3.Connection], T], *, brief: bool = True) -> T:
        """What `call(connection)` returns or raises. Calls of one `key` that are as brief keep their order."""
        slot = 0 if brief else 1 + self._workers.slot(key) % (_THREADS - 1)
        at_once = brief and not self._slow and self._connections[slot] is not None
        self._slow = max(0, self._slow - brief)
        try:
            return await self._workers.run(slot, self._once, slot, call, brief=at_once)
        except _Busy:
            return await self._workers.run(slot, self._patiently, slot, call)

    def _once(self, slot: int, call: Callable[[sqlite3.Connection], T]) -> T:
        connection = self._connections[slot]
        start = monotonic()
        if connection is not None and start - self._looked[slot] > _LOOK:
            self._looked[slot] = start
            if self._database.moved(self._identities[slot]):
                self._close(slot)
                connection = None
        try:
            if connection is None:
                connection = self._connections[slot] = self._database.connect()
                self._identities[slot] = self._database.identity()
            return call(connection)
        except sqlite3.Error as error:
            if is_busy(error):
                raise _Busy from error
            raise explained(error, self._database.path) from error
        finally:
            if slot == 0 and monotonic() - start > _BRIEF:
                self._slow = _CALM

    def _patiently(self, slot: int, call: Callable[[sqlite3.Connection], T]) -> T:
        deadline, pause = monotonic() + self._database.patience, 0.001
        while True:
            try:
                return self._once(slot, call)
            except _Busy as busy:
                if monotonic() > deadline:
                    raise StoreUnavailable(
                        f"{self._database.path} is locked by another process for more than "
                        f"{self._database.patience:g} s"
                    ) from busy
            sleep(pause)
            pause = min(pause * 1.5, 0.02)

    def _close(self, slot: int) -> None:
        connection = self._connections[slot]
        if connection is not None:
            connection.close()
            self._connections[slot] = None

    async def close(self) -> None:
        await self._workers.close(self._close)
        for slot in range(_THREADS):
            self._close(slot)  # one that was opened, but whose thread never ran
