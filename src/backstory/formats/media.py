"""What a piece of media is, whoever carries it: its MIME type, and the data inside a ``data:`` URL.

It decodes nothing but text, fetches nothing, and knows no provider's field names.
"""

from __future__ import annotations

import base64
import binascii
import dataclasses
from mimetypes import guess_type
from typing import TypeVar

from backstory.messages import Audio, File, Image, Media

M = TypeVar("M", bound=Media)

_BY_CLASS: dict[type[Media], str] = {Image: "image/png", Audio: "audio/wav", File: "application/pdf"}


def inlined(part: M) -> M:
    """The part with the data of its ``data:`` URL as data (https://www.rfc-editor.org/rfc/rfc2397)."""
    url = part.url
    if url is None or not url.startswith("data:"):
        return part
    head, comma, data = url[5:].partition(",")
    if not comma or not head.endswith(";base64"):
        return part
    media_type = head.removesuffix(";base64").partition(";")[0] or part.media_type
    return dataclasses.replace(part, url=None, data=data, media_type=media_type)


def media_type(part: Media) -> str:
    """The MIME type: as told, else by the name or the URL, else what is most usual for its kind."""
    if part.media_type:
        return part.media_type
    name = (part.name if isinstance(part, File) else None) or (part.url or "").partition("?")[0]
    guessed = guess_type(name)[0] if name else None
    return guessed or _BY_CLASS.get(type(part), "application/octet-stream")


def is_web(url: str | None) -> bool:
    """Whether any provider's server could fetch it."""
    return url is not None and url.startswith(("https://", "http://"))


def text_of(part: File) -> str | None:
    """The text of a document that was given as text, or as the data of a text; `None` for anything else."""
    if part.text is not None:
        return part.text
    kind = media_type(part)
    if part.data is None or not (kind.startswith("text/") or kind in ("application/json", "application/xml")):
        return None
    try:
        return base64.b64decode(part.data, validate=True).decode()
    except (binascii.Error, UnicodeDecodeError, ValueError):
        return None


def describe(part: Media) -> str:
    """In a few words, for a report: never the data."""
    kind = media_type(part)
    if part.data is not None:
        return f"{kind} as data"
    if part.file_id is not None:
        return f"{kind}, file {part.file_id!r} of a provider"
    return f"{kind}, {part.url[:80]}" if part.url else kind
