"""Where text may be cut so that its parts count exactly as the whole.

tiktoken, from 0.13 on, is close to linear on every input but one: its regular expression backtracks over a run of
blanks, and from about a million of them on it dies of a stack overflow (a Rust panic, not an exception). And
it returns a list of all token ids, which for 10 MB of odd text is some hundred MB. So long text is cut
first, at places where both patterns (see `vocabulary`) are sure to start a new piece:

- between a character that is no white space and a blank: no alternative goes on into a blank;
- after a line break, before a character that is neither white space nor `/`: an alternative that took
  the break ends there;
- around a run of blanks as `long_blanks` says.

The parts' counts add up to the count of the whole, exactly; `tests/tokens` holds it to that.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Text up to this many characters goes to the tokenizer in one piece.
PIECE = 1 << 20
#: A run of this many blanks is taken out of the text. tiktoken bears 600,000 of them, not 1,000,000.
LONG_RUN = 1 << 17

# `\s` of Rust's regular expressions is the property White_Space; Python's `\s` has U+001C to U+001F besides.
BLANKS = "\t\x0b\x0c \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(map(chr, range(0x2000, 0x200B)))
_SPACE = re.escape(BLANKS + "\r\n")
_SAFE = re.compile(rf"(?<=[^{_SPACE}])[{re.escape(BLANKS)}]|(?<=[\r\n])[^{_SPACE}/]")


def pieces(text: str, *, size: int = PIECE, reach: int = 4096) -> Iterator[str]:
    """Parts of about `size` characters whose counts add up to the text's.

    Near each multiple of `size`, the next `reach` characters are searched for a safe place; where they have
    none, the part goes on to the next multiple.
    """
    start = 0
    for at in range(size, len(text), size):
        found = _SAFE.search(text, max(at, start + 1), at + reach)
        if found is not None:
            yield text[start : found.start()]
            start = found.start()
    yield text[start:] if start else text


def long_blanks(text: str, *, at_least: int = LONG_RUN) -> Iterator[tuple[int, int]]:
    """Spans of blanks (white space but line breaks) that are `at_least` so long and not followed by a line break.

    Only these make the regular expression backtrack: where a line break follows, the run is taken with it in
    one go. Such a run is a piece of its own, less its last blank where a character follows (that blank
    begins the next piece).
    """
    position = at_least - 1  # a run of n characters covers one of every n positions
    while position < len(text):
        if text[position] not in BLANKS:
            position += at_least
            continue
        start = len(text[: position + 1].rstrip(BLANKS))
        end = len(text) - len(text[position:].lstrip(BLANKS))
        if end - start >= at_least and text[end : end + 1] not in ("\r", "\n"):
            yield start, end
        position = max(end, position + 1) + at_least - 1
