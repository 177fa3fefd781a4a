"""OpenAI Responses: the reader of its items, and the names that a format has.

https://developers.openai.com/api/reference/resources/responses/methods/create. One item is one `Message`. Calls that
the caller answers and their outputs are paired by `call_id`; what the server runs by itself (web and file search, code
interpreter, images, MCP) holds its own result and stays opaque, as do compactions and all types that are not known.

A response is several items. An item of the assistant's side is therefore always `joined`: it forms one unit with an
item of the assistant's side that stands before it, if one does. It refuses to know what is legal.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats._openai_media import compact, optional, string
from backstory.formats._responses_parts import CALL_OF, KIND_OF, NAME, OUTPUT_OF, OWN_TOOLS, read_content
from backstory.formats._responses_writer import ResponsesWriter
from backstory.formats.base import Written, expect_object
from backstory.formats.synthetic import synthetic_content
from backstory.messages import (
    Message,
    Native,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from backstory.targets import Target

__all__ = ["ITEMS", "NAME", "ORIGIN", "SYSTEM", "read", "read_system", "write"]

ITEMS = "input"
SYSTEM: str | None = None
ORIGIN = Origin(provider="openai")

_ROLES = frozenset({"user", "assistant", "system", "developer"})
# Opaque items that are not the model's.
_OPAQUE_ROLES: dict[str, Role] = {
    "additional_tools": "developer",
    "configuration_update": "developer",
    "compaction_trigger": "user",
}


def read(item: Any, *, index: int, origin: Origin) -> list[Message]:
    """One item. See `WireFormat.read`."""
    item = expect_object(item, index)
    kind = item.get("type")
    native = Native(format=NAME, value=item)
    if kind is None:
        kind = "message" if "role" in item else "item_reference" if "id" in item else None
    if kind == "message":
        return [_message(item, native, index, origin)]
    if type(kind) is not str:
        raise InvalidMessage("an item must have a type or a role", index=index)
    part: Part
    role: Role = "assistant"
    if kind in OUTPUT_OF and not _is_servers(item, kind):
        part, native = _call(item, kind, native, index)
    elif kind in CALL_OF and not _is_servers(item, kind):
        part = _output(item, kind, native, index, origin)
        role = "tool"
    elif kind == "reasoning":
        part = _reasoning(item, native, origin)
    else:
        part = Opaque(kind=kind, origin=origin, native=native)
        role = _OPAQUE_ROLES.get(kind, "assistant")
    item_id = optional(item.get("id"))
    return [Message(role=role, parts=(part,), id=item_id, joined=role == "assistant", native=native)]


def read_system(value: Any) -> list[Message]:
    """The `instructions` of a request: a string, or (as a response tells them) a list of items."""
    if value is None:
        return []
    if isinstance(value, (list, tuple)):
        return [
            message for index, item in enumerate(value) for message in read(item, index=index, origin=ORIGIN)
        ]
    return [Message(role="system", parts=read_content(value, 0, ORIGIN))]


def write(messages: Sequence[Message], target: Target) -> Written:
    """The messages as items. See `WireFormat.write`."""
    return ResponsesWriter(messages, target).write()


def _message(item: Mapping[str, Any], native: Native, index: int, origin: Origin) -> Message:
    role = item.get("role")
    if type(role) is not str or role not in _ROLES:
        raise InvalidMessage(f"unknown role {role!r}; one of developer, system, user, assistant", index=index)
    return Message(
        role=role,  # type: ignore[arg-type]
        parts=read_content(item.get("content"), index, origin),
        id=optional(item.get("id")),
        joined=role == "assistant",
        native=native,
    )


def _is_servers(item: Mapping[str, Any], kind: str) -> bool:
    """https://developers.openai.com/api/docs/guides/tools-tool-search: the server's own has no `call_id`."""
    return kind in ("tool_search_call", "tool_search_output") and not item.get("call_id")


def call_id_of(item: Mapping[str, Any], index: int) -> str:
    """`call_id`; a local shell's output and an approval have another field for it."""
    for field in ("call_id", "approval_request_id", "id"):
        value = item.get(field)
        if type(value) is str:
            return value
        if value is not None:
            raise InvalidMessage(f"{field} must be a string, not {type(value).__name__}", index=index)
    return ""


def _call(item: Mapping[str, Any], kind: str, native: Native, index: int) -> tuple[ToolCall, Native]:
    """A call, and its item, which is not intact where its arguments are no string as they should be."""
    if kind in KIND_OF:
        value = item.get("arguments" if kind == "function_call" else "input")
        if type(value) is not str:
            if kind != "function_call" or not (value is None or isinstance(value, Mapping)):
                raise InvalidMessage(
                    f"arguments of a call must be a string, not {type(value).__name__}", index=index
                )
            native = Native(format=NAME, value=item, intact=False)
            value = "" if value is None else compact(value, index)
        name = string(item.get("name"))
    elif kind == "mcp_approval_request":
        name = "mcp_approval"
        value = compact({key: item.get(key) for key in ("server_label", "name", "arguments")}, index)
    else:
        name, fields = OWN_TOOLS[kind]
        value = compact(next((item[field] for field in fields if item.get(field) is not None), {}), index)
    own_id = string(item.get("call_id")) or (string(item.get("id")) if kind not in KIND_OF else "")
    call = ToolCall(id=own_id, name=name, arguments=value, kind=KIND_OF.get(kind, kind), native=native)
    return call, native


def _output(item: Mapping[str, Any], kind: str, native: Native, index: int, origin: Origin) -> ToolResult:
    call = CALL_OF[kind]
    given = item.get("output")
    is_error: bool | None = None
    content: tuple[Part, ...]
    if kind == "shell_call_output" and isinstance(given, (list, tuple)):
        content = tuple([_chunk(chunk) for chunk in given if isinstance(chunk, Mapping)])
    elif kind == "computer_call_output" and isinstance(given, Mapping):
        content = read_content([given], index, origin)
    elif kind == "tool_search_output":
        content = (Text(text=compact(item.get("tools") or [], index)),)
    elif kind == "mcp_approval_response":
        words = string(item.get("reason")) or ("approved" if item.get("approve") else "not approved")
        content = (Text(text=words),)
    else:
        content = read_content(given, index, origin)
        if kind == "apply_patch_call_output":
            is_error = item.get("status") == "failed"
    own_id = (
        call_id_of(item, index) if kind not in ("function_call_output", "custom_tool_call_output") else ""
    )
    return ToolResult(
        call_id=own_id or string(item.get("call_id")),
        name=optional(item.get("name")),
        content=content,
        is_error=is_error,
        kind=KIND_OF.get(call, call),
        synthetic=synthetic_content(content),
        native=native,
    )


def _chunk(chunk: Mapping[str, Any]) -> Part:
    """https://developers.openai.com/api/docs/guides/tools-shell: `stdout`, `stderr` and how it ended."""
    text = "\n".join(part for part in (string(chunk.get("stdout")), string(chunk.get("stderr"))) if part)
    outcome = chunk.get("outcome")
    if isinstance(outcome, Mapping) and not text:
        text = string(outcome.get("type"))
        if outcome.get("exit_code") is not None:
            text = f"exit code {outcome['exit_code']}"
    return Text(text=text, native=Native(format=NAME, value=chunk))


def _reasoning(item: Mapping[str, Any], native: Native, origin: Origin) -> Reasoning:
    texts: list[str] = []
    for field in ("content", "summary"):
        held = item.get(field)
        if isinstance(held, (list, tuple)):
            texts = [string(part.get("text")) for part in held if isinstance(part, Mapping)]
        if texts:
            break
    return Reasoning(
        text="\n".join(texts),
        encrypted=optional(item.get("encrypted_content")),
        origin=origin,
        native=native,
    )
