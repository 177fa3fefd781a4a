"""The agent's own loop over a turn: ask the model, run its tools, until there is an answer.

Every result is durable before the next request is made, every call is recorded as started before it begins. What can
go wrong has one outcome each: a request that was too long is made once more with the window that the provider named; an
empty answer is asked for once more; a loop is ended by the guard; a failing model ends the turn as failed, and raises.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from backstory.agent.active import Turn
from backstory.agent.drafts import Streamed, hearing
from backstory.agent.execute import MAX_PARALLEL, run_calls
from backstory.agent.interrupt import Interrupted
from backstory.agent.loop_guard import LoopGuard, Verdict
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import AnyTool
from backstory.errors import ContextTooLong, ModelError, ModelUnavailable, TurnInterrupted
from backstory.messages import Text, ToolCall, ToolResult
from backstory.models.base import Answer, CallDelta, Model, ReasoningDelta, TextDelta
from backstory.models.base import Event as ModelEvent


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolStarted:
    """A call begins."""

    call: ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolFinished:
    """A call has its result, which is durable."""

    call: ToolCall
    result: ToolResult


@dataclass(frozen=True, kw_only=True, slots=True)
class TurnEnded:
    """The turn is over: the last event of a stream."""

    turn: Turn


Event: TypeAlias = TextDelta | ReasoningDelta | CallDelta | ToolStarted | ToolFinished | TurnEnded


@dataclass(kw_only=True, slots=True)
class Loop:
    """What a turn is run with. `shorter` is told the window that a provider named, or `None` where it named none."""

    model: Model
    tools: Mapping[str, AnyTool]
    context: ToolContext
    guard: LoopGuard = field(default_factory=LoopGuard)
    shorter: Callable[[int | None], None] = lambda limit: None
    time_limit: float | None = None


async def run(turn: Turn, loop: Loop) -> AsyncGenerator[Event, None]:
    """Run a turn that has begun to its end; the events as they happen.

    Raises `ModelError`s after the turn was ended as failed; an interrupt ends the turn and the events, and raises
    nothing: `turn.reason` says so.
    """
    if loop.time_limit is not None:
        turn.interrupt.limit = asyncio.get_running_loop().time() + loop.time_limit
    streamed = Streamed(turn)
    try:
        async with aclosing(_steps(turn, loop, streamed)) as events:
            async for event in events:
                yield event
    except Interrupted as interrupted:
        await _interrupted(turn, interrupted.kind, streamed.text)
    except TurnInterrupted:
        pass
    except ModelError:
        await turn.end("failed", draft=streamed.text)
        raise
    yield TurnEnded(turn=turn)


async def _interrupted(turn: Turn, kind: str, draft: str) -> None:
    try:
        await turn.take_mail(draft=draft)
        await turn.interrupted(kind, draft=draft)
    except TurnInterrupted:
        return


async def _steps(turn: Turn, loop: Loop, streamed: Streamed) -> AsyncGenerator[Event, None]:
    """One model call after another, each with what it calls, until the turn is done."""
    retried = False
    unfinished = 0
    while not turn.done:
        request = await turn.request()
        answer: Answer | None = None
        streamed.text = ""
        try:
            async with aclosing(_answering(turn, loop.model, request.body)) as events:
                async for event in events:
                    if isinstance(event, Answer):
                        answer = event
                    else:
                        if isinstance(event, TextDelta):
                            await streamed.add(event.text)
                        yield event
        except ContextTooLong as error:
            if retried:
                raise
            retried = True
            loop.shorter(error.limit)
            continue
        if answer is None:
            raise ModelUnavailable("the model's stream ended without an answer")
        streamed.text = ""
        if answer.finish == "empty" and not unfinished:
            unfinished += 1
            turn.spent(answer.usage)
            continue
        if answer.finish == "pause" and not answer.calls:
            unfinished += 1
        async with aclosing(_act(turn, loop, answer)) as called:
            async for happened in called:
                yield happened
        if unfinished > loop.guard.max_iterations:
            await turn.end("limit")


async def _answering(turn: Turn, model: Model, body: dict[str, Any]) -> AsyncGenerator[ModelEvent, None]:
    """The events of a model call, until it ends or somebody interrupts."""
    events = model.stream(body)
    try:
        while (event := await turn.interrupt.next_of(events)) is not None:
            yield event
    finally:
        close = getattr(events, "aclose", None)  # an iterator need not be a generator
        if close is not None:
            await close()


async def _act(turn: Turn, loop: Loop, answer: Answer) -> AsyncGenerator[Event, None]:
    """Record an answer, and run what it calls."""
    verdict = loop.guard.judge([*turn.steps, answer.calls]) if answer.calls else Verdict()
    runnable = [call for place, call in enumerate(answer.calls) if place not in verdict.refused]
    begun = _beginning(runnable, loop.tools)
    await turn.record(answer, started=begun)
    for place, text in verdict.refused.items():
        call = answer.calls[place]
        refused = ToolResult(
            call_id=call.id, name=call.name, content=(Text(text=text),), is_error=True, kind=call.kind
        )
        await turn.result(call, refused)
        yield ToolFinished(call=call, result=refused)
    if verdict.stop is not None:
        await turn.end("limit")
        return
    for call in begun:
        yield ToolStarted(call=call)
    told = list(begun)
    running = list(begun)
    waiting = [call for call in runnable if call not in begun]

    async def starting(call: ToolCall) -> None:
        await turn.start(call)
        if call not in begun:
            begun.append(call)
            running.append(call)

    async with (
        hearing(turn, loop.context) as context,
        aclosing(
            run_calls(runnable, loop.tools, context, started=starting, max_parallel=MAX_PARALLEL)
        ) as results,
    ):
        while (done := await turn.interrupt.next_of(results)) is not None:
            call, result = done
            running = [other for other in running if other != call]
            waiting = [other for other in waiting if other not in begun and other != call]
            following = _beginning(waiting, loop.tools) if not running else []
            await turn.result(call, result, next_started=following)
            yield ToolFinished(call=call, result=result)
            begun += following
            running += following
            for other in begun:
                if other not in told:
                    told.append(other)
                    yield ToolStarted(call=other)


def _beginning(calls: Sequence[ToolCall], tools: Mapping[str, AnyTool]) -> list[ToolCall]:
    """The calls that will begin next, side by side: recorded with what is written anyway."""
    known = [call for call in calls if call.name in tools]
    if not known or not tools[known[0].name].parallel:
        return known[:1]
    together = itertools.takewhile(lambda call: tools[call.name].parallel, known)
    return list(itertools.islice(together, MAX_PARALLEL))
