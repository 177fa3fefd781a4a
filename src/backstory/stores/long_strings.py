"""Long strings of a message's data, taken out and put back. Pure: who calls keeps the bytes.

The data of a record whose message is long names what was taken out in a field of its own, ``large``; in each place an
empty string is left. Nothing inside a message is ever taken for such a name, whatever it looks like.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

from backstory import messages
from backstory.errors import InvalidMessage
from backstory.messages import Message, Opaque, Part, Text, ToolCall, ToolResult
from backstory.records import encode_json
from backstory.stores import rules

Place: TypeAlias = tuple[str | int, ...]
"""The way from the data to a string: keys and numbers."""

_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?[^,]{0,200};base64,")
"""https://www.rfc-editor.org/rfc/rfc2397: in this form providers take media."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Long:
    """A string that was taken out: from where, the blob that holds its bytes, how many (`size`), their media type.

    `form` is how the string stands for the bytes: they are its UTF-8, or it is their base64, after the words `before`.
    """

    at: Place
    blob: str
    size: int
    type: str
    form: Literal["text", "base64"] = "text"
    before: str = ""

    def text(self, raw: bytes) -> str:
        """The string again."""
        if self.form == "base64":
            return self.before + base64.b64encode(raw).decode()
        return raw.decode("utf-8", "surrogatepass")

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "at": list(self.at),
            "blob": self.blob,
            "size": self.size,
            "type": self.type,
        }
        if self.form != "text":
            value |= {"form": self.form, "before": self.before}
        return value


def told(one: Long) -> str:
    """What was taken out, in words."""
    return f"{one.size:,} bytes of {one.type}, blob {one.blob}"


def taken_out(data: Mapping[str, Any], longest: int) -> tuple[dict[str, Any], list[tuple[Long, bytes]]]:
    """The data of a message's record without the strings of its message that are over `longest` bytes, and these."""
    long = [
        _long(("message", *place), text, media_type)
        for place, text, media_type in _strings(data["message"], (), "")
        if len(text) * 4 > longest and len(text.encode("utf-8", "surrogatepass")) > longest
    ]
    if not long:
        return dict(data), []
    named = [one.to_json() for one, _ in long]
    return {"large": named, **_with(data, [(one.at, "") for one, _ in long])}, long


def of_data(data: Mapping[str, Any]) -> list[Long]:
    """What was taken out of it, in order."""
    return [Long(**{**one, "at": tuple(one["at"])}) for one in data.get("large", ())]


def filled(data: Mapping[str, Any], strings: Mapping[int, str]) -> dict[str, Any]:
    """The data as it was, given the strings by their number in `of_data`."""
    named = of_data(data)
    whole = _with(data, [(named[number].at, text) for number, text in strings.items()])
    whole.pop("large", None)
    return whole


def degraded(data: Mapping[str, Any], strings: Mapping[int, str]) -> dict[str, Any]:
    """The data where some strings are gone: a text says so in the place of each part that had one.

    The provider's own items go too, since they hold the same parts. Calls and results keep their ids.
    """
    missing = {one.at: one for number, one in enumerate(of_data(data)) if number not in strings}
    whole = filled(data, strings)
    try:
        message = messages.from_json(whole["message"])
    except (InvalidMessage, KeyError):
        return whole  # its reader says what is wrong with it
    parts = tuple(
        _without(part, [one for at, one in missing.items() if at[:3] == ("message", "parts", number)])
        for number, part in enumerate(message.parts)
    )
    told_somewhere = any(at[:2] == ("message", "parts") for at in missing)
    if not told_somewhere:  # it was in the provider's item alone
        parts = (*parts, *(Text(text=_marker(one)) for one in missing.values()))
    left = Message(role=message.role, parts=parts, name=message.name, id=message.id, joined=message.joined)
    whole.pop("tokens", None)  # they were of what is gone
    return {**whole, "message": messages.to_json(left)}


def _without(part: Part, missing: Sequence[Long]) -> Part:
    plain: Part = dataclasses.replace(part, native=None)
    if not missing:
        if isinstance(part, ToolResult):
            return dataclasses.replace(
                part,
                native=None,
                content=tuple(dataclasses.replace(inner, native=None) for inner in part.content),
            )
        return part if isinstance(part, Opaque) else plain
    marker = _marker(missing[0])
    if isinstance(part, ToolCall):
        return dataclasses.replace(part, native=None, arguments=encode_json({"missing": marker}).decode())
    if isinstance(part, ToolResult):
        content = tuple(
            _without(inner, [one for one in missing if one.at[3:5] == ("content", number)])
            for number, inner in enumerate(part.content)
        )
        return dataclasses.replace(part, native=None, content=content)
    return Text(text=marker)


def _marker(one: Long) -> str:
    return f"[{told(one)}: gone from the store]"


def _long(at: Place, text: str, media_type: str) -> tuple[Long, bytes]:
    url = _DATA_URL.match(text)
    before = url[0] if url is not None else ""
    try:
        raw = base64.b64decode(text[len(before) :], validate=True)
    except (binascii.Error, ValueError):
        raw = b""
    if raw and before + base64.b64encode(raw).decode() == text:
        kind = (url[1] if url is not None else None) or media_type or "application/octet-stream"
        handle = rules.blob_handle(raw)
        return Long(at=at, blob=handle, size=len(raw), type=kind, form="base64", before=before), raw
    raw = text.encode("utf-8", "surrogatepass")
    return Long(at=at, blob=rules.blob_handle(raw), size=len(raw), type="text/plain"), raw


def _strings(value: Any, at: Place, media_type: str) -> Iterator[tuple[Place, str, str]]:
    """Every string in a JSON value with its place, and the media type that is told beside it."""
    if isinstance(value, str):
        yield at, value, media_type
    elif isinstance(value, Mapping):
        beside = value.get("media_type")
        for key, inner in value.items():
            yield from _strings(inner, (*at, key), beside if isinstance(beside, str) else "")
    elif isinstance(value, (list, tuple)):
        for number, inner in enumerate(value):
            yield from _strings(inner, (*at, number), media_type)


def _with(data: Mapping[str, Any], strings: Sequence[tuple[Place, str]]) -> dict[str, Any]:
    """The data with strings put in their places; all on the way to one is copied once, the rest is shared."""
    copied: dict[Place, Any] = {(): dict(data)}
    for at, text in strings:
        for depth in range(1, len(at)):
            if at[:depth] not in copied:
                above, step = copied[at[: depth - 1]], at[depth - 1]
                inner = above[step]
                above[step] = copied[at[:depth]] = dict(inner) if isinstance(inner, Mapping) else list(inner)
        copied[at[:-1]][at[-1]] = text
    whole: dict[str, Any] = copied[()]
    return whole
