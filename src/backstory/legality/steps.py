"""Groups a list of messages into turns and steps: the only supplier of cut points anywhere.

A *step* is one model response with all its calls and all their results. A *turn* is from a user message to the
model's final answer. Ids of calls are scoped to their step, since some backends number calls from zero in each
turn: a result belongs to the newest call before it that has its id and waits for it.

Knows nothing of targets and of what is legal.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from backstory.messages import Message, ToolCall, ToolResult


class Place(NamedTuple):
    """Where a part stands: index of the message in the list, index of the part in the message."""

    message: int
    part: int


@dataclass(slots=True)
class Pairing:
    """Which result answers which call.

    `answer` maps a call to its result, `question` a result to its call. `duplicates` maps a further result to
    the call that has an answer already. `orphans` answer no call at all. `step` maps a call's message to the
    first message of its step (they differ where one response came as several items).
    """

    calls: dict[Place, ToolCall] = field(default_factory=dict)
    results: dict[Place, ToolResult] = field(default_factory=dict)
    answer: dict[Place, Place] = field(default_factory=dict)
    question: dict[Place, Place] = field(default_factory=dict)
    duplicates: dict[Place, Place] = field(default_factory=dict)
    orphans: list[Place] = field(default_factory=list)
    step: dict[int, int] = field(default_factory=dict)

    @property
    def unanswered(self) -> list[Place]:
        return [place for place in self.calls if place not in self.answer]


def pair(messages: Sequence[Message]) -> Pairing:
    """Pair calls and results, in one pass from the first to the last.

    A result goes to a call with its id that still waits: of the newest step that has one, the first. Else it is a
    further answer to the newest call of that id, else an orphan. Where a result has no id, its tool's name stands
    in for it; where a call has none, it takes a result of its own step that answers nothing else. A real result
    takes the place of a synthetic one, which then counts as the duplicate.

    What a result answers never depends on what comes after it, with that one exception.
    """
    pairer = _Pairer()
    start = -1
    for index, message in enumerate(messages):
        if message.role == "assistant":
            if not continues(messages, index):
                start = index
            for number, part in enumerate(message.parts):
                if isinstance(part, ToolCall):
                    pairer.call(Place(index, number), part, start)
        else:
            for number, part in enumerate(message.parts):
                if isinstance(part, ToolResult):
                    pairer.result(Place(index, number), part)
    return pairer.found


def continues(messages: Sequence[Message], index: int) -> bool:
    """Whether message `index` goes on with the response that the message before it began."""
    message = messages[index]
    return (
        message.joined
        and message.role == "assistant"
        and index > 0
        and messages[index - 1].role == "assistant"
    )


_Key = tuple[Literal["id", "name", "any"], str]


class _Pairer:
    """What is known on the way: calls by id and by name, oldest first, those that were answered taken off lazily."""

    def __init__(self) -> None:
        self.found = Pairing()
        self.waiting: dict[_Key, list[Place]] = {}
        self.newest: dict[_Key, Place] = {}
        self.stand_ins: dict[_Key, list[Place]] = {}  # calls whose answer is synthetic
        self.step = -1

    def call(self, place: Place, call: ToolCall, step: int) -> None:
        self.found.calls[place] = call
        self.found.step[place.message] = self.step = step
        keys: list[_Key] = [("name", call.name), ("any", ""), ("id", call.id)]
        for key in keys:
            self.waiting.setdefault(key, []).append(place)
            self.newest[key] = place

    def result(self, place: Place, result: ToolResult) -> None:
        self.found.results[place] = result
        key: _Key = ("id", result.call_id) if result.call_id else ("name", result.name or "")
        call = self.first_waiting(key)
        if call is None and key == ("name", ""):
            call = self.first_waiting(("any", ""))
            if call is not None and self.found.step[call.message] != self.step:
                call = None
        if call is not None:
            self.found.answer[call] = place
            self.found.question[place] = call
            if result.synthetic:
                self.stand_ins.setdefault(key, []).append(call)
        elif key not in self.newest:
            self.found.orphans.append(place)
        elif self.stand_ins.get(key) and not result.synthetic:
            self.replace(self.stand_ins[key].pop(), place)
        else:
            self.found.duplicates[place] = self.newest[key]

    def first_waiting(self, key: _Key) -> Place | None:
        """The first call under a key that waits, in the newest step that has one."""
        places = self.waiting.get(key)
        if not places:
            return None
        answer, step = self.found.answer, self.found.step
        while places and places[-1] in answer:
            places.pop()
        first = None
        for place in reversed(places):
            if first is not None and step[place.message] != step[first.message]:
                break
            if place not in answer:
                first = place
        return first

    def replace(self, call: Place, place: Place) -> None:
        """A real result in place of a synthetic one."""
        found = self.found
        held = found.answer[call]
        found.answer[call], found.question[place] = place, call
        del found.question[held]
        found.duplicates[held] = call


@dataclass(frozen=True, slots=True)
class Step:
    """Messages `start` up to `stop` (not included): a response and its results."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Turn:
    """Messages `start` up to `stop`; those before the first step are the user's."""

    start: int
    stop: int
    steps: tuple[Step, ...]


def head_length(messages: Sequence[Message]) -> int:
    """How many leading messages are the system's: they never take part in a cut."""
    count = 0
    for message in messages:
        if message.role not in ("system", "developer"):
            break
        count += 1
    return count


def starts_turn(before: Message | None, message: Message) -> bool:
    """Whether a turn begins with `message`, given the one before it.

    A turn begins with the first of a run of user and late system messages. Words that came in one item with
    tool results (`joined`) steer the turn that is under way and begin none.
    """
    if message.role not in ("user", "system", "developer") or message.joined:
        return False
    return before is None or before.role not in ("user", "system", "developer")


def turns(messages: Sequence[Message]) -> list[Turn]:
    """The turns of a list, which cover it from its first message after the system's to the end, in order.

    A list that begins with the assistant begins with a turn that has no user message. Words that stand between a
    call and its result begin no turn: they would be cut apart.
    """
    starts: list[int] = []
    settled = 0  # so many of the starts stand before the newest step
    asked: set[str] = set()  # ids of its calls
    for index in range(head_length(messages), len(messages)):
        message = messages[index]
        if message.role == "assistant":
            if not continues(messages, index):
                asked = set()
            asked.update(call.id for call in message.calls)
        elif message.role == "tool":
            if len(starts) > settled and any(_may_answer(result, asked) for result in message.results):
                del starts[settled:]
        elif starts and starts_turn(messages[index - 1], message):
            starts.append(index)
        if not starts:
            starts.append(index)
        if message.role == "assistant":
            settled = len(starts)
    return [
        Turn(start, stop, _steps(messages, start, stop))
        for start, stop in itertools.pairwise([*starts, len(messages)])
    ]


def _may_answer(result: ToolResult, asked: set[str]) -> bool:
    """Whether a result is of the step with these ids: one without an id may be."""
    return bool(asked) and (result.call_id in asked or not result.call_id)


def _steps(messages: Sequence[Message], start: int, stop: int) -> tuple[Step, ...]:
    starts = [i for i in range(start, stop) if messages[i].role == "assistant" and not continues(messages, i)]
    return tuple(Step(a, b) for a, b in itertools.pairwise([*starts, stop]))


@dataclass(frozen=True, slots=True)
class Cut:
    """Replay may begin at message `index`. A cut inside a turn leaves that turn's user message to be kept."""

    index: int
    kind: Literal["turn", "step"]


def cut_points(messages: Sequence[Message]) -> list[Cut]:
    """Where the list may be cut, oldest first: the start of each turn, and of each step inside one.

    None stands inside a step. A result that came late, after another step had begun, holds no cut up: it goes
    with its call, whichever side that is on (repair moves it there, or drops it as an orphan). Else one call that
    is answered hours later would keep a session from ever being cut.
    """
    found: list[Cut] = []
    for turn in turns(messages):
        found.append(Cut(turn.start, "turn"))
        found += [Cut(step.start, "step") for step in turn.steps if step.start > turn.start]
    return found
