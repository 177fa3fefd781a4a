"""From the bytes of a file to lines of text: which encoding, or none; lines of bounded length. No paths here."""

from __future__ import annotations

import codecs
import io
from collections.abc import Iterator
from contextlib import suppress
from typing import BinaryIO

from backstory.errors import ToolError

SAMPLE = 65_536
"""Bytes that decide what a file is."""

MAX_LINE = 10_000
"""Characters. A longer line counts as several, so that a file of one huge line can be read in pages, too."""

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16's, which it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_GUESSES = ("utf-8", "gb18030", "latin-1")
"""GB 18030 is what Chinese text is in where it is not UTF-8; Latin-1 reads anything."""


def encoding_of(sample: bytes) -> str | None:
    """The encoding of a text by its first bytes; `None` for what is no text."""
    for mark, name in _MARKS:
        if sample.startswith(mark):
            return name
    if b"\0" in sample:
        return None
    for name in _GUESSES:
        try:
            # Incremental: the sample may end in the middle of a character.
            codecs.getincrementaldecoder(name)("strict").decode(sample)
        except UnicodeDecodeError:
            continue
        return name
    return None


def lines_of(file: BinaryIO, encoding: str) -> Iterator[str]:
    """Lines with their ends, as the file has them; what cannot be decoded shows as U+FFFD."""
    try:
        text = io.TextIOWrapper(file, encoding=encoding, errors="replace", newline="")
    except LookupError:
        raise ToolError(
            f"there is no encoding {encoding!r}; utf-8, gb18030 or latin-1, for instance"
        ) from None
    try:
        while line := text.readline(MAX_LINE):
            yield line
    finally:
        with suppress(ValueError):  # the file was closed before: it belongs to whoever opened it
            text.detach()
