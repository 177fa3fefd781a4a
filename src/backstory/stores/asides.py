"""What lies beside the logs as whole files: drafts, and what was put aside. Blocking.

A whole file is written under a temporary name, synced and put into its place in one step.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Mapping
from typing import Any

from backstory.records import encode_json
from backstory.stores.disk import Disk
from backstory.stores.values import Draft


def write_whole(disk: Disk, path: str, data: bytes, *, temporary: str, sync: bool = True) -> None:
    """`temporary` is a path on the same file system that nobody else uses at this time."""
    disk.make_folder(os.path.dirname(path))
    disk.make_folder(os.path.dirname(temporary))
    fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    while not disk.lock(fd) or not disk.fstat(fd).st_nlink:  # a sweep was faster
        disk.close(fd)
        fd = disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    try:
        disk.write_all(fd, data)
        if sync:
            disk.sync(fd)
        disk.replace(temporary, path)
    except OSError:
        disk.unlink(temporary)
        raise
    finally:
        disk.close(fd)
    if sync:
        disk.sync_folder(os.path.dirname(path))


def sweep(disk: Disk, folder: str) -> None:
    """Remove the temporary files of processes that are gone: a living one holds a lock on its own."""
    for entry in list(disk.names(folder)):
        try:
            fd = disk.open(entry.path, os.O_RDWR)
        except FileNotFoundError:
            continue
        try:
            if disk.lock(fd):
                disk.unlink(entry.path)
        finally:
            disk.close(fd)


def read_whole(disk: Disk, path: str) -> bytes | None:
    """The file's bytes; `None` where it is not there."""
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return None
    try:
        return disk.read_at(fd, disk.fstat(fd).st_size, 0)
    finally:
        disk.close(fd)


class Quarantine:
    """One session's folder for torn tails and for copies from before a repair."""

    def __init__(self, disk: Disk, folder: str) -> None:
        self.folder = folder
        self._disk = disk

    def keep(self, name: str, data: bytes) -> str:
        """Write `data` under a name that is not taken yet; returns the path. Durable."""
        for number in itertools.count():
            path = os.path.join(self.folder, f"{number:03}-{name}")
            if not os.path.exists(path):
                write_whole(self._disk, path, data, temporary=path + ".tmp")
                return path
        raise AssertionError("unreachable")

    def kept(self) -> tuple[str, ...]:
        return tuple(sorted(entry.path for entry in self._disk.names(self.folder)))

    def purge(self) -> None:
        for path in self.kept():
            self._disk.unlink(path)
        self._disk.remove_folder(self.folder)


class DraftFile:
    """One session's draft. Not synced: it need not survive the loss of power."""

    def __init__(self, disk: Disk, path: str) -> None:
        self.path = path
        self._disk = disk

    def write(self, draft: Draft) -> None:
        value = {"after": draft.after, "fence": draft.fence, "data": draft.data}
        write_whole(self._disk, self.path, encode_json(value), temporary=self.path + ".tmp", sync=False)

    def read(self) -> Draft | None:
        raw = read_whole(self._disk, self.path)
        if raw is None:
            return None
        try:
            value: Mapping[str, Any] = json.loads(raw.decode())
            return Draft(after=int(value["after"]), fence=int(value["fence"]), data=dict(value["data"]))
        except (ValueError, TypeError, KeyError):
            return None  # after a loss of power; the log lacks nothing

    def remove(self) -> None:
        self._disk.unlink(self.path + ".tmp")
        self._disk.unlink(self.path)
