"""`quick` changes nothing but how long it takes: every value that is made by it, beside the same dataclass without."""

import copy
import dataclasses
import inspect
import pickle
from dataclasses import dataclass, field

import pytest

from backstory.messages import Message, user
from backstory.quick import quick
from backstory.records import NewRecord


def both():
    def made(decorate):
        @decorate
        @dataclass(frozen=True, kw_only=True, slots=True)
        class Base:
            one: int
            two: str = "two"

        @decorate
        @dataclass(frozen=True, kw_only=True, slots=True)
        class Derived(Base):
            many: list[int] = field(default_factory=list)
            seen: dict[str, int] = field(default_factory=dict, init=False, compare=False)

            def __post_init__(self) -> None:
                self.seen["made"] = self.one

        return Derived

    return made(lambda cls: cls), made(quick)


def test_the_same_values():
    plain, fast = both()
    assert inspect.signature(plain).parameters.keys() == inspect.signature(fast).parameters.keys()
    for given in ({"one": 1}, {"one": 1, "two": "x", "many": [3]}):
        assert dataclasses.asdict(plain(**given)) == dataclasses.asdict(fast(**given))
        assert repr(plain(**given)).split(".")[-1] == repr(fast(**given)).split(".")[-1]
    assert fast(one=1) == fast(one=1)
    assert fast(one=1).many is not fast(one=1).many
    assert dataclasses.replace(fast(one=1), two="y").two == "y"


@pytest.mark.parametrize("given", [{}, {"one": 1, "odd": 2}, {"one": 1, "seen": {}}])
def test_the_same_refusals(given):
    for cls in both():
        with pytest.raises(TypeError):
            cls(**given)


def test_values_stay_frozen_and_travel():
    message = user("hello")
    with pytest.raises(dataclasses.FrozenInstanceError):
        message.role = "assistant"  # type: ignore[misc]
    for again in (copy.copy(message), copy.deepcopy(message), pickle.loads(pickle.dumps(message))):
        assert again == message
        assert isinstance(again, Message)
    assert NewRecord(kind="meta").data == {}
