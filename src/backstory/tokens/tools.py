"""What tool declarations cost.

OpenAI's models read them as a TypeScript namespace: a comment for each description, one type for each
function (https://community.openai.com/t/266573 has it as a model wrote it out). Counted so, the example of
OpenAI's cookbook comes out to the token. What that rendering leaves out or is not known to render (limits, formats,
definitions) is counted as JSON, so that a schema is rather over- than underrated. For everybody else the compact
JSON is counted: Anthropic says that names, descriptions and schemas count, with a prompt of its own on top; the
chat templates of open models write JSON.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backstory.tokens.models import Counter

#: Around all tools: OpenAI's namespace adds 9 to the text as rendered (5 where there is a system message).
AROUND_ALL: Final = 9
#: Around each, where JSON is counted: separators, and what a template writes before and after.
AROUND_EACH: Final = 8
#: Anthropic's own prompt for the use of tools: 346 tokens with Claude 4 and `tool_choice` auto or none, 313
#: otherwise (https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview, "Pricing").
ANTHROPIC_PROMPT: Final = 346
#: How far off a count may be, relative: next to nothing for flat schemas at OpenAI; nobody else says how tools are
#: written. `Calibration` learns the rest.
MARGIN: Final = 0.2

#: How the server is to treat the tool, not what the model reads of it.
_WIRE_ONLY: Final = frozenset({"cache_control", "strict", "defer_loading"})
_RENDERED: Final = frozenset(
    {
        "type",
        "description",
        "properties",
        "required",
        "items",
        "enum",
        "anyOf",
        "oneOf",
        "additionalProperties",
    }
)
_TYPES: Final = {
    "string": "string",
    "number": "number",
    "integer": "number",
    "boolean": "boolean",
    "null": "null",
}
_DEEPEST: Final = 32
_MOST_NODES: Final = 20_000


def count_tools(tools: Sequence[Mapping[str, Any]] | None, counter: Counter) -> int:
    """Tokens of the declarations in `tools`, in any provider's form; 0 for none.

    Never raises, whatever is in the list: what neither rendering nor JSON can write, circular or deep beyond end,
    counts by the strings and numbers in it.
    """
    if not tools:
        return 0
    given: Sequence[object] = [tools] if isinstance(tools, Mapping | str) else list(tools)
    declared = [declaration for tool in given for declaration in _declarations(tool)]
    if counter.exact:
        texts = [_Rendering().function(declaration) or _written(declaration) for declaration in declared]
        return AROUND_ALL + counter.count(
            "\n".join(("namespace functions {\n", *texts, "} // namespace functions"))
        )
    prompt = ANTHROPIC_PROMPT if counter.name.startswith("claude") else 0
    return prompt + AROUND_ALL + sum(AROUND_EACH + counter.count(_written(each)) for each in declared)


def _declarations(tool: object) -> Iterator[object]:
    """What is declared, out of the wrapper that only the wire needs."""
    if not isinstance(tool, Mapping):
        yield tool
        return
    several = tool.get("functionDeclarations", tool.get("function_declarations"))
    if isinstance(several, list | tuple) and several:
        for one in several:
            yield from _declarations(one) if isinstance(one, Mapping) and "name" in one else (one,)
        return
    function = tool.get("function")
    told = function if isinstance(function, Mapping) else tool
    yield {key: value for key, value in told.items() if key not in _WIRE_ONLY}


class _Unrenderable(Exception):
    """Not of the form that the rendering is known for: the JSON is counted instead."""


class _Rendering:
    """One declaration as TypeScript."""

    def __init__(self) -> None:
        self._nodes = 0

    def function(self, declaration: object) -> str | None:
        """The text of it, or `None` where it is no function with a schema of sane depth and size."""
        if not isinstance(declaration, Mapping) or not isinstance(declaration.get("name"), str):
            return None
        schemas = (
            declaration[key] for key in ("parameters", "input_schema", "inputSchema") if key in declaration
        )
        schema: object = next(schemas, {})
        try:
            lines = [*_comment(declaration.get("description")), *_comment(_leftover(schema))]
            arguments = self._object(schema, 0)
        except _Unrenderable:
            return None
        arguments = f"_: {arguments}" if arguments != "{}" else ""
        return "\n".join((*lines, f"type {declaration['name']} = ({arguments}) => any;\n"))

    def _type(self, schema: object, depth: int) -> str:
        self._nodes += 1
        if depth > _DEEPEST or self._nodes > _MOST_NODES:
            raise _Unrenderable
        if not isinstance(schema, Mapping):
            return "any"
        options = schema.get("anyOf", schema.get("oneOf"))
        if isinstance(options, list | tuple):
            return " | ".join(self._type(option, depth + 1) for option in options)
        if isinstance(schema.get("enum"), list | tuple):
            return " | ".join(map(_written, schema["enum"]))
        kind = schema.get("type")
        if isinstance(kind, list | tuple):
            return " | ".join(self._type({**schema, "type": one}, depth + 1) for one in kind)
        if kind == "array":
            return self._type(schema["items"], depth + 1) + "[]" if "items" in schema else "any[]"
        if kind == "object" or "properties" in schema:
            return self._object(schema, depth)
        return _TYPES.get(kind, "any") if isinstance(kind, str) else "any"

    def _object(self, schema: object, depth: int) -> str:
        properties = schema.get("properties") if isinstance(schema, Mapping) else None
        if not isinstance(schema, Mapping) or not isinstance(properties, Mapping) or not properties:
            return "{}" if depth == 0 else "object"
        required = schema.get("required")
        needed = set(filter(_is_text, required)) if isinstance(required, list | tuple) else set()
        lines = ["{"]
        for name, value in properties.items():
            if isinstance(value, Mapping):
                lines += _comment(value.get("description"))
                lines += _comment(_leftover(value))
            optional = "" if name in needed else "?"
            lines.append(f"{name}{optional}: {self._type(value, depth + 1)},")
        return "\n".join((*lines, "}"))


def _is_text(value: object) -> bool:
    return isinstance(value, str)


def _comment(text: object) -> list[str]:
    return [f"// {text}"] if isinstance(text, str) and text else []


def _leftover(schema: object) -> str:
    """What of a schema the rendering has no place for."""
    left = (
        {key: value for key, value in schema.items() if key not in _RENDERED}
        if isinstance(schema, Mapping)
        else {}
    )
    return _written(left) if left else ""


def _written(value: object) -> str:
    """Compact JSON, or failing that the words in it."""
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=_plain, skipkeys=True)
    except (ValueError, RecursionError):
        return " ".join(_leaves(value))


def _plain(value: object) -> object:
    """A stand-in for what JSON has no form for."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, set | frozenset) else type(value).__name__


def _leaves(value: object) -> Iterator[str]:
    """Keys, strings and numbers, each container once, without recursion."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if id(value) not in seen:
                seen.add(id(value))
                waiting.extend(value)
                waiting.extend(value.values() if isinstance(value, Mapping) else ())
        elif isinstance(value, str | int | float | None):
            yield str(value)
