"""The store in one SQLite file. The public name, nothing else; it is loaded when it is first asked for (PEP 562)."""

from importlib import import_module
from typing import TYPE_CHECKING

__all__ = ["SqliteStore"]

if TYPE_CHECKING:
    from backstory.stores.sqlite.store import SqliteStore as SqliteStore


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module 'backstory.stores.sqlite' has no attribute {name!r}")
    value = getattr(import_module("backstory.stores.sqlite.store"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
