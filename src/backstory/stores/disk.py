"""The operating system's file calls, as the files store uses them: the one seam where faults are put in.

Each method is one call and raises `OSError` as it does; nothing here knows what a log is. Tests derive from
`Disk` to fill it up, tear a write or fail a sync.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Iterator
from contextlib import suppress

from backstory.errors import StoreUnavailable

if sys.platform == "win32":
    import msvcrt
else:
    import fcntl

FILE_MODE = 0o600
FOLDER_MODE = 0o700
"""Conversations are private, as a shell's history is."""

_ALWAYS = getattr(os, "O_BINARY", 0) | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_NOFOLLOW", 0)
"""Bytes as they are; not for child processes; and no symbolic link that leads a session's file elsewhere."""
_FULLSYNC = getattr(sys.modules.get("fcntl"), "F_FULLFSYNC", None)
_data_sync = getattr(os, "fdatasync", os.fsync)


class Disk:
    """`durable` false: syncs do nothing, so that what was written survives a kill, not the loss of power."""

    def __init__(self, *, durable: bool = True) -> None:
        self.durable = durable

    # --- files

    def open(self, path: str, flags: int) -> int:
        return os.open(path, flags | _ALWAYS, FILE_MODE)

    def close(self, fd: int) -> None:
        os.close(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        return os.write(fd, data)

    def write_all(self, fd: int, data: bytes) -> None:
        """All of it: a call may write a part, when the disk fills up or for very long data."""
        written = self.write(fd, data)
        while written < len(data):
            written += self.write(fd, memoryview(data)[written:])

    def read_at(self, fd: int, length: int, offset: int) -> bytes:
        if sys.platform == "win32":
            os.lseek(fd, offset, os.SEEK_SET)
            return os.read(fd, length)
        return os.pread(fd, length, offset)

    def write_at(self, fd: int, data: bytes, offset: int) -> None:
        if sys.platform == "win32":
            os.lseek(fd, offset, os.SEEK_SET)
            os.write(fd, data)
        else:
            os.pwrite(fd, data, offset)

    def truncate(self, fd: int, size: int) -> None:
        os.ftruncate(fd, size)

    def sync(self, fd: int) -> None:
        """The data reaches the disk (macOS: the platter, by F_FULLFSYNC)."""
        if not self.durable:
            return
        if _FULLSYNC is not None and sys.platform == "darwin":
            fcntl.fcntl(fd, _FULLSYNC)
        else:
            _data_sync(fd)

    def set_time(self, path: str, nanoseconds: int) -> None:
        """When it was last changed, for lists. Only its owner may set that; for others the system's time stays."""
        with suppress(PermissionError):
            os.utime(path, ns=(nanoseconds, nanoseconds))

    # --- names

    def check_inside(self, root: str, folder: str) -> None:
        """A folder of ours that is a symbolic link to somewhere else is refused (`OSError`)."""
        outside = (
            os.path.relpath(os.path.realpath(folder), os.path.realpath(root)).split(os.sep)[0] == os.pardir
        )
        if outside:
            raise OSError(errno.ELOOP, "a symbolic link leads out of the workspace", folder)

    def stat(self, path: str) -> os.stat_result:
        return os.stat(path)

    def fstat(self, fd: int) -> os.stat_result:
        return os.fstat(fd)

    def link(self, source: str, target: str) -> None:
        """Give a file its name; `FileExistsError` where it is taken."""
        if sys.platform == "win32":
            os.rename(source, target)
        else:
            try:
                os.link(source, target)
            except PermissionError:  # a file system without hard links
                os.rename(source, target)
            else:
                os.unlink(source)

    def replace(self, source: str, target: str) -> None:
        os.replace(source, target)

    def unlink(self, path: str) -> bool:
        """Whether it was there."""
        try:
            os.unlink(path)
        except FileNotFoundError:
            return False
        return True

    def names(self, folder: str) -> Iterator[os.DirEntry[str]]:
        """What lies in a folder; nothing where it is not there."""
        try:
            with os.scandir(folder) as entries:
                yield from entries
        except FileNotFoundError:
            return

    def make_folder(self, folder: str) -> None:
        """With its parents, each of them durable."""
        if os.path.isdir(folder):
            return
        parent = os.path.dirname(folder)
        if parent and parent != folder:
            self.make_folder(parent)
        try:
            os.mkdir(folder, FOLDER_MODE)
        except FileExistsError:
            return
        self.sync_folder(parent or ".")

    def remove_folder(self, folder: str) -> None:
        try:
            os.rmdir(folder)
        except FileNotFoundError:
            return

    def sync_folder(self, folder: str) -> None:
        """The names in it reach the disk. Windows has no such call, and needs none."""
        if not self.durable or sys.platform == "win32":
            return
        fd = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    # --- locks: of an open file, among processes and among stores in one process

    def lock(self, fd: int) -> bool:
        """Take the lock if it is free. It is given back by `unlock`, by closing, and by dying."""
        try:
            if sys.platform == "win32":
                os.lseek(fd, 1 << 30, os.SEEK_SET)
                msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
            else:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            return False
        return True

    def unlock(self, fd: int) -> None:
        if sys.platform == "win32":
            os.lseek(fd, 1 << 30, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)
        else:
            fcntl.flock(fd, fcntl.LOCK_UN)


_CAUSES = {
    errno.ENOSPC: "the disk is full; free some space and try again",
    getattr(errno, "EDQUOT", -1): "the disk quota is used up; free some space and try again",
    errno.EROFS: "the file system is read-only",
    errno.EACCES: "permission denied",
    errno.EPERM: "permission denied",
    errno.EMFILE: "too many open files",
    errno.ENOENT: "the file or its folder is gone",
    errno.ELOOP: "a symbolic link stands where a file or folder of ours should be",
    errno.EIO: "the disk reports an error",
}


def explained(error: OSError, what: str) -> StoreUnavailable:
    """What the system's error means for whoever called us."""
    cause = _CAUSES.get(error.errno or 0) or error.strerror or str(error)
    where = f" ({error.filename})" if error.filename else ""
    return StoreUnavailable(f"{what} cannot be read or written: {cause}{where}")
