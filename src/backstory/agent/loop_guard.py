"""When a turn runs in circles: a pure verdict over the calls that it has made so far.

The verdict follows from the log alone, so a turn that is resumed after a crash gets the same. Nothing is kept here.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from backstory.errors import ConfigurationError
from backstory.messages import ToolCall


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """What to do with the calls of the newest step.

    `refused` gives, by the place of a call in that step, the text that stands for its result: it is not run.
    `stop` says why the turn ends; then no call is run, and each has its text.
    """

    refused: Mapping[int, str] = field(default_factory=dict)
    stop: Literal["iterations", "repeats"] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class LoopGuard:
    """Limits on a turn that calls tools.

    `max_iterations`: steps with calls that a turn may have. `max_repeats`: how often the very same call (name and
    arguments) may run while nothing new is tried. The next such call is refused with a warning; made once more, in a
    later step, it ends the turn. A step that holds a call which this turn has not made before is new, and counting
    starts again: tests that run after each edit are no circle, reading one file over and over is, and so is
    going to and fro between two.
    """

    max_iterations: int = 50
    max_repeats: int = 3

    def __post_init__(self) -> None:
        if self.max_iterations < 1 or self.max_repeats < 1:
            raise ConfigurationError("max_iterations and max_repeats are at least 1")

    def judge(self, steps: Sequence[Sequence[ToolCall]]) -> Verdict:
        """What becomes of the last of `steps`, which are the calls of each step of this turn, in order."""
        if not steps:
            return Verdict()
        newest = steps[-1]
        if len(steps) > self.max_iterations:
            text = f"[Not run: this turn has made {self.max_iterations} rounds of calls, which is the limit.]"
            return Verdict(refused=dict.fromkeys(range(len(newest)), text), stop="iterations")
        seen: set[str] = set()
        counts: Counter[str] = Counter()
        for step in steps[:-1]:
            keys = [canonical(call) for call in step]
            if not seen.issuperset(keys):
                counts.clear()
            counts.update(keys)
            seen.update(keys)
        keys = [canonical(call) for call in newest]
        if not seen.issuperset(keys):
            counts.clear()
        if any(counts[key] > self.max_repeats for key in keys):
            text = "[Not run: the same call was repeated after a warning, so the turn was ended.]"
            return Verdict(refused=dict.fromkeys(range(len(newest)), text), stop="repeats")
        refused: dict[int, str] = {}
        for place, key in enumerate(keys):
            counts[key] += 1
            if counts[key] > self.max_repeats:
                refused[place] = (
                    f"[Not run: {newest[place].name} was already called {self.max_repeats} times with these very "
                    "arguments; its earlier results stand. Try something else, or answer with what you have.]"
                )
        return Verdict(refused=refused)


def canonical(call: ToolCall) -> str:
    """Equal for calls that ask for the same: the order of keys, blanks, and 1 against 1.0 make no difference."""
    try:
        value = json.loads(call.arguments or "{}", parse_int=_number, parse_float=_number)
        arguments = json.dumps(value, sort_keys=True)
    except (ValueError, RecursionError):
        arguments = call.arguments.strip()
    return json.dumps([call.kind, call.name, arguments])


def _number(text: str) -> Any:
    """1, 1.0 and 1e0 are one number in JSON; what is too long to be counted is its text."""
    if len(text) > 300:
        return text
    value = float(text)
    exact = int(value) if value.is_integer() else value
    return exact if "." in text or "e" in text.lower() else int(text)
