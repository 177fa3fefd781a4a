"""A calibration finds the true factor through noise and lies, and never breaks an estimate."""

from __future__ import annotations

import json
import math
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.errors import ConfigurationError, InvalidInput
from backstory.tokens import Calibration
from backstory.tokens.calibration import AT_LEAST, LIMIT, WINDOW

tokens = st.integers(1, 10**9)


def observed(pairs: list[tuple[int, int]]) -> Calibration:
    calibration = Calibration()
    for estimated, billed in pairs:
        calibration = calibration.observe(estimated, billed)
    return calibration


@given(
    factor=st.floats(0.4, 2.5),
    noise=st.floats(0, 0.05),
    seed=st.integers(0, 10**6),
    lie=st.sampled_from([1e-6, 0.01, 0.5, 3.0, 100.0, 1e6]),
)
def test_it_converges_under_a_fifth_of_gross_outliers(
    factor: float, noise: float, seed: int, lie: float
) -> None:
    chance = random.Random(seed)
    calibration = Calibration()
    for number in range(200):
        estimated = chance.randint(2_000, 200_000)
        billed = estimated * (lie if number % 5 == 0 else factor * chance.uniform(1 - noise, 1 + noise))
        calibration = calibration.observe(estimated, max(1, round(billed)))
    assert calibration.factor == pytest.approx(factor, rel=noise + 0.002)


@given(pairs=st.lists(st.tuples(tokens, tokens), max_size=80))
def test_the_factor_is_always_a_sane_positive_number(pairs: list[tuple[int, int]]) -> None:
    calibration = observed(pairs)
    assert 1 / LIMIT - 1e-9 <= calibration.factor <= LIMIT + 1e-9
    assert calibration.observations == min(len(pairs), WINDOW)


@given(pairs=st.lists(st.tuples(tokens, tokens), max_size=80), estimated=st.integers(-5, 10**9))
def test_an_adjusted_estimate_stays_an_estimate(pairs: list[tuple[int, int]], estimated: int) -> None:
    adjusted = observed(pairs).adjust(estimated)
    assert adjusted == 0 if estimated <= 0 else adjusted >= 1
    assert adjusted >= observed(pairs).factor * estimated - 1 or estimated <= 0


@given(pairs=st.lists(st.tuples(tokens, tokens), max_size=80))
def test_it_survives_being_written_down(pairs: list[tuple[int, int]]) -> None:
    calibration = observed(pairs)
    assert Calibration.from_dict(json.loads(json.dumps(calibration.to_dict()))) == calibration


def test_a_few_reports_say_nothing() -> None:
    calibration = observed([(100, 200)] * (AT_LEAST - 1))
    assert calibration.factor == 1.0
    assert calibration.adjust(100) == 100
    assert calibration.observe(100, 200).factor == pytest.approx(2.0)


def test_it_follows_a_change() -> None:
    calibration = observed([(1_000, 1_000)] * 200 + [(1_000, 1_300)] * (WINDOW // 2 + 1))
    assert calibration.factor == pytest.approx(1.3)


def test_observing_leaves_the_old_value_alone() -> None:
    before = observed([(100, 120)] * 5)
    after = before.observe(100, 300)
    assert before.observations == 5
    assert after.observations == 6
    assert before == observed([(100, 120)] * 5)


@pytest.mark.parametrize("bad", [0, -1, math.nan, math.inf, -math.inf, None, "12", True])
def test_what_teaches_nothing_is_a_typed_error(bad: int) -> None:
    with pytest.raises(InvalidInput, match="estimated must be a positive number of tokens"):
        Calibration().observe(bad, 100)
    with pytest.raises(InvalidInput, match="billed must be a positive number of tokens"):
        Calibration().observe(100, bad)


@pytest.mark.parametrize(
    "bad",
    [
        None,
        [],
        {"ratios": 3},
        {"ratios": "12"},
        {"ratios": ["a"]},
        {"ratios": [math.nan]},
        {"ratios": [99.0]},
        {"ratios": [True]},
    ],
)
def test_what_is_no_calibration_is_a_typed_error(bad: object) -> None:
    with pytest.raises(ConfigurationError):
        Calibration.from_dict(bad)


def test_unknown_fields_and_long_histories_are_read() -> None:
    calibration = Calibration.from_dict({"ratios": [0.1] * 500, "model": "a later version's"})
    assert calibration.observations == WINDOW
    assert Calibration.from_dict({}) == Calibration()
