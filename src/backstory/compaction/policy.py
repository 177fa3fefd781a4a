"""When a conversation is to be compacted, to what size, and whether that pays. Numbers in, a word out."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

from backstory.context.budget import HARD_MARK, LOW_MARK, SOFT_MARK
from backstory.errors import ConfigurationError

Mark = Literal["", "soft", "hard"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """`soft` and `hard` are shares of the input budget: prepare in the background, and compact before the next request;
    `target` is what a compaction leaves when it goes into force (DESIGN, Budget).

    `summary` is the most that a summary may take, as a share of the budget. `every_turns` prepares one whenever so many
    turns are replayed in full, and keeps the newest `keep_turns` of them; `None` leaves the number of turns out of it.

    Raises `ConfigurationError` for marks that are not in order.
    """

    soft: float = SOFT_MARK
    hard: float = HARD_MARK
    target: float = LOW_MARK
    summary: float = 0.10
    every_turns: int | None = None
    keep_turns: int = 3

    def __post_init__(self) -> None:
        if not 0 < self.summary < self.target < self.soft < self.hard <= 1:
            raise ConfigurationError(
                f"0 < summary < target < soft < hard ≤ 1 must hold, and they are {self.summary}, {self.target}, "
                f"{self.soft}, {self.hard}"
            )
        if self.keep_turns < 1 or (self.every_turns is not None and self.every_turns <= self.keep_turns):
            raise ConfigurationError(
                f"every_turns ({self.every_turns}) must be more than keep_turns ({self.keep_turns}), which is 1 or more"
            )


def mark(used: int, budget: int | None, policy: Policy, turns: int = 0) -> Mark:
    """Which mark a request of `used` tokens has passed, with so many turns replayed."""
    if policy.every_turns is not None and turns >= policy.every_turns:
        share = 1.0 if turns >= 2 * policy.every_turns else policy.soft
    else:
        share = 0.0
    if budget is not None:
        share = max(share, used / budget)
    return "hard" if share >= policy.hard else "soft" if share >= policy.soft else ""


CACHED = 0.1
"""What input costs that the provider's cache serves, of the full price: about that with OpenAI, Anthropic and Gemini
(DESIGN, The one idea)."""

CONDENSED, LONGEST = 0.075, 1_500
"""Of what it stands for, and tokens at most: as long as a summary is expected to be before anybody has written it. Both
are assumptions; one that was longer is expected to stay as long.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Rates:
    """What tokens cost, where one of input that the session's model reads anew costs 1.

    `cached` is one that the provider's cache serves, `output` one that is written: .1 and 8 are the list prices of
    OpenAI's and Google's large models, and near those of Anthropic's (`cli/prices.toml`). `summariser` is what another
    model costs that writes the summaries, for 1 of the session's own; of the small ones that the three have beside the
    large, the dearest costs a third. `calls` is how many requests after a pause a compaction has to be earned back by:
    1 means by the very one that the user comes back with.

    Raises `ConfigurationError` for what is no price, and for no call.
    """

    cached: float = CACHED
    output: float = 8.0
    summariser: float = 1 / 3
    calls: int = 1

    def __post_init__(self) -> None:
        for name in ("cached", "output", "summariser"):
            if not 0 <= getattr(self, name) < float("inf"):
                raise ConfigurationError(f"rates: {name} is 0 or more, not {getattr(self, name)!r}")
        if self.calls < 1:
            raise ConfigurationError(f"rates: calls is 1 or more, not {self.calls!r}")


def expected(leaves: int, told: int, limit: int) -> int:
    """Tokens of the summary to be written, where so many leave the replay, and the summary so far has `told`."""
    return min(limit, max(told, min(LONGEST, told + math.ceil(CONDENSED * leaves))))


def saved(rates: Rates, *, leaves: int, told: int, written: int) -> float:
    """What a compaction is worth that is in force before the prefix is read anew: of the requests that are counted on,
    the first pays in full for what it holds, the others what the cache asks."""
    return (leaves + told - written) * (1 + rates.cached * (rates.calls - 1))


def asked(rates: Rates, *, anew: int, cached: int, written: int, own: bool) -> float:
    """What the summariser costs: tokens read anew and from the cache, and written; by the session's `own` model or
    another."""
    return (anew + rates.cached * cached + rates.output * written) * (1.0 if own else rates.summariser)
