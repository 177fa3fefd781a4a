"""From whatever a tool returned to the parts of a result, and from a result of any size to one that a model can take.

A long text is kept aside whole (`Offload`) and shown by its head and tail, with a handle by which the model
reads on. Nothing is thrown away: where nothing can be kept aside, the result stays whole.
"""

from __future__ import annotations

import base64
import inspect
import io
import logging
import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from backstory.agent.tool_context import Offload
from backstory.errors import StoreError
from backstory.legality.arguments import clean_text
from backstory.messages import File, Image, Media, Part, Text

logger = logging.getLogger("backstory.agent")

NO_OUTPUT = "[Done; there was no output.]"
"""For a tool that returned nothing: several APIs refuse an empty result."""

READ_RESULT = "read_result"
"""The tool that reads on; see `backstory.agent.toolbox`."""

_TAIL_SHARE = 0.25
"""Of a preview: the head says what it is, the tail how it ended (totals, errors)."""

_HEADER_ROOM = 360
"""Characters kept for the lines that say what was left out."""

_SIGNATURES: tuple[tuple[bytes, str], ...] = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
)


def media_type_of(data: bytes) -> str | None:
    """The MIME type of an image or a PDF by its first bytes; `None` for anything else.

    https://www.iana.org/assignments/media-types; the signatures are those of each format's own specification.
    """
    if data[:4] == b"RIFF" and data[8:12] == b"WEBP":
        return "image/webp"
    return next((kind for start, kind in _SIGNATURES if data.startswith(start)), None)


def media_part(data: bytes, media_type: str, name: str | None = None) -> Media:
    """Bytes as an image, or as a file for any other type."""
    encoded = base64.b64encode(data).decode()
    if media_type.startswith("image/"):
        return Image(data=encoded, media_type=media_type)
    return File(data=encoded, media_type=media_type, name=name)


Item: TypeAlias = Part | bytes


def items_of(value: Any) -> list[Item]:
    """What a tool returned, as parts and raw bytes; none for nothing.

    Text stays as it is; parts, alone or in a list or tuple (also among texts), are taken as they are; pictures that
    can save themselves become images; bytes stay bytes; anything else becomes JSON. This calls other people's code
    (`__str__`, serialisers), so whatever that raises comes through.
    """
    if isinstance(value, str):
        pass
    elif isinstance(value, Sequence) and not isinstance(value, bytes | bytearray | memoryview):
        if value and all(isinstance(inner, Part | str) for inner in value) and not _plain(value):
            return [found for inner in value for found in items_of(inner)]
    elif isinstance(value, Part):
        return [value]
    elif isinstance(value, bytes | bytearray | memoryview):
        return [bytes(value)]
    elif (picture := _picture(value)) is not None:
        return [picture]
    text = _text(value)
    return [Text(text=text)] if text else []


async def fit(items: Iterable[Item], *, max_result: int, offload: Offload | None) -> tuple[Part, ...]:
    """The content of a result: never empty, and no text longer than `max_result` where it can be offloaded.

    Bytes become media, text, or a handle.
    """
    parts: list[Part] = []
    for item in items:
        part = await _bytes(item, offload) if isinstance(item, bytes) else item
        if isinstance(part, Text) and len(part.text) > max_result:
            part = Text(text=await shorten(part.text, max_result=max_result, offload=offload))
        parts.append(part)
    return tuple(parts) or (Text(text=NO_OUTPUT),)


def _plain(values: Sequence[Any]) -> bool:
    """A list of strings is data, not a list of parts."""
    return all(isinstance(value, str) for value in values)


def _text(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return clean_text(value)
    import pydantic_core

    try:
        encoded = pydantic_core.to_json(value, bytes_mode="base64", inf_nan_mode="null", fallback=str)
        return encoded.decode()
    except (ValueError, TypeError, RecursionError):  # a circle, or text that is no UTF-8
        return clean_text(str(value))


def _picture(value: Any) -> Image | None:
    """A PIL image, or what behaves like one: it has a size and a mode, and saves itself."""
    if not (callable(getattr(value, "save", None)) and hasattr(value, "size") and hasattr(value, "mode")):
        return None
    buffer = io.BytesIO()
    try:
        value.save(buffer, format="PNG")
    except (OSError, ValueError, KeyError, TypeError):  # a mode that PNG has not, or no picture after all
        return None
    return Image(data=base64.b64encode(buffer.getvalue()).decode(), media_type="image/png")


async def _bytes(data: bytes, offload: Offload | None) -> Part:
    kind = media_type_of(data)
    if kind is not None:
        return media_part(data, kind)
    try:
        text = data.decode()
    except UnicodeDecodeError:
        text = ""
    if text and "\0" not in text:
        return Text(text=text)
    if not data:
        return Text(text=NO_OUTPUT)
    handle = await _keep(data, offload)
    if handle is None:
        return media_part(data, "application/octet-stream")
    return Text(text=f"[Binary data, {len(data):,} bytes, kept as {handle}.]")


async def shorten(text: str, *, max_result: int, offload: Offload | None) -> str:
    """A text of at most `max_result` characters: as it is, or a preview with a handle to the whole.

    Also the whole where it cannot be kept aside.
    """
    if len(text) <= max_result:
        return text
    handle = await _keep(text, offload)
    return text if handle is None else preview(text, handle=handle, limit=max_result)


def preview(text: str, *, handle: str, limit: int) -> str:
    """Head and tail of a text, cut at line ends where there are any near, and how to read on.

    At most `limit` characters, as long as that leaves some for the text itself.
    """
    room = max(limit - _HEADER_ROOM, 40)
    tail_room = int(room * _TAIL_SHARE)
    head = _whole_lines(text[: room - tail_room])
    tail = _from_a_line(text[-tail_room:])
    lines = text.count("\n") + 1
    note = (
        f"[Long result: {len(text):,} characters, {lines:,} lines. Below: the first {len(head):,} and the last "
        f'{len(tail):,} characters. Read on with {READ_RESULT}(handle="{handle}", offset={len(head)}).]'
    )
    left_out = len(text) - len(head) - len(tail)
    return f"{note}\n{head}\n[… {left_out:,} characters left out …]\n{tail}"


def _whole_lines(text: str) -> str:
    """Up to the last line end, where that costs no more than a fifth."""
    end = text.rfind("\n") + 1
    return text[:end] if end >= len(text) * 0.8 else text


def _from_a_line(text: str) -> str:
    start = text.find("\n") + 1
    return text[start:] if 0 < start <= len(text) * 0.2 else text


async def _keep(data: str | bytes, offload: Offload | None) -> str | None:
    """The handle under which the data lies now; `None` where it could not be kept aside, and stays in the result."""
    if offload is None:
        return None
    try:
        handle = offload(data)
        return await handle if inspect.isawaitable(handle) else handle
    except StoreError as error:
        logger.warning("a long result stays whole, since it could not be kept aside: %s", error)
        return None


_HANDLE = re.compile(r'read_result\(handle="([^"]+)"')


def handles_in(text: str) -> list[str]:
    """The handles that a preview names, for whoever looks for what a log refers to."""
    return _HANDLE.findall(text)
