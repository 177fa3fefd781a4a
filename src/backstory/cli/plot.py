"""Tokens per call and the cost so far as a picture; needs matplotlib, the extra `plot`."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from backstory.context.replay import Price, Walk
from backstory.errors import ConfigurationError

_COLOURS = {"full": "#b0413e", "sliding": "#d89c3c", "stepped": "#2f6f8f"}


def plot(path: str, walks: Sequence[Walk], budget: int | None, price: Price) -> None:
    """Write the picture; its kind is told from the file's name. Raises `ConfigurationError`, `OSError`."""
    try:
        import matplotlib  # type: ignore[import-not-found, unused-ignore]
        from matplotlib.figure import Figure  # type: ignore[import-not-found, unused-ignore]
    except ImportError:
        raise ConfigurationError("--plot needs matplotlib: pip install 'backstory[plot]'") from None
    with matplotlib.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(9, 6), layout="constrained")
        tokens, cost = figure.subplots(2, 1, sharex=True)
        for walk in walks:
            numbers = [call.number for call in walk.calls]
            colour = _COLOURS[walk.strategy]
            tokens.plot(numbers, [call.input for call in walk.calls], color=colour, label=walk.strategy)
            tokens.fill_between(numbers, [call.cached for call in walk.calls], color=colour, alpha=0.12)
            sums = itertools.accumulate(call.cost(price) for call in walk.calls)
            cost.plot(numbers, list(sums), color=colour, label=walk.strategy)
        if budget is not None:
            tokens.axhline(budget, color="#666666", linewidth=0.8, linestyle="--", label="budget")
        tokens.set_ylabel("input tokens (shaded: from cache)")
        cost.set_ylabel("cost so far, $")
        cost.set_xlabel("model call")
        tokens.legend(frameon=False)
        try:
            figure.savefig(path, dpi=150)
        except ValueError as error:
            raise ConfigurationError(f"--plot {path}: {str(error).splitlines()[0]}") from None
