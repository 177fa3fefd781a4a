"""The independent judge of `../shared`, where it is at hand; our own rules in any case."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from functools import cache

import backstory
from backstory.context.prefix import canonical, without_markers
from tests.conftest import SHARED

Judge = Callable[..., list[str]]


@cache
def judge() -> Judge | None:
    """The judge's function, or `None` where `../shared` is not beside this clone."""
    path = SHARED / "judge" / "judge.py"
    spec = importlib.util.spec_from_file_location("judge", path) if path.is_file() else None
    if spec is None or spec.loader is None:
        return None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Judge = module.judge
    return found


def faults(fitted: backstory.Fitted, target: str, *, ready: bool = True) -> list[str]:
    """What is illegal in a request: by the judge, and by our own rules."""
    if not fitted.messages:
        return []
    second = judge()
    found = second(fitted.body, target, ready=ready) if second is not None else []
    return found + [
        str(problem) for problem in backstory.check(fitted.messages, source=target, target=target)
    ]


def items(fitted: backstory.Fitted) -> list[bytes]:
    """The canonical bytes of each item; cache markers are not counted."""
    return [canonical(without_markers(item)) for item in fitted.messages]


def head(fitted: backstory.Fitted) -> bytes:
    """The canonical bytes of what stands before the items: tools, and the system where it has a field of its own."""
    body = {key: value for key, value in fitted.body.items() if key not in ("messages", "input", "contents")}
    return canonical(without_markers(body))
