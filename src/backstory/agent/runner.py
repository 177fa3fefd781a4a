"""The agent's own loop over a turn: ask the model, run its tools, until there is an answer.

Every result is durable before the next request is made, every call is recorded as started before it begins. What can
go wrong has one outcome each: a request that was too long is made once more with the window that the provider named; an
empty answer is asked for once more; a loop is ended by the guard; a failing model ends the turn as failed, and raises.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import TypeAlias

from backstory.agent.active import Turn
from backstory.agent.execute import run_calls
from backstory.agent.loop_guard import LoopGuard, Verdict
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import AnyTool
from backstory.errors import ContextTooLong, ModelError, TurnInterrupted
from backstory.messages import Text, ToolCall, ToolResult
from backstory.models.base import Answer, CallDelta, Model, ReasoningDelta, TextDelta
from backstory.models.base import Event as ModelEvent

DRAFT_EVERY = 1.0
"""Seconds between two drafts of streamed text: what a crash can lose of an unfinished answer."""


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
    interrupted: asyncio.Event = field(default_factory=asyncio.Event)
    time_limit: float | None = None


async def run(turn: Turn, loop: Loop) -> AsyncGenerator[Event, None]:
    """Run a turn that has begun to its end; the events as they happen.

    Raises `ModelError`s after the turn was ended as failed; an interrupt ends the turn and the events, and raises
    nothing: `turn.reason` says so.
    """
    began = time.monotonic()
    retried = empty = False
    while not turn.done:
        if loop.time_limit is not None and time.monotonic() - began > loop.time_limit:
            await turn.end("limit")
            break
        try:
            request = await turn.request()
        except TurnInterrupted:
            break
        answer: Answer | None = None
        streamed = _Streamed(turn)
        try:
            async with aclosing(_until(loop.interrupted, loop.model.stream(request.body))) as events:
                async for event in events:
                    if isinstance(event, Answer):
                        answer = event
                    else:
                        if isinstance(event, TextDelta):
                            await streamed.add(event.text)
                        yield event
        except ContextTooLong as error:
            if retried:
                await turn.end("failed")
                raise
            retried = True
            loop.shorter(error.limit)
            continue
        except ModelError:
            await turn.end("failed", draft=streamed.text)
            raise
        if answer is None:  # interrupted while the model was speaking
            try:
                await turn.take_mail(draft=streamed.text)
            except TurnInterrupted:
                break
            await turn.end("interrupted", draft=streamed.text)
            break
        if answer.finish == "empty" and not empty:
            empty = True
            continue
        async for called in _act(turn, loop, answer):
            yield called
    yield TurnEnded(turn=turn)


async def _act(turn: Turn, loop: Loop, answer: Answer) -> AsyncGenerator[Event, None]:
    """Record an answer, and run what it calls."""
    verdict = loop.guard.judge([*turn.steps, answer.calls]) if answer.calls else Verdict()
    runnable = [call for place, call in enumerate(answer.calls) if place not in verdict.refused]
    first = _beginning(runnable, loop.tools)
    await turn.record(answer, started=first)
    for place, text in verdict.refused.items():
        call = answer.calls[place]
        result = ToolResult(
            call_id=call.id, name=call.name, content=(Text(text=text),), is_error=True, kind=call.kind
        )
        await turn.result(call, result)
        yield ToolFinished(call=call, result=result)
    if verdict.stop is not None:
        await turn.end("limit")
        return
    for call in first:
        yield ToolStarted(call=call)
    waiting = [call for call in runnable if call not in first]
    async with aclosing(run_calls(runnable, loop.tools, loop.context, started=turn.start)) as results:
        async for call, result in results:
            following = _beginning(waiting, loop.tools) if _alone(call, loop.tools) else []
            waiting = [other for other in waiting if other not in following and other != call]
            await turn.result(call, result, next_started=following)
            yield ToolFinished(call=call, result=result)
            for other in following:
                yield ToolStarted(call=other)


def _beginning(calls: list[ToolCall], tools: Mapping[str, AnyTool]) -> list[ToolCall]:
    """The next call that will begin: recorded with what is written anyway. Parallel ones say so themselves."""
    known = [call for call in calls if call.name in tools]
    return known[:1] if known and not tools[known[0].name].parallel else []


def _alone(call: ToolCall, tools: Mapping[str, AnyTool]) -> bool:
    return call.name in tools and not tools[call.name].parallel


class _Streamed:
    """The text so far; kept as a draft beside the log from time to time."""

    def __init__(self, turn: Turn) -> None:
        self.text = ""
        self._turn = turn
        self._kept = time.monotonic()

    async def add(self, text: str) -> None:
        self.text += text
        now = time.monotonic()
        if now - self._kept >= DRAFT_EVERY:
            self._kept = now
            await self._turn.draft(self.text)


async def _until(
    interrupted: asyncio.Event, events: AsyncIterator[ModelEvent]
) -> AsyncGenerator[ModelEvent, None]:
    """The events of a stream, until it ends or somebody interrupts."""
    stop = asyncio.ensure_future(interrupted.wait())
    try:
        while True:
            following = asyncio.ensure_future(_following(events))
            await asyncio.wait((stop, following), return_when=asyncio.FIRST_COMPLETED)
            if not following.done():
                following.cancel()
                await asyncio.gather(following, return_exceptions=True)
                return
            event = following.result()
            if event is None:
                return
            yield event
    finally:
        stop.cancel()
        close = getattr(events, "aclose", None)  # an iterator need not be a generator
        if close is not None:
            await close()


async def _following(events: AsyncIterator[ModelEvent]) -> ModelEvent | None:
    return await anext(events, None)
