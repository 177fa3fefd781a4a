"""When a conversation is to be compacted, and to what size. Numbers in, a word out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from backstory.context.budget import HARD_MARK, LOW_MARK, SOFT_MARK
from backstory.errors import ConfigurationError

Mark = Literal["", "soft", "hard"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Policy:
    """`soft` and `hard` are shares of the input budget: prepare in the background, and compact before the next request;
    `target` is what a compaction leaves (DESIGN, Budget).

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
