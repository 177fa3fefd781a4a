"""What stands above the text of a Markdown file: YAML between two lines of three hyphens."""

from __future__ import annotations

import re
from typing import Any

_BLOCK = re.compile(r"\A---[ \t]*\n(.*?)(?:\n|\A)---[ \t]*(?:\n|\Z)", re.DOTALL)
_LIMIT = 8_192
"""Characters: a few fields, not a document."""


class BadFrontMatter(ValueError):
    """The block is there, and is not what it should be; the text says why."""


def split(text: str) -> tuple[dict[str, Any], str]:
    """The fields and the text below; no fields where there is no block. Raises `BadFrontMatter`.

    Read by YAML's safe loader: plain values, no objects.
    """
    found = _BLOCK.match(text)
    if found is None:
        if text.startswith("---\n"):
            raise BadFrontMatter("its front matter has no end")
        return {}, text
    block, body = found[1], text[found.end() :]
    if len(block) > _LIMIT:
        raise BadFrontMatter(f"its front matter is longer than {_LIMIT:,} characters")
    import yaml

    try:
        fields = yaml.safe_load(block)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise BadFrontMatter(f"its front matter is no YAML ({_short(error)})") from error
    if fields is None:
        return {}, body
    if not isinstance(fields, dict):
        raise BadFrontMatter("its front matter has no fields")
    return {str(name): value for name, value in fields.items()}, body


def body_of(text: str) -> str:
    """The text below a block whose fields could not be read."""
    found = _BLOCK.match(text)
    return text[found.end() :] if found else text


def _short(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    problem = getattr(error, "problem", None) or str(error).split("\n", 1)[0]
    return f"line {mark.line + 2}: {problem}" if mark is not None else problem
