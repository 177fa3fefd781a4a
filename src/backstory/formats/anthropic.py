"""Anthropic's Messages: reading and writing.

https://platform.claude.com/docs/en/api/messages, and the types of the SDK (`anthropic.types.MessageParam`).
It pairs, moves and renames nothing, and knows nothing of what is legal where: `backstory.legality` does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

from backstory.errors import InvalidMessage
from backstory.formats._openai_media import placeholder
from backstory.formats.anthropic_blocks import NAME, read_blocks
from backstory.formats.arguments import arguments_object
from backstory.formats.base import Item, Loss, Written, expect_object, unknown_fields, verbatim
from backstory.formats.media import describe, inlined, is_web, media_type, text_of
from backstory.formats.units import accepts, gather, late_system, runs
from backstory.messages import (
    Audio,
    File,
    Image,
    Media,
    Message,
    Native,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from backstory.targets import Target

ITEMS = "messages"
SYSTEM: str | None = "system"
ORIGIN = Origin(provider="anthropic")

_MESSAGE = frozenset({"role", "content"})
_TEXT = frozenset({"type", "text"})
_THINKING = frozenset({"type", "thinking", "signature"})
_REDACTED = frozenset({"type", "data"})
_TOOL_USE = frozenset({"type", "id", "name", "input"})
_TOOL_RESULT = frozenset({"type", "tool_use_id", "content", "is_error"})
_IMAGE = frozenset({"type", "source"})
_SOURCE = frozenset({"type", "media_type", "data", "url", "file_id", "content"})
_DOCUMENT = frozenset({"type", "source", "title"})


# --- reading -------------------------------------------------------------------------------


def read(item: Any, *, index: int, origin: Origin = ORIGIN) -> list[Message]:
    """One message as one; a user message of results and other blocks as one for each run of them, joined.

    Raises `InvalidMessage` where it is not an object, its role is unknown, its content is neither text nor a
    list, or a block is not an object.
    """
    item = expect_object(item, index)
    role = item.get("role")
    if role not in ("user", "assistant", "system"):
        raise InvalidMessage(f"unknown role {role!r}; Anthropic has user, assistant and system", index=index)
    native = Native(format=NAME, value=item)
    content = item.get("content")
    if isinstance(content, str):
        return [Message(role=role, parts=(Text(text=content),), native=native)]
    parts = read_blocks(content, index, origin)
    if role != "user" or not any(isinstance(part, ToolResult) for part in parts):
        return [Message(role=role, parts=tuple(parts), native=native)]
    found = runs(parts, lambda part: isinstance(part, ToolResult))
    return [
        Message(role="tool" if results else "user", parts=run, native=native, joined=number > 0)
        for number, (results, run) in enumerate(found)
    ]


def read_system(value: Any) -> list[Message]:
    """The `system` of a request: a text, or a list of text blocks. Raises `InvalidMessage` for anything else."""
    if value is None:
        return []
    native = Native(format=NAME, value={"system": value})
    if isinstance(value, str):
        return [Message(role="system", parts=(Text(text=value),), native=native)]
    if not isinstance(value, list):
        raise InvalidMessage(f"system must be a text or a list of blocks, not {type(value).__name__}")
    return [Message(role="system", parts=tuple(read_blocks(value, None, ORIGIN)), native=native)]


# --- writing -------------------------------------------------------------------------------


def write(messages: Sequence[Message], target: Target) -> Written:
    """The messages as Anthropic's; see `backstory.formats.units` for what shares an item.

    The leading system messages become the request's own `system`. A later one is a message of its own where
    the target takes that (https://platform.claude.com/docs/en/build-with-claude/mid-conversation-system-messages),
    else the user's text in `<system>` tags.
    """
    writer = _Writer(target)
    begin = 0
    while begin < len(messages) and messages[begin].role in ("system", "developer"):
        begin += 1
    writer.system(messages[:begin])
    late = "system" if target.system_anywhere else "user"
    roles: dict[Role, str] = {
        "user": "user",
        "tool": "user",
        "assistant": "assistant",
        "system": late,
        "developer": late,
    }
    units = gather(
        messages, begin, target=target, field="content", known=_MESSAGE, roles=roles, render=writer.message
    )
    written = writer.written
    for unit in units:
        written.starts.append(unit.start)
        if unit.native is not None:
            written.items.append(unit.native)  # type: ignore[arg-type]  # the very object that was read
        else:
            blocks: Any = unit.blocks
            if len(blocks) == 1 and unit.stop - unit.start == 1 and _plain(messages[unit.start].parts):
                blocks = blocks[0]["text"]
            written.items.append({"role": unit.role, "content": blocks, **unit.extra})
    return written


def _plain(parts: Sequence[Part]) -> bool:
    """Whether this is one text that is written as a string: it was one, or comes from elsewhere."""
    return len(parts) == 1 and type(parts[0]) is Text and not _is_own(parts[0])


class _Writer:
    """What one `write` has at hand: the target, and where losses go."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self.written = Written()
        self.index = 0
        self.role: Role = "user"

    def lose(self, kind: str, what: str) -> list[Item]:
        self.written.losses.append(Loss(index=self.index, kind=kind, what=what))
        return []

    def system(self, messages: Sequence[Message]) -> None:
        if not messages:
            return
        first = messages[0]
        if len(messages) == 1 and (own := verbatim(first.native, NAME)) is not None and "system" in own:
            self.written.system = own["system"]
            return
        blocks: list[Item] = []
        for self.index, message in enumerate(messages):
            blocks += self._system_blocks(message)
        if len(blocks) == 1 and _plain(first.parts):
            self.written.system = blocks[0]["text"]
        elif blocks:
            self.written.system = blocks

    def _system_blocks(self, message: Message) -> list[Item]:
        """https://platform.claude.com/docs/en/api/messages: `system` holds text blocks only."""
        blocks: list[Item] = []
        for part in message.parts:
            if isinstance(part, Text | Refusal | Opaque):
                blocks += self.part(part)
            else:
                self.lose(type(part).__name__.lower(), "the system holds nothing but text")
        return blocks

    def message(self, index: int, message: Message) -> list[Item]:
        self.index, self.role = index, message.role
        native = message.native
        if message.name is not None and (native is None or native.format != NAME):
            self.lose("name", f"Anthropic has no field for the speaker's name ({message.name!r})")
        blocks: list[Item] = []
        for part in message.parts:
            blocks += self.part(part)
        if not message.parts or (not blocks and all(type(p) is Text and not p.text for p in message.parts)):
            self.lose("empty", f"a {message.role} message without content has no place in Anthropic's list")
        elif message.role in ("system", "developer") and not self.target.system_anywhere:
            text = "\n".join(block["text"] for block in blocks if block.get("type") == "text")
            return [{"type": "text", "text": late_system(text)}]
        return blocks

    def part(self, part: Part) -> list[Item]:
        """The part as blocks: one, or none where it cannot be carried."""
        if isinstance(part, Reasoning):
            return self._reasoning(part)
        own = verbatim(part.native, NAME)
        if own is not None and not (isinstance(part, Opaque) and not accepts(self.target, part.origin)):
            return [own]  # type: ignore[list-item]  # never changed
        if part.signature is not None:
            self.lose("signature", "Anthropic has no place for a thought signature of another provider")
        return _PARTS[type(part)](self, part)

    def _text(self, part: Text) -> list[Item]:
        if not part.text:
            return []
        return [{"type": "text", "text": part.text, **unknown_fields(part.native, NAME, _TEXT)}]

    def _refusal(self, part: Refusal) -> list[Item]:
        return [{"type": "text", "text": part.text}] if part.text else []

    def _reasoning(self, part: Reasoning) -> list[Item]:
        """https://platform.claude.com/docs/en/build-with-claude/extended-thinking: unaltered, and signed by Claude."""
        if self.target.reasoning == "never":
            return self.lose("reasoning", "the target takes no reasoning back")
        if not accepts(self.target, part.origin):
            maker = part.origin.provider or "somebody"
            return self.lose(
                "reasoning", f"reasoning by {maker} (model {part.origin.model}) is refused by others"
            )
        if part.redacted and part.encrypted:
            own = verbatim(part.native, NAME)
            block = {"type": "redacted_thinking", "data": part.encrypted}
            return [own or {**block, **unknown_fields(part.native, NAME, _REDACTED)}]  # type: ignore[list-item]
        if not part.signature:
            return self.lose("reasoning", "reasoning without Anthropic's signature is refused")
        own = verbatim(part.native, NAME)
        block = {"type": "thinking", "thinking": part.text, "signature": part.signature}
        return [own or {**block, **unknown_fields(part.native, NAME, _THINKING)}]  # type: ignore[list-item]

    def _call(self, part: ToolCall) -> list[Item]:
        if part.kind != "function":
            self.lose("call", f"a call of kind {part.kind!r} becomes a call of a function")
        block = {"type": "tool_use", "id": part.id, "name": part.name, "input": arguments_object(part)}
        return [{**block, **unknown_fields(part.native, NAME, _TOOL_USE)}]

    def _result(self, part: ToolResult) -> list[Item]:
        """https://platform.claude.com/docs/en/agents-and-tools/tool-use/handle-tool-calls"""
        block: Item = {"type": "tool_result", "tool_use_id": part.call_id}
        content = part.content
        if _plain(content):
            block["content"] = content[0].text  # type: ignore[attr-defined]
        else:
            blocks = [found for inner in content for found in self.part(inner)]
            if blocks:
                block["content"] = blocks
        if part.is_error is not None:
            block["is_error"] = part.is_error
        return [{**block, **unknown_fields(part.native, NAME, _TOOL_RESULT)}]

    def _image(self, part: Image) -> list[Item]:
        """https://platform.claude.com/docs/en/build-with-claude/vision: base64, a URL, or a file of its own."""
        part = inlined(part)
        if part.detail not in (None, "auto"):
            self.lose("detail", f"Anthropic has no field for an image's detail ({part.detail!r})")
        source: Item | None = None
        if part.data is not None:
            source = {"type": "base64", "media_type": media_type(part), "data": part.data}
        elif is_web(part.url):
            source = {"type": "url", "url": part.url}
        elif part.file_id is not None and _is_own(part):
            source = {"type": "file", "file_id": part.file_id}
        return self._media(part, "image", {"type": "image", "source": source}, _IMAGE)

    def _file(self, part: File) -> list[Item]:
        """https://platform.claude.com/docs/en/build-with-claude/pdf-support, and plain text."""
        part = inlined(part)
        source: Item | None = None
        if (text := text_of(part)) is not None:
            source = {"type": "text", "media_type": "text/plain", "data": text}
        elif part.data is not None:
            if media_type(part) == "application/pdf":
                source = {"type": "base64", "media_type": "application/pdf", "data": part.data}
        elif is_web(part.url):
            source = {"type": "url", "url": part.url}
        elif part.file_id is not None and _is_own(part):
            source = {"type": "file", "file_id": part.file_id}
        block: Item = {"type": "document", "source": source}
        if part.name is not None:
            block["title"] = part.name
        return self._media(part, "file", block, _DOCUMENT)

    def _media(
        self, part: Media, kind: Literal["image", "file"], block: Item, known: frozenset[str]
    ) -> list[Item]:
        if self.role == "assistant":
            self.lose(kind, f"an assistant message of Anthropic's holds no {kind}")
            return [{"type": "text", "text": placeholder(part)}]
        taken = self.target.tool_content == "media" if self.role == "tool" else kind in self.target.media
        if block["source"] is None or not taken:
            self.lose(kind, f"the target cannot take this {kind} ({describe(part)})")
            return [{"type": "text", "text": placeholder(part)}]
        if _is_own(part) and part.native is not None:
            old = part.native.value["source"]
            block["source"] |= {key: value for key, value in old.items() if key not in _SOURCE}
        return [{**block, **unknown_fields(part.native, NAME, known)}]

    def _audio(self, part: Audio) -> list[Item]:
        self.lose("audio", f"Anthropic takes no audio ({describe(part)})")
        return [{"type": "text", "text": placeholder(part)}]

    def _opaque(self, part: Opaque) -> list[Item]:
        if _is_own(part) and part.native is not None and accepts(self.target, part.origin):
            return [{**part.native.value}]
        return self.lose("opaque", f"an item of type {part.kind!r} is for its own provider only")


_PARTS: dict[type[Part], Callable[[_Writer, Any], list[Item]]] = {
    Text: _Writer._text,
    Refusal: _Writer._refusal,
    ToolCall: _Writer._call,
    ToolResult: _Writer._result,
    Image: _Writer._image,
    File: _Writer._file,
    Audio: _Writer._audio,
    Opaque: _Writer._opaque,
}


def _is_own(part: Part) -> bool:
    return part.native is not None and part.native.format == NAME
