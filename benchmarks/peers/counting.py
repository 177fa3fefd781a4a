"""A request within 8,000 tokens by count, for libraries that do not count exactly themselves.

The script's second argument says how: `counted` tokenises each text at each request, as the documentation of these
libraries shows it; `remembered` keeps a count as long as the process lives, which none of them does: the best that
their user could write. Without an argument nothing is counted. The tokenizer is tiktoken with our vocabulary, and
counts the same words that Backstory counts, without what a message costs besides.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from talk import BUDGET

HOW = sys.argv[2] if len(sys.argv) > 2 else ""


def _counter() -> Callable[[str], int]:
    sys.path.append(str(Path(__file__).resolve().parent.parent.parent / "src"))
    from backstory.tokens import tokenizer

    count = tokenizer().count
    count("load the vocabulary")
    return functools.cache(count) if HOW == "remembered" else count


tokens: Callable[[str], int] = _counter() if HOW else len


def within(messages: list[Any], words: Callable[[Any], Iterable[str]]) -> list[Any]:
    """The newest of these messages that are 8,000 tokens, in their order; `words` are a message's texts."""
    left, found = BUDGET, []
    for message in reversed(messages):
        left -= sum(map(tokens, words(message)))
        if left < 0:
            break
        found.append(message)
    return found[::-1]
