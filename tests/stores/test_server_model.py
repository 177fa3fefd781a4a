"""The rule-based machine of `test_model`, over the stores behind a connection."""

import itertools
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.stores.test_model import StoreMachine

names = itertools.count(1)


class ServerMachine(StoreMachine):
    """Two stores over one schema or prefix; a store may be closed and opened again at any time."""

    crash_in_an_append: Any = None  # that one cuts a file

    def __init__(self, kind) -> None:
        self.kind = kind
        self.prefix = f"model{next(names)}"
        super().__init__()

    def open(self):
        return self.kind.make(self.kind.server.url(), self.prefix, clock=self.clock, max_size=2)


@pytest.mark.parametrize(
    "examples", [3, pytest.param(25, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])]
)
def test_the_store_says_what_the_model_says(kind, examples):
    make: Any = lambda: ServerMachine(kind)  # noqa: E731 - the checker wants a class
    run_state_machine_as_test(
        make,
        settings=settings(
            max_examples=examples,
            stateful_step_count=20,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
