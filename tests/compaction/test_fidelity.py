"""Side constraints, said once early, survive five compactions without a model: `benchmarks/fidelity.py`, shorter."""

from __future__ import annotations

import pytest

from benchmarks import fidelity


@pytest.mark.parametrize("language", ["en", "zh"])
@pytest.mark.parametrize("seed", [1, 2])
def test_side_constraints_survive_five_compactions(language, seed):
    there, gone = fidelity.survivors(language, tokens=15_000, seed=seed)
    assert gone == []
    assert len(there) == 15


@pytest.mark.slow
@pytest.mark.parametrize("language", ["en", "zh"])
def test_of_a_hundred_thousand_tokens(language):
    assert fidelity.survivors(language, seed=3)[1] == []
