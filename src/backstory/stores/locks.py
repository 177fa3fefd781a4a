"""A file under a lock that processes share, and the lease that one of them holds.

A lock is held for the length of one append. Since a process can be stopped (SIGSTOP) at any instant, also while it
holds a lock, a lock can be *broken*: the file is replaced by another of the same name, and whoever still holds the
old one finds, before it acknowledges anything, that its file has no name any more (`StaleLock`). Who breaks a lock must
replace, in the same way, every file that the old holder may yet write to.

The lease file holds one JSON line in a block of blanks, written in place: it needs no sync, since a lease means
nothing after the power was lost, and no space on a full disk.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable

from backstory.errors import InvalidInput
from backstory.records import encode_json
from backstory.stores.disk import Disk
from backstory.stores.values import Lease, SessionId

_BLOCK = 512
_MOST = 8 * _BLOCK


class LockBusy(Exception):
    """Somebody else holds the lock now. Never leaves the files store."""


class StaleLock(Exception):
    """The lock was broken while we held it: nothing we wrote since counts. Never leaves the files store."""


class LockedFile:
    """One file that is opened once, and locked for each use. Belongs to one thread."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk
        self.fd = -1

    def lock(self) -> None:
        """Raises `LockBusy`; makes the file where it is not there."""
        while True:
            if self.fd < 0:
                self.fd = self._open()
            if not self._disk.lock(self.fd):
                if self._unnamed():  # an old file, whose holder may sleep for ever
                    self.close()
                    continue
                raise LockBusy(self.path)
            if not self._unnamed():
                return
            self.close()

    def unlock(self) -> None:
        if self.fd >= 0:
            self._disk.unlock(self.fd)

    def check(self) -> None:
        """Raises `StaleLock` where the lock was broken under us. Call it between writing and acknowledging."""
        if self._unnamed():
            self.close()
            raise StaleLock(self.path)

    def close(self) -> None:
        if self.fd >= 0:
            self._disk.close(self.fd)
            self.fd = -1

    def _open(self) -> int:
        try:
            return self._disk.open(self.path, os.O_RDWR | os.O_CREAT)
        except FileNotFoundError:
            self._disk.make_folder(os.path.dirname(self.path))
            return self._disk.open(self.path, os.O_RDWR | os.O_CREAT)

    def _unnamed(self) -> bool:
        return self._disk.fstat(self.fd).st_nlink == 0

    def break_lock(self, content: Callable[[], bytes]) -> None:
        """Put a new file with `content` in the place of one whose holder does not come back, and lock it.

        `content` is asked for when nobody else can replace the file any more. Only one process at a time does so;
        raises `LockBusy` where another one is at it.
        """
        guard = LockedFile(self._disk, self.path + ".breaking")
        guard.lock()
        try:
            if self.fd >= 0 and self._disk.lock(self.fd):
                return  # it came back in the meantime
            temporary = self.path + ".new"
            self._disk.unlink(temporary)
            fd = self._disk.open(temporary, os.O_RDWR | os.O_CREAT | os.O_EXCL)
            if not self._disk.lock(fd):
                self._disk.close(fd)
                raise LockBusy(temporary)
            self._disk.write_all(fd, content())
            self._disk.sync(fd)
            self._disk.replace(temporary, self.path)
            self.close()
            self.fd = fd
        finally:
            self._disk.unlink(guard.path)
            guard.close()


class LeaseFile(LockedFile):
    """A session's lock and lease in one file."""

    def __init__(self, disk: Disk, path: str, session: SessionId) -> None:
        super().__init__(disk, path)
        self._session = session
        self._raw = b""
        self._lease: Lease | None = None
        self.last_fence = 0

    def read(self) -> Lease | None:
        """The lease, expired or not; `None` where it was given back. Needs no lock."""
        if self.fd < 0 or self._unnamed():
            return self._peek()
        return self.current()

    def current(self) -> Lease | None:
        """As `read`, under the lock."""
        return self._parsed(self._disk.read_at(self.fd, _MOST, 0))

    def _peek(self) -> Lease | None:
        try:
            fd = self._disk.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return None
        try:
            return self._parsed(self._disk.read_at(fd, _MOST, 0))
        finally:
            self._disk.close(fd)

    def _parsed(self, raw: bytes) -> Lease | None:
        if raw == self._raw:
            return self._lease
        lease: Lease | None = None
        try:
            value = json.loads(raw.split(b"\n", 1)[0] or b"{}")
            self.last_fence = max(self.last_fence, int(value.get("fence", 0)))
            if value.get("owner") is not None:
                lease = Lease(
                    session=self._session,
                    owner=str(value["owner"]),
                    fence=int(value["fence"]),
                    expires=float(value["expires"]),
                )
        except (ValueError, TypeError, KeyError, AttributeError):
            # Zeros or a torn block, after the power was lost: no holder survived that, so it is free.
            lease = None
        self._raw, self._lease = raw, lease
        return lease

    def write(self, lease: Lease | None) -> None:
        """Write it in place, under the lock; `None` gives it back."""
        raw = self.block(lease)
        self._raw = b""
        self._disk.write_at(self.fd, raw, 0)
        self._raw, self._lease = raw, lease
        if lease is not None:
            self.last_fence = max(self.last_fence, lease.fence)

    def block(self, lease: Lease | None) -> bytes:
        """The bytes of a lease file."""
        value: dict[str, object] = {"version": 1, "fence": lease.fence if lease else self.last_fence}
        if lease is not None:
            value |= {"owner": lease.owner, "expires": lease.expires}
        line = encode_json(value) + b"\n"
        if len(line) > _MOST:
            raise InvalidInput("the name of a lease's owner is too long")
        return line.ljust(-(-len(line) // _BLOCK) * _BLOCK)
