"""Content parts of the Responses API, both ways, and the table of its calls and their outputs.

https://developers.openai.com/api/reference/resources/responses/methods/create: `input_text`, `input_image`,
`input_file`, `output_text`, `refusal` and others. What it does not know stays verbatim. It refuses to know which of
these an item or a server may hold.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats._openai_media import AUDIO_FORMATS, AUDIO_TYPES, join_url, optional, split_url
from backstory.formats.base import Item, unknown_fields
from backstory.messages import Audio, File, Image, Media, Native, Opaque, Origin, Part, Refusal, Text

NAME = "openai_responses"

# What the caller must answer, and by which item: https://developers.openai.com/api/docs/guides/function-calling,
# …/guides/tools-shell, tools-local-shell, tools-computer-use, tools-apply-patch, tools-tool-search,
# tools-connectors-mcp#approvals.
OUTPUT_OF = {
    "function_call": "function_call_output",
    "custom_tool_call": "custom_tool_call_output",
    "shell_call": "shell_call_output",
    "local_shell_call": "local_shell_call_output",
    "computer_call": "computer_call_output",
    "apply_patch_call": "apply_patch_call_output",
    "tool_search_call": "tool_search_output",
    "mcp_approval_request": "mcp_approval_response",
}
CALL_OF = {output: call for call, output in OUTPUT_OF.items()}
KIND_OF = {"function_call": "function", "custom_tool_call": "custom"}
"""`ToolCall.kind` for a type of call; the type itself where it is not listed."""
TYPE_OF = {kind: call for call, kind in KIND_OF.items()}

# The name that a tool of the provider's own goes by, and the fields that hold what it was asked to do.
OWN_TOOLS = {
    "shell_call": ("shell", ("action",)),
    "local_shell_call": ("local_shell", ("action",)),
    "computer_call": ("computer", ("actions", "action")),
    "apply_patch_call": ("apply_patch", ("operation",)),
    "tool_search_call": ("tool_search", ("arguments",)),
}

_TEXTS = {
    "input_text": "text",
    "output_text": "text",
    "text": "text",
    "summary_text": "text",
    "reasoning_text": "text",
}
_TEXT = frozenset({"type", "text"})
_REFUSAL = frozenset({"type", "refusal"})
_IMAGE = frozenset({"type", "image_url", "file_id", "detail"})
_FILE = frozenset({"type", "file_data", "file_id", "file_url", "filename"})
_AUDIO = frozenset({"type", "input_audio"})


def read_content(content: Any, index: int, origin: Origin) -> tuple[Part, ...]:
    """The parts of a content or an output. An empty string says nothing and gives none, as null does."""
    if type(content) is str:
        return (Text(text=content),) if content else ()
    if content is None:
        return ()
    if isinstance(content, (list, tuple)):
        return tuple([_read_part(part, index, origin) for part in content])
    raise InvalidMessage(
        f"content must be a string or a list of parts, not {type(content).__name__}", index=index
    )


def _read_part(part: Any, index: int, origin: Origin) -> Part:
    if not isinstance(part, Mapping):
        raise InvalidMessage(
            f"a part of its content must be an object, not {type(part).__name__}", index=index
        )
    native = Native(format=NAME, value=part)
    kind = part.get("type")
    if kind == "input_image" or kind == "computer_screenshot":
        url = part.get("image_url")
        return Image(
            native=native,
            file_id=optional(part.get("file_id")),
            detail=optional(part.get("detail")),
            **(split_url(url) if type(url) is str else {}),
        )
    if kind == "input_file":
        return _read_file(part, native)
    if kind == "input_audio" and isinstance(part.get("input_audio"), Mapping):
        audio = part["input_audio"]
        form = optional(audio.get("format"))
        media_type = None if form is None else AUDIO_TYPES.get(form, f"audio/{form}")
        return Audio(native=native, data=optional(audio.get("data")), media_type=media_type)
    field = "refusal" if kind == "refusal" else _TEXTS.get(kind) if type(kind) is str else None
    if field is None:
        return Opaque(kind=kind if type(kind) is str else "part", origin=origin, native=native)
    text = part.get(field)
    if text is not None and type(text) is not str:
        raise InvalidMessage(f"{field} of a part must be a string, not {type(text).__name__}", index=index)
    if kind == "refusal":
        return Refusal(text=text or "", native=native)
    return Text(text=text or "", native=native)


def _read_file(part: Mapping[str, Any], native: Native) -> File:
    data = part.get("file_data")
    held: dict[str, str] = {}
    if type(data) is str:  # base64, bare or as a data URL: both are in use
        held = split_url(data) if data.startswith("data:") else {"data": data}
    elif type(part.get("file_url")) is str:
        held = {"url": part["file_url"]}
    return File(
        native=native,
        name=optional(part.get("filename")),
        file_id=optional(part.get("file_id")),
        **held,
    )


def text_part(part: Text | Refusal, text: str, role: str) -> Item:
    """A text as content part: the assistant's is an output, anybody else's an input."""
    if isinstance(part, Refusal) and role == "assistant":
        return {"type": "refusal", "refusal": text, **unknown_fields(part.native, NAME, _REFUSAL)}
    known = _REFUSAL if isinstance(part, Refusal) else _TEXT
    extra = unknown_fields(part.native, NAME, known)
    if role == "assistant":
        return {"type": "output_text", "text": text, "annotations": [], **extra}
    return {"type": "input_text", "text": text, **extra}


def media_part(part: Media) -> Item | None:
    """The content part for media; `None` where the format has no form for it."""
    if isinstance(part, Image):
        image: Item = {"type": "input_image", "detail": part.detail or "auto"}
        url = join_url(part, "image/png")
        if url is not None:
            image["image_url"] = url
        elif part.file_id is not None and _same(part):
            image["file_id"] = part.file_id
        else:
            return None
        return image | unknown_fields(part.native, NAME, _IMAGE)
    if isinstance(part, File):
        file: Item = {"type": "input_file"}
        if part.data is not None:
            file["file_data"] = join_url(part, "application/pdf")
            file["filename"] = part.name or "file"  # required beside file_data
        elif part.url is not None:
            file["file_url"] = part.url
        elif part.file_id is not None and _same(part):
            file["file_id"] = part.file_id
        else:
            return None
        return file | unknown_fields(part.native, NAME, _FILE)
    # https://developers.openai.com/api/docs/guides/audio: Responses takes none; a server that does has sent it so.
    if (
        isinstance(part, Audio)
        and part.data is not None
        and part.native is not None
        and part.native.format == NAME
    ):
        form = AUDIO_FORMATS.get(part.media_type or "audio/wav", "wav")
        audio = {"data": part.data, "format": form}
        return {"type": "input_audio", "input_audio": audio, **unknown_fields(part.native, NAME, _AUDIO)}
    return None


def _same(part: Media) -> bool:
    """A file id means something to its own provider only; both of OpenAI's APIs share their files."""
    return part.native is None or part.native.format in (NAME, "openai_chat")
