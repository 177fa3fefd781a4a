"""Writing Chat Completions: messages as chat messages.

It knows the shape of the API's message and what of it a target takes (see `_openai_writer`); nothing of what is legal.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backstory.formats._chat_calls import REASONING_FIELDS, is_legacy, reasoning_fields, write_call
from backstory.formats._chat_parts import NAME, media_part, refusal_part, text_part
from backstory.formats._openai_media import media_kind, placeholder
from backstory.formats._openai_writer import (
    ABSENT,
    LEFT_OUT_TEXT,
    Content,
    OpenAIWriter,
    empty_content,
    own_words,
)
from backstory.formats.base import Item, Written, unknown_fields
from backstory.formats.synthetic import NO_ANSWER_TEXT
from backstory.messages import (
    Audio,
    Media,
    Message,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)

_KNOWN = frozenset({"role", "content", "name"})
_KNOWN_ASSISTANT = _KNOWN | REASONING_FIELDS | {"refusal", "audio", "tool_calls", "function_call"}
_KNOWN_TOOL = _KNOWN | {"tool_call_id"}


class ChatWriter(OpenAIWriter):
    """One run over a list of messages."""

    name = NAME

    def write(self) -> Written:
        items, starts, messages = self.written.items, self.written.starts, self.messages
        index, count = 0, len(messages)
        while index < count:
            message = messages[index]
            role = message.role
            if self._moved and role != "tool":
                message = self.deliver(message) or message
            native = message.native
            if (
                native is not None
                and native.intact
                and native.format == NAME
                and self._as_it_is(message, native.value, index)
            ):
                items.append(native.value)  # type: ignore[arg-type]
                starts.append(index)
                index += 1
                continue
            if role == "assistant":
                end = index + 1
                while end < count and messages[end].joined and messages[end].role == "assistant":
                    end += 1
                self._assistant(messages[index:end], index)
                index = end
                continue
            if role == "tool":
                self._tool(message, index)
            else:
                self.plain(message, index)
            index += 1
        self.deliver(None)
        return self.written

    def media_part(self, part: Media) -> Item | None:
        return media_part(part)

    def text_part(self, part: Text | Refusal, text: str, role: str) -> Item:
        return text_part(part, text)

    def _as_it_is(self, message: Message, value: Mapping[str, Any], index: int) -> bool:
        """Whether the target takes the message's own item as it came."""
        target, role, parts = self.target, message.role, message.parts
        if role == "user":
            return self.all_media or not self.refuses(parts)
        if role == "assistant":
            if target.reasoning == "never":
                if not REASONING_FIELDS.isdisjoint(value):
                    return False
            elif self._expired(index) and parts and type(parts[0]) is Reasoning:  # the reader puts it first
                return False
            return target.custom_calls or all(call.kind != "custom" for call in message.calls)
        if role == "tool":
            if type(value.get("content")) is str or target.tool_content == "media":
                return True
            if target.tool_content == "string":
                return False
            return not any(isinstance(part, Media) for result in message.results for part in result.content)
        return role == "system" or target.developer

    def plain(self, message: Message, index: int) -> None:
        role: str = message.role
        item: Item
        if role == "developer" and not self.target.developer:
            role = "system"  # the two are one kind of instruction, by two names
        said = own_words(message.parts) if message.native is None else None
        if said is not None:  # nearly all of them, and written for every request
            item = {"role": role, "content": said}
            self.speaker(message, item, index)
            self.put(item, index)
            return
        content = self.words_content(message, index)
        item = {"role": role, "content": None}
        if not content.parts:
            if message.parts and role != "user":
                return
            item["content"] = LEFT_OUT_TEXT if message.parts else empty_content(message, NAME, "")
            if item["content"] is ABSENT:
                del item["content"]
        elif role == "user" and message.native is None and all(p["type"] == "text" for p in content.parts):
            item["content"] = "\n\n".join(
                p["text"] for p in content.parts
            )  # many templates know strings only
        elif role == "user" and len(content.parts) > 1:
            item["content"] = content.parts
        else:
            item["content"] = content.whole()
        self.speaker(message, item, index)
        self.put(item | unknown_fields(message.native, NAME, _KNOWN), index)

    # --- assistant -------------------------------------------------------------------------

    def _assistant(self, group: Sequence[Message], index: int) -> None:
        """One chat message of one message, or of several that are joined."""
        first = group[0]
        item: Item = {"role": "assistant", "content": None}
        content = Content()
        refusals: list[str] = []
        calls: list[Item] = []
        for at, message in enumerate(group, index):
            lose = self._loser(at)
            content.gap = "\n\n"
            for part in message.parts:
                if isinstance(part, Text):
                    self.add_text(content, part, "assistant")
                elif isinstance(part, ToolCall):
                    if is_legacy(part, message):
                        item["function_call"] = self.own(part) or {
                            "name": part.name,
                            "arguments": part.arguments,
                        }
                    else:
                        calls.append(write_call(part, self.target, lose))
                elif isinstance(part, Refusal) and not self.ours(part):
                    refusals.append(part.text)
                else:
                    self._assistant_part(part, content, item, at)
                if part.signature is not None and not isinstance(part, (ToolCall, Reasoning)):
                    lose("signature", "a thought signature on a part that is no call has no field here")
            for field, value in reasoning_fields(message, self.target, self._expired(at), lose).items():
                both = field in item and type(value) is str  # of several items, each may bring its own
                item[field] = f"{item[field]}\n{value}" if both else value
        if refusals:
            item["refusal"] = "\n".join(refusals)
        if calls:
            item["tool_calls"] = calls
        if content.parts:
            item["content"] = content.whole()
        elif len(item) > 2 and not REASONING_FIELDS.issuperset(item.keys() - {"role", "content"}):
            item["content"] = empty_content(first, NAME, None)  # calls, a refusal or audio speak for it
        elif any(message.parts for message in group):  # nothing of what it said is left but, maybe, reasoning
            last = index + len(group) == len(self.messages)
            if len(item) == 2 and (last or not self.target.alternates):
                return
            item["content"] = "" if len(item) > 2 else NO_ANSWER_TEXT
        else:
            item["content"] = empty_content(first, NAME, "")
        if item["content"] is ABSENT:
            del item["content"]
        self.speaker(first, item, index)
        for message in group:
            item |= unknown_fields(message.native, NAME, _KNOWN_ASSISTANT)
        self.put(item, index)

    def _loser(self, index: int) -> Callable[[str, str], None]:
        return lambda kind, what: self.lose(index, kind, what)

    def _expired(self, index: int) -> bool:
        return self.target.reasoning == "turn" and index <= self.last_user

    def _assistant_part(self, part: Part, content: Content, item: Item, index: int) -> None:
        """The rarer parts of an assistant message."""
        if isinstance(part, Refusal):
            content.add(self.own(part) or refusal_part(part))
        elif isinstance(part, Audio) and part.file_id is not None and self.ours(part):
            item["audio"] = self.own(part) or {"id": part.file_id}
        elif isinstance(part, Media):
            self.add_words(content, placeholder(part), "assistant")
            self.lose(
                index, media_kind(part), f"{media_kind(part)} that the assistant made cannot be sent back"
            )
        elif isinstance(part, Opaque) and (value := self.own(part)) is not None:
            content.add(value)
        elif not isinstance(part, Reasoning):
            self.cannot(part, index)
            content.gap = "\n\n"

    # --- tool results ----------------------------------------------------------------------

    def _tool(self, message: Message, index: int) -> None:
        given: Mapping[str, Any] = {}
        if message.native is not None and message.native.format == NAME:
            given = message.native.value
        for part in message.parts:
            if not isinstance(part, ToolResult):
                self.cannot(part, index)
                continue
            if given.get("role") == "function" and not part.call_id:
                item: Item = {"role": "function", "name": part.name or ""}
            else:
                item = {"role": "tool", "tool_call_id": part.call_id}
                if given.get("role") == "tool" and "name" in given and part.name is not None:
                    item["name"] = part.name  # some servers ask for it; the API has no such field
            said = own_words(part.content) if len(part.content) == 1 and not part.is_error else None
            if said is not None and message.native is None:
                item["content"] = said
                self.put(item, index)
                continue
            content = self.result_content(part, index)
            if self.target.tool_content == "string" or not content.parts:
                item["content"] = content.all_text("\n")
            else:
                item["content"] = content.whole() if len(content.parts) == 1 else content.parts
            self.put(item | unknown_fields(message.native, NAME, _KNOWN_TOOL), index)
