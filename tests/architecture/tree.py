"""The source tree as the architecture tests see it: modules, their imports and their names, read by AST.

Nothing here imports the code it reads, so that a module which does not even load is still judged.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
PACKAGE = "backstory"


@dataclass(frozen=True, kw_only=True)
class Import:
    """One import; `inner` where the statement stands inside a function.

    `target` is absolute: one of our modules, or whatever somebody else's statement names, module or not.
    """

    target: str
    line: int
    inner: bool


@dataclass(frozen=True, kw_only=True)
class Module:
    """One file under src/backstory."""

    name: str
    path: Path
    is_package: bool

    def __str__(self) -> str:
        return self.name

    @property
    def unit(self) -> str:
        """The folder or file right under src/backstory that it belongs to; "" for the package itself."""
        return self.name.partition(".")[2].partition(".")[0]

    @cached_property
    def source(self) -> str:
        return self.path.read_text(encoding="utf-8")

    @cached_property
    def syntax(self) -> ast.Module:
        return ast.parse(self.source, str(self.path))

    def imports(self, known: frozenset[str]) -> Iterator[Import]:
        """Every import statement, wherever it stands: in functions and under TYPE_CHECKING too."""
        for node, inner in _statements(self.syntax):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield Import(target=alias.name, line=node.lineno, inner=inner)
            elif isinstance(node, ast.ImportFrom):
                base = self._absolute(node)
                for alias in node.names:
                    whole = f"{base}.{alias.name}"
                    target = base if ours(base) and whole not in known else whole
                    yield Import(target=target, line=node.lineno, inner=inner)

    def _absolute(self, node: ast.ImportFrom) -> str:
        if not node.level:
            return node.module or ""
        parts = self.name.split(".")
        parts = parts[: len(parts) - node.level + (1 if self.is_package else 0)]
        return ".".join(parts + ([node.module] if node.module else []))


def _statements(tree: ast.AST, inner: bool = False) -> Iterator[tuple[ast.AST, bool]]:
    for child in ast.iter_child_nodes(tree):
        yield child, inner
        inside = inner or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        yield from _statements(child, inside)


def modules(src: Path = SRC) -> list[Module]:
    """Every module of the package, by name."""
    found = []
    for path in sorted((src / PACKAGE).rglob("*.py")):
        parts = list(path.relative_to(src).with_suffix("").parts)
        is_package = parts[-1] == "__init__"
        name = ".".join(parts[:-1] if is_package else parts)
        found.append(Module(name=name, path=path, is_package=is_package))
    return sorted(found, key=lambda module: module.name)


def names(found: list[Module]) -> frozenset[str]:
    return frozenset(module.name for module in found)


def ours(target: str) -> bool:
    return target.split(".")[0] == PACKAGE
