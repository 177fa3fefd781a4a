"""Gemini's parts, as they are read: one part of a content, one part of ours.

https://ai.google.dev/api/caching#Part, and the types of the SDK (`google.genai.types.Part`). Field names are read
in both spellings that the API takes, ``functionCall`` and ``function_call``. What the model's server made for
itself (code and its results, its own tools' calls and answers) and whatever comes in the future stays opaque.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats.arguments import arguments_text
from backstory.formats.synthetic import synthetic_content
from backstory.messages import (
    Audio,
    File,
    Image,
    Native,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Text,
    ToolCall,
    ToolResult,
)

NAME = "gemini"

SIGNATURES = frozenset({"thoughtSignature", "thought_signature"})
CALL = frozenset({"functionCall", "function_call"})
RESPONSE = frozenset({"functionResponse", "function_response"})
DATA = frozenset({"inlineData", "inline_data", "fileData", "file_data"})
# What says something about a part, but is not what the part is.
_BESIDE = SIGNATURES | {
    "thought", "partMetadata", "part_metadata", "videoMetadata", "video_metadata", "mediaResolution",
    "media_resolution", "mediaProcessing", "media_processing",
}  # fmt: skip


def either(value: Mapping[str, Any], camel: str, snake: str) -> Any:
    """A field in either spelling."""
    found = value.get(camel)
    return value.get(snake) if found is None else found


def read_parts(parts: Any, index: int | None, origin: Origin) -> list[Part]:
    """The parts of a content, one for one. Raises `InvalidMessage` where one is no object, or this no list."""
    if parts is None:  # optional in the API's own schema
        return []
    if not isinstance(parts, list):
        raise InvalidMessage(f"parts must be a list, not {type(parts).__name__}", index=index)
    return [_part(part, index, origin) for part in parts]


def _part(part: Any, index: int | None, origin: Origin) -> Part:
    if not isinstance(part, Mapping):
        hint = "; pass its model_dump(mode='json', exclude_none=True)" if hasattr(part, "model_dump") else ""
        raise InvalidMessage(f"a part must be an object, not {type(part).__name__}{hint}", index=index)
    native = Native(format=NAME, value=part)
    signature = either(part, "thoughtSignature", "thought_signature")
    if not isinstance(signature, str) or not signature:
        signature = None
    text = part.get("text")
    if isinstance(text, str):
        if part.get("thought") is True:
            return Reasoning(text=text, signature=signature, origin=origin, native=native)
        return Text(text=text, signature=signature, native=native)
    call = either(part, "functionCall", "function_call")
    if isinstance(call, Mapping):
        return ToolCall(
            id=_string(call.get("id")) or "",
            name=_string(call.get("name")) or "",
            arguments=arguments_text(call.get("args"), absent="{}", index=index),
            signature=signature,
            native=native,
        )
    response = either(part, "functionResponse", "function_response")
    if isinstance(response, Mapping):
        content, is_error = response_content(response, index, origin)
        return ToolResult(
            call_id=_string(response.get("id")) or "",
            name=_string(response.get("name")),
            content=content,
            is_error=is_error,
            synthetic=synthetic_content(content),
            signature=signature,
            native=native,
        )
    media = _media(part, signature, native)
    if media is not None:
        return media
    kind = next((key for key in part if key not in _BESIDE), next(iter(part), "unknown"))
    return Opaque(kind=kind, origin=origin, signature=signature, native=native)


def _string(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def response_content(
    response: Mapping[str, Any], index: int | None, origin: Origin
) -> tuple[tuple[Part, ...], bool | None]:
    """What a function answered, and whether it is an error.

    https://ai.google.dev/api/caching#FunctionResponse: ``output`` holds the output, ``error`` the details of an
    error; an object with neither is the output itself. (The SDK's own function calling writes ``result``.)
    """
    value = response.get("response")
    is_error: bool | None = None
    if isinstance(value, Mapping) and len(value) == 1:
        (key,) = value
        if key in ("output", "result", "error"):
            value = value[key]
            is_error = key == "error" or None
    content: list[Part] = []
    if value is not None and value != {}:
        content.append(Text(text=value if isinstance(value, str) else _json(value, index)))
    content += read_parts(response.get("parts"), index, origin)
    return tuple(content), is_error


def _json(value: Any, index: int | None) -> str:
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"a function's response is not JSON ({error})", index=index) from None


def _media(part: Mapping[str, Any], signature: str | None, native: Native) -> Part | None:
    data = url = None
    value = either(part, "inlineData", "inline_data")
    if isinstance(value, Mapping):
        data = _string(value.get("data"))
    else:
        value = either(part, "fileData", "file_data")
        if not isinstance(value, Mapping):
            return None
        url = _string(either(value, "fileUri", "file_uri"))
    if data is None and url is None:
        return None
    kind = _string(either(value, "mimeType", "mime_type"))
    if (kind or "").startswith("image/"):
        return Image(data=data, url=url, media_type=kind, signature=signature, native=native)
    if (kind or "").startswith("audio/"):
        return Audio(data=data, url=url, media_type=kind, signature=signature, native=native)
    name = _string(either(value, "displayName", "display_name"))
    return File(data=data, url=url, media_type=kind, name=name, signature=signature, native=native)
