"""What every test shares: hypothesis without deadlines, and the path of the shared material where it is at hand."""

import os
from pathlib import Path

import pytest
from hypothesis import settings

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

# A deadline measures the machine, not the code. In CI hypothesis has chosen its own profile, and we build on it.
settings.register_profile("backstory", settings(), deadline=None)
settings.register_profile("many", settings.get_profile("backstory"), max_examples=2_000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "backstory"))


@pytest.fixture(scope="session")
def root() -> Path:
    """The repository's root."""
    return ROOT


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder `../shared` with reference data; tests that need it skip where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("../shared is not beside this clone: it holds the reference data")
    return SHARED
