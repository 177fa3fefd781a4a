"""The prefix of a request: its canonical bytes, and how much of it stands unchanged in the next.

Providers bill a repeated prefix at a tenth, so what was sent must come again byte for byte. Canonical bytes are
compact JSON with sorted keys; cache markers are not counted, since providers do not.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from backstory.messages import Message

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, separators=(",", ":"), sort_keys=True
).encode  # made once: `json.dumps` makes one each time


def canonical(value: Any) -> bytes:
    """A JSON value as bytes that depend on nothing but its meaning. Raises `ValueError` for what is no JSON."""
    return _encode(value).encode()


def digest(value: Any) -> str:
    """Sixteen hexadecimal digits that stand for a value; cache markers do not change them."""
    data = canonical(value)
    if b'"cache_control"' in data:
        data = canonical(without_markers(value))
    return hashlib.blake2b(data, digest_size=8).hexdigest()


def item_digest(item: Any, message: Message) -> str:
    """`digest` of an item that was written from a message, kept with the message while it is written the same.

    A provider's own item is sent as the very object that came, so whoever changes it in the body that we returned
    changes it here too. Hence a copy is kept: such a change is another item, and is told of as one.
    """
    known = message._digests.get("item")
    if known is not None and known[0] == item:
        return known[1]
    made = digest(item)
    message._digests["item"] = _apart(item), made
    return made


def _apart(value: Any) -> Any:
    """The same JSON value in objects and lists of its own; the texts, which nobody can change, are shared."""
    if isinstance(value, Mapping):
        return {key: _apart(inner) for key, inner in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(map(_apart, value))
    return value


def without_markers(value: Any) -> Any:
    """The same value without `cache_control`, at the places where blocks may carry it."""
    if isinstance(value, Mapping):
        return {
            key: without_markers(inner) if key in ("content", "system", "tools") else inner
            for key, inner in value.items()
            if key != "cache_control"
        }
    if isinstance(value, list):
        return [without_markers(inner) for inner in value]
    return value


def common(before: Sequence[str], after: Sequence[str]) -> int:
    """How many items two lists of digests share from the start."""
    count = 0
    for old, new in zip(before, after, strict=False):
        if old != new:
            break
        count += 1
    return count


def same_order(known: Sequence[str], given: Sequence[Any]) -> list[Any]:
    """The given tools in the order known from the request before, where they are the same; else as given.

    Callers gather tools from sets and registries; their order means nothing to a model and everything to a cache.
    """
    digests = [digest(tool) for tool in given]
    if list(known) == digests or sorted(known) != sorted(digests):
        return list(given)
    at: dict[str, list[Any]] = {}
    for key, tool in zip(digests, given, strict=True):
        at.setdefault(key, []).append(tool)
    return [at[key].pop(0) for key in known]
