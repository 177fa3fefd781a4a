"""Disks that fail: the seam of the files store, put to use."""

import errno
import os

from backstory.stores.disk import Disk


class Killed(BaseException):
    """The process ends here: nothing of ours may catch it."""


class FaultyDisk(Disk):
    """Raises `error` for the next `times` calls of the methods in `calls`; a write first writes `partial` bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.calls: set[str] = set()
        self.error = errno.ENOSPC
        self.times = 0
        self.partial = 0
        self.seen: list[str] = []

    def fail(self, *calls, error=errno.ENOSPC, times=1, partial=0):
        self.calls, self.error, self.times, self.partial = set(calls), error, times, partial

    def _step(self, name):
        self.seen.append(name)
        if name in self.calls and self.times > 0:
            self.times -= 1
            raise OSError(self.error, os.strerror(self.error))

    def write(self, fd, data):
        try:
            self._step("write")
        except OSError:
            if self.partial:
                super().write(fd, bytes(data)[: self.partial])
            raise
        return super().write(fd, data)

    def sync(self, fd):
        self._step("sync")
        super().sync(fd)

    def truncate(self, fd, size):
        self._step("truncate")
        super().truncate(fd, size)

    def open(self, path, flags):
        self._step("open")
        return super().open(path, flags)

    def replace(self, source, target):
        self._step("replace")
        super().replace(source, target)

    def link(self, source, target):
        self._step("link")
        super().link(source, target)

    def sync_folder(self, folder):
        self._step("sync_folder")
        super().sync_folder(folder)

    def write_at(self, fd, data, offset):
        self._step("write_at")
        super().write_at(fd, data, offset)


class DyingDisk(Disk):
    """Dies at the `at`-th call that changes anything; of a write, `torn` bytes still arrive."""

    def __init__(self, at: int, torn: int = 0) -> None:
        super().__init__(durable=True)
        self.left = at
        self.torn = torn

    def _step(self) -> None:
        if self.left <= 0:
            raise Killed
        self.left -= 1

    def write(self, fd, data):
        if self.left <= 0 and self.torn:
            super().write(fd, bytes(data)[: self.torn])
        self._step()
        return super().write(fd, data)

    def write_at(self, fd, data, offset):
        if self.left <= 0 and self.torn:
            super().write_at(fd, data[: self.torn], offset)
        self._step()
        super().write_at(fd, data, offset)

    def truncate(self, fd, size):
        self._step()
        super().truncate(fd, size)

    def sync(self, fd):
        self._step()
        super().sync(fd)

    def sync_folder(self, folder):
        self._step()
        super().sync_folder(folder)

    def link(self, source, target):
        self._step()
        super().link(source, target)

    def replace(self, source, target):
        self._step()
        super().replace(source, target)

    def unlink(self, path):
        self._step()
        return super().unlink(path)
