"""Long texts made short by what they are: JSON by its shape, logs by errors, tables by header, code by signatures.

Each function gives a text of about `room` characters. What was left out is marked at its place. The same text gives the
same result.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from typing import Any

Shape = Callable[[str, int], str]

MOST = 200_000
"""Characters that are looked at: of a longer text its beginning and its end."""
_SCHEDULE = (
    (400, 40, 8),
    (200, 20, 7),
    (120, 10, 6),
    (80, 6, 5),
    (60, 4, 4),
    (40, 3, 4),
    (24, 2, 3),
    (16, 1, 2),
)
"""Characters of a string, items of a list, and levels that stay, from generous to narrow."""

_TROUBLE = re.compile(
    r"\b(?:error|errors|exception|traceback|fail(?:ed|ure|ures|s)?|fatal|panic|critical|denied|refused"
    r"|timed? ?out|assert\w*"
    r"|abort\w*|segfault|warn(?:ing)?|not found|undefined|cannot|unable)\b|错误|异常|失败|超时|拒绝|警告|找不到",
    re.IGNORECASE,
)
_SIGNATURE = re.compile(
    r"^\s*(?:@\w|(?:export |default |public |private |protected |static |final |abstract |async "
    r"|pub(?:\([^)]*\))? |unsafe |inline )*"
    r"(?:def|class|function|func|fn|interface|struct|enum|trait|impl|type|module|namespace|package|import"
    r"|from|use|require|include"
    r"|const|let|var)\b|#include\b|\w[\w<>,\s*&\[\]]*\([^;]*\)\s*(?:const\s*)?\{\s*$)"
)
_LOG = re.compile(
    r"^\W{0,2}(?:\d{4}-\d\d-\d\d|\d\d:\d\d:\d\d|[A-Z][a-z]{2} +\d+ \d\d:|\[?(?:DEBUG|INFO|WARN|ERROR|TRACE)\b)"
)


def shape_of(text: str) -> Shape:
    """The function that suits a text of `MOST` characters or less; `ends` where it is nothing in particular."""
    start = text.lstrip()[:1]
    if start in ("{", "[") and len(text) <= MOST:
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            pass
        else:
            if isinstance(value, (dict, list)):
                return lambda _, room: _json(value, room)
    lines = text.splitlines()
    if _delimiter(lines):
        return table
    signatures = sum(bool(_SIGNATURE.match(line)) for line in lines[:2_000])
    logged = sum(bool(_LOG.match(line)) for line in lines[:200])
    if signatures >= 4 and signatures * 40 >= len(lines[:2_000]) and logged * 4 < len(lines[:200]):
        return code
    if any(_TROUBLE.search(line) for line in lines):
        return log
    return ends


def ends(text: str, room: int) -> str:
    """Two thirds of the room for the beginning, one third for the end, cut at line ends where one is near."""
    head, tail = _head(text, room * 2 // 3), _tail(text, room // 3)
    missing = len(text) - len(head) - len(tail)
    return f"{head}\n[… {missing:,} characters left out …]\n{tail}".strip("\n")


def _head(text: str, length: int) -> str:
    head = text[:length]
    end = head.rfind("\n", length * 3 // 4)
    return head[:end] if end > 0 else head


def _tail(text: str, length: int) -> str:
    tail = text[len(text) - length :] if length else ""
    start = tail.find("\n", 0, length // 4)
    return tail[start + 1 :] if start >= 0 else tail


# --- JSON


def _json(value: Any, room: int) -> str:
    """Valid JSON of the same shape: long strings shortened, lists by their first items and their last, deep"
    " levels named."""
    made = ""
    for characters, items, levels in _SCHEDULE:
        made = json.dumps(_less(value, characters, items, levels), ensure_ascii=False, separators=(",", ":"))
        if len(made) <= room:
            return made
    return made if len(made) <= 2 * room else ends(made, room)


def _less(value: Any, characters: int, items: int, levels: int) -> Any:
    if isinstance(value, str) and len(value) > characters + 24:
        head, tail = value[: characters * 2 // 3], value[len(value) - characters // 3 :]
        return f"{head}[… {len(value) - characters:,} characters left out …]{tail}"
    if isinstance(value, dict):
        if not levels and value:
            return f"{{… {len(value):,} fields left out …}}"
        most = items * 3
        kept = dict(list(value.items())[:most])
        shown = {key: _less(inner, characters, items, levels - 1) for key, inner in kept.items()}
        if len(value) > most:
            shown["…"] = f"{len(value) - most:,} fields left out"
        return shown
    if isinstance(value, list):
        if not levels and value:
            return f"[… {len(value):,} items left out …]"
        if len(value) > items + 1:
            first = [_less(inner, characters, items, levels - 1) for inner in value[:items]]
            return [
                *first,
                f"… {len(value) - items - 1:,} items left out …",
                _less(value[-1], characters, items, levels - 1),
            ]
        return [_less(inner, characters, items, levels - 1) for inner in value]
    return value


def shorter_object(text: str, room: int) -> str:
    """The JSON of an object as a shorter one, which is an object still; as it is where it is no object."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if not isinstance(value, dict):
        return text
    made = text
    for characters, items, levels in _SCHEDULE:
        made = json.dumps(_less(value, characters, items, levels), ensure_ascii=False, separators=(",", ":"))
        if len(made) <= room:
            break
    return made if len(made) < len(text) else text


# --- lines


def _delimiter(lines: list[str]) -> str:
    """What separates the columns of a table; nothing where these lines are none."""
    some = [line for line in lines[:50] if line.strip()]
    if len(some) < 5:
        return ""
    for mark in ("\t", "|", ";", ","):
        counts = [line.count(mark) for line in some]
        if counts[0] >= 1 and sum(count == counts[0] for count in counts) >= 0.9 * len(counts):
            return mark
    return ""


def table(text: str, room: int) -> str:
    """The header and as many rows from both ends as there is room for."""
    lines = text.splitlines()
    head = 2 if len(lines) > 1 and set(lines[1].strip()) <= set("|-:+= \t") else 1
    return _some(lines, room, range(head), "rows")


def log(text: str, room: int) -> str:
    """The beginning, the end, and the lines that tell of trouble with the line before each."""
    lines = text.splitlines()
    telling = [n for n, line in enumerate(lines) if _TROUBLE.search(line)]
    near = dict.fromkeys(k for n in reversed(telling) for k in (n, n - 1) if k >= 0)
    ends_first = [*range(min(3, len(lines))), *range(max(0, len(lines) - 5), len(lines))]
    return _some(lines, room, [*ends_first, *near], "lines")


def code(text: str, room: int) -> str:
    """The signatures of what is defined, in order."""
    lines = text.splitlines()
    return _some(
        lines, room, [n for n, line in enumerate(lines) if _SIGNATURE.match(line)], "lines", fill=False
    )


def _some(lines: list[str], room: int, first: Iterable[int], what: str, *, fill: bool = True) -> str:
    """Some lines in their order, with marks where others are missing: those wanted `first`, then from both ends."""
    longest = max(80, room // 3)
    both = (n for pair in zip(range(len(lines)), range(len(lines) - 1, -1, -1), strict=True) for n in pair)
    taken: set[int] = set()
    left = room
    for number in [*first, *(both if fill else ())]:
        if number in taken:
            continue
        size = min(len(lines[number]), longest) + 1
        alone = number - 1 not in taken and number + 1 not in taken
        size += 30 * alone  # a mark before it
        if size > left:
            break
        taken.add(number)
        left -= size
    shown: list[str] = []
    at = 0
    for number in sorted(taken):
        if number > at:
            shown.append(f"[… {number - at:,} {what} left out …]")
        line = lines[number]
        shown.append(line if len(line) <= longest else f"{line[: longest - 20]}[… cut …]")
        at = number + 1
    if at < len(lines):
        shown.append(f"[… {len(lines) - at:,} {what} left out …]")
    return "\n".join(shown)
