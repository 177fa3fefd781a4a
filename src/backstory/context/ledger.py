"""Where a request's tokens went, section by section, and why each thing was kept, condensed or dropped.

A ledger is a value: it decides nothing. Every request leaves one, and so does every request that could not be
made (`BudgetExceeded.ledger`).
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True, slots=True)
class Line:
    """One section in tokens: what it `asked` for (of what was read), what it was `granted`, what it `used`."""

    section: str
    asked: int
    granted: int
    used: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Dropped:
    """Messages `start` up to `stop` (positions in the caller's list, `stop` not included) that are not sent.

    `reason` is ``cut`` (before the place where replay begins) or ``cut_in_turn`` (older steps of a turn that alone
    is too big).
    """

    start: int
    stop: int
    reason: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Condensed:
    """A tool result that is sent as a preview: the position of its message, tokens before and after."""

    index: int
    before: int
    after: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Ledger:
    """The account of one request. All figures are tokens of input unless they say otherwise.

    `budget` is `None` where there is none. `total` is what the whole request takes by our count; `exact` says
    whether the count is, else `margin` is its stated relative error. `shared` is how much of it stands unchanged at
    the same place in the request before, so that the provider's cache can serve it. `epoch` counts changes of the
    prefix, and `why` says what opened this one. `items` is the tokens of each item of the list, in order.
    """

    budget: int | None
    reserve: int = 0
    total: int = 0
    lines: tuple[Line, ...] = ()
    dropped: tuple[Dropped, ...] = ()
    condensed: tuple[Condensed, ...] = ()
    epoch: int = 1
    why: str = ""
    shared: int = 0
    exact: bool = True
    margin: float = 0.0
    counter: str = ""
    items: tuple[int, ...] = ()

    def line(self, section: str) -> Line:
        """The line of a section; one of zeros where the request has no such section."""
        for line in self.lines:
            if line.section == section:
                return line
        return Line(section=section, asked=0, granted=0, used=0)

    def to_json(self) -> dict[str, Any]:
        """JSON values, for a log or a trace."""
        value: dict[str, Any] = {name: getattr(self, name) for name in _NAMES[Ledger]}
        for name in ("lines", "dropped", "condensed"):
            value[name] = [{inner: getattr(one, inner) for inner in _NAMES[type(one)]} for one in value[name]]
        value["items"] = list(self.items)
        return value

    def __str__(self) -> str:
        of = f" of {self.budget:,}" if self.budget is not None else ""
        rows = [
            f"{self.total:,}{of} tokens ({self.counter}, {'exact' if self.exact else f'±{self.margin:.0%}'})"
        ]
        rows += [f"  {line.section:<12} {line.used:>9,} used {line.asked:>9,} asked" for line in self.lines]
        rows += [f"  messages {d.start} to {d.stop - 1} dropped: {d.reason}" for d in self.dropped]
        rows += [
            f"  result in message {c.index} condensed: {c.before:,} to {c.after:,}" for c in self.condensed
        ]
        rows.append(
            f"  epoch {self.epoch} ({self.why}); {self.shared:,} tokens shared with the request before"
        )
        return "\n".join(rows)


_NAMES = {
    cls: tuple(field.name for field in dataclasses.fields(cls)) for cls in (Line, Dropped, Condensed, Ledger)
}
