"""How the tokens of one request are shared out. Shares bind only when more is asked for than there is.

The input budget is the window less the reserved output. Each group has a share; what a group does not use is
lent to those that ask for more, in the order in which they give way last. Nothing here knows what a group holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backstory.errors import ConfigurationError

RESERVE = 0.2
"""Of the window, kept for the output where the caller says nothing: DESIGN asks for 15 to 20 %."""

GROUPS = ("system", "message", "tool_results", "retrieved", "history")
"""In the order in which they are served when tokens are lent: the last gives way first."""

_DEFAULT = {"system": 0.05, "retrieved": 0.30, "history": 0.40, "tool_results": 0.15, "message": 0.10}

SHARES: dict[str, dict[str, float]] = {
    "default": _DEFAULT,
    "chat": {**_DEFAULT, "history": 0.60, "retrieved": 0.15, "tool_results": 0.10},
    "agent": {**_DEFAULT, "history": 0.35, "retrieved": 0.15, "tool_results": 0.35},
    "rag": {**_DEFAULT, "history": 0.25, "retrieved": 0.50, "tool_results": 0.10},
}
"""Presets by use: a chat lives from its history, an agent from its tools' results, RAG from passages."""

SOFT_MARK, HARD_MARK, LOW_MARK = 0.70, 0.90, 0.50
"""Of the input budget: prepare a compaction, compact now, and what a cut or a compaction leaves."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Budget:
    """`tokens` is the input budget (system, tools, media, messages), `None` for no limit; `reserve` the output."""

    tokens: int | None = None
    reserve: int = 0
    shares: Mapping[str, float] = field(default_factory=lambda: SHARES["default"])

    @property
    def low(self) -> int | None:
        return None if self.tokens is None else int(self.tokens * LOW_MARK)

    @staticmethod
    def of(
        *,
        budget: int | None = None,
        window: int | None = None,
        reserve: int | None = None,
        preset: str = "default",
        margin: float = 0.0,
    ) -> Budget:
        """The budget that a caller's settings mean.

        `budget` is all input. `window` is input and output together, of which `reserve` is kept for the output
        and, where counts are estimates, their relative `margin` as well. Raises `ConfigurationError` for both, for
        a reserve without a window or not smaller than it, and for what is no positive number of tokens.
        """
        if preset not in SHARES:
            raise ConfigurationError(f"unknown preset {preset!r}; one of {', '.join(SHARES)}")
        shares = SHARES[preset]
        given: tuple[tuple[str, Any], ...] = (("budget", budget), ("window", window), ("reserve", reserve))
        for name, value in given:
            least = 0 if name == "reserve" else 1
            if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < least):
                raise ConfigurationError(
                    f"{name} must be a whole number of tokens, {least} or more, not {value!r}"
                )
        if budget is not None and window is not None:
            raise ConfigurationError(
                "give budget (all input) or window (with reserve for the output), not both"
            )
        if window is None:
            if reserve is not None:
                raise ConfigurationError(
                    "reserve is the part of a window that is kept for the output: give window="
                )
            return Budget(tokens=budget, shares=shares)
        kept = int(window * RESERVE) if reserve is None else reserve
        if kept >= window:
            raise ConfigurationError(
                f"reserve ({kept:,}) leaves nothing of the window ({window:,}) for the input"
            )
        tokens = int((window - kept) / (1 + margin))
        return Budget(tokens=max(1, tokens), reserve=kept, shares=shares)


def allocate(asks: Mapping[str, int], total: int, shares: Mapping[str, float]) -> dict[str, int]:
    """Tokens granted to each group that asks, `total` at most in all.

    Everything is granted where everything fits. Else each group gets what it asks for up to its share, and what is
    left is lent in the order of `GROUPS`. The sum of the grants is then exactly `total`.
    """
    if total < 0 or any(ask < 0 for ask in asks.values()):
        raise ConfigurationError(f"tokens cannot be negative: {dict(asks)!r} of {total}")
    if sum(asks.values()) <= total:
        return dict(asks)
    scale = min(1.0, 1.0 / max(sum(shares.get(group, 0.0) for group in asks), 1e-9))
    granted = {group: min(ask, int(total * shares.get(group, 0.0) * scale)) for group, ask in asks.items()}
    left = total - sum(granted.values())
    order = [*(group for group in GROUPS if group in asks), *(group for group in asks if group not in GROUPS)]
    for group in order:
        more = min(left, asks[group] - granted[group])
        granted[group] += more
        left -= more
    return granted
