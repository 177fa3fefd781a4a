"""What providers bill against what was estimated: one factor a model, learned from its own usage reports.

It knows numbers only. An estimate times `factor` is the best guess of what will be billed.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from backstory.errors import ConfigurationError, InvalidInput

#: How many of the newest observations count.
WINDOW: Final = 50
#: How many there must be before they say anything: a median of fewer is at the mercy of one outlier.
AT_LEAST: Final = 3
#: One observation counts as no more than this many times too little or too much. No tokenizer is as far from
#: another; what lies beyond is a report of something else (a cached part left out, a tool's own prompt).
LIMIT: Final = 4.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Calibration:
    """The newest ratios of billed to estimated tokens, as logarithms; a value, so `observe` gives a new one.

    `factor` is their median: with fewer than half of the reports wrong, however wrong, it stays among the right
    ones. It is above 0 whatever was observed, and 1.0 until there are `AT_LEAST` observations.
    """

    ratios: tuple[float, ...] = ()

    def __post_init__(self) -> None:
        bound = math.log(LIMIT) + 1e-9
        unchecked: tuple[object, ...] = self.ratios
        for ratio in unchecked:
            if isinstance(ratio, bool) or not isinstance(ratio, int | float) or not abs(ratio) <= bound:
                raise ConfigurationError(
                    f"no logarithm of a ratio between 1/{LIMIT:g} and {LIMIT:g}: {ratio!r}"
                )
        if len(self.ratios) > WINDOW:
            object.__setattr__(self, "ratios", self.ratios[-WINDOW:])

    @property
    def factor(self) -> float:
        """What to multiply an estimate by, between 1/`LIMIT` and `LIMIT`."""
        return math.exp(_median(self.ratios)) if len(self.ratios) >= AT_LEAST else 1.0

    @property
    def observations(self) -> int:
        """How many count now; no more than `WINDOW`."""
        return len(self.ratios)

    def observe(self, estimated: int, billed: int) -> Calibration:
        """With one more report: `estimated` tokens were sent, `billed` were charged (cached ones included).

        `InvalidInput` where either is not a positive, finite number: there is nothing to learn from it.
        """
        given: dict[str, object] = {"estimated": estimated, "billed": billed}
        for name, value in given.items():
            # a NaN compares false with everything, and so is refused here as well
            if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
                raise InvalidInput(f"{name} must be a positive number of tokens, not {value!r}")
        ratio = math.log(billed) - math.log(estimated)
        limit = math.log(LIMIT)
        return Calibration(ratios=(*self.ratios, max(-limit, min(limit, ratio))))

    def adjust(self, estimated: int) -> int:
        """The estimate, corrected; rounded up, and at least 1 where something was estimated."""
        return math.ceil(estimated * self.factor - 1e-9) if estimated > 0 else 0

    def to_dict(self) -> dict[str, Any]:
        """As JSON takes it; `from_dict` reads it."""
        return {"ratios": list(self.ratios)}

    @classmethod
    def from_dict(cls, data: object) -> Calibration:
        """What `to_dict` wrote; `ConfigurationError` for anything else. Unknown fields are passed over."""
        ratios = data.get("ratios", ()) if isinstance(data, Mapping) else None
        if not isinstance(ratios, list | tuple):
            raise ConfigurationError(f"no calibration: {data!r}")
        return cls(ratios=tuple(ratios))


def _median(values: tuple[float, ...]) -> float:
    """The one of the standard library lies in `statistics`, whose import takes longer than all of this package."""
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2
