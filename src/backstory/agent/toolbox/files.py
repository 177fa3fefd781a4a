"""The tools `read_file` and `list_files`: what lies in a workspace, in pages that a model can take."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Annotated

from backstory.agent.results import media_part, media_type_of
from backstory.agent.toolbox.decoding import SAMPLE, encoding_of, lines_of
from backstory.agent.toolbox.globs import matcher
from backstory.agent.toolbox.workspace import NOISE, Entry, Location, Workspace, printable
from backstory.agent.tools import AnyTool, tool
from backstory.errors import ToolError
from backstory.messages import Part, Text

PAGE = 20_000
"""Characters that one call gives at most: below `DEFAULT_MAX_RESULT`, so that a page is never cut again."""

MAX_IMAGE = 5_000_000
"""Bytes. https://docs.anthropic.com/en/docs/build-with-claude/vision: 5 MB an image; OpenAI and Google allow more."""

_MAX_ENTRIES = 500
_SECONDS = 20.0
"""For skipping to a line of a huge file, or walking a huge tree."""


def read_file(workspace: Location) -> AnyTool:
    """The tool that reads a file of this workspace, text in pages of lines, or an image."""
    space = Workspace.of(workspace)

    def read_file(
        path: Annotated[str, "The file, relative to the workspace."],
        offset: Annotated[int, "Lines to skip."] = 0,
        limit: Annotated[int, "Lines to read."] = 500,
        encoding: Annotated[str | None, "Only where the text came out wrong."] = None,
    ) -> str | list[Part]:
        """Read a text file, or look at an image. A long file comes in pages: go on with a larger offset."""
        if offset < 0 or limit < 1:
            raise ToolError("offset is at least 0, and limit at least 1")
        with space.open_file(path) as file:
            sample = file.read(SAMPLE)
            kind = media_type_of(sample)
            if encoding is None and kind is not None:
                if kind == "application/pdf" or len(sample) == SAMPLE:
                    sample += file.read(MAX_IMAGE + 1 - len(sample))
                return _media(path, sample, kind)
            found = encoding or encoding_of(sample)
            if found is None:
                raise ToolError(f"{path!r} is a binary file; it cannot be read as text")
            file.seek(0)
            deadline = time.monotonic() + _SECONDS
            text, more, seen = "", False, 0
            for number, line in enumerate(lines_of(file, found)):
                seen = number + 1
                if number % 1_000 == 0 and time.monotonic() > deadline:
                    raise ToolError(
                        f"{path!r} is too long to be read from line {offset} on in {_SECONDS:g} s"
                    )
                if number < offset:
                    continue
                if number >= offset + limit or len(text) + len(line) > PAGE:
                    more, seen = True, number
                    break
                text += line
        if offset and offset >= seen and not more:
            raise ToolError(f"{path!r} has {seen} lines; offset is too large")
        return _page(text, found, offset, seen, more)

    return tool(read_file, timeout=_SECONDS + 10, parallel=True)


def _media(path: str, data: bytes, kind: str) -> str | list[Part]:
    if len(data) > MAX_IMAGE:
        raise ToolError(f"{path!r} ({kind}) is larger than {MAX_IMAGE:,} bytes")
    return [
        Text(text=f"{path}: {kind}, {len(data):,} bytes"),
        media_part(data, kind, path.rpartition("/")[2]),
    ]


def _page(text: str, encoding: str, offset: int, end: int, more: bool) -> str:
    """The text alone where that is the whole file; else with a line that says where it stands."""
    notes = []
    if offset or more:
        notes.append(f"lines {offset + 1} to {end}" + (f"; go on with offset={end}" if more else ", the end"))
    if encoding not in ("utf-8", "utf-8-sig"):
        notes.append(f"decoded as {encoding}")
    if not text:
        notes.append("the file is empty")
    if not notes:
        return text
    return f"{text}{'' if not text or text.endswith(chr(10)) else chr(10)}[{'; '.join(notes)}]"


def list_files(workspace: Location) -> AnyTool:
    """The tool that lists a folder of this workspace, or finds files by a pattern."""
    space = Workspace.of(workspace)

    def list_files(
        path: Annotated[str, "The folder, relative to the workspace."] = ".",
        pattern: Annotated[
            str | None, "Such as *.py or docs/**/*.md: searches all folders below, too."
        ] = None,
    ) -> str:
        """List a folder, or find files by name. Folders end with a slash."""
        if pattern is None:
            found = space.entries(path)
            return _listed(found[:_MAX_ENTRIES], len(found), "") or "[The folder is empty.]"
        matches, base = matcher(pattern), space.look(path)[1]
        below = "" if base == "." else f"{base}/"
        stop = _Stop(_SECONDS)
        hits = (
            entry
            for entry in stop.until(space.walk(path))
            if entry.kind != "folder" and matches(entry.path.removeprefix(below))
        )
        shown = list(islice(hits, _MAX_ENTRIES + 1))
        note = "" if not stop.hit else f"\n[Stopped after {_SECONDS:g} s; name a smaller folder.]"
        return _listed(shown[:_MAX_ENTRIES], len(shown), note) or f"[No file matches {pattern!r}.]{note}"

    return tool(list_files, timeout=_SECONDS + 10, parallel=True)


class _Stop:
    """Ends a walk when its time is up, and remembers that it did."""

    def __init__(self, seconds: float) -> None:
        self.deadline = time.monotonic() + seconds
        self.hit = False

    def until(self, entries: Iterable[Entry]) -> Iterator[Entry]:
        for entry in entries:
            if time.monotonic() > self.deadline:
                self.hit = True
                return
            yield entry


def _listed(entries: list[Entry], total: int, note: str) -> str:
    lines = [_line(entry) for entry in entries]
    if total > len(entries):
        lines.append(
            f"[… and more: only the first {len(entries)} are shown; use a pattern or a smaller folder.]"
        )
    return "\n".join(lines) + (note if lines else "")


def _line(entry: Entry) -> str:
    name = printable(entry.path)
    if entry.kind == "folder":
        skipped = " (not searched)" if entry.path.rpartition("/")[2] in NOISE else ""
        return f"{name}/{skipped}"
    return name if entry.kind == "file" and not entry.size else f"{name}  {_what(entry)}"


def _what(entry: Entry) -> str:
    return f"{entry.size:,}" if entry.kind == "file" else f"({entry.kind})"
