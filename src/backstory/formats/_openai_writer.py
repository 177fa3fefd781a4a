"""What the writers of OpenAI's two APIs share: a content under way, media on the move, losses.

It renders, and decides nothing: pairing, order and names were made legal before. What a server is known not to take
(`Target`) is put another way where nothing is lost by it, and is reported as a `Loss` where something is.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from functools import cached_property
from typing import Any, ClassVar, cast

from backstory.formats._openai_media import ALL_MEDIA, media_kind, placeholder
from backstory.formats.base import Item, Loss, Written, verbatim
from backstory.formats.synthetic import NO_ANSWER_TEXT
from backstory.messages import File, Media, Message, Opaque, Part, Refusal, Text, ToolResult
from backstory.targets import Target

LEFT_OUT_TEXT = "[message left out]"
"""Stands for a user message of which nothing can be sent: its place must not be empty."""


class Content:
    """A content under way: part dicts, or plain strings as long as nothing asks for parts."""

    def __init__(self) -> None:
        self.parts: list[Item] = []
        self._texts: list[str] = []
        self._plain = True
        self.gap = ""
        """What parts the next text from the one before, where both end up in one string."""

    def text(self, text: str, part: Item, *, plain: bool) -> None:
        """A text; `plain` says that its `part` holds nothing but the text."""
        self._plain = self._plain and plain
        self._texts.append(self.gap + text if self._texts else text)
        self.parts.append(part)
        self.gap = ""

    def add(self, part: Item) -> None:
        self._plain = False
        self.parts.append(part)
        self.gap = ""

    def whole(self) -> str | list[Item]:
        """One string where all is plain text, else the parts."""
        return "".join(self._texts) if self._plain else self.parts

    def all_text(self, separator: str) -> str:
        """All its text as one string; whatever else it holds was reported before."""
        return separator.join(str(part["text"]) for part in self.parts if type(part.get("text")) is str)


def own_words(parts: Sequence[Part]) -> str | None:
    """The texts of parts that are plain texts of our own and nothing else, as one; `None` for any others."""
    said = [p.text for p in parts if type(p) is Text and p.native is None and p.signature is None]
    return "\n\n".join(said) if said and len(said) == len(parts) else None


class OpenAIWriter(ABC):
    """One run over a list of messages."""

    name: ClassVar[str]

    def __init__(self, messages: Sequence[Message], target: Target) -> None:
        self.messages = messages
        self.target = target
        self.written = Written()
        self.all_media = target.media >= ALL_MEDIA
        self._moved: list[Part] = []  # media on the way from tool results to the user message after them
        self._moved_from = 0

    @abstractmethod
    def media_part(self, part: Media) -> Item | None:
        """The content part of a user message for media; `None` where the format has no form for it."""

    @abstractmethod
    def text_part(self, part: Text | Refusal, text: str, role: str) -> Item:
        """The content part for a text."""

    @abstractmethod
    def plain(self, message: Message, index: int) -> None:
        """Write a message of the user's or the system's from its typed fields."""

    @cached_property
    def last_user(self) -> int:
        """The user message that opened the turn under way: reasoning before it has expired."""
        return next((i for i in range(len(self.messages) - 1, -1, -1) if self.messages[i].role == "user"), -1)

    def lose(self, index: int, kind: str, what: str) -> None:
        self.written.losses.append(Loss(index=index, kind=kind, what=what))

    def put(self, item: Item, index: int) -> None:
        self.written.items.append(item)
        self.written.starts.append(index)

    def own(self, part: Part) -> Item | None:
        """The part's own dict, where it is of this format and intact."""
        return cast("Item | None", verbatim(part.native, self.name))

    def ours(self, holder: Message | Part) -> bool:
        return holder.native is not None and holder.native.format == self.name

    def refuses(self, parts: Sequence[Part]) -> bool:
        """Whether there is media among them that the target does not take."""
        return any(isinstance(part, Media) and media_kind(part) not in self.target.media for part in parts)

    def add_text(self, content: Content, part: Text | Refusal, role: str) -> None:
        value = self.own(part) if isinstance(part, Text) else None
        plain = value is None and not self.ours(part)
        content.text(part.text, value or self.text_part(part, part.text, role), plain=plain)

    def add_words(self, content: Content, words: str, role: str) -> None:
        self.add_text(content, Text(text=words), role)

    def speaker(self, message: Message, item: Item, index: int) -> None:
        if message.name is None:
            return
        if self.target.speaker_pattern is None:
            self.lose(index, "name", f"the speaker's name {message.name!r} has no field here")
        else:
            item["name"] = message.name

    def cannot(self, part: Part, index: int) -> None:
        if isinstance(part, Opaque):
            self.lose(index, "opaque", f"{part.kind} has no form in {self.name}")
        else:
            kind = type(part).__name__.lower()
            self.lose(index, kind, f"{kind} cannot stand in a message of this role")

    def words_content(self, message: Message, index: int) -> Content:
        """The content of a message of the user's or the system's."""
        content = Content()
        system = message.role != "user"
        for part in message.parts:
            if isinstance(part, (Text, Refusal)):
                if (
                    system
                ):  # one system of several blocks becomes one string: some servers take no parts there
                    content.gap = "\n\n"
                self.add_text(content, part, message.role)
            elif isinstance(part, Media):
                self.add_media(part, content, index, message.role)
            elif isinstance(part, Opaque) and (value := self.own(part)) is not None:
                content.add(value)
            else:
                self.cannot(part, index)
            if part.signature is not None:
                self.lose(index, "signature", "a thought signature has no field here")
        return content

    def add_media(self, part: Media, content: Content, index: int, role: str) -> None:
        """Media of a message; words in its place where it cannot be sent."""
        kind = media_kind(part)
        sendable = role == "user" and kind in self.target.media
        value = (self.own(part) or self.media_part(part)) if sendable else None
        if value is not None:
            content.add(value)
            return
        self.add_words(content, placeholder(part), role)
        if isinstance(part, File) and part.text is not None:
            if part.name is not None:
                self.lose(index, kind, f"the document {part.name!r} was written as plain text")
        else:
            self.lose(index, kind, f"{kind} cannot be sent in a message of this role to this target")

    # --- tool results ----------------------------------------------------------------------

    def result_content(self, result: ToolResult, index: int) -> Content:
        content = Content()
        for part in result.content:
            if isinstance(part, (Text, Refusal)):
                self.add_text(content, part, "tool")
            elif isinstance(part, File) and part.text is not None and part.data is None:
                self.add_words(content, part.text, "tool")
            elif isinstance(part, Media):
                self._result_media(part, content, index)
            elif (
                isinstance(part, Opaque)
                and self.target.tool_content != "string"
                and (value := self.own(part)) is not None
            ):
                content.add(value)
            else:
                self.cannot(part, index)
        if result.is_error and not self.ours(result):
            self.lose(
                index, "error_flag", f"that the result of {result.call_id!r} is an error has no field here"
            )
        return content

    def _result_media(self, part: Media, content: Content, index: int) -> None:
        """Media stays where results hold media, else goes to the user message after the batch of results."""
        kind = media_kind(part)
        value = self.own(part) or self.media_part(part)
        if value is None or kind not in self.target.media:
            self.add_words(content, placeholder(part), "tool")
            self.lose(index, kind, f"{kind} of a tool result cannot be sent to this target")
        elif self.target.tool_content == "media":
            content.add(value)
        else:
            if not self._moved:
                self._moved_from = index
            self._moved.append(part)
            self.add_words(content, f"[{kind}: see the next user message]", "tool")

    def deliver(self, message: Message | None) -> Message | None:
        """Put the moved media before the user's words, or into a user message of their own."""
        if not self._moved:
            return message
        media, self._moved = self._moved, []
        if message is not None and message.role == "user":
            return message.evolve(parts=(*media, *message.parts))
        if not self.target.user_after_tool:
            self.put(self.mark(), self._moved_from)
        moved = Message(role="user", parts=(Text(text="[from the tool results above]"), *media))
        self.plain(moved, self._moved_from)
        return message

    def mark(self) -> Item:
        """The assistant's words where a strict target asks for some and there are none."""
        return {"role": "assistant", "content": NO_ANSWER_TEXT}


ABSENT: Any = object()


def empty_content(message: Message, format: str, default: str | None) -> Any:
    """The content of a message that says nothing: as its own item had it, null, empty or `ABSENT`."""
    native = message.native
    if native is None or native.format != format:
        return default
    content = native.value.get("content", ABSENT)
    return content if content is None or content == "" or content is ABSENT else default
