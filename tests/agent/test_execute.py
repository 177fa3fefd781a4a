"""Running calls: exactly one result each, whatever the tool does; and what a result of any kind becomes."""

import asyncio
import base64
import contextvars
import dataclasses
import datetime
import io
import json
import sys
import threading
from contextlib import aclosing
from typing import Annotated, Any

import pydantic
import pytest

import backstory
from backstory.agent import waiting
from backstory.agent.execute import execute, run_calls
from backstory.agent.results import NO_OUTPUT, handles_in
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import Tool
from backstory.errors import StoreUnavailable, ToolError
from backstory.messages import File, Image, Part, Text, ToolCall, ToolResult, texts

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


def call(name: str, arguments: Any = None, id: str = "c1", kind: str = "function") -> ToolCall:
    text = arguments if isinstance(arguments, str) else json.dumps(arguments or {})
    return ToolCall(id=id, name=name, arguments=text, kind=kind)


def returning(value: Any, **options: Any) -> Tool[..., Any]:
    return Tool(name="give", run=lambda: value, **options)


async def give(value: Any, **context: Any) -> tuple[Part, ...]:
    result = await execute(call("give"), [returning(value)], ToolContext(**context))
    assert result.is_error is False
    return result.content


@backstory.tool
def add(a: int, b: int = 1) -> int:
    return a + b


# --- results that say what is wrong --------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ('{"a": 1', "the arguments are not JSON"),
        ('{"a": NaN}', "NaN is no JSON"),
        ("[1]", "must be a JSON object, not list"),
        ("3", "not int"),
        ("null", "not NoneType"),
        ("[" * 100_000, "not JSON"),
        ('{"a": "x"}', "a: Input should be a valid integer"),
        ("", "a: required, and missing"),
        ('{"a": 1, "c": 2}', "c: there is no such parameter"),
    ],
)
async def test_broken_arguments_are_told_with_the_schema(arguments: str, words: str):
    result = await execute(call("add", arguments), [add])
    assert result.is_error
    text = texts(result.content)
    assert text.startswith("Error: ")
    assert words in text
    assert "Nothing was run" in text
    assert json.dumps(add.parameters, separators=(",", ":")) in text
    assert (result.call_id, result.name, result.kind) == ("c1", "add", "function")


async def test_arguments_encoded_twice_are_understood():
    result = await execute(call("add", json.dumps('{"a": 2}')), [add])
    assert texts(result.content) == "3"


async def test_free_text_goes_to_the_only_parameter():
    @backstory.tool
    def shout(text: str, times: int = 1) -> str:
        return text.upper() * times

    assert texts((await execute(call("shout", "hi {", kind="custom"), [shout])).content) == "HI {"
    two = Tool(name="two", parameters={"properties": {"a": {}, "b": {}}}, run=print)
    result = await execute(call("two", "hi", kind="custom"), [two])
    assert result.is_error
    assert result.kind == "custom"
    assert "JSON arguments, not free text" in texts(result.content)


async def test_unknown_tools():
    result = await execute(call("ad"), [add, returning(1)])
    assert texts(result.content) == "Error: there is no tool 'ad'. Did you mean add? There are: add, give."
    assert "nor any other" in texts((await execute(call("x"), [])).content)


async def test_plain_functions_and_mappings_do_as_tools():
    def double(x: int) -> int:
        return x * 2

    assert texts((await execute(call("double", {"x": 4}), [double])).content) == "8"
    assert texts((await execute(call("add", {"a": 4}), {"add": add})).content) == "5"


class Odd(BaseException):
    pass


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (ValueError("bad thing"), "ValueError: bad thing"),
        (KeyError(), "KeyError"),
        (ToolError("say this"), "say this"),
        (TimeoutError("mine"), "TimeoutError: mine"),
        (SystemExit(3), "SystemExit: 3"),
        (StopIteration(), "StopIteration"),
        (Exception("x" * 10_000), "…"),
        (Exception("lone \ud800"), "lone \ufffd"),
    ],
)
@pytest.mark.parametrize("asynchronous", [False, True])
async def test_what_a_tool_raises_becomes_a_result(error: BaseException, words: str, asynchronous: bool):
    def fail() -> None:
        raise error

    async def fail_later() -> None:
        await asyncio.sleep(0)
        raise error

    run: Any = fail_later if asynchronous else fail
    result = await execute(call("fail"), [Tool(name="fail", run=run)])
    assert result.is_error
    text = texts(result.content)
    assert text.startswith("Error: ")
    assert words in text
    assert len(text) < 2_100
    text.encode()


@pytest.mark.parametrize("error", [Odd(), KeyboardInterrupt(), GeneratorExit()])
async def test_a_thread_cannot_end_the_event_loop(error: BaseException):
    def fail() -> None:
        raise error

    result = await execute(call("fail"), [Tool(name="fail", run=fail)])
    assert texts(result.content) == f"Error: RuntimeError: raised {type(error).__name__}"


async def test_validators_and_conversions_that_raise_become_results():
    def picky(value: int) -> int:
        raise LookupError("no such number")

    def take(n: Annotated[int, pydantic.AfterValidator(picky)]) -> None: ...

    class Unspeakable:
        def __str__(self) -> str:
            raise OSError("mute")

    result = await execute(call("take", {"n": 1}), [take])
    assert result.is_error
    assert "LookupError: " in texts(result.content)
    result = await execute(call("give"), [returning(Unspeakable())])
    assert result.is_error
    assert "OSError: mute" in texts(result.content)


# --- time and cancellation -----------------------------------------------------------------


async def test_an_asynchronous_tool_that_takes_too_long_is_cancelled():
    ended = asyncio.Event()

    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    result = await execute(call("sleep"), [Tool(name="sleep", run=sleep, timeout=0.05)])
    assert result.is_error
    assert texts(result.content) == (
        "Error: sleep took longer than 0.05 s and was stopped; it may have had effects."
    )
    assert ended.is_set()


async def test_what_a_tool_told_of_its_work_is_in_the_error_that_ends_it():
    async def slow(context: ToolContext) -> None:
        context.so_far("1 of 9")
        context.so_far("x" * 5_000 + "2 of 9")
        await asyncio.sleep(60)

    async def breaks(context: ToolContext) -> None:
        context.so_far("3 of 9")
        raise ValueError("no")

    tools = [Tool(name="slow", run=slow, timeout=0.05), Tool(name="breaks", run=breaks)]
    text = texts((await execute(call("slow"), tools)).content)
    assert text.endswith("x2 of 9")
    assert "1 of 9" not in text
    assert len(text) < 2_200
    assert texts((await execute(call("breaks"), tools)).content) == (
        "Error: ValueError: no\nWhat it had told until then:\n3 of 9"
    )


async def test_a_synchronous_tool_that_takes_too_long_is_left_alone():
    go = threading.Event()
    stuck = Tool(name="stuck", run=lambda: go.wait(30))
    result = await execute(call("stuck"), [stuck], ToolContext(timeout=0.05))
    assert result.is_error
    go.set()
    await asyncio.sleep(0.05)  # its late outcome disturbs nobody


def test_a_stuck_thread_does_not_hold_up_the_end_of_the_process():
    import subprocess

    program = (
        "import asyncio, time\n"
        "from backstory.agent.execute import execute\n"
        "from backstory.agent.tools import Tool\n"
        "from backstory.messages import ToolCall\n"
        "stuck = Tool(name='stuck', run=lambda: time.sleep(60), timeout=0.05)\n"
        "print(asyncio.run(execute(ToolCall(id='1', name='stuck'), [stuck])).is_error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert done.stdout == "True\n", done.stderr


async def test_a_tool_that_ignores_its_cancellation_is_abandoned(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(waiting, "GRACE", 0.05)
    release = asyncio.Event()

    async def stubborn() -> None:
        while not release.is_set():
            try:
                await release.wait()
            except asyncio.CancelledError:
                continue
        raise ValueError("late")

    result = await execute(call("stubborn"), [Tool(name="stubborn", run=stubborn, timeout=0.02)])
    assert result.is_error
    assert waiting._abandoned
    release.set()
    await asyncio.sleep(0.05)
    assert not waiting._abandoned


async def test_cancelling_the_caller_cancels_the_tool_and_comes_through():
    ended = asyncio.Event()

    async def sleep() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()

    task = asyncio.create_task(execute(call("sleep"), [Tool(name="sleep", run=sleep)]))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_cancelling_the_caller_of_a_thread_comes_through():
    go = threading.Event()
    task = asyncio.create_task(execute(call("w"), [Tool(name="w", run=lambda: go.wait(30))]))
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go.set()


async def test_a_tool_that_cancels_itself_is_an_error_and_no_cancellation():
    async def give_up() -> None:
        raise asyncio.CancelledError

    result = await execute(call("give_up"), [Tool(name="give_up", run=give_up)])
    assert "cancelled from within" in texts(result.content)


async def test_synchronous_tools_do_not_block_the_loop_and_see_context_variables():
    where: contextvars.ContextVar[str] = contextvars.ContextVar("where")
    where.set("here")
    main = threading.get_ident()

    def look() -> str:
        assert threading.get_ident() != main
        return where.get()

    assert texts((await execute(call("look"), [look])).content) == "here"


async def test_the_context_is_filled_in():
    def who(context: ToolContext) -> str:
        assert context.call is not None
        return f"{context.scope}/{context.session}/{context.call.id}/{context.extras['x']}"

    context = ToolContext(scope="s", session="k", extras={"x": 1})
    assert texts((await execute(call("who", id="7"), [who], context)).content) == "s/k/7/1"


async def test_a_wrapper_that_looks_synchronous():
    async def inner(x: int) -> int:
        await asyncio.sleep(0)
        return x + 1

    def outer(x: int) -> Any:
        return inner(x)

    assert texts((await execute(call("outer", {"x": 1}), [outer])).content) == "2"


# --- what a result becomes -----------------------------------------------------------------


@dataclasses.dataclass
class Row:
    name: str
    at: datetime.date


class Model(pydantic.BaseModel):
    x: int
    y: str = "中"


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("as it is\n", "as it is\n"),
        ("lone \ud800", "lone \ufffd"),
        (None, NO_OUTPUT),
        ("", NO_OUTPUT),
        (b"", NO_OUTPUT),
        (True, "true"),
        (0, "0"),
        ({"a": [1, "中文"]}, '{"a":[1,"中文"]}'),
        ([], "[]"),
        (["a", "b"], '["a","b"]'),
        (("a", 1), '["a",1]'),
        (Row(name="n", at=datetime.date(2026, 1, 2)), '{"name":"n","at":"2026-01-02"}'),
        ([Model(x=1)], '[{"x":1,"y":"中"}]'),
        ({1}, "[1]"),
        (float("nan"), "null"),
        ({"raw": b"\xff"}, '{"raw":"_w=="}'),
        (b"plain \xe4\xb8\xad", "plain 中"),
        (threading.Event, str(threading.Event)),
    ],
)
async def test_values_become_text(value: Any, text: str):
    content = await give(value)
    assert texts(content) in (text, json.dumps(text))


async def test_circles_do_not_kill():
    circle: list[Any] = []
    circle.append(circle)
    assert texts(await give(circle)) == "[[...]]"


async def test_media_and_parts():
    picture = Image(url="https://example.org/a.png")
    assert await give(picture) == (picture,)
    assert await give(("look", picture)) == (Text(text="look"), picture)
    assert await give([Text(text="a"), "b"]) == (Text(text="a"), Text(text="b"))
    (image,) = await give(PNG)
    assert isinstance(image, Image)
    assert (image.media_type, base64.b64decode(image.data or "")) == ("image/png", PNG)
    (paper,) = await give(bytearray(b"%PDF-1.7 \xff"))
    assert isinstance(paper, File)
    assert paper.media_type == "application/pdf"
    assert [type(part) for part in await give([picture, Text(text="x")])] == [Image, Text]


async def test_what_behaves_like_a_pil_image():
    class Picture:
        size, mode = (1, 1), "RGB"

        def save(self, buffer: io.BytesIO, format: str) -> None:
            buffer.write(PNG + format.encode())

    (image,) = await give(Picture())
    assert isinstance(image, Image)
    assert base64.b64decode(image.data or "") == PNG + b"PNG"


# --- results of any size -------------------------------------------------------------------


async def test_a_long_result_is_kept_aside_and_shown_by_head_and_tail():
    kept: dict[str, str | bytes] = {}

    async def offload(data: str | bytes) -> str:
        kept["sha256:ab"] = data
        return "sha256:ab"

    whole = "".join(f"line {number}\n" for number in range(10_000))
    (part,) = await give(whole, offload=offload, max_result=2_000)
    assert isinstance(part, Text)
    assert kept == {"sha256:ab": whole}
    assert len(part.text) <= 2_000
    note, first, *_, last, _empty = part.text.split("\n")
    assert "10,001 lines" in note
    assert (first, last) == ("line 0", "line 9999")
    assert handles_in(part.text) == ["sha256:ab"]
    offset = int(note.split("offset=")[1].split(")")[0])
    assert whole[:offset] in part.text
    assert whole[offset - 1] == "\n"


@pytest.mark.parametrize("size", [201, 500, 1_000, 100_000])
@pytest.mark.parametrize("text", ["中", "x", "a\n", "\n"])
async def test_previews_keep_their_limit(size: int, text: str):
    whole = text * (size // len(text))
    (part,) = await give(whole, offload=lambda _: "sha256:" + "f" * 64, max_result=450)
    assert isinstance(part, Text)
    assert len(part.text) <= 520
    assert (part.text == whole) == (len(whole) <= 450)


async def test_the_tools_own_limit_binds_and_so_does_no_place_to_keep():
    made = returning("x" * 1_000, max_result=300)
    result = await execute(call("give"), [made], ToolContext(offload=lambda _: "h"))
    assert "Long result" in texts(result.content)
    assert texts((await execute(call("give"), [made])).content) == "x" * 1_000


async def test_nothing_is_lost_when_it_cannot_be_kept_aside():
    def full(_: str | bytes) -> str:
        raise StoreUnavailable("disk full")

    assert texts(await give("x" * 1_000, offload=full, max_result=300)) == "x" * 1_000


async def test_binary_data_becomes_a_handle_or_a_file():
    data = b"\0\xff" * 100
    assert texts(await give(data, offload=lambda _: "h1")) == "[Binary data, 200 bytes, kept as h1.]"
    (part,) = await give(data)
    assert isinstance(part, File)


# --- the calls of a step -------------------------------------------------------------------


class Stage:
    """Tools that say when they start and end, and wait to be let go."""

    def __init__(self) -> None:
        self.events: list[str] = []
        self.gates: dict[str, asyncio.Event] = {}
        self.safe = Tool(name="safe", run=self.perform, parallel=True, parameters={"required": ["id"]})
        self.alone = Tool(name="alone", run=self.perform, parameters={"required": ["id"]})

    async def perform(self, id: str) -> str:
        self.events.append(f"begin {id}")
        gate = self.gates.get(id)
        if gate is not None:
            await gate.wait()
        self.events.append(f"end {id}")
        return id

    async def started(self, made: ToolCall) -> None:
        await asyncio.sleep(0)
        self.events.append(f"started {made.id}")


def step(*names: str) -> list[ToolCall]:
    return [call(name, {"id": str(number)}, id=str(number)) for number, name in enumerate(names)]


async def collect(stage: Stage, calls: list[ToolCall], **options: Any) -> list[tuple[ToolCall, ToolResult]]:
    tools = [stage.safe, stage.alone]
    return [pair async for pair in run_calls(calls, tools, started=stage.started, **options)]


async def test_calls_run_one_after_the_other():
    stage = Stage()
    pairs = await collect(stage, step("alone", "alone"))
    assert stage.events == ["started 0", "begin 0", "end 0", "started 1", "begin 1", "end 1"]
    assert [(made.id, texts(result.content)) for made, result in pairs] == [("0", "0"), ("1", "1")]


async def test_safe_neighbours_run_side_by_side_and_come_as_each_is_ready():
    stage = Stage()
    stage.gates = {"0": asyncio.Event(), "1": asyncio.Event()}
    seen: list[str] = []
    async with aclosing(
        run_calls(step("safe", "safe", "alone", "safe"), [stage.safe, stage.alone], started=stage.started)
    ) as pairs:
        stage.gates["1"].set()
        async for made, _ in pairs:
            seen.append(made.id)
            stage.gates["0"].set()
    assert seen == ["1", "0", "2", "3"]
    # What is not declared safe waits for all before it, and all after it wait for it.
    assert stage.events.index("started 2") > stage.events.index("end 0")
    assert stage.events.index("started 3") > stage.events.index("end 2")
    for number in "0123":
        assert stage.events.index(f"started {number}") < stage.events.index(f"begin {number}")


async def test_no_more_than_so_many_side_by_side():
    stage = Stage()
    stage.gates = {str(number): asyncio.Event() for number in range(6)}
    most = 0

    async def let_go() -> None:
        nonlocal most
        for gate in stage.gates.values():
            await asyncio.sleep(0.01)
            begun = sum(event.startswith("begin") for event in stage.events)
            most = max(most, begun - sum(event.startswith("end") for event in stage.events))
            gate.set()

    task = asyncio.create_task(let_go())
    assert len(await collect(stage, step(*["safe"] * 6), max_parallel=2)) == 6
    await task
    assert most == 2


async def test_calls_that_cannot_begin_are_never_said_to_have_started():
    stage = Stage()
    calls = [*step("alone"), call("nobody", id="x"), call("alone", "{", id="y")]
    pairs = await collect(stage, calls)
    assert [made.id for made, _ in pairs] == ["x", "y", "0"]
    assert [result.is_error for _, result in pairs] == [True, True, False]
    assert "started x" not in stage.events
    assert "started y" not in stage.events


async def test_ids_may_repeat_or_be_empty():
    stage = Stage()
    calls = [call("safe", {"id": name}, id="") for name in ("p", "q")]
    pairs = await collect(stage, calls)
    assert sorted(texts(result.content) for _, result in pairs) == ["p", "q"]
    assert all(any(made is one for one in calls) for made, _ in pairs)


async def test_what_the_hook_raises_ends_it_and_nothing_runs_on():
    stage = Stage()
    stage.gates = {"0": asyncio.Event()}

    async def refuse(made: ToolCall) -> None:
        if made.id == "1":
            await asyncio.sleep(0.01)
            raise StoreUnavailable("gone")

    with pytest.raises(StoreUnavailable):
        async for _ in run_calls(step("safe", "safe"), [stage.safe], started=refuse):
            pass
    assert stage.events == ["begin 0"]
    assert not [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]


@pytest.mark.parametrize("how", ["close", "cancel"])
async def test_leaving_early_cancels_what_runs(how: str):
    stage = Stage()
    stage.gates = {"0": asyncio.Event(), "2": asyncio.Event()}

    async def first() -> None:
        async with aclosing(run_calls(step("safe", "safe", "safe"), [stage.safe])) as pairs:
            async for made, _ in pairs:
                assert made.id == "1"
                if how == "close":
                    return

    task = asyncio.create_task(first())
    await asyncio.sleep(0.05)
    if how == "cancel":
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        await task
    assert "end 0" not in stage.events
    assert not [other for other in asyncio.all_tasks() if other is not asyncio.current_task()]
