"""Reads what a command is given, a file or standard input, as conversations.

Whatever is wrong with it becomes one line (`InvalidInput`). It knows the shapes of files and nothing of messages:
a JSON list or request body; JSON Lines with a message, or with a whole conversation, in each line.
"""

from __future__ import annotations

import codecs
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from backstory.errors import InvalidInput
from backstory.formats.detect import unwrap

_MARKS = (
    (codecs.BOM_UTF8, "utf-8-sig"),
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
"""What some editors and shells write at the start of a file; a longer mark stands before one it begins with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Conversation:
    """One conversation of a file: its list, and what its request body held besides.

    `line` is the line of a JSON Lines file that it stands in, `None` where the file is one conversation.
    """

    items: list[Any]
    system: Any = None
    format: str | None = None
    tools: Any = None
    line: int | None = None


def read_text(path: str) -> str:
    """The text of a file; `-` is standard input. Raises `InvalidInput` for what cannot be read or is no text."""
    name = "standard input" if path == "-" else path
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except FileNotFoundError:
        raise InvalidInput(f"{name}: there is no such file") from None
    except IsADirectoryError:
        raise InvalidInput(f"{name} is a folder, not a file") from None
    except (OSError, ValueError) as error:  # ValueError: a NUL in the path
        reason = error.strerror if isinstance(error, OSError) and error.strerror else error
        raise InvalidInput(f"{name}: cannot be read ({reason})") from None
    encoding = next((encoding for mark, encoding in _MARKS if data.startswith(mark)), "utf-8")
    try:
        text = data.decode(encoding)
    except UnicodeDecodeError as error:
        what = f"byte 0x{data[error.start]:02x} at offset {error.start:,}"
        raise InvalidInput(f"{name}: is no UTF-8 text ({what})") from None
    if "\0" in text:
        raise InvalidInput(f"{name}: is no text (a zero byte at offset {text.index(chr(0)):,})")
    return text


def read_json(path: str, what: str) -> Any:
    """The JSON value in a file. Raises `InvalidInput`; `what` says for what the file is needed."""
    try:
        return _loads(read_text(path))
    except json.JSONDecodeError as error:
        raise InvalidInput(f"{path} ({what}): {_where(error)}") from None


def read_conversations(path: str) -> list[Conversation]:
    """Every conversation in a file, one at least. Raises `InvalidInput`."""
    return conversations_in(read_text(path), "standard input" if path == "-" else path)


def values_in(text: str, name: str) -> list[Any]:
    """The JSON values of a text: those of a list, or of JSON Lines, or the only one. Raises `InvalidInput`."""
    try:
        value = _loads(text)
    except json.JSONDecodeError as error:
        lines = _json_lines(text, name)
        if lines is None:
            raise InvalidInput(f"{name}: {_where(error)}") from None
        return [each for _, each in lines]
    return value if isinstance(value, list) else [value]


def conversations_in(text: str, name: str) -> list[Conversation]:
    """Every conversation in a text, one at least. Raises `InvalidInput`; `name` says where it is from."""
    if not text.strip():
        raise InvalidInput(f"{name}: is empty")
    try:
        value = _loads(text)
    except json.JSONDecodeError as error:
        lines = _json_lines(text, name)
        if lines is None:
            raise InvalidInput(f"{name}: {_where(error)}") from None
        return _of_lines(lines, name)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
    if isinstance(value, Mapping):
        return [_unwrapped(value, name, None)]
    if isinstance(value, list) and value and all(_is_conversation(each) for each in value):
        return [_unwrapped(each, f"{name}, conversation {n}", n) for n, each in enumerate(value, 1)]
    return [_unwrapped(value, name, None)]


def _json_lines(text: str, name: str) -> list[tuple[int, Any]] | None:
    """The value of each line that is not blank; `None` where the first of them shows that this is no JSON Lines."""
    found: list[tuple[int, Any]] = []
    # Not splitlines(): JSON strings may hold U+2028 and its like as they are.
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            found.append((number, _loads(line)))
        except json.JSONDecodeError as error:
            if not found:
                return None
            raise InvalidInput(f"{name}, line {number}: {_where(error, one_line=True)}") from None
        except InvalidInput as error:
            raise InvalidInput(f"{name}, line {number}: {error}") from None
    return found


def _of_lines(lines: Sequence[tuple[int, Any]], name: str) -> list[Conversation]:
    whole = [_is_conversation(value) for _, value in lines]
    if all(whole):
        return [_unwrapped(value, f"{name}, line {number}", number) for number, value in lines]
    if any(whole):
        first = lines[whole.index(not whole[0])][0]
        kinds = ("a conversation", "a message") if whole[0] else ("a message", "a conversation")
        raise InvalidInput(f"{name}: line {lines[0][0]} holds {kinds[0]} and line {first} {kinds[1]}")
    for number, value in lines:
        if not isinstance(value, Mapping):
            raise InvalidInput(f"{name}, line {number}: expected a message, not {_kind(value)}")
    return [_unwrapped([value for _, value in lines], name, None)]


def _is_conversation(value: Any) -> bool:
    """Whether a value in a file of many is a conversation, and not one message of the only one."""
    if isinstance(value, list):
        return True
    if not isinstance(value, Mapping):
        return False
    if isinstance(value.get("body"), Mapping) or isinstance(value.get("params"), Mapping):
        return True
    if "role" in value or "type" in value:
        return False
    return any(field in value for field in ("messages", "input", "contents"))


def _unwrapped(value: Any, name: str, line: int | None) -> Conversation:
    try:
        found = unwrap(value)
    except InvalidInput as error:
        raise InvalidInput(f"{name}: {error}") from None
    return Conversation(
        items=found.items, system=found.system, format=found.format, tools=found.tools, line=line
    )


def _loads(text: str) -> Any:
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidInput("nested too deeply") from None
    except json.JSONDecodeError:
        raise
    except ValueError as error:  # an integer of more digits than Python reads
        raise InvalidInput(f"no JSON that can be read ({error})") from None


def _where(error: json.JSONDecodeError, *, one_line: bool = False) -> str:
    place = f"column {error.colno}" if one_line else f"line {error.lineno}, column {error.colno}"
    return f"no JSON: {error.msg[:1].lower()}{error.msg[1:]} ({place})"


def _kind(value: Any) -> str:
    kinds = {str: "a string", int: "a number", float: "a number", bool: "a truth value", type(None): "null"}
    return kinds.get(type(value), type(value).__name__)
