"""A request's body read back into messages and tools, whatever its format: for models that live in this process.

A client of a provider never needs this: it sends the body as it is.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstory.errors import InvalidInput, ModelRefused
from backstory.formats import wire_format
from backstory.formats.request import read_all
from backstory.messages import Message
from backstory.targets import Target
from backstory.tokens import Counter
from backstory.tokens.messages import PRIMING, count_messages
from backstory.tokens.tools import count_tools

# The request's own system: https://platform.openai.com/docs/api-reference/responses/create: `instructions`;
# google-genai names the field in Python's way, and puts it and the tools into `config`.
_SYSTEM_FIELDS = {
    "openai_chat": (),
    "openai_responses": ("instructions",),
    "anthropic": ("system",),
    "gemini": ("systemInstruction", "system_instruction"),
}
_SCHEMA_FIELDS = (
    "parameters",
    "input_schema",
    "parametersJsonSchema",
    "parameters_json_schema",
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Tool:
    """A tool as a request declares it; `schema` is that of its parameters, empty where it has none."""

    name: str
    description: str
    schema: Mapping[str, Any]

    @property
    def properties(self) -> Mapping[str, Any]:
        found = self.schema.get("properties")
        return found if isinstance(found, Mapping) else {}

    @property
    def required(self) -> tuple[str, ...]:
        found = self.schema.get("required")
        return tuple(name for name in found if isinstance(name, str)) if isinstance(found, list) else ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """What a body asks: the messages (the system's first), and the tools that it holds."""

    messages: tuple[Message, ...]
    tools: tuple[Tool, ...]


def read_request(body: Mapping[str, Any], target: Target) -> Request:
    """Raises `ModelRefused` where an API would: no list of items, or an item that cannot be read."""
    field = wire_format(target.format).ITEMS
    items = body.get(field)
    if isinstance(items, str) and target.format == "openai_responses":
        items = [{"role": "user", "content": items}]
    if not isinstance(items, list) or not items:
        raise ModelRefused(f"400 invalid_request_error: {field} must be a list of at least one item")
    try:
        messages, _ = read_all(items, target.format, target.origin, system=_system(body, target))
    except InvalidInput as error:
        raise ModelRefused(f"400 invalid_request_error: {field}: {error}") from error
    return Request(messages=tuple(messages), tools=tuple(_tools(body, target)))


def body_tokens(body: Mapping[str, Any], target: Target, counter: Counter) -> int:
    """Tokens of input that a body comes to: its messages by `backstory.tokens`, and its tools too."""
    request = read_request(body, target)
    messages = sum(count_messages(request.messages, counter, target.format))
    return PRIMING + messages + count_tools(_declared(body), counter)


def canonical(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), sort_keys=True, default=str)


def _field(body: Mapping[str, Any], *names: str) -> Any:
    config = body.get("config")
    for name in names:
        if name in body:
            return body[name]
        if isinstance(config, Mapping) and name in config:
            return config[name]
    return None


def _system(body: Mapping[str, Any], target: Target) -> Any:
    return _field(body, *_SYSTEM_FIELDS[target.format])


def _tools(body: Mapping[str, Any], target: Target) -> list[Tool]:
    found: list[Tool] = []
    for item in _declared(body):
        inner: Any = [item]
        if target.format == "openai_chat":
            inner = [item.get("function") or item.get("custom")]
        elif target.format == "gemini":
            inner = item.get("functionDeclarations") or item.get("function_declarations") or []
        for one in inner:
            if isinstance(one, Mapping) and isinstance(one.get("name"), str):
                about = str(one.get("description") or "")
                found.append(Tool(name=one["name"], description=about, schema=_schema(one)))
    return found


def _declared(body: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    declared = _field(body, "tools")
    return [item for item in declared if isinstance(item, Mapping)] if isinstance(declared, list) else []


def _schema(tool: Mapping[str, Any]) -> Mapping[str, Any]:
    for field in _SCHEMA_FIELDS:
        found = tool.get(field)
        if isinstance(found, Mapping):
            return found
    return {}
