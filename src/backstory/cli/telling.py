"""A turn as it happens, written for people: the answer on standard output, what its tools did beside it.

What a model or a tool says may hold anything. Escapes and other control characters never reach the terminal.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from typing import TextIO

from backstory.agent.active import Turn
from backstory.agent.runner import Event, ToolFinished, ToolStarted, TurnEnded
from backstory.cli.screen import Screen, columns, one_line, wrapped
from backstory.messages import ToolCall, texts
from backstory.models.base import TextDelta

_UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

ENDS = {
    "interrupted": "interrupted",
    "stopped": "stopped",
    "failed": "failed",
    "limit": "ended at a limit: too many steps, the same call again and again, or no time left",
    "length": "cut off: the answer is longer than the model may write",
    "refusal": "the model declined",
    "content_filter": "the provider withheld the answer",
    "empty": "the model said nothing",
}
"""Why a turn ended, in words; ``done`` needs none."""


def printable(text: str) -> str:
    """A text without what would move the cursor or change the terminal; lines and tabs stay."""
    return _UNSEEN.sub("", text)


class Teller:
    """Writes the events of turns: text to `out`, all else to `aside`, dimmed where there are colours."""

    def __init__(
        self, *, out: TextIO | None = None, aside: TextIO | None = None, no_color: bool = False
    ) -> None:
        self.out = out or sys.stdout
        self.aside = aside or sys.stderr
        self.screen = Screen.of(self.aside, no_color=no_color)
        self._open = False  # whether the last line of text lacks its end
        self._shown: list[ToolCall] = []

    def tell(self, events: Iterable[Event]) -> Turn | None:
        """Write the events as they come; the turn, where it came to its end."""
        said = False
        self._shown.clear()
        for event in events:
            match event:
                case TextDelta(text=text):
                    said = self._text(text) or said
                case ToolStarted(call=call):
                    self._called(call)
                    said = False
                case ToolFinished(call=call, result=result):
                    said = False
                    if call not in self._shown:  # it was refused, or says so itself
                        self._called(call)
                    mark = ("✗" if result.is_error else "→") if self.screen.unicode else ">"
                    whose = "" if self._shown[-1] == call else f"{call.name}: "  # it ran beside others
                    self.note(f"  {mark} {self._result(f'{whose}{texts(result.content).strip()}')}")
                case TurnEnded(turn=turn):
                    if not said and turn.text:
                        self._text(turn.text)
                    self.end_line()
                    if turn.recovered:
                        self.note(f"(recovered: {', '.join(turn.recovered)})")
                    if turn.reason in ENDS:
                        self.note(f"({ENDS[turn.reason]})")
                    return turn
        return None

    def note(self, text: str, *styles: str) -> None:
        """A line beside the answer."""
        self.end_line()
        room = self.screen.width - 1
        lines = [text] if columns(text) <= room else wrapped(text, room)
        for line in lines:
            print(self.screen.paint(line, *(styles or ("dim",))), file=self.aside, flush=True)

    def end_line(self) -> None:
        if self._open:
            self.out.write("\n")
            self.out.flush()
            self._open = False

    def _text(self, text: str) -> bool:
        text = printable(text)
        if text:
            self.out.write(text)
            self.out.flush()
            self._open = not text.endswith("\n")
        return bool(text)

    def _called(self, call: ToolCall) -> None:
        self._shown.append(call)
        self.note(f"· {self._call(call)}")

    def _call(self, call: ToolCall) -> str:
        return one_line(f"{call.name} {_arguments(call.arguments)}", self.screen.width - 4)

    def _result(self, text: str) -> str:
        lines = text.strip().splitlines()
        more = f" (+{len(lines) - 1} lines)" if len(lines) > 1 else ""
        return one_line(lines[0] if lines else "(nothing)", self.screen.width - 6 - len(more)) + more


def _arguments(text: str) -> str:
    """Arguments as people read them: the value alone where there is one."""
    try:
        values = json.loads(text)
    except ValueError:
        return text
    if not isinstance(values, dict):
        return text
    if len(values) == 1:
        return str(next(iter(values.values())))
    return ", ".join(f"{name}={value}" for name, value in values.items())
