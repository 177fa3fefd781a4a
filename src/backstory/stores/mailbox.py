"""One session's inbox as a file: a header line, then one JSON line an entry. Blocking; for one thread at a time.

Posting needs the file's own lock and no lease. What was taken leaves the file at once, by a rewrite: inboxes are
short. The header remembers the next position, so that none is given twice.
"""

from __future__ import annotations

import json
import os
import uuid
from collections.abc import Callable, Collection
from typing import Any

from backstory.errors import NewerFormat
from backstory.records import SCHEMA_VERSION, encode_json
from backstory.stores import rules
from backstory.stores.disk import Disk
from backstory.stores.locks import LockedFile
from backstory.stores.values import Damage, Entry, NewEntry, Posted

FORMAT = "backstory-inbox"


class Mailbox:
    """The inbox at `path`. `report` hears of lines that cannot be read."""

    def __init__(self, disk: Disk, path: str, *, report: Callable[[Damage], None]) -> None:
        self.path = path
        self._disk = disk
        self._report = report

    def entries(self) -> list[Entry]:
        """What waits. Needs no lock: a line that is being written is passed over."""
        return self._parse(self._content())[0]

    def _content(self) -> bytes:
        try:
            fd = self._disk.open(self.path, os.O_RDONLY)
        except FileNotFoundError:
            return b""
        try:
            return self._disk.read_at(fd, self._disk.fstat(fd).st_size, 0)
        finally:
            self._disk.close(fd)

    def post(self, entry: NewEntry, *, at: str) -> Posted:
        """Raises `LockBusy`, and `StaleLock` where the lock was broken meanwhile: post again."""
        line = encode_json(entry.data)
        file = LockedFile(self._disk, self.path)
        file.lock()
        try:
            size = self._disk.fstat(file.fd).st_size
            waiting, next_position, whole = self._parse(self._disk.read_at(file.fd, size, 0))
            repeated = rules.posted_before(waiting, entry)
            if repeated is not None:
                self._disk.sync(file.fd)  # the first time may have been cut short before its own
                return Posted(entry=repeated, repeated=True)
            made = Entry(
                id=entry.id or uuid.uuid4().hex,
                position=next_position,
                at=at,
                kind=entry.kind,
                data=entry.data,
            )
            line = (b"" if size else self._header(1)) + _line(made)
            try:
                if whole < size:
                    self._disk.truncate(file.fd, whole)
                self._disk.write_at(file.fd, line, whole)
                self._disk.sync(file.fd)
                if not size:
                    self._disk.sync_folder(os.path.dirname(self.path))
            except OSError:
                self._disk.truncate(file.fd, whole)
                raise
            file.check()
            return Posted(entry=made)
        finally:
            file.close()

    def take(self, ids: Collection[str]) -> None:
        """Raises as `post`."""
        if not any(entry.id in ids for entry in self.entries()):
            return
        file = LockedFile(self._disk, self.path)
        file.lock()
        try:
            waiting, next_position, _ = self._parse(self._content())
            left = [entry for entry in waiting if entry.id not in ids]
            data = self._header(next_position) + b"".join(_line(entry) for entry in left)
            temporary = self.path + ".tmp"
            self._disk.unlink(temporary)
            fd = self._disk.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
            try:
                self._disk.write_all(fd, data)
                self._disk.sync(fd)
            finally:
                self._disk.close(fd)
            file.check()
            self._disk.replace(temporary, self.path)
        finally:
            file.close()

    def break_lock(self) -> None:
        """Take the lock from a process that does not come back. Raises `LockBusy` where that is not called for."""
        file = LockedFile(self._disk, self.path)
        try:
            file.break_lock(self._content)
        finally:
            file.close()

    def remove(self) -> None:
        self._disk.unlink(self.path + ".tmp")
        self._disk.unlink(self.path)

    def _header(self, next_position: int) -> bytes:
        return encode_json({"format": FORMAT, "version": SCHEMA_VERSION, "next": next_position}) + b"\n"

    def _parse(self, raw: bytes) -> tuple[list[Entry], int, int]:
        """The entries, the next position, and where the last whole line ends."""
        entries: list[Entry] = []
        next_position, offset = 1, 0
        *lines, _ = raw.split(b"\n")
        for line in lines:
            value = _value(line)
            if value is not None and value.get("format") == FORMAT:
                self._check(value)
                next_position = max(next_position, int(value.get("next", 1)))
            elif value is not None and _is_entry(value):
                entries.append(Entry(**value))
                next_position = max(next_position, value["position"] + 1)
            else:
                self._report(
                    Damage(
                        kind="json",
                        offset=offset,
                        length=len(line) + 1,
                        after=next_position - 1,
                        detail="a line of the inbox is no entry",
                    )
                )
            offset += len(line) + 1
        return entries, next_position, offset

    def _check(self, header: dict[str, Any]) -> None:
        if int(header.get("version", 1)) > SCHEMA_VERSION:
            raise NewerFormat(f"{self.path} was written by a newer version of Backstory: upgrade to read it")


def _line(entry: Entry) -> bytes:
    return (
        encode_json(
            {
                "id": entry.id,
                "position": entry.position,
                "at": entry.at,
                "kind": entry.kind,
                "data": entry.data,
            }
        )
        + b"\n"
    )


def _value(line: bytes) -> dict[str, Any] | None:
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def _is_entry(value: dict[str, Any]) -> bool:
    types = {"id": str, "position": int, "at": str, "kind": str, "data": dict}
    return value.keys() == types.keys() and all(isinstance(value[name], types[name]) for name in types)
