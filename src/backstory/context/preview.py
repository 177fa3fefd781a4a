"""A long text as a short one, made by what it is (`shapes`), with marks where something is missing."""

from __future__ import annotations

import functools
from collections.abc import Callable

from backstory.context.shapes import MOST, ends, shape_of

LEAST = 48
"""Tokens: a preview shorter than this says nothing."""
FAIR = 200
"""Tokens: a preview of this length shows what kind of result it is, and some of it."""

_HELD = 64
"""Previews that are remembered: each request of an epoch shows the same ones."""


def preview(text: str, tokens: int, count: Callable[[str], int], *, note: str = "") -> str:
    """The text in at most `tokens` tokens: JSON by its shape, a log by its ends and errors, a table by its header and
    rows, code by its signatures, anything else by its two ends. `note` is a line before it, which says how to read on.

    A text that fits comes back as it is. `tokens` below `LEAST` is taken for `LEAST`. Only short
    texts are counted, a few times.
    """
    limit = max(tokens, LEAST)
    if len(text) <= limit // 4 or (len(text) <= 40 * limit and count(text) <= limit):
        return text
    return _short(text, limit, count, note) if len(text) > MOST else _remembered(text, limit, count, note)


def _short(text: str, limit: int, count: Callable[[str], int], note: str) -> str:
    shape = ends if len(text) > MOST else shape_of(text)
    lead = f"{note}\n" if note and count(note) < limit // 2 else ""
    room = min(len(text), limit * 4)
    while True:
        short = lead + shape(text, room)
        used = count(short)
        if used <= limit and len(short) < len(text):
            return short
        room = min(room - 8, int(room * limit / used * 0.95))
        if room <= 8:
            if shape is ends:
                return ends(text, 0)
            shape, room = ends, limit * 4


_remembered = functools.lru_cache(maxsize=_HELD)(_short)
