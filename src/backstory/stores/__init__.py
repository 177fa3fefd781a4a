"""Where sessions are kept. The public names, nothing else; each is loaded when it is first asked for (PEP 562)."""

from importlib import import_module
from typing import TYPE_CHECKING

_VALUES = (
    "DEFAULT_SCOPE",
    "Appended",
    "Damage",
    "Draft",
    "Entry",
    "Head",
    "Lease",
    "LeaseRequest",
    "NewEntry",
    "Posted",
    "Replacement",
    "Report",
    "SessionId",
    "SessionInfo",
    "SessionPage",
)
_EXPORTS: dict[str, str] = {
    **dict.fromkeys(_VALUES, "values"),
    **dict.fromkeys(("Durability", "Store"), "base"),
    **dict.fromkeys(("Clock", "ManualClock", "SystemClock"), "clock"),
    "FilesStore": "files",
    "InMemoryStore": "in_memory",
    "PostgresStore": "postgres.store",
    "RedisStore": "redis.store",
    "SqliteStore": "sqlite",
    "with_large_parts": "large_parts",
}

__all__ = [
    "DEFAULT_SCOPE",
    "Appended",
    "Clock",
    "Damage",
    "Draft",
    "Durability",
    "Entry",
    "FilesStore",
    "Head",
    "InMemoryStore",
    "Lease",
    "LeaseRequest",
    "ManualClock",
    "NewEntry",
    "Posted",
    "PostgresStore",
    "RedisStore",
    "Replacement",
    "Report",
    "SessionId",
    "SessionInfo",
    "SessionPage",
    "SqliteStore",
    "Store",
    "SystemClock",
    "with_large_parts",
]

if TYPE_CHECKING:
    from backstory.stores.base import Durability as Durability
    from backstory.stores.base import Store as Store
    from backstory.stores.clock import Clock as Clock
    from backstory.stores.clock import ManualClock as ManualClock
    from backstory.stores.clock import SystemClock as SystemClock
    from backstory.stores.files import FilesStore as FilesStore
    from backstory.stores.in_memory import InMemoryStore as InMemoryStore
    from backstory.stores.large_parts import with_large_parts as with_large_parts
    from backstory.stores.postgres.store import PostgresStore as PostgresStore
    from backstory.stores.redis.store import RedisStore as RedisStore
    from backstory.stores.sqlite import SqliteStore as SqliteStore
    from backstory.stores.values import DEFAULT_SCOPE as DEFAULT_SCOPE
    from backstory.stores.values import Appended as Appended
    from backstory.stores.values import Damage as Damage
    from backstory.stores.values import Draft as Draft
    from backstory.stores.values import Entry as Entry
    from backstory.stores.values import Head as Head
    from backstory.stores.values import Lease as Lease
    from backstory.stores.values import LeaseRequest as LeaseRequest
    from backstory.stores.values import NewEntry as NewEntry
    from backstory.stores.values import Posted as Posted
    from backstory.stores.values import Replacement as Replacement
    from backstory.stores.values import Report as Report
    from backstory.stores.values import SessionId as SessionId
    from backstory.stores.values import SessionInfo as SessionInfo
    from backstory.stores.values import SessionPage as SessionPage


def __getattr__(name: str) -> object:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module 'backstory.stores' has no attribute {name!r}")
    value = getattr(import_module(f"backstory.stores.{module}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return list(__all__)
