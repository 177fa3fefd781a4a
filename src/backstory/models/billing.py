"""What a provider billed, given back to the counting: so that estimates get better with every answer."""

from __future__ import annotations

from backstory.models.base import Answer
from backstory.tokens.calibration import Calibration


def learned(calibration: Calibration, *, estimated: int, answer: Answer) -> Calibration:
    """The calibration with what this answer's input was billed, against what was `estimated` before any correction.

    The same where the server told nothing, or nothing to learn from.
    """
    usage = answer.usage
    if usage is None or usage.input <= 0 or estimated <= 0:
        return calibration
    return calibration.observe(estimated, usage.input)
