"""What OpenAI's two APIs share: data URLs, compact JSON, and words for media that a server does not take.

It knows nothing of messages or items; `openai_chat` and `openai_responses` build on it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from backstory.errors import InvalidMessage
from backstory.messages import Audio, File, Image, Media, Native

# https://developers.openai.com/api/docs/guides/audio: `input_audio.format` is "wav" or "mp3".
AUDIO_TYPES = {"wav": "audio/wav", "mp3": "audio/mpeg"}
AUDIO_FORMATS = {
    "audio/wav": "wav",
    "audio/x-wav": "wav",
    "audio/wave": "wav",
    "audio/mpeg": "mp3",
    "audio/mp3": "mp3",
}
ALL_MEDIA = frozenset({"image", "audio", "file"})


def split_url(url: str) -> dict[str, str]:
    """The fields of a `Media` for a URL: a base64 ``data:`` URL gives `data` and `media_type`, any other `url`."""
    if url.startswith("data:"):
        head, comma, data = url.partition(",")
        if comma and head.endswith(";base64"):
            media_type = head[5:-7]
            return {"data": data, "media_type": media_type} if media_type else {"data": data}
    return {"url": url}


def join_url(media: Media, default: str) -> str | None:
    """The URL of some media: its own, or a ``data:`` URL; `None` where it is known by a file id alone."""
    if media.data is not None:
        return f"data:{media.media_type or default};base64,{media.data}"
    return media.url


def media_kind(media: Media) -> str:
    """The word that `Target.media` and a `Loss` have for it."""
    return "image" if isinstance(media, Image) else "audio" if isinstance(media, Audio) else "file"


def placeholder(media: Media) -> str:
    """What stands in the text for media that cannot be sent: its own words where it has any."""
    if isinstance(media, Audio) and media.transcript:
        return media.transcript
    if isinstance(media, File):
        if media.text:
            return media.text
        if media.name or media.url:
            return f"[file left out: {media.name or media.url}]"
    if media.url:
        return f"[{media_kind(media)} left out: {media.url}]"
    return f"[{media_kind(media)} left out]"


def compact(value: Any, index: int) -> str:
    """Compact JSON, as a model writes arguments. Raises `InvalidMessage` for what is no JSON, or nests too deep."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"cannot be written as JSON ({error})", index=index) from error


def string(value: Any) -> str:
    """A field that should be a string: itself, or empty where it is missing or something else."""
    return value if type(value) is str else ""


def optional(value: Any) -> str | None:
    return value if type(value) is str else None


def inner_fields(native: Native | None, format: str, field: str, known: frozenset[str]) -> dict[str, Any]:
    """The unknown fields of the object inside a verbatim item of this format."""
    if native is None or native.format != format:
        return {}
    inner = native.value.get(field)
    if not isinstance(inner, Mapping):
        return {}
    return {key: value for key, value in inner.items() if key not in known}
