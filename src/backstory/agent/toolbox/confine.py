"""From a path that a model gave to a place inside a root folder, or a refusal.

How a path is confined, where the system has `openat` (Linux, macOS): it is walked from the root, one component at a
time, each opened relative to the folder before it and with O_NOFOLLOW. Symbolic links are read and walked by the
same rules, so that a link within the workspace works and one that leads out is refused. As every step holds on
to a folder that is open, swapping a folder for a link meanwhile changes nothing: what is opened is what was checked.
(Linux's openat2 with RESOLVE_BENEATH does the same in one call, and Python does not offer it.)

Elsewhere (Windows) the path is resolved and checked to be below the root, then used by its resolved name. Somebody
who swaps folders between the two could win that race; no tool of ours makes a link.

Hard links are files like any other. This module opens folders, never files.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from backstory.errors import ConfigurationError, ToolError

CLOSED = ("/sessions", "/blobs", "/quarantine", "/scopes", "/.backstory", ".git", ".env")
"""What tools do not see unless told otherwise.

The first are where conversations lie, and what belongs to other scopes; the rest holds credentials as a rule. A leading
slash means the root, otherwise the name is meant at any depth; wildcards are allowed.
"""

OPENAT = os.open in os.supports_dir_fd and os.stat in os.supports_dir_fd and hasattr(os, "O_NOFOLLOW")
FOLDER = (
    os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
)

_MAX_PATH = 4096
_MAX_LINKS = 40  # as Linux has it: path_resolution(7)
_MAX_DEPTH = 128
"""Folders below each other: each is held open while a path is walked."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """A path that was confined: what to open, from which open folder, and its real way from the root.

    Good only while the context that gave it lasts: it refers to open folders.
    """

    parts: tuple[str, ...]
    name: str
    folder: int | None

    def open(self, flags: int) -> int:
        return os.open(self.name, flags, dir_fd=self.folder)

    def stat(self) -> os.stat_result:
        return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)


class Confinement:
    """A root folder, and what in it is `closed`. Raises `ConfigurationError` where there is no such folder."""

    def __init__(self, root: str | os.PathLike[str], *, closed: Sequence[str] = CLOSED) -> None:
        try:
            self.root = Path(root).resolve(strict=True)
        except (OSError, ValueError, RuntimeError) as error:
            raise ConfigurationError(
                f"the workspace {os.fspath(root)!r} cannot be opened: {error}"
            ) from error
        if not self.root.is_dir():
            raise ConfigurationError(f"the workspace {os.fspath(root)!r} is no folder")
        self.closed = tuple(closed)
        self._given = Path(os.path.abspath(root))

    def is_closed(self, parts: Sequence[str]) -> bool:
        """Whether tools may not see a path; upper and lower case alike, since some file systems ignore it."""
        names = [part.casefold() for part in parts]
        for pattern in self.closed:
            wanted = pattern.casefold()
            if wanted.startswith("/"):
                steps = wanted.strip("/").split("/")
                if len(names) >= len(steps) and all(map(fnmatchcase, names, steps)):
                    return True
            elif any(fnmatchcase(name, wanted) for name in names):
                return True
        return False

    @contextmanager
    def at(self, path: str, *, missing_ok: bool = False) -> Iterator[Place]:
        """The place that a path means. It need not be there with `missing_ok`, but all folders above it must.

        Raises `ToolError` for a path that leads out or is closed, and the system's own `OSError`.
        """
        parts = self._parts(path)
        with ExitStack() as stack:
            place = (
                self._walked(path, parts, missing_ok, stack)
                if OPENAT
                else self._resolved(path, parts, missing_ok)
            )
            if self.is_closed(place.parts):
                raise closed_to_tools(path)
            yield place

    def _parts(self, path: str) -> list[str]:
        """The components of a path as it was given, links and ``..`` still in it."""
        if "\0" in path or len(path) > _MAX_PATH:
            raise ToolError(f"{path[:60]!r} is no path")
        try:
            os.fsencode(path)
        except UnicodeEncodeError:
            raise ToolError(f"{path[:60]!r} is no path") from None
        if os.name == "nt":
            path = path.replace("\\", "/")
            if ":" in os.path.splitdrive(path)[1]:  # a second stream of a file
                raise ToolError(f"{path!r} is no path")
        if os.path.isabs(path) or os.path.splitdrive(path)[0]:
            inner = self._beneath(path)
            if inner is None:
                raise outside(path)
            return inner
        return _components(path)

    def _beneath(self, path: str) -> list[str] | None:
        """The components of an absolute path after the root's; `None` where it is not below the root."""
        for root in (self.root, self._given):
            ours, theirs = root.parts, Path(path).parts
            if theirs[: len(ours)] == ours:
                return list(theirs[len(ours) :])
        return None

    def _walked(self, path: str, parts: list[str], missing_ok: bool, stack: ExitStack) -> Place:
        def enter(name: str, folder: int | None) -> int:
            fd = os.open(name, FOLDER, dir_fd=folder)
            stack.callback(os.close, fd)
            return fd

        above = [enter(str(self.root), None)]  # the folders from the root to where we are
        names: list[str] = []  # theirs, without the root's
        pending = parts[::-1]
        links = 0
        while pending:
            name = pending.pop()
            if name == "..":
                if not names:
                    raise outside(path)
                names.pop()
                above.pop()
                continue
            if len(names) >= _MAX_DEPTH:
                raise ToolError(f"{path[:60]!r} goes through too many folders")
            if self.is_closed([*names, name]):
                raise closed_to_tools(path)
            try:
                mode = os.stat(name, dir_fd=above[-1], follow_symlinks=False).st_mode
            except FileNotFoundError:
                if missing_ok and not pending:
                    return Place(parts=(*names, name), name=name, folder=above[-1])
                raise
            if stat.S_ISLNK(mode):
                links += 1
                if links > _MAX_LINKS:
                    raise ToolError(f"{path!r} goes through too many links")
                target = os.readlink(name, dir_fd=above[-1])
                inner: list[str] | None = _components(target)
                if os.path.isabs(target):
                    inner = self._beneath(target)
                    del above[1:], names[:]
                if inner is None:
                    raise outside(path)
                pending += inner[::-1]
            elif pending:
                above.append(enter(name, above[-1]))
                names.append(name)
            else:
                return Place(parts=(*names, name), name=name, folder=above[-1])
        return Place(parts=tuple(names), name=".", folder=above[-1])

    def _resolved(self, path: str, parts: list[str], missing_ok: bool) -> Place:
        real = self.root.joinpath(*parts).resolve(strict=not missing_ok)
        if not real.is_relative_to(self.root):
            raise outside(path)
        return Place(parts=real.relative_to(self.root).parts, name=str(real), folder=None)


def _components(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def outside(path: str) -> ToolError:
    return ToolError(f"{path!r} is outside the workspace; give a path below its root, such as docs/a.md")


def closed_to_tools(path: str) -> ToolError:
    return ToolError(f"{path!r} is closed to tools")
