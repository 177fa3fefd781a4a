"""What a command writes on: width, colours where they are wanted, and JSON that any terminal can show.

Colours are ANSI escapes. They are used on a terminal, unless `NO_COLOR` is set or `--no-color` given; `FORCE_COLOR`
wants them elsewhere too (https://no-color.org, https://force-color.org).
"""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import unicodedata
from dataclasses import dataclass
from typing import Any, TextIO

from backstory.errors import BackstoryError

_STYLES = {
    "bold": "1",
    "dim": "2",
    "red": "31",
    "green": "32",
    "yellow": "33",
    "blue": "34",
    "magenta": "35",
    "cyan": "36",
}
_CONTROLS = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]+")
_LEAST, _MOST = 80, 140


@dataclass(frozen=True, kw_only=True, slots=True)
class Screen:
    """`width` in columns; `color` says whether escapes are written, `unicode` whether block characters can be."""

    width: int
    color: bool
    unicode: bool

    @staticmethod
    def of(stream: TextIO, *, no_color: bool = False) -> Screen:
        columns = shutil.get_terminal_size((100, 24)).columns
        try:
            "░█✂—".encode(stream.encoding or "ascii")
            unicode = True
        except (UnicodeEncodeError, LookupError):
            unicode = False
        return Screen(
            width=max(_LEAST, min(_MOST, columns)),
            color=not no_color and _wants_color(stream),
            unicode=unicode,
        )

    def paint(self, text: str, *styles: str) -> str:
        if not self.color or not text or not styles:
            return text
        return f"\x1b[{';'.join(_STYLES[style] for style in styles)}m{text}\x1b[0m"


def _wants_color(stream: TextIO) -> bool:
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return stream.isatty() and os.environ.get("TERM") != "dumb"


def columns(text: str) -> int:
    """How many columns a text takes: Chinese characters and their like take two, combining ones none."""
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character) or unicodedata.category(character) in ("Cf", "Me", "Mn"):
        return 0
    return 2 if unicodedata.east_asian_width(character) in ("W", "F") else 1


def one_line(text: str, width: int) -> str:
    """A text as one line of `width` columns at most; what does not fit gives way to an ellipsis.

    Control characters, such as escapes that a recorded tool wrote, become blanks: they would reach the terminal.
    """
    text = " ".join(_CONTROLS.sub(" ", text[: 4 * max(width, 1) + 400]).split())
    if columns(text) <= width:
        return text
    taken, kept = 0, []
    for character in text:
        taken += _columns(character)
        if taken > width - 1:
            break
        kept.append(character)
    return "".join(kept).rstrip() + "…"


def padded(text: str, width: int) -> str:
    """A text filled up with blanks to a width in columns."""
    return text + " " * max(0, width - columns(text))


def wrapped(text: str, width: int) -> list[str]:
    """A text in lines of `width` columns at most, broken at blanks where there are any."""
    lines: list[str] = []
    line = ""
    for word in " ".join(_CONTROLS.sub(" ", text).split()).split(" "):
        while word:
            room = width - columns(line) - (1 if line else 0)
            if columns(word) <= room:
                line, word = f"{line} {word}" if line else word, ""
            elif line and columns(word) <= width:
                lines.append(line)
                line = ""
            else:
                head = one_line(word, room + 1).rstrip("…") if room > 3 else ""
                lines.append(f"{line} {head}".strip())
                line, word = "", word[len(head) :]
    return [*lines, line] if line or not lines else lines


def dumps(value: Any, *, indent: int | None = 2) -> str:
    """A JSON text that standard output can take as it is encoded. Raises `BackstoryError` for what is no JSON."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("_", "-")
    try:
        text = json.dumps(
            value, ensure_ascii=encoding not in ("utf-8", "utf8"), allow_nan=False, indent=indent
        )
    except ValueError:
        raise BackstoryError(
            "this holds NaN or Infinity, which JSON cannot: `backstory fit` heals it"
        ) from None
    except RecursionError:
        raise BackstoryError("this is nested too deeply to be written") from None
    return text.encode("utf-8", "backslashreplace").decode()  # a lone surrogate is written as its escape


def show_json(value: Any, *, indent: int | None = 2) -> None:
    print(dumps(value, indent=indent))


def note(text: str) -> None:
    """One line for people, on standard error, so that standard output stays what was asked for."""
    print(text, file=sys.stderr)
