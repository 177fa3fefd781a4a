"""The tool `search_files`: lines that hold a text or match a pattern, in bounded time.

A pattern of a model's can take for ever in an engine that backtracks. The `regex` package can be told to give up
within a single match (the `regex` library, "timeout"), and gives the interpreter free meanwhile.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

from backstory.agent.toolbox.decoding import SAMPLE, encoding_of, lines_of
from backstory.agent.toolbox.globs import matcher
from backstory.agent.toolbox.workspace import Location, Workspace, printable
from backstory.agent.tools import AnyTool, tool
from backstory.errors import ToolError

_MAX_QUERY = 1_000
_MAX_HITS = 500
_AROUND = 150
"""Characters of a line that are shown on each side of what was found."""

Find = Callable[[str, float], tuple[int, int] | None]
"""Where in a line, given the seconds that are left."""


def search_files(workspace: Location, *, seconds: float = 10.0) -> AnyTool:
    """The tool that searches the text files of this workspace, for `seconds` at most."""
    space = Workspace.of(workspace)

    def search_files(
        query: Annotated[str, "The text to look for, taken literally unless regex is true."],
        path: Annotated[str, "A folder, searched with all below it, or a file."] = ".",
        pattern: Annotated[str | None, "Only files such as *.py or docs/**/*.md."] = None,
        regex: Annotated[bool, "Whether the query is a regular expression."] = False,
        ignore_case: bool = False,
        limit: Annotated[int, "Lines to find."] = 50,
    ) -> str:
        """Search text files; gives path:line: text for each line found."""
        deadline = time.monotonic() + seconds
        find = _finder(query, regex, ignore_case)
        wanted, base = matcher(pattern or "*"), space.look(path)[1]
        below = "" if base == "." else f"{base}/"
        most = min(max(limit, 1), _MAX_HITS)
        hits: list[str] = []
        stopped = ""
        try:
            for entry in space.walk(path):
                if time.monotonic() > deadline:
                    raise TimeoutError
                if entry.kind == "file" and (entry.path == base or wanted(entry.path.removeprefix(below))):
                    _search(space, entry.path, find, deadline, hits, most + 1)
                if len(hits) > most:
                    stopped = f"[Only the first {most} lines; narrow the query, the path or the pattern.]"
                    break
        except TimeoutError:
            stopped = (
                f"[Stopped after {seconds:g} s, not everything was searched; narrow the path or the query.]"
            )
        return "\n".join([*hits[:most], *([stopped] if stopped else [])]) or f"[Nothing found for {query!r}.]"

    return tool(search_files, timeout=seconds + 10, parallel=True)


def _search(space: Workspace, path: str, find: Find, deadline: float, hits: list[str], most: int) -> None:
    """Add the hits of one file. A file that cannot be read, or is no text, has none."""
    try:
        with space.open_file(path) as file:
            encoding = encoding_of(file.read(SAMPLE))
            if encoding is None:
                return
            file.seek(0)
            for number, line in enumerate(lines_of(file, encoding), start=1):
                left = deadline - time.monotonic()
                if left <= 0:
                    raise TimeoutError
                found = find(line, left)
                if found is not None:
                    hits.append(f"{printable(path)}:{number}: {_excerpt(line, *found)}")
                    if len(hits) >= most:
                        return
    except (ToolError, PermissionError):
        return


def _finder(query: str, is_regex: bool, ignore_case: bool) -> Find:
    """What finds the query in a line. Raises `ToolError` for a query that is none."""
    if not query or len(query) > _MAX_QUERY:
        raise ToolError(f"the query has 1 to {_MAX_QUERY} characters")
    if not is_regex and not ignore_case:
        if "\n" in query:
            raise ToolError("the query is looked for in single lines; leave out the line break")
        return lambda line, left: None if (at := line.find(query)) < 0 else (at, at + len(query))
    import regex

    try:
        flags = regex.IGNORECASE if ignore_case else 0
        compiled: Any = regex.compile(query if is_regex else regex.escape(query), flags)
    except regex.error as error:
        raise ToolError(
            f"the query is no regular expression: {error}; leave out regex to search literally"
        ) from None

    def find(line: str, left: float) -> tuple[int, int] | None:
        match = compiled.search(line.rstrip("\r\n"), timeout=left, concurrent=True)
        return None if match is None else match.span()

    return find


def _excerpt(line: str, start: int, end: int) -> str:
    """The line, or the part of a long one around what was found."""
    text = line.rstrip("\r\n")
    if len(text) > 2 * _AROUND + 100:
        first, last = max(0, start - _AROUND), min(len(text), min(end, start + 100) + _AROUND)
        text = f"{'…' if first else ''}{text[first:last]}{'…' if last < len(text) else ''}"
    return printable_text(text)


def printable_text(text: str) -> str:
    """Without control characters other than tabs."""
    return "".join(
        char if char == "\t" or char.isprintable() else "\N{REPLACEMENT CHARACTER}" for char in text
    )
