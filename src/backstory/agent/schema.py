"""From a typed function to the JSON Schema of its parameters, and from a model's arguments to Python values.

pydantic does both (https://docs.pydantic.dev/latest/concepts/json_schema/), docstring_parser reads the Google,
NumPy and reST styles of docstrings. Both are imported here when the first tool is declared, and nowhere else.
This module knows nothing of calls and results.
"""

from __future__ import annotations

import functools
import inspect
import json
import typing
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, get_args, get_origin

from backstory.agent.tool_context import ToolContext
from backstory.errors import ToolError

Arguments = dict[str, Any]
Validator = Callable[[Arguments], Arguments]

_SHOWN = 5
"""Problems that one message to the model names: more would not be mended at once anyway."""


class BadArguments(ToolError):
    """What the model gave does not fit the parameters; the text is meant for the model."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Declared:
    """What a function says of itself. `context` names the parameter that takes the `ToolContext`, if any."""

    description: str
    parameters: dict[str, Any]
    validate: Validator
    context: str | None


def declare(function: Callable[..., Any]) -> Declared:
    """Read a function's annotations and docstring. Raises `ToolError` where they do not make a schema."""
    name = getattr(function, "__name__", type(function).__name__)
    if inspect.isgeneratorfunction(function) or inspect.isasyncgenfunction(function):
        raise ToolError(f"tool {name!r} is a generator; return the whole result, a list for instance")
    signature, hints = _signature(function, name)
    described, told = _docstring(function)
    context = next((key for key, hint in hints.items() if _takes_context(hint) and key in signature), None)
    fields: dict[str, tuple[Any, Any]] = {}
    for key, parameter in signature.items():
        if key != context:
            fields[key] = (_annotation(parameter, hints, name, told.get(key)), parameter.default)
    parameters, validate = _compile(name, fields)
    return Declared(description=described, parameters=parameters, validate=validate, context=context)


def context_parameter(function: Callable[..., Any]) -> str | None:
    """The parameter of a function that takes the `ToolContext`; `None` also where its annotations are unreadable."""
    try:
        hints = typing.get_type_hints(_plain(function))
    except (NameError, TypeError, AttributeError):
        return None
    return next((key for key, hint in hints.items() if key != "return" and _takes_context(hint)), None)


def required_only(parameters: Mapping[str, Any]) -> Validator:
    """The validator of a tool that came with a schema of its own: what is required must be there.

    The rest is left to the tool, whose schema may say more than one library checks.
    """
    required = [key for key in parameters.get("required", ()) if isinstance(key, str)]

    def validate(arguments: Arguments) -> Arguments:
        missing = [key for key in required if key not in arguments]
        if missing:
            raise BadArguments("; ".join(f"{key}: required, and missing" for key in missing))
        return arguments

    return validate


# --- reading the function ------------------------------------------------------------------


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """Where the annotations are: inside a partial, or on the method that makes an object callable."""
    while isinstance(function, functools.partial):
        function = function.func
    if not inspect.isroutine(function) and not inspect.isclass(function):
        function = type(function).__call__
    return function


def _signature(
    function: Callable[..., Any], name: str
) -> tuple[dict[str, inspect.Parameter], dict[str, Any]]:
    try:
        signature = dict(inspect.signature(function).parameters)
        hints = typing.get_type_hints(_plain(function), include_extras=True)
    except NameError as error:
        raise ToolError(
            f"tool {name!r}: an annotation names {error.name!r}, which its module does not define; "
            "define or import it at the top of the module"
        ) from error
    except (TypeError, ValueError, AttributeError) as error:
        raise ToolError(f"tool {name!r}: its signature cannot be read ({error})") from error
    hints.pop("return", None)
    return signature, hints


def _annotation(parameter: inspect.Parameter, hints: Mapping[str, Any], name: str, told: str | None) -> Any:
    """The type of a parameter, with its description. Raises `ToolError` where there is no telling what it takes."""
    from pydantic import Field
    from pydantic.fields import FieldInfo

    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        star = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        raise ToolError(f"tool {name!r}: {star}{parameter.name} has no schema; name every parameter")
    if parameter.kind is parameter.POSITIONAL_ONLY:
        raise ToolError(
            f"tool {name!r}: arguments come by name, so {parameter.name!r} cannot stand before a /"
        )
    hint = hints.get(parameter.name)
    if hint is None:
        bound = "; for a method, make a tool of the bound one: tool(object.method)"
        raise ToolError(
            f"tool {name!r}: parameter {parameter.name!r} has no annotation; "
            f"write one, such as {parameter.name}: str{bound if parameter.name == 'self' else ''}"
        )
    if get_origin(hint) is Annotated:
        plain, *notes = get_args(hint)
        if any(isinstance(note, FieldInfo) and note.description for note in notes):
            return hint
        own = next((note for note in notes if isinstance(note, str)), None)
        kept = [note for note in notes if not isinstance(note, str)]
        told = own or told
        hint = functools.reduce(lambda inner, note: Annotated[inner, note], kept, plain)
    return Annotated[hint, Field(description=told)] if told else hint


def _takes_context(hint: Any) -> bool:
    if get_origin(hint) is Annotated:
        hint = get_args(hint)[0]
    return hint is ToolContext or ToolContext in get_args(hint)


def _docstring(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """What the docstring says of the function, and of each parameter."""
    import docstring_parser

    text = inspect.getdoc(_plain(function)) or ""
    try:
        parsed = docstring_parser.parse(text)
    except docstring_parser.ParseError:
        return text.strip(), {}
    whole = "\n\n".join(filter(None, (parsed.short_description, parsed.long_description)))
    told = {
        param.arg_name: " ".join(param.description.split()) for param in parsed.params if param.description
    }
    return whole.strip(), told


# --- pydantic ------------------------------------------------------------------------------


def _compile(name: str, fields: Mapping[str, tuple[Any, Any]]) -> tuple[dict[str, Any], Validator]:
    """The schema of the parameters, and the function that checks and converts arguments.

    The model's own field names are placeholders and the parameters' names their aliases, since pydantic
    reserves some names (``schema``, ``_private``, ``model_config``) that a parameter may well have.
    """
    from pydantic import ConfigDict, Field, create_model
    from pydantic.errors import PydanticInvalidForJsonSchema, PydanticSchemaGenerationError, PydanticUserError

    made: dict[str, Any] = {}
    for index, (key, (annotation, default)) in enumerate(fields.items()):
        value = ... if default is inspect.Parameter.empty else default
        made[f"p{index}"] = (annotation, Field(value, alias=key))
    config = ConfigDict(extra="forbid", coerce_numbers_to_str=True)
    try:
        model = create_model("Arguments", __config__=config, **made)
        schema = model.model_json_schema(schema_generator=_generator())
    except (PydanticSchemaGenerationError, PydanticInvalidForJsonSchema, PydanticUserError) as error:
        raise ToolError(
            f"tool {name!r}: a parameter has a type that JSON cannot carry: {error.message.splitlines()[0]}"
        ) from error
    except (TypeError, ValueError) as error:
        raise ToolError(f"tool {name!r}: its parameters make no schema ({error})") from error
    attributes = {key: f"p{index}" for index, key in enumerate(fields)}
    optional = {key for key, (_, default) in fields.items() if default is not inspect.Parameter.empty}

    def validate(arguments: Arguments) -> Arguments:
        checked = _check(model, arguments, optional)
        given = checked.model_fields_set
        return {
            key: getattr(checked, attribute) for key, attribute in attributes.items() if attribute in given
        }

    return _untitled(schema), validate


def _check(model: Any, arguments: Arguments, optional: set[str]) -> Any:
    """Validate; where that fails, once more with two habits of models mended.

    They give null for what they mean to leave out, and a list or an object as the text of its JSON.
    """
    from pydantic import ValidationError

    try:
        return model.model_validate(arguments)
    except ValidationError as error:
        first = error
    wrong = {str(problem["loc"][0]) for problem in first.errors(include_url=False) if problem["loc"]}
    mended = {}
    for key, value in arguments.items():
        if key in wrong and value is None and key in optional:
            continue
        mended[key] = _unpacked(value) if key in wrong else value
    try:
        return model.model_validate(mended)
    except ValidationError:
        raise BadArguments(_explain(first)) from None


def _unpacked(value: Any) -> Any:
    if not isinstance(value, str) or not value.lstrip().startswith(("[", "{")):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value


def _explain(error: Any) -> str:
    """One short line a problem."""
    lines = []
    problems = error.errors(include_url=False, include_context=False)
    for problem in problems[:_SHOWN]:
        place = ".".join(str(step) for step in problem["loc"])
        match problem["type"]:
            case "missing":
                lines.append(f"{place}: required, and missing")
            case "extra_forbidden":
                lines.append(f"{place}: there is no such parameter")
            case _:
                given = repr(problem["input"])
                lines.append(f"{place}: {problem['msg']}, not {given[:80]}{'…' if len(given) > 80 else ''}")
    if len(problems) > _SHOWN:
        lines.append(f"and {len(problems) - _SHOWN} more")
    return "; ".join(lines)


@functools.cache
def _generator() -> Any:
    """A default that JSON cannot hold is left out of the schema without a warning: the function still has it."""
    from pydantic.json_schema import GenerateJsonSchema

    quiet = {"ignored_warning_kinds": {"non-serializable-default", "skipped-choice"}}
    return type("Schema", (GenerateJsonSchema,), quiet)


_MAPS = ("properties", "$defs", "patternProperties")
_NOT_SCHEMAS = ("default", "const", "enum", "examples")


def _untitled(schema: Any) -> Any:
    """Without the titles, which repeat the names and cost tokens in every request."""
    if isinstance(schema, list):
        return [_untitled(inner) for inner in schema]
    if not isinstance(schema, dict):
        return schema
    found = {}
    for key, value in schema.items():
        if key in _MAPS:
            found[key] = {name: _untitled(inner) for name, inner in value.items()}
        elif key in _NOT_SCHEMAS:
            found[key] = value
        elif key != "title":
            found[key] = _untitled(value)
    return found
