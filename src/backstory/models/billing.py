"""What a provider billed: added up, as it is logged, and given back to the counting, so that estimates get better."""

from __future__ import annotations

import dataclasses

from backstory.models.base import Answer, Usage
from backstory.tokens.calibration import Calibration

_NAMES = tuple(field.name for field in dataclasses.fields(Usage))


def usage_json(usage: Usage) -> dict[str, int]:
    """What there is of a usage, by name."""
    return {name: value for name in _NAMES if (value := getattr(usage, name))}


def total(one: Usage, other: Usage) -> Usage:
    """Both together."""
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in _NAMES})


def learned(calibration: Calibration, *, estimated: int, answer: Answer) -> Calibration:
    """The calibration with what this answer's input was billed, against what was `estimated` before any correction.

    The same where the server told nothing, or nothing to learn from.
    """
    usage = answer.usage
    if usage is None or usage.input <= 0 or estimated <= 0:
        return calibration
    return calibration.observe(estimated, usage.input)
