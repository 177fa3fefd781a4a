"""The one connection of a process that writes, and group commit: what is asked for at once shares one transaction.

A lone write waits for nothing. Once two tasks have written in one round of the event loop, writes are collected until
it has come round: a burst of many sessions is one group, with one savepoint each and one commit (one sync of the disk)
for all. While a commit is under way the next group gathers. Who fails takes back its own savepoint and nothing else;
everybody is told after the commit.

Where it runs is a matter of cost. The way to a thread and back, and two threads that fight for Python's lock, take more
CPU than the statements of an append, so these run on the event loop. The commit does too as long as the disk has been
quick for a while and the group is small; else the thread does it. Whatever may take long (another process holds the
file, a rewrite, a blob) runs whole in the thread, which has patience. The thread also moves what was written
from the log of SQLite into the file itself (a checkpoint), beside the writes.

Python's lock and `_turn` protect it: who holds `_turn` owns the connection, and hands it to the thread with `_handed`.
"""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic, sleep
from typing import Any, TypeVar

from backstory.errors import BackstoryError, StoreUnavailable
from backstory.stores.sqlite.checkpoints import Checkpoints
from backstory.stores.sqlite.database import Database
from backstory.stores.sqlite.failures import explained, is_busy
from backstory.stores.sqlite.jobs import Job, settle, tell
from backstory.stores.sqlite.schema import MIGRATIONS, refuse_newer

T = TypeVar("T")
_MOST = 256
"""Writes of one group: whoever comes later is not to wait for thousands."""
_SMALL = 2
"""A group up to this size commits on the event loop; with more, others have something to do meanwhile."""
_BRIEF = 0.005
"""While commits take less than so many seconds, on average over the last few, small ones stay on the event loop."""

_CROWD = 16
"""After two tasks wrote in one round of the event loop, writes are gathered until so many in a row were alone."""
_LOOK = 0.1
"""Seconds between two looks at whether the file still stands under its name."""


class Writer:
    """See the module. `database` says where, and whether a commit must survive the loss of power."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._connection: sqlite3.Connection | None = None
        self._identity: tuple[int, int] | None = None
        self._synced: bool | None = None
        self._jobs: deque[Job] = deque()
        self._flushing: set[asyncio.AbstractEventLoop] = set()
        self._turn = threading.Lock()
        self._starting = threading.Lock()
        self._handed: tuple[list[Job], bool] | None = None
        self._signals: SimpleQueue[asyncio.Future[None] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._checkpoints = Checkpoints(database)
        self._pace = _BRIEF
        self._caller: asyncio.Task[Any] | None = None
        self._crowded = 0
        self._yielded = 0.0
        self._looked = 0.0
        self._closed = False

    async def do(
        self,
        call: Callable[[sqlite3.Connection], T],
        *,
        sync: bool = True,
        brief: bool = True,
        size: int = 0,
    ) -> T:
        """What `call(connection)` returns or raises, once it is committed. A cancelled caller leaves it to finish.

        `sync`: it must survive the loss of power (where the store promises that). `brief` false: it may take long.
        `size`: its bytes.
        """
        if self._closed:
            raise StoreUnavailable("the store was closed")
        job = Job(call, sync, brief, size)
        if brief and self._is_alone(job.loop) and self._turn.acquire(blocking=False):
            self._at_once(job)
            if job.future is None:
                if job.error is not None:
                    raise job.error
                if monotonic() - self._yielded > _BRIEF:  # a task that writes all the time lets others in
                    await asyncio.sleep(0)
                    self._yielded = monotonic()
                done: T = job.result
                return done
        else:
            job.future = job.loop.create_future()
            self._jobs.append(job)
            if job.loop not in self._flushing:
                self._flushing.add(job.loop)
                job.loop.call_soon(self._flush, job.loop)
        result: T = await job.future
        return result

    # --- on the event loop

    def _is_alone(self, loop: asyncio.AbstractEventLoop) -> bool:
        """Whether it would be in vain to wait for others: lately no two tasks wrote in one round of the event loop."""
        task = asyncio.current_task()
        if self._caller is None:
            self._caller = task
            loop.call_soon(self._next_round)
        elif self._caller is not task:
            self._crowded = _CROWD
        return not self._crowded and not self._jobs

    def _next_round(self) -> None:
        self._caller = None

    def _at_once(self, job: Job) -> None:
        """Without the way round the event loop, unless the thread is needed: then there is a future to wait for."""
        handed = False
        try:
            handed = self._on_the_loop([job])
        finally:
            if not handed:
                self._leave([job])

    def _flush(self, loop: asyncio.AbstractEventLoop) -> None:
        self._flushing.discard(loop)
        if not self._jobs or not self._turn.acquire(blocking=False):
            return  # who has the turn looks for more when it is done
        group, handed = self._group(), False
        self._crowded = _CROWD if len(group) > 1 else max(0, self._crowded - 1)
        try:
            handed = self._on_the_loop(group)
        finally:
            if not handed:
                self._leave(group)
                for job in group:
                    if job.loop is loop:
                        settle(job)
                tell([job for job in group if job.loop is not loop])

    def _on_the_loop(self, group: list[Job]) -> bool:
        """Whether the turn was handed on to the thread."""
        if self._connection is None or not all(job.brief for job in group):
            return self._hand(group, begun=False)
        try:
            begun = self._statements(group)
        except sqlite3.OperationalError:  # another process is writing
            return self._hand(group, begun=False)
        if begun and self._synced and (len(group) > _SMALL or self._pace >= _BRIEF):
            return self._hand(group, begun=True)
        if begun:
            self._commit(group)
        return False

    def _hand(self, group: list[Job], *, begun: bool) -> bool:
        for job in group:
            job.future = job.future or job.loop.create_future()
        self._handed = (group, begun)
        self._signal()
        return True

    def _signal(self) -> None:
        if self._thread is None:
            with self._starting:
                if self._thread is None:
                    name = "backstory-sqlite-writer"
                    self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
                    self._thread.start()
        self._signals.put(None)

    def _group(self) -> list[Job]:
        jobs = self._jobs
        return [jobs.popleft() for _ in range(min(len(jobs), _MOST))]

    def _leave(self, group: list[Job]) -> None:
        """Give the turn back, and see to it that what came meanwhile is done."""
        if self._connection is not None and self._connection.in_transaction:  # interrupted before the commit
            self._roll_back()
            self._fail(group, StoreUnavailable("the write was interrupted; nothing was written"))
        if self._checkpoints.rest and threading.current_thread() is not self._thread:
            self._hand([], begun=False)  # the last pages of a checkpoint, for which the thread found no time
            return
        self._turn.release()
        if self._checkpoints.due:
            self._signal()
        self._look_for_more()

    def _look_for_more(self) -> None:
        """After the turn was given back: who came meanwhile found it taken, and waits."""
        try:
            loop = self._jobs[0].loop
        except IndexError:
            return
        if loop in self._flushing and not loop.is_closed():
            return
        self._flushing.add(loop)
        try:
            loop.call_soon_threadsafe(self._flush, loop)
        except RuntimeError:  # that event loop is gone, but its writes were begun
            self._flushing.discard(loop)
            if self._turn.acquire(blocking=False):
                self._hand(self._group(), begun=False)

    # --- in the thread

    def _serve(self) -> None:
        while True:
            end = self._signals.get()
            if self._handed is not None:
                self._finish()
            if end is not None:
                self._end(end)
                return
            if self._checkpoints.due and not self._closed:
                self._checkpoints.run(self._turn)
                self._look_for_more()

    def _finish(self) -> None:
        """What was handed over, with the turn."""
        assert self._handed is not None
        group, begun = self._handed
        self._handed = None
        try:
            if group and (begun or self._patiently(group)):
                self._commit(group)
            if self._checkpoints.rest:
                self._checkpoints.finish()
        finally:
            self._leave(group)
            tell(group)

    def _end(self, end: asyncio.Future[None]) -> None:
        while not self._turn.acquire(timeout=0.01):
            if self._handed is not None:
                self._finish()
        while group := self._group():
            if self._patiently(group):
                self._commit(group)
            tell(group)
        self._disconnect()
        self._turn.release()
        self._checkpoints.close()
        with suppress(RuntimeError):
            end.get_loop().call_soon_threadsafe(_ended, end)

    def _patiently(self, group: list[Job]) -> bool:
        """As `_statements`; waits for another process as long as the store's patience lasts."""
        deadline, pause = monotonic() + self._database.patience, 0.0005
        while True:
            try:
                return self._statements(group)
            except sqlite3.OperationalError as error:
                if monotonic() > deadline:
                    for job in group:
                        job.error = explained(error, self._database.path)
                    return False
            sleep(pause)
            pause = min(pause * 1.5, 0.01)

    # --- the transaction

    def _statements(self, group: list[Job]) -> bool:
        """Whether a transaction was begun that is to be committed. Jobs that fail carry their error.

        Raises `sqlite3.OperationalError` where another process holds the file; then nothing has happened.
        """
        try:
            connection = self._begin(any(job.sync for job in group))
        except sqlite3.Error as error:
            if is_busy(error) and isinstance(error, sqlite3.OperationalError):
                raise
            self._fail(group, explained(error, self._database.path))
            return False
        except BackstoryError as error:
            self._fail(group, error)
            return False
        alone = len(group) == 1
        for index, job in enumerate(group):
            try:
                if not alone:
                    connection.execute("SAVEPOINT job")
                job.result = job.call(connection)
                if not alone:
                    connection.execute("RELEASE job")
            except BaseException as error:  # handed to the caller, whatever it is
                job.error = self._ours(error)
                if alone or not _taken_back(connection):  # a full disk, for one, takes back everything
                    self._roll_back()
                    self._one_by_one([*group[:index], *group[index + 1 :]])
                    return False
        return True

    def _begin(self, sync: bool) -> sqlite3.Connection:
        connection = self._connection
        if connection is not None and (now := monotonic()) - self._looked > _LOOK:
            self._looked = now
            if self._database.moved(self._identity):
                self._disconnect()
                raise self._database.gone()
        if connection is None:
            connection = self._connection = self._database.connect()
            self._identity = self._database.identity()
        sync = sync and self._database.durable
        if sync is not self._synced:
            connection.execute("PRAGMA synchronous = FULL" if sync else "PRAGMA synchronous = NORMAL")
            self._synced = sync
        connection.execute("BEGIN IMMEDIATE")
        (version,) = connection.execute("PRAGMA user_version").fetchone()
        if version != len(MIGRATIONS):
            self._roll_back()
            refuse_newer(version, self._database.path)
        return connection

    def _commit(self, group: list[Job]) -> None:
        """Make it durable; where that fails, each job is tried alone."""
        assert self._connection is not None
        start = monotonic()
        try:
            self._connection.execute("COMMIT")
        except sqlite3.Error as error:
            self._roll_back()
            if len(group) > 1:
                self._one_by_one([job for job in group if job.error is None])
            elif group[0].error is None:
                group[0].error = self._ours(error)
        if self._synced:
            self._pace += (monotonic() - start - self._pace) / 8
        self._checkpoints.wrote(sum(job.size for job in group), len(group))

    def _one_by_one(self, jobs: list[Job]) -> None:
        for job in jobs:
            job.error = None
            try:
                if self._statements([job]):
                    self._commit([job])
            except sqlite3.OperationalError as error:
                job.error = explained(error, self._database.path)

    def _ours(self, error: BaseException) -> BaseException:
        return explained(error, self._database.path) if isinstance(error, sqlite3.Error) else error

    @staticmethod
    def _fail(group: list[Job], error: BaseException) -> None:
        for job in group:
            job.error = job.error or error

    def _roll_back(self) -> None:
        if self._connection is not None and self._connection.in_transaction:
            try:
                self._connection.execute("ROLLBACK")
            except sqlite3.Error:
                self._disconnect()  # which takes it back as well

    def _disconnect(self) -> None:
        if self._connection is not None:
            self._connection.close()
        self._connection, self._synced = None, None

    # --- the end

    async def close(self) -> None:
        """Finish what was begun, take nothing more, and let go of the file."""
        if self._closed:
            return
        self._closed = True
        if self._connection is None and not self._jobs and self._thread is None:
            return
        end: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._signal()
        self._signals.put(end)
        await end


def _taken_back(connection: sqlite3.Connection) -> bool:
    """Whether what the last job did, and nothing else, is undone."""
    try:
        if connection.in_transaction:
            connection.execute("ROLLBACK TO job")
            connection.execute("RELEASE job")
            return True
    except sqlite3.Error:
        pass
    return False


def _ended(end: asyncio.Future[None]) -> None:
    if not end.done():
        end.set_result(None)
