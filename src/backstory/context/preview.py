"""A long text as a short one: its beginning, its end, and in between a line that says what is missing."""

from __future__ import annotations

from collections.abc import Callable

LEAST = 48
"""Tokens: a preview shorter than this says nothing."""
FAIR = 200
"""Tokens: a preview of this length shows what kind of result it is, and some of it."""


def preview(text: str, tokens: int, count: Callable[[str], int]) -> str:
    """The text in at most `tokens` tokens: two thirds head, one third tail, cut at line ends where one is near.

    A text that fits comes back as it is. `tokens` below `LEAST` is taken for `LEAST`. Only short
    texts are counted, a few times.
    """
    limit = max(tokens, LEAST)
    if len(text) <= limit // 4 or (len(text) <= 40 * limit and count(text) <= limit):
        return text
    room = min(len(text), limit * 4)
    while True:
        short = _shortened(text, room)
        used = count(short)
        if used <= limit:
            return short
        room = min(room - 8, int(room * limit / used * 0.95))
        if room <= 8:
            return _shortened(text, 0)


def _shortened(text: str, room: int) -> str:
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
