"""Mends the arguments of a call, so that they are a JSON object: the least change that does it.

Models write broken JSON: cut off in the middle, with Python literals, in a code fence, with raw line breaks in
strings. What cannot be mended is kept whole as the one field of an object: nothing is thrown away.
"""

from __future__ import annotations

import ast
import json
import re
import warnings
from collections.abc import Mapping
from typing import Any

from backstory.legality.values import DEEPEST, ITEM_DEPTH, is_strict

UNREADABLE = "_unreadable_arguments"
"""The field that holds arguments which no reading made into an object."""

_LONGEST = 1_000_000
"""Characters that are worth a slow reading."""


def mended(arguments: str) -> str:
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
    if len(text) > _LONGEST:
        raise ValueError
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of odd escapes in what a model wrote
        value = ast.literal_eval(text)
    json.dumps(value)
    return value


def _closed(text: str) -> Any:
    """JSON that was cut off: closes what is open, after dropping a tail that can stand for nothing."""
    if not text.startswith("{") or len(text) > _LONGEST:
        raise ValueError
    ends = _openings(text)
    if ends is None:
        raise ValueError
    stack, in_string, (cut, owed) = ends
    tail = '"' if in_string else ""
    if in_string and text.endswith("\\") and not text.endswith("\\\\"):
        text = text[:-1]
    try:
        return _lenient(text.rstrip().rstrip(",") + tail + stack)
    except ValueError:
        if not cut:  # there is nothing before the tail
            raise
        return _lenient(text[:cut] + owed)


def _openings(text: str) -> tuple[str, bool, tuple[int, str]] | None:
    """The closers that are owed at the end, whether a string is open, and the last place that could be closed."""
    closers: list[str] = []
    in_string = escaped = False
    good = (0, "")
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
    return json.dumps(clean(value, ITEM_DEPTH), ensure_ascii=False, separators=(",", ":"))


def clean(value: Any, depth: int = 0, memo: dict[int, Any] | None = None) -> Any:
    """A JSON value without what JSON cannot hold.

    NaN and infinities become null, a lone surrogate the replacement character U+FFFD, keys and foreign values
    text; what nests deeper than `values.DEEPEST` is left out. `memo` remembers what each object became, by its id.
    """
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, (int, float)):
        return value if is_strict(value) else None
    if not isinstance(value, (Mapping, list, tuple)):
        return clean_text(str(value))
    if depth >= DEEPEST - 1:
        return "…"
    # Loops, since a comprehension would cost a second frame a level.
    if isinstance(value, Mapping):
        found: dict[str, Any] = {}
        if memo is not None:
            memo[id(value)] = found
        for key, inner in value.items():
            found[clean_text(str(key))] = clean(inner, depth + 1, memo)
        return found
    items: list[Any] = []
    for inner in value:
        items.append(clean(inner, depth + 1, memo))  # noqa: PERF401
    return items


def clean_text(text: str) -> str:
    """Text that UTF-8 can hold: a lone surrogate becomes U+FFFD, and a pair of them the character they mean."""
    if text.isascii():
        return text
    try:
        text.encode()
    except UnicodeEncodeError:
        return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    return text


def clean_id(text: str) -> str:
    """The same for an id, distinct ones distinctly: a lone surrogate becomes its number."""
    return _SURROGATE.sub(lambda found: f"u{ord(found[0]):x}", text)


_SURROGATE = re.compile("[\ud800-\udfff]")
