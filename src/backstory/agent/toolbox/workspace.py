"""A folder that tools look into: its files, folders, and the one way of writing there.

Every path goes through `confine`; errors come in words for the model. Devices, pipes and sockets are refused.
"""

from __future__ import annotations

import difflib
import errno
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import BinaryIO, Literal, TypeAlias

from backstory.agent.toolbox.confine import FOLDER, Confinement, Place, closed_to_tools
from backstory.errors import ToolError

NOISE = frozenset(
    {"node_modules", "__pycache__", ".venv", "venv", ".tox", ".mypy_cache", ".pytest_cache", ".ruff_cache"}
)
"""Folders that nobody means when listing or searching everything. Asked for by name, they are shown."""

Location: TypeAlias = "Workspace | str | os.PathLike[str]"
Kind = Literal["file", "folder", "link", "other"]

_FILE = (
    getattr(os, "O_NOFOLLOW", 0)
    | getattr(os, "O_CLOEXEC", 0)
    | getattr(os, "O_BINARY", 0)
    | getattr(os, "O_NONBLOCK", 0)  # a pipe without a writer must not hang us
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """What lies in a folder. `path` is relative to the root, with slashes; `size` is in bytes, 0 for a folder."""

    path: str
    kind: Kind
    size: int = 0


class Workspace(Confinement):
    """A root folder, and what in it is `closed`. Raises `ConfigurationError` where there is no such folder."""

    @staticmethod
    def of(location: Location) -> Workspace:
        """The workspace itself, or one for a root folder."""
        return location if isinstance(location, Workspace) else Workspace(location)

    @contextmanager
    def open_file(self, path: str) -> Iterator[BinaryIO]:
        """A regular file, to be read. Raises `ToolError` for anything else."""
        with self._spoken(path), self.at(path) as place:
            _regular(path, place.stat().st_mode)  # before it is opened: that alone may move a device
            fd = place.open(os.O_RDONLY | _FILE)
        with os.fdopen(fd, "rb") as file:
            _regular(path, os.fstat(fd).st_mode)
            yield file

    def entries(self, path: str = ".") -> list[Entry]:
        """What lies in a folder, by name; what is closed is left out."""
        with self._spoken(path):
            return self._entries(path)

    def look(self, path: str) -> tuple[Kind, str]:
        """What a path is, and its real way from the root: without links, ``.`` for the root itself."""
        with self._spoken(path), self.at(path) as place:
            return _kind(place.stat().st_mode), "/".join(place.parts) or "."

    def walk(self, path: str = ".") -> Iterator[Entry]:
        """All below a folder, or the file itself, in order of names. Links are named and not followed.

        What lies in folders of noise, or in those that cannot be read, is passed over.
        """
        kind, name = self.look(path)
        if kind == "file":
            yield Entry(path=name, kind="file")
            return
        pending = self.entries(path)[::-1]
        while pending:
            entry = pending.pop()
            yield entry
            if entry.kind == "folder" and entry.path.rpartition("/")[2] not in NOISE:
                with suppress(ToolError, OSError):  # no permission, too deep, or gone meanwhile
                    pending += self._entries(entry.path)[::-1]

    def write_file(self, path: str, data: bytes) -> None:
        """Put a file in place, whole or not at all; folders on the way are made. Durable when this returns.

        Raises `ToolError`, also where the path is there and is no file.
        """
        *folders, name = path.split("/")
        if name in ("", ".", ".."):
            raise ToolError(f"{path!r} is no name for a file")
        for depth in range(1, len(folders) + 1):
            folder = "/".join(folders[:depth]) or "."
            with self._spoken(path), self.at(folder, missing_ok=True) as place, suppress(FileExistsError):
                os.mkdir(place.name, 0o700, dir_fd=place.folder)
        with self._spoken(path), self.at("/".join(folders) or ".") as parent:
            if self.is_closed((*parent.parts, name)):
                raise closed_to_tools(path)
            if parent.folder is None:
                _replace(name, data, within=parent.name)
                return
            fd = parent.open(FOLDER)
            try:
                _replace(name, data, within=fd)
            finally:
                os.close(fd)

    def _entries(self, path: str) -> list[Entry]:
        with self.at(path) as place:
            if place.folder is None:
                return self._scanned(place, place.name)
            fd = place.open(FOLDER)
            try:
                return self._scanned(place, fd)
            finally:
                os.close(fd)

    def _scanned(self, place: Place, where: int | str) -> list[Entry]:
        found = []
        with os.scandir(where) as scan:
            for item in scan:
                parts = (*place.parts, item.name)
                if self.is_closed(parts):
                    continue
                try:
                    info = item.stat(follow_symlinks=False)
                except OSError:  # gone meanwhile
                    continue
                kind = _kind(info.st_mode)
                size = info.st_size if kind == "file" else 0
                found.append(Entry(path="/".join(parts), kind=kind, size=size))
        return sorted(found, key=lambda entry: entry.path)

    @contextmanager
    def _spoken(self, path: str) -> Iterator[None]:
        """The system's errors, in words for the model."""
        shown = printable(path[:200])
        try:
            yield
        except FileNotFoundError:
            raise ToolError(f"there is no {shown!r}.{self._hint(path)}") from None
        except NotADirectoryError:
            raise ToolError(f"{shown!r} is no folder, or goes through something that is none") from None
        except IsADirectoryError:
            raise ToolError(f"{shown!r} is a folder") from None
        except (OSError, ValueError, RuntimeError) as error:
            code = error.errno if isinstance(error, OSError) else None
            raise ToolError(f"{shown!r} {_TEXTS.get(code or 0, f'cannot be opened ({error})')}") from None

    def _hint(self, path: str) -> str:
        """A name that the model may have meant by a path that is not there."""
        parent, _, name = path.rstrip("/").rpartition("/")
        try:
            names = {entry.path.rpartition("/")[2]: entry.path for entry in self._entries(parent or ".")}
        except (ToolError, OSError, ValueError):
            names = {}
        close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
        return (
            f" Did you mean {printable(names[close[0]])!r}?" if close else " list_files shows what is there."
        )


def printable(name: str) -> str:
    """A name as the model may see it: what is no text, or moves the cursor, is escaped."""
    text = name.encode("utf-8", "backslashreplace").decode()
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else ascii(char)[1:-1] for char in text)


def _kind(mode: int) -> Kind:
    if stat.S_ISREG(mode):
        return "file"
    if stat.S_ISDIR(mode):
        return "folder"
    return "link" if stat.S_ISLNK(mode) else "other"


def _regular(path: str, mode: int) -> None:
    if stat.S_ISDIR(mode):
        raise ToolError(f"{path!r} is a folder; list_files shows what is in it")
    if not stat.S_ISREG(mode):
        raise ToolError(f"{path!r} is no regular file")


_TEXTS = {
    errno.EACCES: "may not be used (permission denied)",
    errno.EPERM: "may not be used (not permitted)",
    errno.ELOOP: "changed while it was opened; try again",
    errno.ENAMETOOLONG: "is too long a name",
    errno.ENOSPC: "cannot be written: the disk is full",
    errno.EROFS: "cannot be written: the disk is read-only",
}


def _replace(name: str, data: bytes, *, within: int | str) -> None:
    """Write beside, sync, then take the place: a reader sees the old file or the new one, never a part."""
    folder = within if isinstance(within, int) else None
    prefix = "" if isinstance(within, int) else os.path.join(within, "")
    temporary = f"{prefix}.{os.getpid()}-{os.urandom(6).hex()}.tmp"
    fd = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _FILE, 0o600, dir_fd=folder)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.replace(temporary, prefix + name, src_dir_fd=folder, dst_dir_fd=folder)
    except OSError:
        os.unlink(temporary, dir_fd=folder)
        raise
    if isinstance(within, int):
        os.fsync(within)
