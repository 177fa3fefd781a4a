"""From the fields of a request body to messages and back: the list, the system and the tools of any format.

It decides nothing about what goes into a request; it only knows which field holds what.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backstory.errors import InvalidInput
from backstory.formats import wire_format
from backstory.formats.base import Item, Written
from backstory.messages import Message, Origin
from backstory.targets import Target


def read_all(
    messages: Any, source: str, origin: Origin | None = None, *, system: Any = None
) -> tuple[list[Message], list[int]]:
    """A whole list as messages, and for each the position in the list it was read from (-1: the system).

    `system` is the value of the request's own system field. `origin` says who made opaque items; else it is
    the format's own. Raises `InvalidInput` where this is no list, `InvalidMessage` for an item that cannot be
    read.
    """
    if not isinstance(messages, list | tuple):
        raise InvalidInput(_not_a_list(messages, source))
    form = wire_format(source)
    if origin is None:
        origin = form.ORIGIN
    found = form.read_system(system)
    positions = [-1] * len(found)
    read = form.read
    for index, item in enumerate(messages):
        read_ones = read(item, index=index, origin=origin)
        found += read_ones
        positions += [index] * len(read_ones)
    return found, positions


def _not_a_list(given: Any, source: str) -> str:
    what = f"expected the list of {wire_format(source).ITEMS} ({source}), not {type(given).__name__}"
    if isinstance(given, Mapping):
        field = next((name for name in ("messages", "input", "contents") if name in given), None)
        return f"{what}; pass its field {field!r}" if field else f"{what}; put one message into a list"
    return what


def request_body(target: Target, written: Written, tools: Sequence[Any] | None = None) -> dict[str, Any]:
    """The fields of a request: the list, the system where there is one apart, and the tools in the target's shape.

    See `tools_for` for the tools.
    """
    form = wire_format(target.format)
    body: dict[str, Any] = {}
    if form.SYSTEM is not None and written.system is not None:
        body[form.SYSTEM] = written.system
    body[form.ITEMS] = written.items
    if tools:
        body["tools"] = tools_for(target, tools)
    return body


# --- tools ---------------------------------------------------------------------------------


def tools_for(target: Target, tools: Sequence[Any]) -> list[Any]:
    """Functions as Chat Completions, Responses or Anthropic declare them, in the shape that the target has.

    A tool that is declared in the target's own shape, or in none of these, comes back as the same object.
    Carried are name, description, JSON Schema and, where the target knows it, `strict`.
    """
    if target.format == "gemini":
        return _gemini_tools(tools)
    shape = _SHAPES[target.format]
    found: list[Any] = []
    for tool in tools:
        function = _function(tool)
        own = function is None or _shape_of(tool) == target.format
        found.append(tool if own else shape(function))
    return found


def _shape_of(tool: Any) -> str | None:
    """Which of the shapes of a function a declaration has.

    https://platform.openai.com/docs/guides/function-calling (both of OpenAI's),
    https://platform.claude.com/docs/en/agents-and-tools/tool-use/define-tools (with `input_schema`).
    """
    if not isinstance(tool, Mapping):
        return None
    if tool.get("type") == "function":
        return "openai_chat" if isinstance(tool.get("function"), Mapping) else "openai_responses"
    return "anthropic" if "input_schema" in tool else None


def _function(tool: Any) -> Item | None:
    """The declaration as Chat Completions has it inside `function`; `None` where it is none that we know."""
    match _shape_of(tool):
        case "openai_chat":
            return dict(tool["function"])
        case "openai_responses":
            return {key: value for key, value in tool.items() if key != "type"}
        case "anthropic":
            found = {key: tool[key] for key in ("name", "description", "strict") if key in tool}
            return {**found, "parameters": tool["input_schema"]}
    return None


def _chat_tool(function: Any) -> Item:
    return {"type": "function", "function": function}


def _responses_tool(function: Any) -> Item:
    # `strict` is required, and on by default, which many a schema does not fulfil; absent elsewhere it is off.
    return {"type": "function", "parameters": None, "strict": False, **function}


def _anthropic_tool(function: Any) -> Item:
    found = {key: function[key] for key in ("name", "description", "strict") if function.get(key) is not None}
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    return {**found, "input_schema": schema}


_SHAPES: dict[str, Callable[[Any], Item]] = {
    "openai_chat": _chat_tool,
    "openai_responses": _responses_tool,
    "anthropic": _anthropic_tool,
}


def _gemini_tools(tools: Sequence[Any]) -> list[Any]:
    """https://ai.google.dev/api/caching#FunctionDeclaration: `parametersJsonSchema` takes JSON Schema as it is."""
    found: list[Any] = []
    declarations: list[Item] | None = None
    for tool in tools:
        function = _function(tool)
        if function is None:
            found.append(tool)
            continue
        declared = {key: function[key] for key in ("name", "description") if function.get(key) is not None}
        if function.get("parameters"):
            declared["parametersJsonSchema"] = function["parameters"]
        if declarations is None:
            declarations = []
            found.append({"functionDeclarations": declarations})
        declarations.append(declared)
    return found
