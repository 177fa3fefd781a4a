"""OpenAI Chat Completions: the reader, and the names that a format has.

https://developers.openai.com/api/reference/resources/chat/subresources/completions/methods/create, and what servers
that speak it have added. One chat message is one `Message`. It refuses to know what is legal: broken arguments, missing
ids and empty content are read as they are, and `backstory.legality` deals with them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats._chat_calls import reasoning_text
from backstory.formats._chat_parts import NAME, read_content
from backstory.formats._chat_writer import ChatWriter
from backstory.formats._openai_media import compact, optional, string
from backstory.formats.base import Written, expect_object
from backstory.formats.synthetic import synthetic_content
from backstory.messages import (
    Audio,
    Message,
    Native,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
)
from backstory.targets import Target

__all__ = ["ITEMS", "NAME", "ORIGIN", "SYSTEM", "read", "read_system", "write"]

ITEMS = "messages"
SYSTEM: str | None = None
ORIGIN = Origin()  # many providers speak it

_PLAIN_ROLES = frozenset({"user", "system", "developer"})
_KNOWN_ROLES = "developer, system, user, assistant, tool, function"


def read(item: Any, *, index: int, origin: Origin) -> list[Message]:
    """One chat message. See `WireFormat.read`."""
    item = expect_object(item, index)
    role = item.get("role")
    if role == "assistant":
        return [_assistant(item, index, origin)]
    if role == "tool":
        return [_tool(item, index, origin)]
    if type(role) is str and role in _PLAIN_ROLES:
        return [
            Message(
                role=role,  # type: ignore[arg-type]
                parts=read_content(item.get("content"), index, origin),
                name=optional(item.get("name")),
                native=Native(format=NAME, value=item),
            )
        ]
    if role == "function":  # before tools; a call has no id there, and is found by its name
        return [_tool(item, index, origin)]
    raise InvalidMessage(f"unknown role {role!r}; one of {_KNOWN_ROLES}", index=index)


def read_system(value: Any) -> list[Message]:
    """A system prompt that came beside the list, as a string or a list of text parts."""
    if value is None:
        return []
    return [Message(role="system", parts=read_content(value, 0, ORIGIN))]


def write(messages: Sequence[Message], target: Target) -> Written:
    """The messages as chat messages. See `WireFormat.write`."""
    return ChatWriter(messages, target).write()


def _tool(item: Mapping[str, Any], index: int, origin: Origin) -> Message:
    content = read_content(item.get("content"), index, origin)
    call_id, altered = _id(item.get("tool_call_id"), index)
    result = ToolResult(
        call_id=call_id,
        name=optional(item.get("name")),
        content=content,
        synthetic=synthetic_content(content),
    )
    return Message(role="tool", parts=(result,), native=Native(format=NAME, value=item, intact=not altered))


def _assistant(item: Mapping[str, Any], index: int, origin: Origin) -> Message:
    content = item.get("content")
    parts: tuple[Part, ...]
    if type(content) is str:
        parts = (Text(text=content),) if content else ()
    else:
        parts = read_content(content, index, origin)
    intact = True
    if len(item) > 2 or "content" not in item:  # more than a role and a content
        thought = reasoning_text(item)
        before = () if thought is None else (Reasoning(text=thought, origin=origin),)
        after: list[Part] = []
        refusal = item.get("refusal")
        if type(refusal) is str:
            after.append(Refusal(text=refusal))
        audio = item.get("audio")
        if isinstance(audio, Mapping):
            after.append(_audio(audio))
        calls = item.get("tool_calls")
        if calls is not None:
            if not isinstance(calls, (list, tuple)):
                raise InvalidMessage(f"tool_calls must be a list, not {type(calls).__name__}", index=index)
            for call in calls:
                part = _call(call, index)
                intact = intact and part.native is not None and part.native.intact
                after.append(part)
        legacy = item.get("function_call")
        if isinstance(legacy, Mapping):
            part = _function_call(legacy, legacy, "", index)
            intact = intact and part.native is not None and part.native.intact
            after.append(part)
        parts = (*before, *parts, *after)
    return Message(
        role="assistant",
        parts=parts,
        name=optional(item.get("name")),
        native=Native(format=NAME, value=item, intact=intact),
    )


# https://developers.openai.com/api/docs/guides/audio: an answer's `audio` goes back by its `id` alone.
def _audio(audio: Mapping[str, Any]) -> Audio:
    return Audio(
        file_id=optional(audio.get("id")),
        data=optional(audio.get("data")),
        transcript=optional(audio.get("transcript")),
        native=Native(format=NAME, value=audio),
    )


def _call(call: Any, index: int) -> ToolCall:
    if not isinstance(call, Mapping):
        raise InvalidMessage(f"a tool call must be an object, not {type(call).__name__}", index=index)
    kind = call.get("type")
    call_id, altered = _id(call.get("id"), index)
    signature = thought_signature(call.get("extra_content"))
    if kind == "custom":
        inner = call.get("custom")
        if not isinstance(inner, Mapping):
            inner = {}
        return ToolCall(
            id=call_id,
            name=string(inner.get("name")),
            arguments=string(inner.get("input")),
            kind="custom",
            signature=signature,
            native=Native(format=NAME, value=call, intact=not altered),
        )
    if kind is None or kind == "function":
        inner = call.get("function")
        if inner is None:
            inner = {}
        elif not isinstance(inner, Mapping):
            raise InvalidMessage(
                f"function of a tool call must be an object, not {type(inner).__name__}", index=index
            )
        return _function_call(inner, call, call_id, index, signature=signature, altered=altered)
    kind = kind if type(kind) is str else "tool_call"
    inner = call.get(kind)
    return ToolCall(
        id=call_id,
        name=string(inner.get("name") if isinstance(inner, Mapping) else call.get("name")),
        arguments=compact(inner, index) if isinstance(inner, Mapping) else "{}",
        kind=kind,
        signature=signature,
        native=Native(format=NAME, value=call, intact=not altered),
    )


def _function_call(
    function: Mapping[str, Any],
    call: Mapping[str, Any],
    call_id: str,
    index: int,
    *,
    signature: str | None = None,
    altered: bool = False,
) -> ToolCall:
    arguments = function.get("arguments")
    if type(arguments) is not str:
        # The field is a string. A server that sent an object or nothing gets the string that it should have sent.
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidMessage(
                f"arguments of a tool call must be a string, not {type(arguments).__name__}", index=index
            )
        arguments = "" if arguments is None else compact(arguments, index)
        altered = True
    return ToolCall(
        id=call_id,
        name=string(function.get("name")),
        arguments=arguments,
        signature=signature,
        native=Native(format=NAME, value=call, intact=not altered),
    )


# https://ai.google.dev/gemini-api/docs/thought-signatures (OpenAI compatibility): `extra_content.google`; Vertex's
# endpoint names it `vertex`.
def thought_signature(extra: Any) -> str | None:
    """The Gemini thought signature in a tool call's `extra_content`."""
    if isinstance(extra, Mapping):
        for provider in ("google", "vertex"):
            inner = extra.get(provider)
            if isinstance(inner, Mapping) and type(inner.get("thought_signature")) is str:
                return str(inner["thought_signature"])
    return None


def _id(value: Any, index: int) -> tuple[str, bool]:
    """An id, and whether it was a number: some servers count their calls."""
    if type(value) is str:
        return value, False
    if value is None:
        return "", False
    if type(value) is int:
        return str(value), True
    raise InvalidMessage(f"the id of a tool call must be a string, not {type(value).__name__}", index=index)
