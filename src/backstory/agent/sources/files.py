"""Text files of the workspace: read when they changed, of bounded size, confined to it, and kept apart by scope.

Whose file is whose: AGENTS.md, SOUL.md and the skills say what the agent is, so they are the workspace's, and every
scope shares those in its root unless it has its own. USER.md, memory/MEMORY.md and memory/history.jsonl tell of a
person: each scope reads its own and never another's. The scope ``default`` lives in the root, any other in
``scopes/@NAME`` (the names are those of `backstory.stores.names`, as in ``sessions/@NAME``).

A file is known by device, inode, size, time of change and time of status change; as in git, one that changed a moment
before it was read is read again, since a second change may bear the same time
(https://git-scm.com/docs/racy-git). Nothing is written here.
"""

from __future__ import annotations

import codecs
import os
import stat
import time
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from backstory.agent.sources.base import Immediate, SourceContext
from backstory.agent.toolbox.confine import Confinement
from backstory.context.sections import Section
from backstory.errors import ConfigurationError, ToolError
from backstory.stores.names import scope_folder
from backstory.stores.values import DEFAULT_SCOPE

SCOPES = "scopes"
CLOSED = ("/sessions", "/blobs", "/quarantine", "/.backstory")
"""Where the store keeps conversations: no file of context is a link to one of them."""

INSTRUCTIONS_LIMIT = 32_768
"""Bytes of one instruction file, about 8,000 tokens: a twentieth of a window of 160,000."""

_KEPT = 512
"""Files whose text stays at hand; the least recently used go first."""
_TICK = 50_000_000
_SECOND = 1_000_000_000
"""Nanoseconds: time stamps are as fine as the kernel's tick (up to 10 ms), or whole seconds (two on FAT)."""

_FLAGS = os.O_RDONLY
for _name in (
    "O_NOFOLLOW",
    "O_CLOEXEC",
    "O_BINARY",
    "O_NONBLOCK",
):  # a pipe without a writer must not hang us
    _FLAGS |= getattr(os, _name, 0)

_Signature: TypeAlias = tuple[int, int, int, int, int]


@dataclass(frozen=True, kw_only=True, slots=True)
class FileText:
    """What was read: the text, how long the whole file is in bytes, and what is wrong with it, in words.

    `text` is ``""`` where `problem` says why there is none; `cut` says that only the first (or last) part is here.
    """

    text: str = ""
    size: int = 0
    cut: bool = False
    problem: str = ""


@dataclass(frozen=True, slots=True)
class _Held:
    signature: _Signature
    settled: bool
    found: FileText


class WorkspaceFiles:
    """The text files below one workspace folder, which need not be there yet. `reads` counts what was really read.

    Calls block for as long as a small file takes, and belong to one thread.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self.root = Path(os.path.abspath(root))
        self._prefix = os.path.join(self.root, "")  # joining strings takes a tenth of what joining paths does
        self.reads = 0
        self._confined: Confinement | None = None
        self._held: OrderedDict[tuple[str, int, bool], _Held] = OrderedDict()

    def read(self, path: str, limit: int, *, scope: str | None = None, tail: bool = False) -> FileText | None:
        """A file by its path from the root, with slashes; at most `limit` bytes of it. `None` where there is none.

        Of the file's start, or of its end with `tail`. With a `scope` the file must be that scope's own, links
        included. Never raises for what the disk says: see `FileText.problem`.
        """
        key = (path, limit, tail)
        try:
            seen = _signature(os.stat(self._prefix + path))
        except (FileNotFoundError, NotADirectoryError):
            self._held.pop(key, None)
            return None
        except (OSError, ValueError) as error:
            return FileText(problem=f"cannot be read ({_cause(error)})")
        held = self._held.get(key)
        if held is not None and held.settled and held.signature == seen:
            self._held.move_to_end(key)
            return held.found
        try:
            held = self._read(path, limit, scope, tail)
        except FileNotFoundError:  # gone meanwhile
            self._held.pop(key, None)
            return None
        except ToolError:
            held = _Held(
                seen, True, FileText(problem="is a link that leads out of its place, and is not followed")
            )
        except (OSError, ConfigurationError) as error:
            return FileText(problem=f"cannot be read ({_cause(error)})")
        self._held[key] = held
        self._held.move_to_end(key)
        while len(self._held) > _KEPT:
            self._held.popitem(last=False)
        return held.found

    def _read(self, path: str, limit: int, scope: str | None, tail: bool) -> _Held:
        if self._confined is None:
            self._confined = Confinement(self.root, closed=CLOSED)
        now = time.time_ns()
        with self._confined.at(path) as place:
            if scope is not None and _owner(place.parts) != scope_folder(scope):
                raise ToolError(f"{path!r} belongs to another scope")
            info = place.stat()
            if not stat.S_ISREG(info.st_mode):  # before it is opened: that alone may move a device
                return _Held(_signature(info), True, FileText(problem="is no regular file"))
            fd = place.open(_FLAGS)
        with os.fdopen(fd, "rb") as file:
            info = os.fstat(fd)
            self.reads += 1
            if tail and info.st_size > limit:
                file.seek(info.st_size - limit)
            data = file.read(limit)
            after = os.fstat(fd)
        age = now - after.st_mtime_ns
        fresh = age < (2 * _SECOND if after.st_mtime_ns % _SECOND == 0 else _TICK)
        settled = _signature(info) == _signature(after) and not fresh
        return _Held(_signature(after), settled, _decoded(data, after.st_size, tail))

    def folders(self, path: str) -> list[str]:
        """The names of the folders in a folder, sorted; none where it is not there or cannot be read."""
        try:
            with os.scandir(self._prefix + path) as scan:
                return sorted(entry.name for entry in scan if entry.is_dir())
        except OSError:
            return []


def own_path(scope: str, path: str) -> str:
    """Where a scope keeps a file of its own, from the workspace's root."""
    folder = scope_folder(scope)
    return f"{SCOPES}/{folder}/{path}" if folder else path


def _owner(parts: Sequence[str]) -> str:
    """The folder of the scope in which a real path lies; upper and lower case alike, as some file systems have it."""
    return parts[1] if len(parts) > 1 and parts[0].casefold() == SCOPES else ""


class FileSection(Immediate):
    """The section of one text file. `shared` files of the root serve every scope that has none of its own."""

    def __init__(
        self,
        files: WorkspaceFiles,
        *,
        name: str,
        path: str,
        title: str,
        shared: bool,
        limit: int = INSTRUCTIONS_LIMIT,
        optional: bool = False,
        least: int = 0,
    ) -> None:
        self.files = files
        self.name = name
        self.path = path
        self.title = title
        self.shared = shared
        self.limit = limit
        self.optional = optional
        self.least = least

    async def section(self, context: SourceContext) -> Section | None:
        found = self.files.read(own_path(context.scope, self.path), self.limit, scope=context.scope)
        if found is None and self.shared:
            found = self.files.read(self.path, self.limit, scope=DEFAULT_SCOPE)
        if found is None:
            return None
        if found.problem:
            context.note(f"{self.path} {found.problem}")
        text = found.text.strip()
        if not text:
            return None
        if found.cut:
            shown = len(found.text.encode())
            text += f"\n[{self.path} is longer: these are the first {shown:,} of {found.size:,} bytes.]"
        return Section(name=self.name, text=text, title=self.title, optional=self.optional, least=self.least)


def _signature(info: os.stat_result) -> _Signature:
    return (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns, info.st_ctime_ns)


def _decoded(data: bytes, size: int, tail: bool) -> FileText:
    """The text of a file of which `data` was read. UTF-8 is expected; its mark, and UTF-16 with one, are understood."""
    cut = size > len(data)
    if tail and cut:
        data = data[data.find(b"\n") + 1 :]  # from the first whole line on
    encoding = "utf-16" if data.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)) else "utf-8-sig"
    if encoding != "utf-16" and b"\0" in data:
        return FileText(size=size, problem="is no text (it holds zero bytes)")
    problem = ""
    try:
        text = codecs.getincrementaldecoder(encoding)("strict").decode(data, final=not cut)
    except UnicodeDecodeError as error:
        text, problem = _guessed(data, error)
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    return FileText(text=text, size=size, cut=cut, problem=problem)


def _guessed(data: bytes, error: UnicodeDecodeError) -> tuple[str, str]:
    """A file that is not the UTF-8 that it should be: GB 18030 where it plainly is that, else what can be read."""
    text = data.decode("utf-8", "replace")
    wrong = text.count("\ufffd")
    if wrong > sum(1 for char in text if char > "\x7f") - wrong:
        try:
            text = codecs.getincrementaldecoder("gb18030")("strict").decode(data)
        except UnicodeDecodeError:
            pass
        else:
            return text, "is not in UTF-8 and was read as GB 18030; save it as UTF-8"
    return text, f"is not in UTF-8 (the first wrong byte is number {error.start}); save it as UTF-8"


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)
