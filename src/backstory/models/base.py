"""What a model is: something that takes a request's body and gives an answer, whole or in pieces.

The `Model` protocol states what the agent loop may rely on. A body is a plain dict in the wire format of the
model's target (`messages` or `input` or `contents`, `tools`, …): whoever builds it is not our business. What
comes back is an `Answer`: typed messages with the server's own items verbatim, why it stopped, and what it cost.

Refused here: knowledge of any provider. Each has a module of its own.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, Protocol, TypeAlias, runtime_checkable

from backstory.errors import ModelUnavailable
from backstory.formats.arguments import arguments_object
from backstory.messages import Message, Part, Reasoning, Refusal, Text, ToolCall
from backstory.quick import quick
from backstory.targets import Target

Finish = Literal["stop", "tool_calls", "length", "refusal", "content_filter", "pause", "empty", "other"]
"""Why an answer ends.

``stop``: it is complete. ``tool_calls``: tools are asked for, whatever the server called it. ``length``: cut off at the
limit of output or window, calls may be torn. ``refusal``: the model declined. ``content_filter``: the provider withheld
some. ``pause``: the provider wants the answer sent back to go on (Anthropic's `pause_turn`). ``empty``: nothing that
anybody could read, and no call. ``other``: a word that we do not know.
"""


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """Tokens as the provider billed them.

    `input` is all that was read, `cached` and `cache_written` (read from and written to the provider's cache)
    included; `output` is all that was written, `reasoning` included.
    """

    input: int
    output: int
    cached: int = 0
    reasoning: int = 0
    cache_written: int = 0


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class TextDelta:
    """A piece of the text that people read."""

    text: str


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class ReasoningDelta:
    """A piece of the thinking, where the provider shows it."""

    text: str


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class CallDelta:
    """A piece of a tool call: its first has `id` and `name`, each may have a fragment of the arguments.

    `index` counts the calls of this answer from zero. Only the `Answer` says what a call is in the end.
    """

    index: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Answer:
    """One answer of a model.

    `messages` is what goes into the log: one message, or several `joined` ones where the format answers in
    items (OpenAI Responses). Each holds the server's item verbatim (`native`), except that calls of one answer
    without an id, or with the id of another, were given one. `model` is the name that the server told.
    """

    messages: tuple[Message, ...]
    finish: Finish = "stop"
    usage: Usage | None = None
    model: str = ""

    @property
    def message(self) -> Message:
        """The answer as one message, to look at. Log `messages`: they alone hold the verbatim items."""
        if len(self.messages) == 1:
            return self.messages[0]
        return Message(role="assistant", parts=tuple(part for m in self.messages for part in m.parts))

    @property
    def text(self) -> str:
        """What a person would read: text, or the words of a refusal."""
        parts = [part for message in self.messages for part in message.parts]
        return "".join(part.text for part in parts if isinstance(part, Text | Refusal))

    @property
    def reasoning(self) -> str:
        parts = [part for message in self.messages for part in message.parts]
        return "".join(part.text for part in parts if isinstance(part, Reasoning))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        """Every call, those that cannot be run as well (see `malformed`)."""
        return _calls(self.messages)

    @property
    def malformed(self) -> tuple[ToolCall, ...]:
        """Calls that nobody can run: without a name, or with arguments that are no JSON object."""
        return tuple(call for call in self.calls if is_malformed(call))


Event: TypeAlias = TextDelta | ReasoningDelta | CallDelta | Answer
"""What a stream gives: deltas, and as the last one the whole `Answer`."""


@runtime_checkable
class Model(Protocol):
    """What the agent loop relies on.

    `name` is sent as ``model``. `target` says which bodies are taken. `window` is tokens of input and output
    together, `max_output` the most that it may write, `None` where unknown. `settings` are the fields that
    shape each request (``temperature``, …): they are sent wherever the body does not have them itself.

    Both methods raise `ContextTooLong`, `ModelRefused` (trying again is useless) or `ModelUnavailable` (all
    retries are used up, or the stream broke after something was handed out: then nothing is tried again).
    Neither changes the body. Both may be cancelled at any await, and then leave no connection open.
    """

    @property
    def name(self) -> str: ...

    @property
    def target(self) -> Target: ...

    @property
    def window(self) -> int | None: ...

    @property
    def max_output(self) -> int | None: ...

    @property
    def settings(self) -> Mapping[str, Any]: ...

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        """The answer, whole."""
        ...

    def stream(self, body: Mapping[str, Any]) -> AsyncIterator[Event]:
        """The answer as it is written; the last event is the `Answer`, as `complete` would have given it."""
        ...

    async def aclose(self) -> None:
        """Close what is kept open between requests. The model may be used again afterwards."""
        ...


async def drained(events: AsyncIterator[Event]) -> Answer:
    """The answer at the end of a stream: what makes a `complete` of a `stream`."""
    answer: Answer | None = None
    async for event in events:
        if isinstance(event, Answer):
            answer = event
    if answer is None:
        raise ModelUnavailable("the model's stream ended without an answer")
    return answer


async def replayed(answer: Answer, *, size: int = 16) -> AsyncGenerator[Event, None]:
    """A finished answer as a stream, in pieces of `size` characters: what makes a `stream` of a `complete`."""
    for delta in deltas(answer, size=size):
        yield delta
    yield answer


def deltas(answer: Answer, *, size: int = 16) -> list[TextDelta | ReasoningDelta | CallDelta]:
    """The pieces in which a server would have handed out this answer."""
    found: list[TextDelta | ReasoningDelta | CallDelta] = []
    index = 0
    for part in (part for message in answer.messages for part in message.parts):
        if isinstance(part, Text | Refusal):
            found += [TextDelta(text=piece) for piece in _pieces(part.text, size)]
        elif isinstance(part, Reasoning):
            found += [ReasoningDelta(text=piece) for piece in _pieces(part.text, size)]
        elif isinstance(part, ToolCall):
            found.append(CallDelta(index=index, id=part.id, name=part.name))
            found += [CallDelta(index=index, arguments=piece) for piece in _pieces(part.arguments, size)]
            index += 1
    return found


def _pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def answered(
    messages: tuple[Message, ...], finish: Finish, *, usage: Usage | None = None, model: str = ""
) -> Answer:
    """An answer whose `finish` agrees with what it holds, whatever word the server used.

    Many servers say ``stop`` beside tool calls, and some ``tool_calls`` beside none.
    """
    if finish not in ("length", "content_filter", "pause"):
        if _calls(messages):
            finish = "tool_calls"
        elif any(isinstance(part, Refusal) for message in messages for part in message.parts):
            finish = "refusal"
        elif finish != "refusal" and not any(_says(part) for message in messages for part in message.parts):
            finish = "empty"
        elif finish == "tool_calls":
            finish = "stop"
    return Answer(messages=messages, finish=finish, usage=usage, model=model)


def _calls(messages: tuple[Message, ...]) -> tuple[ToolCall, ...]:
    if len(messages) == 1:
        return messages[0].calls
    return tuple(call for message in messages for call in message.calls)


def _says(part: Part) -> bool:
    if isinstance(part, Text):
        return bool(part.text.strip())
    return not isinstance(part, Reasoning)


def is_malformed(call: ToolCall) -> bool:
    """Whether a call cannot be run. A function without parameters may come without arguments at all."""
    return not call.name or arguments_object(call).keys() == {"_arguments"}


def merged(
    name: str, settings: Mapping[str, Any], body: Mapping[str, Any], *, aliases: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The request as it is sent: the model and its settings, and over them whatever the body says itself.

    `aliases` are names of one and the same setting: where the body has one, ours is left out.
    """
    own = dict(settings)
    if any(alias in body for alias in aliases):
        for alias in aliases:
            own.pop(alias, None)
    return {"model": name, **own, **body}
