"""Run the calls of a step: every call gets exactly one result, whatever the tool does.

Broken arguments, unknown tools, exceptions and time-outs become results that tell the model what to do next.
Only two things are raised: the cancellation of the caller, and what the caller's own `started` hook raises.
Nothing here writes to a log: whoever iterates does that.
"""

from __future__ import annotations

import asyncio
import difflib
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from backstory.agent.results import Item, fit, items_of
from backstory.agent.schema import BadArguments
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import AnyTool, as_tools
from backstory.agent.waiting import OutOfTime, in_thread, within
from backstory.errors import ToolError
from backstory.formats.synthetic import SO_FAR
from backstory.legality.arguments import clean_text
from backstory.messages import Text, ToolCall, ToolResult

Tools: TypeAlias = Mapping[str, AnyTool] | Iterable[AnyTool | Callable[..., Any]]
Started: TypeAlias = Callable[[ToolCall], Awaitable[None]]

MAX_PARALLEL = 8
"""Calls that run side by side, of those declared safe for it."""

_MAX_ERROR = 2_000
"""Characters of an exception's text that a model gets to see."""
_MAX_SCHEMA = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class _Ready:
    """A call that may start: its tool is known and its arguments fit."""

    call: ToolCall
    tool: AnyTool
    arguments: dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class _Failed:
    error: BaseException


async def execute(call: ToolCall, tools: Tools, context: ToolContext | None = None) -> ToolResult:
    """Run one call. Never raises but for cancellation, and for tools of one name (`ToolError`).

    Cancelled, it cancels an asynchronous tool; a synchronous one runs on in its thread, and its outcome is unknown.
    """
    ready = _prepare(call, _named(tools))
    return ready if isinstance(ready, ToolResult) else await _run(ready, context or ToolContext())


async def run_calls(
    calls: Sequence[ToolCall],
    tools: Tools,
    context: ToolContext | None = None,
    *,
    started: Started | None = None,
    max_parallel: int = MAX_PARALLEL,
) -> AsyncGenerator[tuple[ToolCall, ToolResult], None]:
    """Run the calls of one step and yield each with its result as soon as it is there.

    Those that cannot begin (unknown tool, broken arguments) come first. The others run in order, one after the
    other; neighbours whose tools are declared `parallel` run side by side. `started` is awaited before each of these
    begins, in order: what it makes durable is known to precede every effect. What it raises ends the iteration.

    Closing the iterator, or cancelling whoever iterates, cancels what still runs: use `contextlib.aclosing`.
    """
    known = _named(tools)
    context = context or ToolContext()
    batches: list[list[_Ready]] = []
    for call in calls:
        ready = _prepare(call, known)
        if isinstance(ready, ToolResult):
            yield call, ready
        elif ready.tool.parallel and batches and batches[-1][0].tool.parallel:
            batches[-1].append(ready)
        else:
            batches.append([ready])
    for batch in batches:
        async with aclosing(_side_by_side(batch, context, started, max_parallel)) as pairs:
            async for pair in pairs:
                yield pair


async def _side_by_side(
    batch: Sequence[_Ready], context: ToolContext, started: Started | None, limit: int
) -> AsyncGenerator[tuple[ToolCall, ToolResult], None]:
    running: dict[asyncio.Task[ToolResult], ToolCall] = {}
    rest = list(batch)
    try:
        while rest or running:
            while rest and len(running) < max(limit, 1):
                ready = rest.pop(0)
                if started is not None:
                    await started(ready.call)
                running[asyncio.create_task(_run(ready, context))] = ready.call
            done, _ = await asyncio.wait(running, return_when=asyncio.FIRST_COMPLETED)
            for task in [task for task in running if task in done]:
                yield running.pop(task), task.result()
    finally:
        for task in running:
            task.cancel()
        if running:
            await asyncio.wait(running)


# --- one call ------------------------------------------------------------------------------


def _named(tools: Tools) -> Mapping[str, AnyTool]:
    return tools if isinstance(tools, Mapping) else as_tools(tools)


def _prepare(call: ToolCall, tools: Mapping[str, AnyTool]) -> _Ready | ToolResult:
    """Find the tool and read the arguments, or say to the model why that cannot be."""
    tool = tools.get(call.name)
    if tool is None:
        return error_result(call, _unknown(call.name, list(tools)))
    try:
        return _Ready(call=call, tool=tool, arguments=tool.validate(read_arguments(call, tool)))
    except Exception as error:  # beside `BadArguments`: a validator in an annotation is the tool's own code
        schema = json.dumps(tool.parameters, ensure_ascii=False, separators=(",", ":"))
        shown = schema if len(schema) <= _MAX_SCHEMA else f"{schema[:_MAX_SCHEMA]}…"
        return error_result(call, f"{_told(error)}. Nothing was run. {tool.name} takes: {shown}")


def _unknown(name: str, known: list[str]) -> str:
    if not known:
        return f"there is no tool {name!r}, nor any other. Answer without tools."
    close = difflib.get_close_matches(name, known, n=1)
    hint = f" Did you mean {close[0]}?" if close else ""
    return f"there is no tool {name!r}.{hint} There are: {', '.join(known)}."


def read_arguments(call: ToolCall, tool: AnyTool) -> dict[str, Any]:
    """The arguments of a call as an object. Raises `BadArguments` for what is none.

    Broken JSON is not mended: what a cut-off text would have said is a guess, and a guess must not be run. Free
    text (a call of kind ``custom``) goes to a tool that has a single required parameter, or a single one at all.
    """
    if call.kind == "custom":
        parameters = list(tool.parameters.get("properties", ()))
        required = tool.parameters.get("required") or parameters
        if len(required) != 1:
            raise BadArguments("this tool takes JSON arguments, not free text")
        return {required[0]: call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(call.arguments, parse_constant=_refuse)
        if isinstance(value, str):  # an object inside a string: some models encode twice
            value = json.loads(value, parse_constant=_refuse)
    except (ValueError, RecursionError) as error:
        raise BadArguments(f"the arguments are not JSON ({error})") from None
    if not isinstance(value, dict):
        raise BadArguments(f"the arguments must be a JSON object, not {type(value).__name__}")
    return value


def _refuse(constant: str) -> Any:
    raise ValueError(f"{constant} is no JSON")


async def _run(ready: _Ready, context: ToolContext) -> ToolResult:
    call, tool = ready.call, ready.tool
    seconds = context.timeout if tool.timeout is None else tool.timeout
    arguments = dict(ready.arguments)
    told: list[str] = []
    if tool.context_parameter is not None:

        def heard(call: ToolCall, text: str) -> None:
            told[:] = [f"\n{SO_FAR}\n{text}"]
            context.heard(call, text)

        arguments[tool.context_parameter] = replace(context, call=call, heard=heard)
    task = asyncio.current_task()
    before = task.cancelling() if task else 0
    try:
        outcome = await within(_attempt(tool, arguments), seconds)
    except OutOfTime:
        why = f"{tool.name} took longer than {seconds:g} s and was stopped; it may have had effects."
        return error_result(call, why + "".join(told))
    except asyncio.CancelledError:
        if task and task.cancelling() > before:
            raise
        why = f"{tool.name} was cancelled from within; it may have had effects."
        return error_result(call, why + "".join(told))
    if isinstance(outcome, _Failed):
        return error_result(call, _told(outcome.error) + "".join(told))
    limit = context.max_result if tool.max_result is None else tool.max_result
    content = await fit(outcome, max_result=limit, offload=context.offload)
    return _result(call, content, is_error=False)


async def _attempt(tool: AnyTool, arguments: dict[str, Any]) -> list[Item] | _Failed:
    """The boundary to other people's code: whatever it raises becomes a result."""
    try:
        if inspect.iscoroutinefunction(tool.run):
            value = await tool.run(**arguments)
        else:
            value = await in_thread(lambda: _finished(tool.run(**arguments)), name=tool.name)
            if inspect.isawaitable(value):  # made by a function that is asynchronous, and does not look it
                value = await value
        return value if isinstance(value, _Items) else items_of(value)
    except (Exception, SystemExit) as error:
        return _Failed(error=error)


class _Items(list[Item]):
    """What was returned, already in parts."""


def _finished(value: Any) -> Any:
    """In the tool's thread, so that turning a large result into text does not hold up the event loop."""
    return value if inspect.isawaitable(value) else _Items(items_of(value))


def _told(error: BaseException) -> str:
    """What the model learns of an exception: a `ToolError` speaks to it, any other is named."""
    text = str(error).strip()
    if not isinstance(error, ToolError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return f"{text[:_MAX_ERROR]}…" if len(text) > _MAX_ERROR else text


def error_result(call: ToolCall, text: str) -> ToolResult:
    """A result that says what went wrong. The word stands in the text, too: not every API has a flag for it."""
    return _result(call, (Text(text=clean_text(f"Error: {text or 'no reason was given'}")),), is_error=True)


def _result(call: ToolCall, content: Any, *, is_error: bool) -> ToolResult:
    return ToolResult(call_id=call.id, name=call.name, kind=call.kind, content=content, is_error=is_error)
