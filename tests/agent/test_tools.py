"""Declaring tools: schemas, names, refusals."""

import dataclasses
import enum
import functools
import subprocess
import sys
from typing import Annotated, Any, Literal

import pydantic
import pytest

import backstory
from backstory.agent.schema import BadArguments
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import Tool, as_tools
from backstory.errors import ConfigurationError, ToolError


class Unit(enum.Enum):
    METRIC = "metric"
    US = "us"


@dataclasses.dataclass
class Place:
    city: str
    zip: str | None = None


class Area(pydantic.BaseModel):
    places: list[Place]
    title: str = pydantic.Field("here", description="What to call it.")


@backstory.tool
def weather(city: str, days: Annotated[int, "How many days."] = 1, unit: Unit = Unit.METRIC) -> str:
    """The forecast for a city.

    From the national service.

    Args:
        city: Its name,
            in English.
        days: not used, since the annotation says it
    """
    return f"{city} {days} {unit.value}"


def test_schema_from_annotations_and_google_docstring():
    assert weather.name == "weather"
    assert weather.description == "The forecast for a city.\n\nFrom the national service."
    assert weather.parameters == {
        "type": "object",
        "additionalProperties": False,
        "required": ["city"],
        "$defs": {"Unit": {"enum": ["metric", "us"], "type": "string"}},
        "properties": {
            "city": {"type": "string", "description": "Its name, in English."},
            "days": {"type": "integer", "default": 1, "description": "How many days."},
            "unit": {"$ref": "#/$defs/Unit", "default": "metric"},
        },
    }


def test_numpy_and_rest_docstrings():
    def numpy(city: str, days: int) -> None:
        """Say it.

        Parameters
        ----------
        city : str
            Where.
        days : int
            How long.
        """

    def rest(city: str, days: int) -> None:
        """Say it.

        :param city: Where.
        :param days: How long.
        """

    for function in (numpy, rest):
        made = backstory.tool(function)
        assert made.description == "Say it."
        told = {key: value["description"] for key, value in made.parameters["properties"].items()}
        assert told == {"city": "Where.", "days": "How long."}


def test_nested_types_have_no_titles_but_may_be_named_title():
    @backstory.tool
    def mark(area: Area, kind: Literal["a", "b"], tags: list[str] | None = None) -> None: ...

    area = mark.parameters["$defs"]["Area"]
    assert area["properties"]["title"] == {
        "type": "string",
        "default": "here",
        "description": "What to call it.",
    }
    assert "title" not in area
    assert mark.parameters["properties"]["kind"] == {"enum": ["a", "b"], "type": "string"}


def test_wire_shapes():
    parameters = {"type": "object", "properties": {"x": {"type": "integer"}}}
    made = Tool(name="f", description="d", parameters=parameters, run=lambda x: x)
    assert made.schema() == {
        "type": "function",
        "function": {"name": "f", "description": "d", "parameters": parameters},
    }
    assert made.schema("openai_responses") == {
        "type": "function",
        "name": "f",
        "description": "d",
        "parameters": parameters,
        "strict": False,
    }
    assert made.schema("anthropic") == {"name": "f", "description": "d", "input_schema": parameters}
    assert made.schema("gemini") == {
        "functionDeclarations": [{"name": "f", "description": "d", "parametersJsonSchema": parameters}]
    }
    with pytest.raises(ConfigurationError):
        made.schema("nobody")


def test_a_schema_that_was_handed_out_is_nobody_elses():
    weather.schema("openai_chat")["function"]["parameters"].clear()
    assert weather.parameters["properties"]


def test_it_stays_a_function():
    assert weather("Rome", days=2) == "Rome 2 metric"
    assert getattr(weather, "__name__", None) == "weather"
    assert functools.partial(weather, "Rome")() == "Rome 1 metric"


def test_hash_is_stable_across_processes_and_sees_every_change():
    program = (
        "import sys; sys.path.insert(0, '.'); import backstory\n"
        "@backstory.tool\n"
        "def f(a: int, b: str = 'x') -> None:\n    'Do.'\n"
        "print(f.schema_hash)"
    )
    seen = {
        subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
        for _ in range(2)
    }
    assert len(seen) == 1
    schemas: list[dict[str, Any]] = [{"type": "object", "properties": {}}, {"properties": {"q": {}}}]
    hashes = {
        Tool(name=name, description=text, parameters=parameters, run=print).schema_hash
        for name in ("a", "b")
        for text in ("", "x")
        for parameters in schemas
    }
    assert len(hashes) == 8


def test_order_of_keys_does_not_change_the_hash():
    one = Tool(name="f", parameters={"type": "object", "properties": {}, "required": []}, run=print)
    two = Tool(name="f", parameters={"required": [], "properties": {}, "type": "object"}, run=print)
    assert one.schema_hash == two.schema_hash


def test_options():
    @backstory.tool(name="go", description="Go.", timeout=2.5, parallel=True, max_result=500)
    def walk() -> None:
        """Not this."""

    assert (walk.name, walk.description, walk.timeout, walk.parallel, walk.max_result) == (
        "go",
        "Go.",
        2.5,
        True,
        500,
    )


@pytest.mark.parametrize(
    "name", ["schema", "_private", "model_config", "json", "copy", "self_", "class_", "命令"]
)
def test_any_name_may_be_a_parameters(name: str):
    space: dict[str, Any] = {}
    exec(f"def f({name}: int, other: str = 'x'): return {name}", space)
    made = backstory.tool(space["f"])
    assert list(made.parameters["properties"]) == [name, "other"]
    assert made.validate({name: "3"}) == {name: 3}


def test_the_context_is_not_shown():
    def note(text: str, context: ToolContext) -> str:
        return context.scope + text

    def maybe(text: str, context: ToolContext | None = None) -> None: ...

    for function in (note, maybe):
        made = backstory.tool(function)
        assert list(made.parameters["properties"]) == ["text"]
        assert made.context_parameter == "context"
    assert Tool(name="n", run=note).context_parameter == "context"


def no_annotation(x): ...
def star(*args: int): ...
def stars(**options: int): ...
def positional(x: int, /): ...
def unknown(x: "Nowhere"): ...  # type: ignore[name-defined]  # noqa: F821
def callback(x: Any = None, then: type[Any] | None = None): ...
def generator(x: int):
    yield x


class Bag:
    def __init__(self) -> None: ...


def opaque(x: Bag): ...


class Thing:
    def method(self, x: int) -> int:
        """Doubles."""
        return x * 2

    async def __call__(self, y: int) -> int:
        """Triples."""
        return y * 3


@pytest.mark.parametrize(
    ("function", "words"),
    [
        (no_annotation, "parameter 'x' has no annotation; write one, such as x: str"),
        (star, "*args has no schema"),
        (stars, "**options has no schema"),
        (positional, "arguments come by name"),
        (unknown, "names 'Nowhere'"),
        (generator, "is a generator"),
        (opaque, "a type that JSON cannot carry"),
        (Thing.method, "tool(object.method)"),
        (lambda: 1, "is no name for a tool"),
        ("text", "made of a function"),
        (print, "has no"),
    ],
)
def test_what_cannot_be_declared_says_why(function: Any, words: str):
    with pytest.raises(ToolError) as caught:
        backstory.tool(function)
    assert words in str(caught.value)


def test_methods_partials_and_callable_objects():
    assert backstory.tool(Thing().method).validate({"x": "4"}) == {"x": 4}
    bound = Tool.of(functools.partial(weather.run, days=3), name="three")
    assert bound.parameters["properties"]["days"]["default"] == 3
    assert bound.parameters["required"] == ["city"]
    called = Tool.of(Thing(), name="triple")
    assert called.description == "Triples."
    assert list(called.parameters["properties"]) == ["y"]


@pytest.mark.parametrize("name", ["", "a b", "天气", "1a", "a" * 65, "a.b", "a\n"])
def test_bad_names(name: str):
    with pytest.raises(ToolError):
        Tool(name=name, run=print)


@pytest.mark.parametrize(
    "options",
    [
        {"timeout": 0},
        {"timeout": -1},
        {"timeout": float("nan")},
        {"max_result": 3},
        {"parameters": {"type": "string"}},
        {"parameters": []},
        {"parameters": {"x": object()}},
        {"parameters": {"x": float("nan")}},
        {"run": 5},
    ],
)
def test_bad_options(options: dict[str, Any]):
    with pytest.raises(ToolError):
        Tool(**{"name": "f", "run": print, **options})


def test_two_of_one_name():
    with pytest.raises(ToolError, match="two tools are called 'weather'"):
        as_tools([weather, weather])
    assert list(as_tools([weather, Thing().method])) == ["weather", "method"]


# --- arguments -----------------------------------------------------------------------------


@backstory.tool
def take(
    n: int,
    area: Area | None = None,
    names: list[str] | None = None,
    unit: Unit = Unit.US,
    limit: int = 10,
    text: str = "",
) -> None: ...


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"n": 1}, {"n": 1}),
        ({"n": "1", "text": 5}, {"n": 1, "text": "5"}),
        ({"n": 1.0, "unit": "metric"}, {"n": 1, "unit": Unit.METRIC}),
        ({"n": 1, "limit": None}, {"n": 1}),  # null for "leave it out"
        ({"n": 1, "names": '["a", "b"]'}, {"n": 1, "names": ["a", "b"]}),
        ({"n": 1, "names": None}, {"n": 1, "names": None}),
        (
            {"n": 1, "area": {"places": [{"city": "Rome"}]}},
            {"n": 1, "area": Area(places=[Place(city="Rome")], title="here")},
        ),
    ],
)
def test_arguments_are_converted(given: dict[str, Any], wanted: dict[str, Any]):
    assert take.validate(given) == wanted


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "n: required, and missing"),
        ({"n": "x"}, "n: Input should be a valid integer"),
        ({"n": None}, "n: Input should be a valid integer"),
        ({"n": 1.5}, "n: "),
        ({"n": 1, "m": 2}, "m: there is no such parameter"),
        ({"n": 1, "unit": "feet"}, "unit: Input should be 'metric' or 'us', not 'feet'"),
        ({"n": 1, "area": {"places": [{}]}}, "area.places.0.city: required, and missing"),
        ({"n": 1, "names": "[broken"}, "names: Input should be a valid list"),
        ({"n": "y" * 1000}, "…"),
    ],
)
def test_arguments_that_do_not_fit(given: dict[str, Any], words: str):
    with pytest.raises(BadArguments) as caught:
        take.validate(given)
    assert words in str(caught.value)
    assert len(str(caught.value)) < 400
    assert "pydantic" not in str(caught.value)


def test_a_schema_of_its_own_checks_what_is_required():
    made = Tool(name="f", parameters={"required": ["a"], "properties": {"a": {}}}, run=print)
    assert made.validate({"a": object, "b": 1}) == {"a": object, "b": 1}
    with pytest.raises(BadArguments, match="a: required"):
        made.validate({})


def test_a_default_that_json_cannot_hold_stays_the_functions():
    missing = object()

    @backstory.tool
    def find(x: int, fallback: Any = missing) -> bool:
        return fallback is missing

    assert find.parameters["properties"]["fallback"] == {}
    assert find(**find.validate({"x": 1}))
