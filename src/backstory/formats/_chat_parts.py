"""Content parts of Chat Completions, both ways.

https://developers.openai.com/api/reference/resources/chat/subresources/completions/methods/create: a content is null,
a string, or a list of parts of type `text`, `image_url`, `input_audio`, `file`, `refusal`. What it does not know
stays verbatim. It refuses to know which of these a role or a server may have.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats._openai_media import (
    AUDIO_FORMATS,
    AUDIO_TYPES,
    inner_fields,
    join_url,
    optional,
    split_url,
)
from backstory.formats.base import Item, unknown_fields
from backstory.messages import Audio, File, Image, Media, Native, Opaque, Origin, Part, Refusal, Text

NAME = "openai_chat"

_TEXT = frozenset({"type", "text"})
_REFUSAL = frozenset({"type", "refusal"})
_IMAGE = frozenset({"type", "image_url"})
_AUDIO = frozenset({"type", "input_audio"})
_FILE = frozenset({"type", "file"})
_IMAGE_INNER = frozenset({"url", "detail"})
_AUDIO_INNER = frozenset({"data", "format"})
_FILE_INNER = frozenset({"file_data", "file_id", "filename"})


def read_content(content: Any, index: int, origin: Origin) -> tuple[Part, ...]:
    """The parts of a content. An empty string says nothing and gives none, as null does."""
    if type(content) is str:
        return (Text(text=content),) if content else ()
    if content is None:
        return ()
    if isinstance(content, (list, tuple)):
        return tuple([_read_part(part, index, origin) for part in content])
    raise InvalidMessage(
        f"content must be a string, a list of parts or null, not {type(content).__name__}", index=index
    )


def _read_part(part: Any, index: int, origin: Origin) -> Part:
    if not isinstance(part, Mapping):
        raise InvalidMessage(
            f"a part of its content must be an object, not {type(part).__name__}", index=index
        )
    native = Native(format=NAME, value=part)
    kind = part.get("type")
    if kind == "text":
        return Text(text=_text(part.get("text"), "text", index), native=native)
    if kind == "refusal":
        return Refusal(text=_text(part.get("refusal"), "refusal", index), native=native)
    inner = part.get(kind) if kind in ("image_url", "input_audio", "file") else None
    if kind == "image_url":
        if type(inner) is str:  # some clients leave out the object
            return Image(native=native, **split_url(inner))
        if isinstance(inner, Mapping) and type(inner.get("url")) is str:
            return Image(native=native, detail=optional(inner.get("detail")), **split_url(inner["url"]))
    elif kind == "input_audio" and isinstance(inner, Mapping):
        form = optional(inner.get("format"))
        media_type = None if form is None else AUDIO_TYPES.get(form, f"audio/{form}")
        return Audio(native=native, data=optional(inner.get("data")), media_type=media_type)
    elif kind == "file" and isinstance(inner, Mapping):
        return File(
            native=native,
            name=optional(inner.get("filename")),
            file_id=optional(inner.get("file_id")),
            **_file_data(inner.get("file_data")),
        )
    return Opaque(kind=kind if type(kind) is str else "part", origin=origin, native=native)


def _text(value: Any, field: str, index: int) -> str:
    if value is None:
        return ""
    if type(value) is not str:
        raise InvalidMessage(f"{field} of a part must be a string, not {type(value).__name__}", index=index)
    return value


def _file_data(value: Any) -> dict[str, str]:
    """`file_data` is base64, bare or as a data URL: both are in use."""
    if type(value) is not str:
        return {}
    return split_url(value) if value.startswith("data:") else {"data": value}


def text_part(part: Text | Refusal, text: str) -> Item:
    known = _TEXT if isinstance(part, Text) else _REFUSAL
    return {"type": "text", "text": text, **unknown_fields(part.native, NAME, known)}


def refusal_part(part: Refusal) -> Item:
    return {"type": "refusal", "refusal": part.text, **unknown_fields(part.native, NAME, _REFUSAL)}


def media_part(part: Media) -> Item | None:
    """The content part of a user message for media; `None` where the format has no form for it."""
    if isinstance(part, Image):
        url = join_url(part, "image/png")
        if url is None:
            return None
        image: Item = {"url": url} if part.detail is None else {"url": url, "detail": part.detail}
        image |= inner_fields(part.native, NAME, "image_url", _IMAGE_INNER)
        return {"type": "image_url", "image_url": image, **unknown_fields(part.native, NAME, _IMAGE)}
    if isinstance(part, Audio):
        form = AUDIO_FORMATS.get(part.media_type or "audio/wav")
        if part.data is None or form is None:
            return None
        audio = {"data": part.data, "format": form}
        audio |= inner_fields(part.native, NAME, "input_audio", _AUDIO_INNER)
        return {"type": "input_audio", "input_audio": audio, **unknown_fields(part.native, NAME, _AUDIO)}
    if isinstance(part, File):
        file: Item = {}
        if part.data is not None:
            file["file_data"] = join_url(part, "application/pdf")
        if part.file_id is not None:
            file["file_id"] = part.file_id
        if not file:
            return None
        if part.name is not None:
            file["filename"] = part.name
        file |= inner_fields(part.native, NAME, "file", _FILE_INNER)
        return {"type": "file", "file": file, **unknown_fields(part.native, NAME, _FILE)}
    return None
