"""Blobs as files: ``blobs/ab/abcd….bin``, those of other scopes below ``blobs/@scope/``. Blocking.

A file's time of change is when it was put for the last time: what is put again is as new.
"""

from __future__ import annotations

import itertools
import os
import re

from backstory.errors import StoreDamaged
from backstory.stores import rules
from backstory.stores.asides import read_whole, sweep, write_whole
from backstory.stores.clock import Clock
from backstory.stores.disk import Disk
from backstory.stores.listing import list_scopes
from backstory.stores.names import scope_folder, scope_of
from backstory.stores.values import DEFAULT_SCOPE

_numbers = itertools.count()
_SHELF = re.compile("[0-9a-f]{2}")
_NAME = re.compile(r"([0-9a-f]{64})\.bin")
_GONE = ".gone"


class BlobFiles:
    """The blobs of a workspace folder. `incoming` is where they are written before they get their names."""

    def __init__(self, disk: Disk, root: str, incoming: str, clock: Clock) -> None:
        self._disk = disk
        self._root = root
        self._incoming = incoming
        self._clock = clock

    def _folder(self, scope: str) -> str:
        folder = os.path.join(self._root, "blobs", scope_folder(scope))
        self._disk.check_inside(self._root, folder)
        return folder

    def _path(self, scope: str, handle: str) -> str:
        digest = rules.blob_digest(handle)
        return os.path.join(self._folder(scope), digest[:2], f"{digest}.bin")

    def put(self, scope: str, data: bytes) -> str:
        handle = rules.blob_handle(data)
        path = self._path(scope, handle)
        if read_whole(self._disk, path) != data or not self._renewed(path):
            sweep(self._disk, self._incoming)
            name = f"{os.path.basename(path)}.{os.getpid()}.{next(_numbers)}"
            write_whole(self._disk, path, data, temporary=os.path.join(self._incoming, name))
            self._renewed(path)
        else:
            self._disk.sync_folder(os.path.dirname(path))
        return handle

    def _renewed(self, path: str) -> bool:
        """Whether it is there, as new. Somebody may be deleting it."""
        try:
            self._disk.set_time(path, int(self._clock.now() * 1e9))
            self._disk.stat(path)
        except FileNotFoundError:
            return False
        return True

    def get(self, scope: str, handle: str) -> bytes:
        path = self._path(scope, handle)
        data = read_whole(self._disk, path)
        if data is None:
            raise StoreDamaged(f"blob {handle} is not there: {path}")
        rules.check_blob(handle, data)
        return data

    def delete(self, scope: str, handle: str, before: float | None) -> bool:
        """With `before` it is taken away, looked at, and put back where it was put again in the meantime."""
        path = self._path(scope, handle)
        if before is None:
            gone = self._disk.unlink(path)
        else:
            gone = self._is_old(path, before) and self._taken_away(path, before)
        if gone:
            self._disk.sync_folder(os.path.dirname(path))
        return gone

    def _is_old(self, path: str, before: float) -> bool:
        try:
            return self._disk.stat(path).st_mtime_ns < before * 1e9
        except FileNotFoundError:
            return False

    def _taken_away(self, path: str, before: float) -> bool:
        try:
            self._disk.replace(path, path + _GONE)
        except FileNotFoundError:
            return False
        return self._settled(path, before)

    def _settled(self, path: str, before: float) -> bool:
        """What was taken away is deleted, or has its name again. A crash may have left that for later."""
        if self._is_old(path + _GONE, before):
            return self._disk.unlink(path + _GONE)
        try:
            self._disk.link(path + _GONE, path)
        except FileExistsError:  # written anew: the same bytes
            self._disk.unlink(path + _GONE)
        return False

    def old(self, scope: str, before: float, after: str, limit: int) -> list[str]:
        folder = self._folder(scope)
        found: list[str] = []
        shelves = sorted(entry.name for entry in self._disk.names(folder) if _SHELF.fullmatch(entry.name))
        for shelf in shelves:
            if rules.SHA256 + shelf < after[: len(rules.SHA256) + 2]:
                continue
            for entry in sorted(self._disk.names(os.path.join(folder, shelf)), key=lambda each: each.name):
                if entry.name.endswith(_GONE):
                    self._settled(entry.path.removesuffix(_GONE), before)
                name = _NAME.fullmatch(entry.name)
                if name is not None and rules.SHA256 + name[1] > after and self._is_old(entry.path, before):
                    found.append(rules.SHA256 + name[1])
                    if len(found) >= limit:
                        return found
        return found

    def scopes(self) -> list[str]:
        """Those whose folder's name tells them, or whose sessions do."""
        folder = os.path.join(self._root, "blobs")
        known = {scope_folder(scope): scope for scope in list_scopes(self._disk, self._root)}
        found = {DEFAULT_SCOPE} if self._holds(folder) else set()
        for entry in self._disk.names(folder):
            scope = scope_of(entry.name) or known.get(entry.name) if entry.name.startswith("@") else None
            if scope is not None and self._holds(entry.path):
                found.add(scope)
        return sorted(found)

    def _holds(self, folder: str) -> bool:
        return any(
            _NAME.fullmatch(blob.name)
            for shelf in self._disk.names(folder)
            if _SHELF.fullmatch(shelf.name)
            for blob in self._disk.names(shelf.path)
        )
