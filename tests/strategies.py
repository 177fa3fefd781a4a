"""Hypothesis strategies of histories, drawn by `tests.generators`, for whoever tests with them."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from tests.generators import FORMATS, history

formats = st.sampled_from(FORMATS)


def histories(format: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Histories in a wire format, with everything broken that breaks in the wild."""
    return st.randoms(use_true_random=False).map(lambda rng: history(rng, format))


def legal_histories(format: str) -> st.SearchStrategy[list[dict[str, Any]]]:
    """Histories that the format's own preset accepts as they are."""
    return st.randoms(use_true_random=False).map(lambda rng: history(rng, format, legal=True))


def any_history() -> st.SearchStrategy[tuple[str, list[dict[str, Any]]]]:
    """A format and a history in it."""
    return formats.flatmap(lambda name: st.tuples(st.just(name), histories(name)))
