"""`find`, as far as it only looks: a list of tests, and a frame around them that keeps out of what is closed.

https://pubs.opengroup.org/onlinepubs/9699919799/utilities/find.html and GNU's findutils for -iname, -maxdepth
and the like. There is no -exec, -ok, -delete, -fprint, -fls, -files0-from, -L or -follow. Nothing is run here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from backstory.agent.toolbox.commands import refused
from backstory.errors import ToolError


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


_BARE = _set("-empty -true -false -print -print0 -prune ! -not -a -and -o -or")
_VALUED = _set(
    "-name -iname -path -ipath -wholename -iwholename -regex -iregex -regextype -type -size -mtime -mmin -atime -amin "
    "-ctime -cmin -perm -links"
)
_PATHS = frozenset({"-newer", "-anewer", "-cnewer"})
_FIRST = frozenset({"-maxdepth", "-mindepth"})
_PRINTS = frozenset({"-print", "-print0"})


def find_arguments(words: Sequence[str], locate: Callable[[str], str], closed: Sequence[str]) -> list[str]:
    """The arguments for `find`. `locate` confines a path; `closed` are the patterns of what tools do not see.

    Raises `ToolError` for whatever is not in the list.
    """
    rest = list(words)
    starts = []
    while rest and not rest[0].startswith(("-", "(", ")", "!", ",")):
        starts.append(locate(rest.pop(0)))
    depth: list[str] = []
    tests: list[str] = []
    open_groups = 0
    while rest:
        word = rest.pop(0)
        if word in ("(", ")"):
            open_groups += 1 if word == "(" else -1
            if open_groups < 0:
                raise ToolError("find: there is a ) too many")
            tests.append(word)
        elif word in _BARE:
            tests.append(word)
        elif word in _VALUED | _PATHS | _FIRST:
            if not rest:
                raise ToolError(f"find {word} needs a value")
            value = rest.pop(0)
            if word in _FIRST:
                if not value.isdecimal():
                    raise ToolError(f"find {word} needs a number")
                depth += [word, value]
            else:
                tests += [word, locate(value) if word in _PATHS else value]
        else:
            raise refused("find", word)
    if open_groups:
        raise ToolError("find: a ( is not closed")
    return [*(starts or ["."]), *depth, *_framed(tests, closed)]


def _framed(tests: list[str], closed: Sequence[str]) -> list[str]:
    """The tests, after what is closed was left out of the search."""
    wanted = ["(", *tests, ")"] if tests else []
    if not _PRINTS.intersection(tests):
        wanted.append("-print")
    if not closed:
        return wanted
    shut: list[str] = []
    for pattern in closed:
        kind, value = (
            ("-ipath", f".{pattern.rstrip('/')}") if pattern.startswith("/") else ("-iname", pattern)
        )
        shut += ["-o", kind, value] if shut else [kind, value]
    return ["(", *shut, ")", "-prune", "-o", *wanted]
