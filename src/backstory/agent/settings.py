"""What a `Backstory` was opened with: plain values, and what follows from them for one turn."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.agent.loop_guard import LoopGuard
from backstory.agent.requests import Shape
from backstory.context.budget import Budget
from backstory.errors import ConfigurationError
from backstory.models.base import Model
from backstory.sessions.lease import TTL
from backstory.targets import Target
from backstory.tokens import Calibration, counter_for
from backstory.upkeep.archive import Cap
from backstory.upkeep.summarise import Compaction

logger = logging.getLogger("backstory")

CAUTIOUS_WINDOW = 16_384
"""Tokens, where neither the caller nor the model says: what even a small local model is usually started with."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Settings:
    """See `backstory.open`. `budget`, or `window` and `reserve`, else what the model says of itself."""

    budget: int | None = None
    window: int | None = None
    reserve: int | None = None
    max_turns: int | None = None
    max_messages: int | None = None
    preset: str = "chat"
    guard: LoopGuard = field(default_factory=LoopGuard)
    lease_ttl: float = TTL
    turn_timeout: float | None = None
    tool_timeout: float | None = 120.0
    compaction: Compaction | None = field(default_factory=Compaction)
    cap: Cap = field(default_factory=Cap)


class Learned:
    """What the answers of models teach: their real window, where they refused as too long, and how they bill.

    And tools: the names of those whose results were too long to be shown whole (`agent.reading`).
    """

    def __init__(self) -> None:
        self.windows: dict[str, int] = {}
        self.calibrations: dict[str, Calibration] = {}
        self.long_results: set[str] = set()
        self._warned: set[str] = set()

    def observe(self, model: str, estimated: int, billed: int) -> None:
        if estimated > 0 and billed > 0:
            known = self.calibrations.get(model, Calibration())
            self.calibrations[model] = known.observe(estimated, billed)

    def factor(self, model: str) -> float:
        known = self.calibrations.get(model)
        return known.factor if known is not None else 1.0

    def cautious(self, model: str) -> int:
        """The window of a model that nobody knows; said once."""
        if model not in self._warned:
            self._warned.add(model)
            logger.warning(
                "the window of model %r is not known: taking %d tokens; say window=… when opening",
                model,
                CAUTIOUS_WINDOW,
            )
        return CAUTIOUS_WINDOW


def shape_of(
    settings: Settings,
    model: Model | None,
    target: Target,
    tools: Sequence[Any],
    learned: Learned,
) -> Shape:
    """For what the requests of a turn are made; `tools` as they are declared to the target.

    Raises `ConfigurationError` for settings that contradict each other.
    """
    name = model.name if model is not None else ""
    counter = counter_for(name or None, target.format)
    return Shape(
        target=target,
        counter=counter,
        budget=_budget(settings, model, target, learned, counter.margin),
        model=name,
        settings=dict(model.settings) if model is not None else {},
        tools=tools,
        max_turns=settings.max_turns,
        max_messages=settings.max_messages,
        factor=1.0 if counter.exact else learned.factor(name),
    )


def _budget(
    settings: Settings, model: Model | None, target: Target, learned: Learned, margin: float
) -> Budget:
    name = model.name if model is not None else ""
    if settings.budget is not None:
        if settings.window is not None or settings.reserve is not None:
            raise ConfigurationError(
                "give budget (all input) or window (with reserve for the output), not both"
            )
        tokens = settings.budget
        if name in learned.windows:
            real = Budget.of(window=learned.windows[name], margin=margin).tokens
            tokens = min(tokens, real or tokens)
        return Budget.of(budget=tokens, preset=settings.preset)
    window = settings.window or (model.window if model is not None else None) or target.window
    if name in learned.windows:
        window = min(window or learned.windows[name], learned.windows[name])
    if window is None and model is not None:
        window = learned.cautious(name)
    if window is None:
        return Budget.of(preset=settings.preset)
    reserve = settings.reserve
    if reserve is None and model is not None and model.max_output is not None:
        reserve = min(model.max_output, window // 5)
    return Budget.of(window=window, reserve=reserve, preset=settings.preset, margin=margin)
