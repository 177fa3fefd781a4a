"""What a test may not do: measure the machine it runs on."""

import ast
from collections.abc import Iterator
from pathlib import Path

TESTS = Path(__file__).parents[1]
CLOCKS = frozenset({"monotonic", "perf_counter", "time", "monotonic_ns", "perf_counter_ns", "time_ns"})


def timed(tree: ast.AST) -> Iterator[int]:
    """Lines of assertions on how long something took, by any clock but the processor's own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assert):
            for part in ast.walk(node.test):
                if isinstance(part, ast.BinOp) and isinstance(part.op, ast.Sub) and reads_a_clock(part.left):
                    yield node.lineno


def reads_a_clock(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in CLOCKS


def test_no_test_asserts_how_long_something_took():
    """A busy machine fails it with nothing wrong. What must end is stopped by the time-out that every test has."""
    found = [
        f"{path.relative_to(TESTS)}:{line}"
        for path in sorted(TESTS.rglob("*.py"))
        for line in timed(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert found == []


def test_such_an_assertion_is_found():
    assert list(timed(ast.parse("start = time.monotonic()\nassert time.monotonic() - start < 10"))) == [2]
    assert list(timed(ast.parse("assert 0.2 < loop.time() - start < 3"))) == [1]
    assert list(timed(ast.parse("assert time.process_time() - start < 10 * floor"))) == []
