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
    """Pair calls and results.

    A result goes to a waiting call of the newest step if one has its id (first call first), else to the newest
    earlier call that still waits, else it is a further answer to the newest call of that id, else an orphan.
    Where a result has no id, the tool's name stands in for it. A real result takes the place of a synthetic
    one, wherever the two stand; which of the two then counts as the duplicate is the synthetic one.
    """
    pairing = Pairing()
    waiting: dict[tuple[str, str], list[Place]] = {}
    asked: dict[tuple[str, str], Place] = {}
    step_start = -1
    for index, message in enumerate(messages):
        if message.role == "assistant":
            if not (message.joined and step_start >= 0 and messages[index - 1].role == "assistant"):
                step_start = index
            for number, part in enumerate(message.parts):
                if isinstance(part, ToolCall):
                    place = Place(index, number)
                    pairing.calls[place] = part
                    pairing.step[index] = step_start
                    key = _key(part.id, part.name)
                    waiting.setdefault(key, []).append(place)
                    asked[key] = place
            continue
        for number, part in enumerate(message.parts):
            if isinstance(part, ToolResult):
                place = Place(index, number)
                pairing.results[place] = part
                _answer(pairing, place, part, waiting, asked)
    return pairing


def _key(call_id: str, name: str | None) -> tuple[str, str]:
    return (call_id, "") if call_id else ("", name or "")


def _answer(
    pairing: Pairing,
    place: Place,
    result: ToolResult,
    waiting: dict[tuple[str, str], list[Place]],
    asked: dict[tuple[str, str], Place],
) -> None:
    key = _key(result.call_id, result.name)
    places = waiting.get(key)
    if not places and not result.call_id:
        named = (k for k, held in waiting.items() if held and pairing.calls[held[-1]].name == result.name)
        key = max(named, key=lambda k: waiting[k][-1], default=key)
        places = waiting.get(key)
    if places:
        newest = pairing.step[places[-1].message]
        call = next(p for p in places if pairing.step[p.message] == newest)
        places.remove(call)
        pairing.answer[call] = place
        pairing.question[place] = call
        return
    if key not in asked:
        pairing.orphans.append(place)
        return
    call = asked[key]
    held = pairing.answer[call]
    if pairing.results[held].synthetic and not result.synthetic:
        pairing.answer[call], pairing.question[place] = place, call
        del pairing.question[held]
        pairing.duplicates[held] = call
    else:
        pairing.duplicates[place] = call


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

    A list that begins with the assistant begins with a turn that has no user message.
    """
    head = head_length(messages)
    starts = [i for i in range(head, len(messages)) if i == head or starts_turn(messages[i - 1], messages[i])]
    found: list[Turn] = []
    for start, stop in itertools.pairwise([*starts, len(messages)]):
        found.append(Turn(start, stop, tuple(_steps(messages, start, stop))))
    return found


def _steps(messages: Sequence[Message], start: int, stop: int) -> list[Step]:
    starts = [
        i
        for i in range(start, stop)
        if messages[i].role == "assistant"
        and not (messages[i].joined and i > start and messages[i - 1].role == "assistant")
    ]
    return [Step(a, b) for a, b in itertools.pairwise([*starts, stop])]


@dataclass(frozen=True, slots=True)
class Cut:
    """Replay may begin at message `index`. A cut inside a turn leaves that turn's user message to be kept."""

    index: int
    kind: Literal["turn", "step"]


def cut_points(messages: Sequence[Message]) -> list[Cut]:
    """Where the list may be cut, oldest first: the start of each turn, and of each step inside one.

    A place between a call and its result is never one, also where the two stand apart or one came late.
    """
    inside: set[int] = set()
    for call, result in pair(messages).answer.items():
        inside.update(range(call.message + 1, result.message + 1))
    found: list[Cut] = []
    for turn in turns(messages):
        found.append(Cut(turn.start, "turn"))
        found += [Cut(step.start, "step") for step in turn.steps if step.start > turn.start]
    return [cut for cut in found if cut.index not in inside]
