"""Imports point up the list of floors, never down it, and never in a circle.

Every import statement counts: in functions, and under TYPE_CHECKING as well. A type from a floor below is
knowledge of that floor below, and two modules that need each other's types are one module. The one exemption
is DESIGN's: an `__init__` may name anything, since it only hands names on; circles through it still count.
"""

from pathlib import Path

import pytest

from tests.architecture.tree import PACKAGE, Module, modules, names, ours

# A module imports from rows above its own, and from its own folder. Units in one row do not know each other.
FLOORS: tuple[tuple[str, ...], ...] = (
    ("errors",),
    ("quick",),
    ("observe",),
    ("messages",),
    ("records",),
    ("targets",),
    ("formats",),
    ("tokens",),
    ("legality",),
    ("context",),
    ("compaction",),
    ("models",),
    ("stores",),
    ("sessions",),
    ("upkeep",),
    ("recall",),
    ("memory",),
    ("agent",),
    ("server", "cli", "integrations"),
    ("__main__",),
)
FLOOR = {unit: number for number, row in enumerate(FLOORS) for unit in row}


def floor_breaches(found: list[Module]) -> list[str]:
    """Imports that do not point up the list, as readable lines."""
    known = names(found)
    breaches = []
    for module in found:
        if module.is_package:
            continue
        for item in module.imports(known):
            if not ours(item.target):
                continue
            above = item.target.partition(".")[2].partition(".")[0]
            if above == module.unit:
                continue
            if above not in FLOOR or FLOOR[above] >= FLOOR.get(module.unit, -1):
                breaches.append(f"{module.name}:{item.line} imports {item.target}")
    return breaches


def graph(found: list[Module]) -> dict[str, set[str]]:
    known = names(found)
    return {
        module.name: {item.target for item in module.imports(known) if item.target in known}
        for module in found
    }


def cycles(edges: dict[str, set[str]]) -> list[list[str]]:
    """The strongly connected components of more than one node, and self-loops (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found: list[list[str]] = []
    for root in edges:
        if root in index:
            continue
        index[root] = low[root] = len(index)
        stack.append(root)
        work = [(root, iter(sorted(edges[root])))]
        while work:
            node, children = work[-1]
            child = next(children, None)
            if child is None:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    ring, stack[at:] = stack[at:], []
                    if len(ring) > 1 or node in edges[node]:
                        found.append(sorted(ring))
            elif child not in index:
                index[child] = low[child] = len(index)
                stack.append(child)
                work.append((child, iter(sorted(edges[child]))))
            elif child in stack:
                low[node] = min(low[node], index[child])
    return found


def test_every_unit_has_its_floor():
    units = {module.unit for module in modules()} - {""}
    assert units <= set(FLOOR), (
        f"give these a floor, here and in docs/design.md: {sorted(units - set(FLOOR))}"
    )


def test_imports_point_up_the_list():
    assert not floor_breaches(modules())


def test_no_import_cycle():
    assert not cycles(graph(modules()))


@pytest.mark.parametrize(
    ("files", "breaches", "rings"),
    [
        ({"errors.py": "from backstory import messages"}, 1, 0),
        ({"errors.py": "def f():\n    from backstory.messages import Message"}, 1, 0),
        ({"errors.py": "from . import messages"}, 1, 0),
        ({"messages.py": "import backstory.errors"}, 0, 0),
        ({"messages.py": "import backstory"}, 1, 0),
        ({"cli/a.py": "import backstory.server.b", "server/b.py": ""}, 1, 0),
        ({"context/a.py": "from .b import x", "context/b.py": "from backstory.context import a"}, 0, 1),
        ({"context/a.py": "from . import x", "context/__init__.py": "from .a import x"}, 0, 1),
        (
            {"context/a.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from . import a"},
            0,
            1,
        ),
    ],
)
def test_the_checks_see_what_they_should(tmp_path: Path, files: dict[str, str], breaches: int, rings: int):
    for name in ("__init__.py", "errors.py", "messages.py", *files):
        path = tmp_path / PACKAGE / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(files.get(name, ""), encoding="utf-8")
    found = modules(tmp_path)
    assert len(floor_breaches(found)) == breaches
    assert len(cycles(graph(found))) == rings
