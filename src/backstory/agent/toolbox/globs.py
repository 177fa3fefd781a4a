"""Which paths a pattern means, such as ``*.py`` or ``src/**/test_*``. Pure."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from backstory.errors import ToolError

_MAX_PATTERN = 300


def matcher(pattern: str) -> Callable[[str], bool]:
    """A test for paths relative to some folder, with slashes.

    A pattern without a slash is matched against the name alone, at any depth. In one with a slash, ``**`` stands for
    any number of folders, none included; a single ``*`` never crosses a slash. Raises `ToolError` for an overlong one.
    """
    if len(pattern) > _MAX_PATTERN or "\0" in pattern:
        raise ToolError(f"the pattern {pattern[:40]!r}… is too long; {_MAX_PATTERN} characters at most")
    wanted = [step for step in pattern.removeprefix("./").split("/") if step]
    if len(wanted) < 2 and not pattern.startswith("/"):
        name = wanted[0] if wanted else "*"
        return lambda path: name == "**" or fnmatchcase(path.rpartition("/")[2], name)
    return lambda path: _matches(path.split("/"), wanted)


def _matches(steps: list[str], wanted: list[str]) -> bool:
    """In time of the product of both lengths, however many ``**`` there are: one row a step of the pattern."""
    row = [True] + [False] * len(steps)  # row[i]: the pattern so far matches the first i steps
    for want in wanted:
        if want == "**":
            reached = False
            row = [reached := reached or now for now in row]
        else:
            row = [False] + [row[i] and fnmatchcase(step, want) for i, step in enumerate(steps)]
    return row[-1]
