"""Mends the arguments of a call, so that they are a JSON object: the least change that does it.

Models write broken JSON: cut off in the middle, with Python literals, in a code fence, with raw line breaks in
strings. What cannot be mended is kept whole as the one field of an object: nothing is thrown away.
"""

from __future__ import annotations

import ast
import json
import math
from typing import Any

UNREADABLE = "_unreadable_arguments"
"""The field that holds arguments which no reading made into an object."""


def mend(arguments: str) -> str:
    """Arguments as the text of a JSON object. An object comes back as it is."""
    text = arguments.strip()
    if not text:
        return "{}"
    for reading in (_lenient, _unfenced, _python, _closed):
        try:
            value = reading(text)
        except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
            continue
        if isinstance(value, str) and value.strip().startswith("{"):
            value = _again(value)
        if isinstance(value, dict):
            return _text(value)
    return _text({UNREADABLE: arguments})


def _lenient(text: str) -> Any:
    """JSON with raw control characters in strings, and with NaN and infinities, which become null."""
    return json.loads(text, strict=False)


def _unfenced(text: str) -> Any:
    if not text.startswith("```"):
        raise ValueError
    body = text[3:].removesuffix("```").strip()
    return _lenient(body.removeprefix("json").strip())


def _python(text: str) -> Any:
    """A Python literal: single quotes, True, None, trailing commas."""
    if len(text) > 1_000_000:
        raise ValueError
    value = ast.literal_eval(text)
    json.dumps(value)
    return value


def _closed(text: str) -> Any:
    """JSON that was cut off: closes what is open, after dropping a tail that can stand for nothing."""
    if not text.startswith("{"):
        raise ValueError
    ends = _openings(text)
    if ends is None:
        raise ValueError
    stack, in_string, last_good = ends
    tail = '"' if in_string else ""
    if in_string and text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1]
    try:
        return _lenient(text.rstrip().rstrip(",") + tail + stack)
    except ValueError:
        cut, stack = last_good
        return _lenient(text[:cut].rstrip().rstrip(",") + stack)


def _openings(text: str) -> tuple[str, bool, tuple[int, str]] | None:
    """The closers that are owed at the end, whether a string is open, and the last place that could be closed."""
    closers: list[str] = []
    in_string = escaped = False
    good = (1, "}")
    for index, char in enumerate(text):
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "{[":
            closers.append("}" if char == "{" else "]")
        elif char in "}]":
            if not closers or closers.pop() != char:
                return None
            if not closers and text[index + 1 :].strip():
                return None
        elif char == "," and len(closers) < 200:
            good = (index, "".join(reversed(closers)))
    return "".join(reversed(closers)), in_string, good


def _again(text: str) -> Any:
    try:
        return _lenient(text)
    except (ValueError, RecursionError):
        return None


def _text(value: dict[str, Any]) -> str:
    return json.dumps(clean(value), ensure_ascii=False, separators=(",", ":"))


def clean(value: Any, depth: int = 0) -> Any:
    """A JSON value without what JSON cannot hold.

    NaN and infinities become null, a lone surrogate the replacement character U+FFFD, keys text, and what nests
    deeper than 200 levels its text: readers commonly refuse at 500 to 1,000.
    """
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if value is None or isinstance(value, (bool, int)):
        return value
    if depth >= _DEEPEST:
        return "…"
    if isinstance(value, dict):
        return {clean_text(str(key)): clean(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return [clean(inner, depth + 1) for inner in value]
    return clean_text(str(value))


_DEEPEST = 200


def clean_text(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes U+FFFD."""
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text
