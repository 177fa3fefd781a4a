"""Whether a compaction pays: figures in, figures out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.compaction.policy import LONGEST, Policy, Rates, asked, expected, mark, saved
from backstory.errors import ConfigurationError

TOKENS = st.integers(0, 200_000)
RATES = st.builds(
    Rates,
    cached=st.floats(0, 1),
    output=st.floats(0, 20),
    summariser=st.floats(0, 1),
    calls=st.integers(1, 20),
)


@given(RATES, TOKENS, TOKENS, TOKENS, TOKENS)
def test_what_is_saved_is_the_difference_of_two_lives_after_the_pause(rates, rest, leaves, told, written):
    """`rest` is what a request holds besides: it is paid for in both lives, and cancels out."""

    def life(prefix):
        return prefix + (rates.calls - 1) * rates.cached * prefix

    without, within = rest + leaves + told, rest + written
    difference = life(without) - life(within)
    assert saved(rates, leaves=leaves, told=told, written=written) == pytest.approx(difference, abs=0.01)


@given(RATES, TOKENS, TOKENS, TOKENS)
def test_the_cache_and_a_smaller_model_never_cost_more(rates, tokens, span, written):
    anew = asked(rates, anew=tokens, cached=0, written=written, own=True)
    assert asked(rates, anew=0, cached=tokens, written=written, own=True) <= anew
    assert asked(rates, anew=tokens, cached=0, written=written, own=False) <= anew
    assert asked(rates, anew=tokens + span, cached=0, written=written, own=True) >= anew


@given(TOKENS, TOKENS, st.integers(1, 10_000))
def test_a_summary_is_expected_to_grow_with_what_it_stands_for_up_to_its_limit(leaves, told, limit):
    found = expected(leaves, told, limit)
    assert found <= limit
    assert found >= min(told, limit)
    assert found <= max(told, LONGEST)
    assert found <= expected(leaves + 100, told, limit)
    assert expected(leaves, 0, 10_000) <= LONGEST


def test_with_the_default_rates_of_the_session_s_own_model():
    """A history of 70,000 tokens, of which 20,000 leave: 7,000 to read it, 12,000 to write the 1,500."""
    rates = Rates()
    written = expected(20_000, 0, 10_000)
    assert written == 1_500
    assert asked(rates, anew=0, cached=70_000, written=written, own=True) == pytest.approx(19_000)
    assert saved(rates, leaves=20_000, told=0, written=written) == 18_500


@pytest.mark.parametrize(
    "wrong", [{"cached": -0.1}, {"output": float("inf")}, {"summariser": float("nan")}, {"calls": 0}]
)
def test_rates_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigurationError, match="rates"):
        Rates(**wrong)


@given(st.integers(0, 1_000), st.integers(1, 1_000))
def test_marks_are_shares_of_the_budget(used, budget):
    policy = Policy()
    found = mark(used, budget, policy)
    assert (found == "hard") == (used / budget >= policy.hard)
    assert bool(found) == (used / budget >= policy.soft)
