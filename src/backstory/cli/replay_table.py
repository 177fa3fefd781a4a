"""The end of a replay: totals, the strategies side by side in one table, and what follows from it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backstory.cli.prices import Priced
from backstory.cli.screen import Screen
from backstory.context.replay import Price, Walk

_WHAT = {
    "full": "everything, at every call",
    "sliding": "what fits, refilled at every call",
    "stepped": "fills up, then cuts to half",
}


def table(screen: Screen, walks: Sequence[Walk], budget: int | None, priced: Priced) -> Iterator[str]:
    """One row a strategy."""
    wide = screen.width >= 100
    titles = ["calls", "input", "from cache", "largest", "cuts", "output", "cost"]
    if budget is not None:
        titles.insert(4, "over budget")
    widths = [6, 11, 11, 9, 5, 8, 9]
    if budget is not None:
        widths.insert(4, 12)
    head = "".join(f"{title:>{width}}" for title, width in zip(titles, widths, strict=True))
    yield screen.paint(f"{'strategy':<9}{head}", "bold")
    costs = [walk.cost(priced.price) for walk in walks]
    for walk, cost in zip(walks, costs, strict=True):
        share = f"{walk.cached / walk.input:.1%}" if walk.input else "-"
        cells = [f"{len(walk.calls):,}", f"{walk.input:,}", share, f"{walk.largest:,}", str(walk.cuts)]
        cells += [f"{walk.output:,}", dollars(cost)]
        if budget is not None:
            cells.insert(4, _over(walk, budget))
        row = "".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
        best = len(walks) > 1 and cost == min(costs)
        said = screen.paint(f"   {_WHAT[walk.strategy]}", "dim") if wide and len(walks) > 1 else ""
        yield screen.paint(f"{walk.strategy:<9}{row}", *(("green", "bold") if best else ())) + said


def _over(walk: Walk, budget: int) -> str:
    if walk.failed:
        return f"{walk.failed} failed"
    over = walk.over(budget)
    return f"{over} calls" if over > 1 else "1 call" if over else "none"


def dollars(amount: float) -> str:
    return f"${amount:,.2f}" if amount >= 100 else f"${amount:,.4f}"


def closing(screen: Screen, walks: Sequence[Walk], budget: int | None, price: Price) -> Iterator[str]:
    """What the table says, in words."""
    main = next((walk for walk in walks if walk.strategy == "stepped"), walks[0])
    cost = main.cost(price)
    for other in walks:
        theirs = other.cost(price)
        if other is main or not theirs:
            continue
        less = 1 - cost / theirs
        if less >= 0.02:
            yield f"{main.strategy} costs {less:.0%} less than {other.strategy}{_why(other, budget)}."
    whole = Walk(strategy=main.strategy, calls=main.calls)
    saved = whole.cost(Price(input=price.input, cached=price.input, output=price.output)) - cost
    if len(walks) == 1 and saved > 0:
        yield f"Without the provider's cache it would cost {dollars(cost + saved)}."
    if main.healed:
        what = "problem" if main.healed == 1 else "problems"
        yield f"{main.healed} {what} healed on the way; the recording itself is untouched."
    if main.failed:
        yield screen.paint(f"{main.failed} calls could not be made: raise the budget.", "red")


def _why(walk: Walk, budget: int | None) -> str:
    if walk.strategy == "full" and walk.over(budget):
        return f", which no window of {budget:,} tokens would take after call {_first_over(walk, budget) - 1}"
    if walk.strategy == "sliding" and walk.input:
        return f", whose beginning moved {walk.cuts} times, each time out of the provider's cache"
    return ""


def _first_over(walk: Walk, budget: int | None) -> int:
    return next((call.number for call in walk.calls if budget is not None and call.input > budget), 1)
