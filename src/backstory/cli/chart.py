"""Tokens per call as bars in a terminal: what a cache serves below, what is paid in full above."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backstory.cli.screen import Screen
from backstory.context.replay import Call, Walk

_ROWS = 6
_LABEL = 8


@dataclass(frozen=True, kw_only=True, slots=True)
class Glyphs:
    fresh: str
    cached: str
    line: str
    over: str

    @staticmethod
    def of(screen: Screen) -> Glyphs:
        if screen.unicode:
            return Glyphs(fresh="█", cached="░", line="┄", over="▲")
        return Glyphs(fresh="#", cached=":", line="-", over="^")


def legend(screen: Screen) -> str:
    glyphs = Glyphs.of(screen)
    fresh = screen.paint(glyphs.fresh, "yellow")
    cached = screen.paint(glyphs.cached, "green")
    return f"{fresh} paid in full   {cached} the provider's cache can serve it: it stood there in the request before"


def bar(screen: Screen, cached: int, fresh: int, *, full: int, width: int) -> str:
    """One request as a bar of a width that stands for `full` tokens."""
    glyphs = Glyphs.of(screen)
    total = cached + fresh
    cells = min(width, round(total / full * width)) if full else 0
    cells = max(cells, 1 if total else 0)
    old = min(cells, round(cached / full * width)) if full else 0
    if fresh and cells and old == cells:
        old -= 1 if fresh * 4 * width >= full else 0  # at least a quarter of a cell shows
    drawn = screen.paint(glyphs.cached * old, "green") + screen.paint(glyphs.fresh * (cells - old), "yellow")
    return drawn + " " * (width - cells)


def charts(screen: Screen, walks: Sequence[Walk], budget: int | None) -> list[str]:
    """One chart a walk, all to one scale. Bars that are taller than the chart end in a mark."""
    most = max((call.input for walk in walks for call in walk.calls), default=0)
    unit = budget / 4 if budget is not None else max(1.0, most / _ROWS)
    if budget is not None and most <= budget:
        unit = budget / _ROWS
    lines: list[str] = []
    for walk in walks:
        lines += [*_chart(screen, walk, unit, budget), ""]
    return [*lines[:-1], *_axis(screen, walks)]


def _axis(screen: Screen, walks: Sequence[Walk]) -> list[str]:
    """The numbers of the first and the last call, below the bars."""
    count = max((len(walk.calls) for walk in walks), default=0)
    if count < 2:
        return []
    each, wide = _scale(count, screen.width - _LABEL - 3)
    last = f"{count:,}"
    room = -(-count // each) * wide - len(last) - 1
    return [screen.paint(f"{'call':>{_LABEL}}  1{last:>{room + len(last)}}", "dim")] if room > 0 else []


def _scale(count: int, room: int) -> tuple[int, int]:
    """For so many calls and columns: how many calls share a bar, and how many columns a bar has."""
    each = max(1, -(-count // room))
    return each, max(1, min(3, room // max(1, -(-count // each))))


def _chart(screen: Screen, walk: Walk, unit: float, budget: int | None) -> list[str]:
    room = screen.width - _LABEL - 3
    each, wide = _scale(len(walk.calls), room)
    bars = _bars(walk.calls, each)
    title = f"{screen.paint(walk.strategy, 'bold')}: tokens of input, call by call"
    lines = [f"{' ' * _LABEL}  {title}"]
    at_budget = round(budget / unit) - 1 if budget is not None else -1
    for row in reversed(range(_ROWS)):
        label = f"{budget:,}" if row == at_budget else "0" if row == 0 else ""
        cells = [_cell(screen, cached, fresh, row, unit, top=row == _ROWS - 1) for cached, fresh in bars]
        rule = Glyphs.of(screen).line if row == at_budget else " "
        drawn = "".join(cell * wide if cell else screen.paint(rule * wide, "dim") for cell in cells)
        edge = "┤" if screen.unicode else "|"
        lines.append(f"{label:>{_LABEL}} {screen.paint(edge, 'dim')}{drawn.rstrip()}")
    return lines


def _cell(screen: Screen, cached: int, fresh: int, row: int, unit: float, *, top: bool) -> str:
    """One cell of a bar; empty where the bar does not reach."""
    glyphs = Glyphs.of(screen)
    total, middle = cached + fresh, (row + 0.5) * unit
    if top and total > (row + 1) * unit:
        return screen.paint(glyphs.over, "red")
    if total < middle and not (row == 0 and total):
        return ""
    if middle <= cached:
        return screen.paint(glyphs.cached, "green")
    return screen.paint(glyphs.fresh, "yellow")


def _bars(calls: Sequence[Call], each: int) -> list[tuple[int, int]]:
    """(cached, fresh) of each call, or the mean of so many neighbours."""
    groups = [calls[start : start + each] for start in range(0, len(calls), each)]
    return [
        (sum(call.cached for call in group) // len(group), sum(call.fresh for call in group) // len(group))
        for group in groups
    ]
