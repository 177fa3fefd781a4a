"""One file: how it is made, opened, taken to the newest version, and recognised as the same one. Blocking.

Besides the file itself there are SQLite's own ``-wal`` and ``-shm``, and copies: ``….before-v2-…`` from before a
migration and ``….damaged-…`` from before a repair of pages. The copies hold whole sessions: an erasure removes them.
"""

from __future__ import annotations

import glob
import os
import sqlite3
import threading
from contextlib import closing
from time import sleep, time
from urllib.parse import unquote

from backstory.errors import ConfigurationError, StoreUnavailable
from backstory.stores.clock import timestamp
from backstory.stores.disk import Disk
from backstory.stores.disk import explained as system_explained
from backstory.stores.sqlite import schema
from backstory.stores.sqlite.failures import explained, is_busy

_SCHEME = "sqlite://"


def file_of(location: str | os.PathLike[str]) -> str:
    """The path in a URL (``sqlite:///chat.db`` relative, ``sqlite:////var/chat.db`` absolute), or a path as it is.

    Raises `ConfigurationError` for a URL that names no file.
    """
    place = os.fspath(location)
    if place.startswith(_SCHEME):
        host, slash, rest = place[len(_SCHEME) :].partition("/")
        path, query, _ = rest.partition("?")
        if host or not slash or query:
            raise ConfigurationError(
                f"a URL of SQLite is sqlite:///relative.db or sqlite:////absolute.db, not {place!r}"
            )
        place = unquote(path)
    if place in ("", ":memory:"):
        raise ConfigurationError("a store in memory is opened by `memory:`; for SQLite, name a file")
    if "\0" in place:
        raise ConfigurationError(f"a file's name holds no NUL character: {place!r}")
    return os.path.abspath(place)


class Database:
    """The file at `path`. `factory` is the class of its connections, the seam where tests put in faults."""

    def __init__(
        self,
        path: str,
        *,
        durable: bool = True,
        patience: float = 10.0,
        factory: type[sqlite3.Connection] = sqlite3.Connection,
    ) -> None:
        self.path = path
        self.durable = durable
        self.patience = patience
        self._factory = factory
        self._disk = Disk()
        self._lock = threading.Lock()
        self._identity: tuple[int, int] | None = None

    # --- connections

    def connect(self) -> sqlite3.Connection:
        """A connection that never waits: `SQLITE_BUSY` comes at once. Makes the file where there is none.

        Raises our errors.
        """
        try:
            with self._lock:
                if self._identity is None or self.moved(self._identity):
                    self._prepare()
            connection = self._bare()
        except sqlite3.Error as error:
            raise explained(error, self.path) from error
        except OSError as error:
            raise system_explained(error, self.path) from error
        return connection

    def _bare(self, path: str | None = None) -> sqlite3.Connection:
        connection = sqlite3.connect(
            path or self.path,
            timeout=0,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=64,
            factory=self._factory,
        )
        try:
            self._set(connection)
        except sqlite3.Error:
            connection.close()
            raise
        return connection

    def _set(self, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA secure_delete = ON")  # what was erased leaves no trace in free pages
        connection.execute("PRAGMA wal_autocheckpoint = 20000")  # the writer does it, long before
        if self.durable:
            connection.execute("PRAGMA fullfsync = ON")  # macOS: to the platter
            connection.execute("PRAGMA checkpoint_fullfsync = ON")

    def _prepare(self) -> None:
        self._disk.make_folder(os.path.dirname(self.path))
        if not os.path.exists(self.path):
            os.close(os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600))
        deadline = time() + self.patience
        while True:
            try:
                with closing(self._bare()) as connection:
                    self._bring_up_to_date(connection)
                break
            except sqlite3.Error as error:
                if not is_busy(error) or time() > deadline:
                    raise
            sleep(0.005)
        self._identity = self.identity()

    def _bring_up_to_date(self, connection: sqlite3.Connection) -> None:
        with schema.transaction(connection, "DEFERRED"):  # one look: another process may be making the tables
            found = schema.check(connection, self.path)
        if found == len(schema.MIGRATIONS):
            return
        mode = connection.execute("PRAGMA journal_mode = WAL").fetchone()[0]
        if mode != "wal":
            raise StoreUnavailable(f"{self.path} lies on a file system that has no write-ahead log: {mode}")
        with schema.transaction(connection):
            found = schema.check(connection, self.path)  # another process may have been faster
            if 0 < found < len(schema.MIGRATIONS):
                self.copy(f"before-v{len(schema.MIGRATIONS)}")
            if found < len(schema.MIGRATIONS):
                schema.migrate(connection)

    # --- the file as a whole

    def identity(self) -> tuple[int, int] | None:
        """Which file stands under the name: remember it with a connection."""
        try:
            found = os.stat(self.path)
        except OSError:
            return None
        return found.st_dev, found.st_ino

    def moved(self, identity: tuple[int, int] | None) -> bool:
        """Whether it is another file now, or none: what is written to the old one would be lost."""
        return self.identity() != identity

    def gone(self) -> StoreUnavailable:
        return StoreUnavailable(
            f"{self.path} was removed or replaced while it was open: nothing was written; try again to use "
            "what stands there now"
        )

    def copy(self, why: str) -> str:
        """A durable copy of the whole file as it is, beside it. Returns its path."""
        target = f"{self.path}.{why}-{timestamp(time()).replace(':', '')}"
        temporary = target + ".tmp"
        os.close(os.open(temporary, os.O_RDWR | os.O_CREAT | os.O_TRUNC, 0o600))
        try:
            with closing(self._bare()) as source, closing(sqlite3.connect(temporary)) as copy:
                source.backup(copy)
            fd = self._disk.open(temporary, os.O_RDWR)
            try:
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            self._disk.replace(temporary, target)
        finally:
            self._disk.unlink(temporary)
        self._disk.sync_folder(os.path.dirname(target))
        return target

    def copies(self) -> list[str]:
        """What was kept aside of the whole file."""
        start = glob.escape(self.path)
        return sorted([*glob.glob(start + ".before-v*"), *glob.glob(start + ".damaged-*")])

    def remove_copies(self) -> None:
        for path in self.copies():
            self._disk.unlink(path)
