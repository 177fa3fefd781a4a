"""Writing Responses: messages as items.

It knows the shape of the API's items and what of them a target takes (see `_openai_writer`); nothing of what is legal.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from backstory.formats._openai_media import compact, media_kind, placeholder
from backstory.formats._openai_writer import ABSENT, LEFT_OUT_TEXT, Content, OpenAIWriter, empty_content
from backstory.formats._responses_outputs import output_item
from backstory.formats._responses_parts import NAME, OUTPUT_OF, OWN_TOOLS, media_part, text_part
from backstory.formats.base import Item, Written, unknown_fields
from backstory.messages import (
    Image,
    Media,
    Message,
    Native,
    Opaque,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)

_MESSAGE = frozenset({"type", "role", "content", "id"})
_FUNCTION = frozenset({"type", "call_id", "name", "arguments", "id"})
_CUSTOM = frozenset({"type", "call_id", "name", "input", "id"})
_REASONING = frozenset({"type", "summary", "content", "encrypted_content", "id"})


class ResponsesWriter(OpenAIWriter):
    """One run over a list of messages."""

    name = NAME
    _orphaned = False  # the reasoning item before was left out

    def write(self) -> Written:
        items, starts = self.written.items, self.written.starts
        for index, message in enumerate(self.messages):
            role = message.role
            if role != "assistant":
                self._orphaned = False
            if self._moved and role != "tool":
                message = self.deliver(message) or message
            native = message.native
            if (
                native is not None
                and native.intact
                and native.format == NAME
                and self._as_it_is(message, index)
            ):
                items.append(self._bare(native.value) if self._orphaned else native.value)  # type: ignore[arg-type]
                starts.append(index)
            elif role == "assistant":
                self._assistant(message, index)
            elif role == "tool":
                self._tool(message, index)
            else:
                self.plain(message, index)
        self.deliver(None)
        return self.written

    def own(self, part: Part) -> Item | None:
        value = super().own(part)
        if value is not None and isinstance(part, (Text, Image)):
            # A shell's chunk and a screenshot are typed as text and image, but stand in their own outputs only.
            return value if "text" in value or value.get("type") == "input_image" else None
        return value

    def media_part(self, part: Media) -> Item | None:
        return media_part(part)

    def text_part(self, part: Text | Refusal, text: str, role: str) -> Item:
        return text_part(part, text, role)

    def _as_it_is(self, message: Message, index: int) -> bool:
        """Whether the target takes the message's own item as it came."""
        target, role, parts = self.target, message.role, message.parts
        first = parts[0] if parts else None
        if isinstance(first, Opaque) and len(parts) == 1:
            return self._accepts(first)
        if role == "user":
            return self.all_media or not self.refuses(parts)
        if role == "assistant":
            if isinstance(first, Reasoning):
                return self._takes(first, index)
            return target.custom_calls or not isinstance(first, ToolCall) or first.kind != "custom"
        if role == "tool":
            return not any(self._moves_media(result) for result in message.results)
        return role == "system" or target.developer

    def _accepts(self, part: Opaque | Reasoning) -> bool:
        """https://developers.openai.com/api/docs/guides/reasoning: encrypted content is read by who made it only."""
        return part.origin is self.target.origin or self.target.origin.matches(part.origin)

    def _takes(self, part: Reasoning, index: int) -> bool:
        mode = self.target.reasoning
        if mode == "never" or (mode == "turn" and index <= self.last_user):
            return False
        return self.ours(part) and self._accepts(part)

    def _bare(self, item: Mapping[str, Any]) -> Mapping[str, Any]:
        """Without its id: an item that followed a reasoning item is refused by that id without it.

        "Item 'fc_…' of type 'function_call' was provided without its required 'reasoning' item". An id that is the
        item's only name stays.
        """
        if "id" in item and ("call_id" in item or item.get("type") == "message"):
            return {key: value for key, value in item.items() if key != "id"}
        return item

    def _id(self, message: Message, native: Native | None) -> Item:
        """The id field of a rebuilt item, unless it was taken away."""
        if self._orphaned or native is None or native.format != NAME or "id" not in native.value:
            return {}
        if message.id is None and len(message.parts) <= 1:
            return {}
        return {"id": native.value["id"]}

    def plain(self, message: Message, index: int) -> None:
        parts = tuple(part for part in message.parts if not self._opaque_item(part, message, index))
        if message.parts and not parts:
            return
        message = dataclasses.replace(message, parts=parts)
        content = self.words_content(message, index)
        role: str = message.role
        if role == "developer" and not self.target.developer:
            role = "system"  # the two are one kind of instruction, by two names
        held: Any
        if not content.parts:
            if message.parts and role != "user":
                return
            held = LEFT_OUT_TEXT if message.parts else empty_content(message, NAME, "")
        elif role == "user" and len(content.parts) > 1:
            held = content.parts
        else:
            held = content.whole()
        self._put_message(message, role, held, index)
        if message.name is not None:
            self.speaker(message, self.written.items[-1], index)

    def _put_message(self, message: Message, role: str, held: Any, index: int) -> None:
        native = message.native
        short = (
            native is not None and native.format == NAME and "type" not in native.value
        )  # it may be left out
        item: Item = {"role": role} if short else {"type": "message", "role": role}
        item |= self._id(message, native)
        if held is not ABSENT:
            item["content"] = held
        self.put(item | unknown_fields(message.native, NAME, _MESSAGE), index)

    def _opaque_item(self, part: Part, message: Message, index: int) -> bool:
        """Put an opaque part that is an item of its own, or report it; false for one that is a piece of content."""
        if not isinstance(part, Opaque) or not self.ours(part):
            return False
        value = self.own(part)
        native = message.native
        held = native.value.get("content") if native is not None and native.format == NAME else None
        if isinstance(held, list) and any(each is value or each == value for each in held):
            return False
        if part.kind.startswith(("input_", "output_")):
            return False
        if value is None or not self._accepts(part):
            self.lose(index, "opaque", f"{part.kind} is accepted only by who made it")
        else:
            self.put(dict(self._bare(value)) if self._orphaned else value, index)
        return True

    # --- assistant -------------------------------------------------------------------------

    def _assistant(self, message: Message, index: int) -> None:
        """The items of one message, in the order of its parts: neighbouring words share one item."""
        content = Content()

        def flush() -> None:
            nonlocal content
            if content.parts:
                self._put_message(_words_of(message), "assistant", content.whole(), index)
            content = Content()

        for part in message.parts:
            if isinstance(part, Text):
                self.add_text(content, part, "assistant")
            elif isinstance(part, Refusal):
                content.add(self.own(part) or text_part(part, part.text, "assistant"))
            elif isinstance(part, Media):
                self.add_words(content, placeholder(part), "assistant")
                self.lose(
                    index, media_kind(part), f"{media_kind(part)} that the assistant made cannot be sent back"
                )
            elif isinstance(part, ToolCall):
                flush()
                self.put(self._call(part, message, index), index)
            elif isinstance(part, Reasoning):
                flush()
                self._reasoning(part, message, index)
            else:
                flush()
                if not self._opaque_item(part, message, index):
                    if isinstance(part, Opaque) and (value := self.own(part)) is not None:
                        content.add(value)
                    else:
                        self.cannot(part, index)
            if part.signature is not None and not self.ours(part):
                self.lose(index, "signature", "a thought signature has no field here")
        flush()
        if not message.parts:
            self._put_message(message, "assistant", empty_content(message, NAME, ""), index)

    def _reasoning(self, part: Reasoning, message: Message, index: int) -> None:
        if self._takes(part, index):
            value = self.own(part)
            if value is None:
                native = part.native.value if part.native is not None else {}
                field, kind = (
                    ("content", "reasoning_text") if native.get("content") else ("summary", "summary_text")
                )
                value = {"type": "reasoning", **self._id(message, part.native), "summary": []}
                value |= {field: [{"type": kind, "text": part.text}] if part.text else []}
                if part.encrypted is not None:
                    value["encrypted_content"] = part.encrypted
                value |= unknown_fields(part.native, NAME, _REASONING)
            self.put(value, index)
            return
        self._orphaned = self._orphaned or self.ours(part)
        if part.text or part.encrypted or part.signature or part.redacted:
            if self.target.reasoning == "turn" and self.ours(part) and self._accepts(part):
                self.lose(index, "reasoning_expired", "reasoning is sent back within its own turn only")
            else:
                self.lose(index, "reasoning", "this target takes no reasoning of another's")

    def _call(self, part: ToolCall, message: Message, index: int) -> Item:
        kind, custom = part.kind, part.kind == "custom"
        native = part.native if self.ours(part) else None
        if not custom or self.target.custom_calls:
            value = self.own(part)
            if value is not None:
                return dict(self._bare(value)) if self._orphaned else value
        if kind in OUTPUT_OF and native is not None:
            return self._own_tool(part, native, message)
        given = self._id(message, native)
        if custom and self.target.custom_calls:
            item: Item = {"type": "custom_tool_call", **given, "call_id": part.id}
            item |= {"name": part.name, "input": part.arguments}
            return item | unknown_fields(native, NAME, _CUSTOM)
        arguments = part.arguments
        if kind != "function":
            if custom:
                arguments = compact({"input": arguments}, index)
                given = {}  # ctc_… is no id of a function call
            self.lose(index, "call", f"the {kind} call of {part.name!r} was written as a function call")
        item = {
            "type": "function_call",
            **given,
            "call_id": part.id,
            "name": part.name,
            "arguments": arguments,
        }
        known = _FUNCTION if kind == "function" else _CUSTOM
        return item | unknown_fields(native, NAME, known)

    def _own_tool(self, part: ToolCall, native: Native, message: Message) -> Item:
        """A call of the provider's own kind: its item, with the id and the action that it has now."""
        item = dict(native.value)
        if part.kind == "mcp_approval_request":
            return item | {"id": part.id}
        if "id" in item and not self._id(message, native):
            del item["id"]
        item["call_id"] = part.id
        for field in OWN_TOOLS[part.kind][1]:
            if item.get(field) is None:
                continue
            if compact(item[field], 0) != part.arguments:
                with contextlib.suppress(ValueError, RecursionError):  # else it stays as it came
                    item[field] = json.loads(part.arguments)
            break
        return item

    # --- tool results ----------------------------------------------------------------------

    def _tool(self, message: Message, index: int) -> None:
        for part in message.parts:
            if isinstance(part, ToolResult):
                value = self.own(part)
                if value is None or (self.target.tool_content != "media" and _has_media(part)):
                    content = self.result_content(part, index)
                    value = output_item(part, content, self.target, self._id(message, part.native))
                    if part.kind == "computer_call" and not _has_media(part) and part.content:
                        self.lose(
                            index, "text", "the output of a computer call is a screenshot, it holds no words"
                        )
                self.put(value, index)
            elif not self._opaque_item(part, message, index):
                self.cannot(part, index)

    def _moves_media(self, result: ToolResult) -> bool:
        """Whether media has to leave a result; a screenshot is all that a computer's output holds."""
        return self.target.tool_content != "media" and result.kind != "computer_call" and _has_media(result)


def _has_media(result: ToolResult) -> bool:
    return any(isinstance(part, Media) for part in result.content)


def _words_of(message: Message) -> Message:
    """The message as far as its own item is a message: a call's id and fields are not its words'."""
    native = message.native
    if native is not None and (native.format != NAME or native.value.get("type", "message") != "message"):
        return dataclasses.replace(message, native=None)
    return message
