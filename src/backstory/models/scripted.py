"""A model that plays a script: for tests, also yours. It keeps every request, and refuses what a real API refuses.

    model = ScriptedModel(["Hello.", calls(("read_file", {"path": "a.txt"})), "It says 42."])

Each request takes the next step of the script:

- a text, a `Message` or several, an `Answer`: the answer;
- `calls(…)`: an answer that calls tools;
- an exception (or its class): raised, as a real client would raise it;
- a function of the body, sync or async: called, and what it returns is taken in its place;
- `Play(step, …)`: any of these with delays, in pieces, stalling or breaking off in the middle.

A script that is itself a function answers all requests. What a request is billed is counted by `backstory.tokens`;
what it shares with the request before it counts as cached.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import json
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any, TypeAlias

from backstory.errors import ConfigurationError, ContextTooLong
from backstory.formats import wire_format
from backstory.formats.request import read_all
from backstory.messages import Message, ToolCall, assistant
from backstory.models.base import Answer, Event, Finish, Usage, answered, drained, merged, replayed
from backstory.models.judge import judge
from backstory.models.request import body_tokens, canonical
from backstory.targets import Target
from backstory.tokens import Counter, counter_for
from backstory.tokens.messages import PRIMING, count_messages

Step: TypeAlias = (
    "str | Message | list[Message] | Answer | Calls | Play | BaseException | type[BaseException] | Reply"
)
Reply: TypeAlias = "Callable[[dict[str, Any]], Step | Awaitable[Step]]"

_MAX_OUTPUT = 4096


@dataclass(frozen=True, slots=True)
class Calls:
    """An answer that calls tools; see `calls`."""

    asked: tuple[tuple[str, Any], ...]
    text: str = ""


def calls(*asked: tuple[str, Any] | str, text: str = "") -> Calls:
    """A step that calls tools: each a name, or a name with its arguments (a dict, or the raw string).

    Ids are given when it is played (``call_1``, ``call_2``, …, never twice in one model). For other ids use a
    `Message`.
    """
    return Calls(tuple((one, {}) if isinstance(one, str) else one for one in asked), text)


@dataclass(frozen=True, kw_only=True, slots=True)
class Play:
    """A step with its timing.

    `delay`: seconds before anything happens; `between`: before each delta. After `after` deltas the stream
    hangs until it is cancelled (`stall`) or raises `error`; an answer that is asked for whole then does so at once.
    `finish` and `usage` go into the answer.
    """

    step: Any
    delay: float = 0.0
    between: float = 0.0
    after: int = 0
    stall: bool = False
    error: BaseException | None = None
    finish: Finish | None = None
    usage: Usage | None = None


class ScriptedModel:
    """See the module. `requests` holds a copy of every body as it came, refused ones as well.

    `legal=False` takes whatever comes. `window` is tokens of input and output together: what exceeds it is
    refused with `ContextTooLong`. `size` is how many characters a delta has.
    """

    def __init__(
        self,
        script: Iterable[Step] | Reply = (),
        *,
        target: Target | str = "openai_chat",
        window: int | None = None,
        max_output: int | None = None,
        name: str = "scripted",
        legal: bool = True,
        size: int = 16,
        counter: Counter | None = None,
        **settings: Any,
    ) -> None:
        self.name = name
        self.target = Target.of(target)
        self.window = window if window is not None else self.target.window
        self.max_output = max_output
        self.settings = dict(settings)
        if self.target.format == "anthropic":
            self.settings.setdefault("max_tokens", max_output or _MAX_OUTPUT)
        self.requests: list[dict[str, Any]] = []
        self.legal = legal
        self.size = size
        self.counter = counter or counter_for(None, self.target.format)
        self.played = 0
        self._reply = script if callable(script) else None
        self._steps = [] if callable(script) else list(script)
        self._calls = 0
        self._prefix: list[str] = []

    def __repr__(self) -> str:
        left = "a function" if self._reply else f"{len(self._steps)} steps left"
        return f"ScriptedModel({self.name!r}, target={self.target.name!r}, {left})"

    def then(self, *steps: Step) -> ScriptedModel:
        """Write on in the script."""
        self._steps += steps
        return self

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        """The answer, whole. See `Model`."""
        async with aclosing(self.stream(body)) as events:
            return await drained(events)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """The answer in pieces. See `Model`."""
        whole = merged(self.name, self.settings, body)
        self.requests.append(copy.deepcopy(dict(body)))
        used = self._receive(whole)
        play = await self._next(whole)
        if play.delay:
            await asyncio.sleep(play.delay)
        if isinstance(play.step, BaseException):
            raise play.step
        answer = self._answer(play, used)
        count = 0
        async for event in replayed(answer, size=self.size):
            if (play.stall or play.error) and (count == play.after or isinstance(event, Answer)):
                if play.error is not None:
                    raise play.error
                await asyncio.Event().wait()
            if play.between:
                await asyncio.sleep(play.between)
            yield event
            count += 1

    async def aclose(self) -> None:
        """Nothing is kept open."""

    # --- what comes in ---------------------------------------------------------------------

    def _receive(self, body: dict[str, Any]) -> Usage:
        """Judge a request; what it will be billed, but for the output."""
        if self.legal:
            judge(body, self.target)
        used = body_tokens(body, self.target, self.counter)
        if self.window is not None and used > self.window:
            raise ContextTooLong(
                f"400 context_length_exceeded: This model's maximum context length is {self.window} tokens."
                f" However, your messages resulted in {used} tokens.",
                limit=self.window,
            )
        return Usage(input=used, output=0, cached=self._shared(body, used))

    def _shared(self, body: dict[str, Any], used: int) -> int:
        """Tokens that this request has in common with the one before it, from its first byte on."""
        form = wire_format(self.target.format)
        items = body[form.ITEMS] if isinstance(body[form.ITEMS], list) else [body[form.ITEMS]]
        head = {key: value for key, value in body.items() if key != form.ITEMS and key not in self.settings}
        prefix = [canonical(head), *map(canonical, items)]
        before, self._prefix = self._prefix, prefix
        same = 0
        while same < min(len(before), len(prefix)) and before[same] == prefix[same]:
            same += 1
        if same < 2:
            return 0
        new = read_all(items[same - 1 :], self.target.format)[0] if same <= len(items) else []
        return used - PRIMING - sum(count_messages(new, self.counter, self.target.format))

    # --- what goes out ---------------------------------------------------------------------

    async def _next(self, body: dict[str, Any]) -> Play:
        if self._reply is not None:
            step: Any = self._reply
        elif self._steps:
            step = self._steps.pop(0)
        else:
            raise ConfigurationError(
                f"the script of {self.name!r} is at its end: {self.played} steps were played,"
                f" and this is request {len(self.requests)}"
            )
        self.played += 1
        play = step if isinstance(step, Play) else Play(step=step)
        while True:
            step = play.step
            if isinstance(step, type) and issubclass(step, BaseException):
                step = step("the script says so")
            elif callable(step):
                step = step(body)
                if inspect.isawaitable(step):
                    step = await step
            else:
                return play
            play = (
                step
                if isinstance(step, Play)
                else Play(
                    step=step,
                    delay=play.delay,
                    between=play.between,
                    after=play.after,
                    stall=play.stall,
                    error=play.error,
                    finish=play.finish,
                    usage=play.usage,
                )
            )

    def _answer(self, play: Play, used: Usage) -> Answer:
        step = play.step
        if isinstance(step, Answer):
            return step
        if isinstance(step, str):
            step = assistant(step)
        elif isinstance(step, Calls):
            step = assistant(step.text, *[self._call(name, arguments) for name, arguments in step.asked])
        messages = [step] if isinstance(step, Message) else step
        if not isinstance(messages, list) or not all(isinstance(m, Message) for m in messages):
            raise ConfigurationError(f"a script cannot play {type(step).__name__}; see ScriptedModel")
        wire = in_wire_form(messages, self.target)
        usage = play.usage or Usage(
            input=used.input,
            cached=used.cached,
            output=sum(count_messages(wire, self.counter, self.target.format)),
        )
        return answered(wire, play.finish or "stop", usage=usage, model=self.name)

    def _call(self, name: str, arguments: Any) -> ToolCall:
        self._calls += 1
        text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
        return ToolCall(id=f"call_{self._calls}", name=name, arguments=text)


def in_wire_form(messages: list[Message], target: Target) -> tuple[Message, ...]:
    """The messages as a server of the target would have sent them: each with its native item."""
    form = wire_format(target.format)
    written = form.write(messages, target)
    found: list[Message] = []
    for index, item in enumerate(written.items):
        found += form.read(item, index=index, origin=target.origin)
    return tuple(found) or (Message(role="assistant"),)
