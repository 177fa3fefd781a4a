"""Writing Chat Completions.

It renders, and decides nothing: pairing, order and names were made legal before. What a server is known not to take
(`Target`) is put another way where nothing is lost by it, and is reported as a `Loss` where something is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from backstory.formats._chat_calls import REASONING_FIELDS, legacy_call, reasoning_fields, write_call
from backstory.formats._chat_parts import NAME, media_part, own, refusal_part, text_part
from backstory.formats._openai_media import ALL_MEDIA, media_kind, placeholder
from backstory.formats.base import Item, Loss, Written, unknown_fields
from backstory.formats.synthetic import NO_ANSWER_TEXT
from backstory.messages import (
    Audio,
    File,
    Image,
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
from backstory.targets import Target

_KNOWN = frozenset({"role", "content", "name"})
_KNOWN_ASSISTANT = _KNOWN | REASONING_FIELDS | {"refusal", "audio", "tool_calls", "function_call"}
_KNOWN_TOOL = frozenset({"role", "content", "tool_call_id", "name"})


class _Content:
    """A content under way: part dicts, or plain strings as long as nothing asks for parts."""

    def __init__(self) -> None:
        self.parts: list[Item] = []
        self.texts: list[str] | None = []
        self.breaks: list[str] = []
        self.gap = ""

    def text(self, part: Text | Refusal, text: str) -> None:
        value = own(part) if isinstance(part, Text) else None
        if value is None and (part.native is None or part.native.format != NAME):
            if self.texts is not None:
                self.texts.append(text)
                self.breaks.append(self.gap)
        else:
            self.texts = None
        self.parts.append(value if value is not None else text_part(part, text))
        self.gap = ""

    def add(self, part: Item) -> None:
        self.texts = None
        self.parts.append(part)
        self.gap = ""

    def words(self, text: str) -> None:
        self.text(Text(text=text), text)

    def joined(self, separator: str | None = None) -> str | list[Item]:
        """One string where all is plain text, by `separator` or by what lay between; else the parts."""
        if self.texts is None:
            return self.parts
        if separator is not None:
            return separator.join(self.texts)
        found = "".join(gap + text for gap, text in zip(self.breaks, self.texts, strict=True))
        return found.removeprefix(self.breaks[0]) if self.breaks else found


class ChatWriter:
    """One run over a list of messages."""

    def __init__(self, messages: Sequence[Message], target: Target) -> None:
        self.messages = messages
        self.target = target
        self.written = Written()
        self.moved: list[Part] = []  # media on the way from tool results to the user message after them
        self.moved_from = 0
        self.all_media = target.media >= ALL_MEDIA

    @cached_property
    def last_user(self) -> int:
        """The user message that opened the turn under way: reasoning before it has expired."""
        return next((i for i in range(len(self.messages) - 1, -1, -1) if self.messages[i].role == "user"), -1)

    def write(self) -> Written:
        items, starts = self.written.items, self.written.starts
        messages = self.messages
        index, count = 0, len(messages)
        while index < count:
            message = messages[index]
            role = message.role
            if self.moved and role != "tool":
                message = self._deliver(message)
            native = message.native
            if (
                native is not None
                and native.intact
                and native.format == NAME
                and self._as_it_is(message, index)
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
                self._plain(message, index)
            index += 1
        if self.moved:
            self._deliver(None)
        return self.written

    def lose(self, index: int, kind: str, what: str) -> None:
        self.written.losses.append(Loss(index=index, kind=kind, what=what))

    def _put(self, item: Item, index: int) -> None:
        self.written.items.append(item)
        self.written.starts.append(index)

    def _as_it_is(self, message: Message, index: int) -> bool:
        """Whether the target takes the message's own item as it came."""
        target, role, parts = self.target, message.role, message.parts
        if role == "user":
            return self.all_media or (len(parts) == 1 and type(parts[0]) is Text) or not self._refused(parts)
        if role == "assistant":
            if target.reasoning == "never":
                value = message.native.value if message.native is not None else {}
                if (parts and type(parts[0]) is Reasoning) or not REASONING_FIELDS.isdisjoint(value):
                    return False
            elif (
                target.reasoning == "turn"
                and parts
                and type(parts[0]) is Reasoning
                and index <= self.last_user
            ):
                return False
            return target.custom_calls or all(call.kind != "custom" for call in message.calls)
        if role == "tool":
            content = message.native.value.get("content") if message.native is not None else None
            if type(content) is str or target.tool_content == "media":
                return True
            if target.tool_content == "string":
                return False
            return not any(isinstance(part, Media) for result in message.results for part in result.content)
        return role == "system" or target.developer

    def _refused(self, parts: Sequence[Part]) -> bool:
        return any(isinstance(part, Media) and media_kind(part) not in self.target.media for part in parts)

    # --- user, system, developer -----------------------------------------------------------

    def _plain(self, message: Message, index: int) -> None:
        role: str = message.role
        system = role != "user"
        if role == "developer" and not self.target.developer:
            role = "system"  # the two are one kind of instruction, by two names
        content = _Content()
        for part in message.parts:
            if isinstance(part, (Text, Refusal)):
                content.text(part, part.text)
            elif isinstance(part, Media):
                self._media(part, content, index, refused=system)
            elif isinstance(part, Opaque) and (value := own(part)) is not None:
                content.add(value)
            else:
                self._cannot(part, index)
        item: Item = {"role": role}
        if content.parts:
            # A system of several blocks becomes one string: some servers take no parts there. The user's stay parts.
            whole = system or len(content.parts) == 1
            item["content"] = content.joined("\n\n") if whole else content.parts
        elif message.parts:
            if system:
                return
            item["content"] = "[message left out]"
        else:
            item["content"] = _empty(message, "")
        self._name(message, item, index)
        self._put(item | unknown_fields(message.native, NAME, _KNOWN), index)

    def _name(self, message: Message, item: Item, index: int) -> None:
        if message.name is None:
            return
        if self.target.speaker_pattern is None:
            self.lose(index, "name", f"the speaker's name {message.name!r} has no field here")
        else:
            item["name"] = message.name

    def _media(self, part: Media, content: _Content, index: int, *, refused: bool = False) -> None:
        """Media of a user message; words in its place where it cannot be sent."""
        kind = media_kind(part)
        if not refused and kind in self.target.media:
            value = own(part) or media_part(part)
            if value is not None:
                content.add(value)
                return
        if isinstance(part, File) and part.text is not None and part.data is None:
            content.words(part.text)
            if part.name is not None:
                self.lose(index, kind, f"the document {part.name!r} was written as plain text")
            return
        content.words(placeholder(part))
        self.lose(index, kind, f"{kind} cannot be sent {'here' if refused else 'to this target'}")

    def _cannot(self, part: Part, index: int) -> None:
        if isinstance(part, Opaque):
            self.lose(index, part.kind, f"{part.kind} has no form in Chat Completions")
        else:
            kind = type(part).__name__.lower()
            self.lose(index, kind, f"{kind} cannot stand in a message of this role")

    # --- assistant -------------------------------------------------------------------------

    def _assistant(self, group: Sequence[Message], index: int) -> None:
        """One chat message of one message, or of several that are joined."""
        first = group[0]
        item: Item = {"role": "assistant", "content": None}
        content = _Content()
        refusals: list[str] = []
        calls: list[Item] = []
        for at, message in enumerate(group, index):
            content.gap = "\n\n" if at > index else ""
            legacy = legacy_call(message)
            for part in message.parts:
                if isinstance(part, Text):
                    content.text(part, part.text)
                elif isinstance(part, ToolCall):
                    if legacy is not None and not part.id:
                        item["function_call"] = own(part) or {"name": part.name, "arguments": part.arguments}
                    else:
                        calls.append(write_call(part, self.target, lambda *what, at=at: self.lose(at, *what)))
                elif isinstance(part, Refusal):
                    if part.native is not None and part.native.format == NAME:
                        content.add(own(part) or refusal_part(part))
                    else:
                        refusals.append(part.text)
                elif isinstance(part, Audio) and part.file_id is not None and _ours(part):
                    item["audio"] = own(part) or {"id": part.file_id}
                elif isinstance(part, Media):
                    self._assistant_media(part, content, at)
                elif isinstance(part, Opaque) and (value := own(part)) is not None:
                    content.add(value)
                elif not isinstance(part, Reasoning):
                    self._cannot(part, at)
                    content.gap = "\n\n"
                if part.signature is not None and not isinstance(part, (ToolCall, Reasoning)):
                    self.lose(at, "signature", "a thought signature on a part that is no call")
            item |= reasoning_fields(
                message,
                self.target,
                at <= self.last_user_if_needed,
                lambda *what, at=at: self.lose(at, *what),
            )
        if refusals:
            item["refusal"] = "\n".join(refusals)
        if calls:
            item["tool_calls"] = calls
        if content.parts:
            item["content"] = content.joined()
        elif len(item) > 2:  # calls, a refusal or audio speak for it
            empty = _empty(first, None)
            if empty is _ABSENT:
                del item["content"]
            else:
                item["content"] = empty
        elif any(message.parts for message in group):  # all that it said cannot be carried
            if not self.target.alternates:
                return
            item["content"] = NO_ANSWER_TEXT
        else:
            item["content"] = _empty(first, "")
            if item["content"] is _ABSENT:
                del item["content"]
        self._name(first, item, index)
        for message in group:
            item |= unknown_fields(message.native, NAME, _KNOWN_ASSISTANT)
        self._put(item, index)

    @property
    def last_user_if_needed(self) -> int:
        return self.last_user if self.target.reasoning == "turn" else -1

    def _assistant_media(self, part: Media, content: _Content, index: int) -> None:
        kind = media_kind(part)
        self.lose(index, kind, f"{kind} that the assistant made cannot be sent back")
        if isinstance(part, (Image, Audio, File)):
            content.words(placeholder(part))

    # --- tool results ----------------------------------------------------------------------

    def _tool(self, message: Message, index: int) -> None:
        for part in message.parts:
            if isinstance(part, ToolResult):
                self._result(message, part, index)
            else:
                self._cannot(part, index)

    def _result(self, message: Message, result: ToolResult, index: int) -> None:
        content = _Content()
        for part in result.content:
            if isinstance(part, (Text, Refusal)):
                content.text(part, part.text)
            elif isinstance(part, File) and part.text is not None and part.data is None:
                content.words(part.text)
            elif isinstance(part, Media):
                self._result_media(part, content, index)
            elif (
                isinstance(part, Opaque)
                and self.target.tool_content != "string"
                and (value := own(part)) is not None
            ):
                content.add(value)
            else:
                self._cannot(part, index)
        native = message.native if message.native is not None and message.native.format == NAME else None
        given: Mapping[str, Any] = native.value if native is not None else {}
        if given.get("role") == "function" and not result.call_id:
            item: Item = {"role": "function", "name": result.name or ""}
        else:
            item = {"role": "tool", "tool_call_id": result.call_id}
            if "name" in given and given.get("role") == "tool" and result.name is not None:
                item["name"] = result.name
        if self.target.tool_content == "string" or not content.parts:
            item["content"] = "\n".join(
                str(part.get("text", "")) for part in content.parts if part.get("type") == "text"
            )
        else:
            item["content"] = content.joined() if len(content.parts) == 1 else content.parts
        if result.is_error:
            self.lose(
                index, "error_flag", f"that the result of {result.call_id!r} is an error has no field here"
            )
        self._put(item | unknown_fields(message.native, NAME, _KNOWN_TOOL), index)

    def _result_media(self, part: Media, content: _Content, index: int) -> None:
        """Media stays where results hold media, else goes to the user message after the batch of results."""
        kind = media_kind(part)
        value = own(part) or media_part(part)
        if value is None or kind not in self.target.media:
            content.words(placeholder(part))
            self.lose(index, kind, f"{kind} of a tool result cannot be sent to this target")
        elif self.target.tool_content == "media":
            content.add(value)
        else:
            if not self.moved:
                self.moved_from = index
            self.moved.append(part)
            content.words(f"[{kind}: see the next user message]")

    def _deliver(self, message: Message | None) -> Message:
        """Put the moved media before the user's words, or into a user message of their own."""
        media, self.moved = self.moved, []
        if message is not None and message.role == "user":
            return message.evolve(parts=(*media, *message.parts))
        if not self.target.user_after_tool:
            self._put({"role": "assistant", "content": NO_ANSWER_TEXT}, self.moved_from)
        moved = Message(role="user", parts=(Text(text="[from the tool results above]"), *media))
        self._plain(moved, self.moved_from)
        return message if message is not None else moved


_ABSENT: Any = object()


def _empty(message: Message, default: str | None) -> Any:
    """The content of a message that says nothing: as its own item had it, null, empty or absent."""
    native = message.native
    if native is None or native.format != NAME:
        return default
    content = native.value.get("content", _ABSENT)
    return content if content is None or content == "" or content is _ABSENT else default


def _ours(part: Part) -> bool:
    """Whether an answer's audio is known to this API: its id means nothing elsewhere."""
    return part.native is not None and part.native.format == NAME and isinstance(part.native.value, Mapping)
