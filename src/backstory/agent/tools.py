"""What a tool is: a function that a model may call, with the schema by which it knows how.

    @backstory.tool
    def weather(city: str, days: int = 1) -> str:
        "The forecast for a city."

The function stays callable as before. Running a model's call is `backstory.agent.execute`'s business.
"""

from __future__ import annotations

import copy
import functools
import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Generic, ParamSpec, TypeAlias, TypeVar, overload

from backstory.agent.schema import Validator, context_parameter, declare, required_only
from backstory.errors import ToolError
from backstory.formats.request import tools_for
from backstory.targets import Target

P = ParamSpec("P")
R = TypeVar("R")

# The narrowest of the providers' rules (see `backstory.targets`): a tool then works with each of them.
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")


class Tool(Generic[P, R]):
    """A function that a model may call. Calling the tool calls the function.

    `run` takes the arguments by name; it may be synchronous (it then runs in a thread) or asynchronous.
    `parameters` is the JSON Schema of an object. Given here, it is not enforced beyond what is required: the rest is
    `run`'s business. From `tool` it is made of the annotations, and arguments are checked and converted by it.
    `timeout` in seconds and `max_result` in characters; `None` leaves both to the context. `parallel`
    declares that calls of it may run beside other such calls of the same step.

    Raises `ToolError` for a name that a provider would refuse, and for a schema that is not an object's.
    """

    def __init__(
        self,
        *,
        name: str,
        run: Callable[P, R],
        description: str = "",
        parameters: Mapping[str, Any] | None = None,
        timeout: float | None = None,
        parallel: bool = False,
        max_result: int | None = None,
    ) -> None:
        if not callable(run):
            raise ToolError(f"tool {name!r}: run must be callable, not {type(run).__name__}")
        given = _schema(name, parameters)
        self._settle(name, run, description, given, timeout, parallel, max_result)
        self._validate: Validator = required_only(given)
        self.context_parameter = context_parameter(run)

    def _settle(
        self,
        name: str,
        run: Callable[P, R],
        description: str,
        parameters: dict[str, Any],
        timeout: float | None,
        parallel: bool,
        max_result: int | None,
    ) -> None:
        if not _NAME.fullmatch(name):
            raise ToolError(
                f"{name!r} is no name for a tool: letters of a to z, digits, _ and -, 64 at most; set name=…"
            )
        if timeout is not None and not timeout > 0:
            raise ToolError(f"tool {name!r}: timeout is a positive number of seconds, not {timeout!r}")
        if max_result is not None and max_result < 200:
            raise ToolError(f"tool {name!r}: max_result is at least 200 characters, not {max_result!r}")
        functools.update_wrapper(self, run, updated=())
        self.name = name
        self.run = run
        self.description = description
        self.parameters = parameters
        self.timeout = timeout
        self.parallel = parallel
        self.max_result = max_result

    @classmethod
    def of(
        cls,
        function: Callable[P, R],
        *,
        name: str | None = None,
        description: str | None = None,
        timeout: float | None = None,
        parallel: bool = False,
        max_result: int | None = None,
    ) -> Tool[P, R]:
        """Make a tool of a typed function; see `tool`."""
        if not callable(function):
            raise ToolError(f"a tool is made of a function, not of {function!r}")
        declared = declare(function)
        made = cls.__new__(cls)
        called = name or getattr(function, "__name__", "") or type(function).__name__
        text = declared.description if description is None else description
        made._settle(called, function, text, declared.parameters, timeout, parallel, max_result)
        made._validate = declared.validate
        made.context_parameter = declared.context
        return made

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R:
        return self.run(*args, **kwargs)

    def __repr__(self) -> str:
        return f"Tool({self.name!r})"

    def validate(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """The arguments as `run` takes them, checked and converted. Raises `BadArguments`, a `ToolError`."""
        return self._validate(arguments)

    def schema(self, target: Target | str = "openai_chat") -> dict[str, Any]:
        """The declaration as the target's API takes it, as one entry of the request's `tools`.

        Raises `ConfigurationError` for an unknown target.
        """
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        (declared,) = tools_for(Target.of(target), [{"type": "function", "function": function}])
        return copy.deepcopy(declared)

    @property
    def schema_hash(self) -> str:
        """SHA-256 of all that the model sees of the tool: equal in every process, whatever the order of keys."""
        seen = [self.name, self.description, self.parameters]
        text = json.dumps(seen, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()


AnyTool: TypeAlias = Tool[..., Any]


@overload
def tool(
    function: Callable[P, R],
    /,
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    parallel: bool = False,
    max_result: int | None = None,
) -> Tool[P, R]: ...
@overload
def tool(
    *,
    name: str | None = None,
    description: str | None = None,
    timeout: float | None = None,
    parallel: bool = False,
    max_result: int | None = None,
) -> Callable[[Callable[P, R]], Tool[P, R]]: ...
def tool(function: Callable[P, R] | None = None, /, **options: Any) -> Any:
    """Make a tool of a typed function, synchronous or asynchronous; a decorator, with options or without.

    The schema comes from the annotations: `Annotated[int, "what it is"]`, pydantic's `Field`, `Literal`, enums,
    dataclasses, models and nested types. The docstring (Google, NumPy or reST style) describes tool and parameters. A
    parameter annotated with `ToolContext` is filled in by the runner and not shown to the model.

    `timeout` is in seconds, `max_result` in characters; `parallel=True` declares that calls may run side by side.
    Raises `ToolError`, here and not at the first call, for a function that cannot be declared.
    """
    if function is not None:
        return Tool.of(function, **options)
    return functools.partial(Tool.of, **options)


def as_tools(tools: Iterable[AnyTool | Callable[..., Any]]) -> dict[str, AnyTool]:
    """Tools by name, in order; plain functions are made into tools.

    Raises `ToolError` for a name that is there twice.
    """
    found: dict[str, AnyTool] = {}
    for given in tools:
        made = given if isinstance(given, Tool) else Tool.of(given)
        if made.name in found:
            raise ToolError(f"two tools are called {made.name!r}; rename one with name=…")
        found[made.name] = made
    return found


def _schema(name: str, parameters: Mapping[str, Any] | None) -> dict[str, Any]:
    """A copy of a schema that was given, checked as far as every provider checks it."""
    if parameters is None:
        return {"type": "object", "properties": {}}
    try:
        schema = json.loads(json.dumps(parameters, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolError(f"tool {name!r}: its parameters are not JSON ({error})") from error
    if not isinstance(schema, dict) or schema.setdefault("type", "object") != "object":
        raise ToolError(f"tool {name!r}: its parameters must be the JSON Schema of an object")
    schema.setdefault("properties", {})
    return schema
