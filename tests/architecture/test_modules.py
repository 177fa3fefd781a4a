"""What a single module may be: short, named for its subject, and deaf to the outside where it decides.

Also where third-party packages may be imported, and where an exception of any kind may be caught.
"""

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.tree import Module, modules, names, ours

MAX_LINES = 400

# Modules, or whole folders, that decide: the same arguments give the same answer, and nothing else happens.
PURE = (
    "backstory.errors",
    "backstory.messages",
    "backstory.records",
    "backstory.targets",
    "backstory.formats",
    "backstory.legality",
    "backstory.context",
    "backstory.compaction",
    "backstory.sessions.view",
    "backstory.sessions.recovery",
    "backstory.agent.turn",
)
# Files, sockets, processes, other threads, clocks and dice.
# fmt: off
IMPURE_MODULES = frozenset({
    "asyncio", "concurrent", "ctypes", "fcntl", "ftplib", "getpass", "glob", "http", "importlib.resources",
    "locale", "logging", "mmap", "multiprocessing", "os", "pathlib", "platform", "queue", "random",
    "resource", "secrets", "select", "selectors", "shelve", "shutil", "signal", "smtplib", "socket",
    "socketserver", "sqlite3", "ssl", "subprocess", "tempfile", "threading", "time",
    "urllib.request", "uuid", "webbrowser",
})
# fmt: on
IMPURE_CALLS = frozenset({"open", "print", "input", "eval", "exec", "breakpoint"})
CLOCKS = frozenset({"now", "utcnow", "today"})

VAGUE_WORDS = frozenset(
    {"util", "utils", "helper", "helpers", "manager", "managers", "common", "misc", "base2"}
)

# Third-party packages imported at the top of a module, and where. All are declared as plain dependencies.
# (pytest is not: who runs the contract of stores has it.)
REQUIRED: dict[str, tuple[str, ...]] = {
    "tiktoken": ("backstory.tokens",),
    "pytest": ("backstory.stores.conformance",),
}
# Third-party packages imported inside a function, and where. All are declared: as extras, or, where they belong to
# a part that not everybody uses and take long to load, as plain dependencies.
OPTIONAL: dict[str, tuple[str, ...]] = {
    "matplotlib": ("backstory.cli",),
    "openai": ("backstory.models", "backstory.integrations"),
    "anthropic": ("backstory.models", "backstory.integrations"),
    "psycopg": ("backstory.stores.postgres",),
    "psycopg_pool": ("backstory.stores.postgres",),
    "redis": ("backstory.stores.redis",),
    "pydantic": ("backstory.agent",),
    "pydantic_core": ("backstory.agent",),  # comes with pydantic
    "docstring_parser": ("backstory.agent",),
    "regex": ("backstory.agent.toolbox",),
    "yaml": ("backstory.agent.toolbox",),
    "zstandard": ("backstory.sessions.archive",),
}

# "module:function" -> why a failure of any kind may be caught there: a loop that must survive a plug-in.
BROAD_EXCEPTS: dict[str, str] = {
    "backstory.agent.execute:_prepare": "validators in a tool's annotations are the tool's own code",
    "backstory.agent.execute:_attempt": "a tool may raise anything; the model gets it as a result",
    "backstory.stores.workers:_serve": "whatever a store's thread raises is handed to whoever awaits it",
    "backstory.agent.sources.base:_guarded": "a source of context is an application's own; the turn goes on without it",
    "backstory.stores.sqlite.writer:_statements": "a write that fails in any way fails alone, and its caller is told",
    "backstory.agent.waiting:work": "whatever a tool's thread raises is handed to whoever awaits it",
}


def within(name: str, places: tuple[str, ...]) -> bool:
    return any(name == place or name.startswith(f"{place}.") for place in places)


def test_modules_stay_under_400_lines():
    long = {
        module.name: count for module in modules() if (count := len(module.source.splitlines())) >= MAX_LINES
    }
    assert not long, f"split these by subject: {long}"


def test_modules_are_named_for_their_subject():
    vague = [m.name for m in modules() if VAGUE_WORDS & set(m.name.split(".")[-1].strip("_").split("_"))]
    assert not vague, f"say what these are about: {vague}"


def test_every_module_says_what_it_is_for():
    silent = [m.name for m in modules() if m.syntax.body and not ast.get_docstring(m.syntax)]
    assert not silent, f"open these with a docstring: {silent}"


def impurities(module: Module, known: frozenset[str]) -> Iterator[str]:
    for item in module.imports(known):
        parts = item.target.split(".")
        if any(".".join(parts[:end]) in IMPURE_MODULES for end in range(1, len(parts) + 1)):
            yield f"{module.name}:{item.line} imports {item.target}"
    for node in ast.walk(module.syntax):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in IMPURE_CALLS:
            yield f"{module.name}:{node.lineno} calls {called.id}()"
        if (
            isinstance(called, ast.Attribute)
            and called.attr in CLOCKS
            and "date" in ast.unparse(called.value)
        ):
            yield f"{module.name}:{node.lineno} reads the clock"


def test_what_decides_does_no_io():
    found = modules()
    known = names(found)
    assert not [line for module in found if within(module.name, PURE) for line in impurities(module, known)]


def test_third_party_packages_stay_in_their_places():
    found = modules()
    known = names(found)
    strays = []
    for module in found:
        for item in module.imports(known):
            top = item.target.split(".")[0]
            if ours(item.target) or top in sys.stdlib_module_names:
                continue
            places = (OPTIONAL if item.inner else REQUIRED).get(top, ())
            if not within(module.name, places):
                where = "inside a function" if item.inner else "at the top"
                strays.append(f"{module.name}:{item.line} imports {item.target} {where}")
    assert not strays


def test_only_optional_packages_are_imported_inside_functions():
    found = modules()
    known = names(found)
    assert not [
        f"{module.name}:{item.line} imports {item.target} inside a function"
        for module in found
        for item in module.imports(known)
        if item.inner and (ours(item.target) or item.target.split(".")[0] in sys.stdlib_module_names)
    ]


def broad_excepts(module: Module) -> Iterator[tuple[str, int]]:
    """Handlers that catch everything, as (module:function, line)."""

    def visit(node: ast.AST, function: str) -> Iterator[tuple[str, int]]:
        for child in ast.iter_child_nodes(node):
            inside = child.name if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef) else function
            caught: list[ast.AST] = []
            if isinstance(child, ast.ExceptHandler):
                if child.type is None:
                    yield f"{module.name}:{inside}", child.lineno
                else:
                    caught = [child.type]
            elif isinstance(child, ast.Call) and ast.unparse(child.func).endswith("suppress"):
                caught = list(child.args)
            if any(
                isinstance(name, ast.Name) and name.id in {"Exception", "BaseException"}
                for expression in caught
                for name in ast.walk(expression)
            ):
                yield f"{module.name}:{inside}", child.lineno  # type: ignore[attr-defined]
            yield from visit(child, inside)

    yield from visit(module.syntax, "")


def test_broad_excepts_are_named_and_few():
    found = [(place, line) for module in modules() for place, line in broad_excepts(module)]
    strays = [f"{place} (line {line})" for place, line in found if place not in BROAD_EXCEPTS]
    assert not strays, f"catch named errors: {strays}"
    stale = set(BROAD_EXCEPTS) - {place for place, _ in found}
    assert not stale, f"no longer needed: {stale}"


def scratch(tmp_path: Path, source: str) -> Module:
    path = tmp_path / "scratch.py"
    path.write_text(source, encoding="utf-8")
    return Module(name="backstory.context.scratch", path=path, is_package=False)


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("import os.path", 1),
        ("from importlib import resources", 1),
        ("from urllib.request import urlopen", 1),
        ("from urllib.parse import quote", 0),
        ("def f():\n    import time", 1),
        ("x = open('x')", 1),
        ("x = datetime.datetime.now()", 1),
        ("x = datetime(2026, 1, 1)", 0),
    ],
)
def test_impurity_is_seen(tmp_path: Path, source: str, count: int):
    assert len(list(impurities(scratch(tmp_path, source), frozenset()))) == count


@pytest.mark.parametrize(
    ("source", "places"),
    [
        ("try:\n    pass\nexcept:\n    pass", [""]),
        ("def f():\n    try:\n        pass\n    except (OSError, Exception):\n        pass", ["f"]),
        ("async def f():\n    with contextlib.suppress(BaseException):\n        pass", ["f"]),
        ("try:\n    pass\nexcept (OSError, ValueError):\n    raise Exception", []),
    ],
)
def test_broad_excepts_are_seen(tmp_path: Path, source: str, places: list[str]):
    found = [place for place, _ in broad_excepts(scratch(tmp_path, source))]
    assert found == [f"backstory.context.scratch:{place}" for place in places]
