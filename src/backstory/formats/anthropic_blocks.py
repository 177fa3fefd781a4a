"""Anthropic's content blocks, as they are read: one block, one part.

https://platform.claude.com/docs/en/api/messages, and the types of the SDK (`anthropic.types.ContentBlockParam`).
Blocks that the model's server made for itself (server tools and their results, containers, compactions) and
whatever comes in the future stay opaque. It knows nothing of messages: `backstory.formats.anthropic` does.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats.arguments import arguments_text
from backstory.formats.synthetic import synthetic_content
from backstory.messages import (
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

NAME = "anthropic"


def read_blocks(content: Any, index: int | None, origin: Origin) -> list[Part]:
    """The blocks of a message, of a system or of a result as parts, one for one.

    Raises `InvalidMessage` where `content` is no list, or a block is no object.
    """
    if content is None:  # refused by the API, but it says clearly enough that there is nothing
        return []
    if not isinstance(content, list):
        what = f"content must be a text or a list of blocks, not {type(content).__name__}"
        raise InvalidMessage(what, index=index)
    return [_block(block, index, origin) for block in content]


def _block(block: Any, index: int | None, origin: Origin) -> Part:
    if not isinstance(block, Mapping):
        hint = "; pass its model_dump()" if hasattr(block, "model_dump") else ""
        raise InvalidMessage(f"a block must be an object, not {type(block).__name__}{hint}", index=index)
    kind = block.get("type")
    native = Native(format=NAME, value=block)
    if kind == "text":
        text = block.get("text")
        if isinstance(text, str):
            return Text(text=text, native=native)
    elif kind == "tool_use":
        return ToolCall(
            id=_string(block.get("id")),
            name=_string(block.get("name")),
            arguments=arguments_text(block.get("input"), absent="", index=index),
            native=native,
        )
    elif kind == "tool_result":
        return _result(block, native, index, origin)
    elif kind == "thinking":
        return Reasoning(
            text=_string(block.get("thinking")),
            signature=_string(block.get("signature")) or None,
            origin=origin,
            native=native,
        )
    elif kind == "redacted_thinking":
        data = _string(block.get("data")) or None
        return Reasoning(redacted=True, encrypted=data, origin=origin, native=native)
    elif kind in ("image", "document"):
        source = block.get("source")
        if isinstance(source, Mapping):
            part = _image(source, native) if kind == "image" else _document(block, source, native)
            if part is not None:
                return part
    return Opaque(kind=kind if isinstance(kind, str) else "unknown", origin=origin, native=native)


def _string(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _result(block: Mapping[str, Any], native: Native, index: int | None, origin: Origin) -> ToolResult:
    inner = block.get("content")
    content: tuple[Part, ...]
    if isinstance(inner, str):
        content = (Text(text=inner),)
    else:
        content = tuple(read_blocks(inner, index, origin))
    is_error = block.get("is_error")
    return ToolResult(
        call_id=_string(block.get("tool_use_id")),
        content=content,
        is_error=is_error if isinstance(is_error, bool) else None,
        synthetic=synthetic_content(content),
        native=native,
    )


def _image(source: Mapping[str, Any], native: Native) -> Part | None:
    match source:
        case {"type": "base64", "data": str(data)}:
            return Image(data=data, media_type=_string(source.get("media_type")) or None, native=native)
        case {"type": "url", "url": str(url)}:
            return Image(url=url, native=native)
        case {"type": "file", "file_id": str(file_id)}:
            return Image(file_id=file_id, native=native)
    return None


def _document(block: Mapping[str, Any], source: Mapping[str, Any], native: Native) -> Part | None:
    name = _string(block.get("title")) or None
    match source:
        case {"type": "base64", "data": str(data)}:
            media_type = _string(source.get("media_type")) or "application/pdf"
            return File(data=data, media_type=media_type, name=name, native=native)
        case {"type": "url", "url": str(url)}:
            return File(url=url, media_type="application/pdf", name=name, native=native)
        case {"type": "file", "file_id": str(file_id)}:
            return File(file_id=file_id, name=name, native=native)
        case {"type": "text", "data": str(text)} | {"type": "content", "content": str(text)}:
            return File(text=text, media_type="text/plain", name=name, native=native)
        case {"type": "content", "content": list(blocks)}:
            texts = [block.get("text") for block in blocks if isinstance(block, Mapping)]
            found = [text for text in texts if isinstance(text, str)]
            if len(found) == len(blocks):
                return File(text="\n".join(found), media_type="text/plain", name=name, native=native)
    return None
