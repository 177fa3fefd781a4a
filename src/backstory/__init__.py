"""Backstory, the context layer for LLM agents.

This module holds the public names and nothing else. Each is loaded when it is first asked for (PEP 562), so
that `import backstory` costs next to nothing whatever the caller then uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public name -> the module that defines it; "backstory" itself where the name is a module of its own.
_EXPORTS: dict[str, str] = {
    "Backstory": "backstory.agent.backstory",
    "Calibration": "backstory.tokens",
    "Compaction": "backstory.upkeep.summarise",
    "Converted": "backstory.formats.convert",
    "Fitted": "backstory.context.fit",
    "Ledger": "backstory.context.ledger",
    "Loss": "backstory.formats.base",
    "Message": "backstory.messages",
    "Origin": "backstory.messages",
    "Problem": "backstory.legality.rules",
    "Repair": "backstory.legality.bench",
    "Repaired": "backstory.legality.wire",
    "Reply": "backstory.agent.backstory",
    "SyncBackstory": "backstory.agent.blocking",
    "Target": "backstory.targets",
    "Tool": "backstory.agent.tools",
    "check": "backstory.legality.wire",
    "convert": "backstory.formats.convert",
    "errors": "backstory",
    "fit": "backstory.context.fit",
    "open": "backstory.agent.open",
    "open_sync": "backstory.agent.blocking",
    "repair": "backstory.legality.wire",
    "tool": "backstory.agent.tools",
}

__all__ = [
    "Backstory",
    "Calibration",
    "Compaction",
    "Converted",
    "Fitted",
    "Ledger",
    "Loss",
    "Message",
    "Origin",
    "Problem",
    "Repair",
    "Repaired",
    "Reply",
    "SyncBackstory",
    "Target",
    "Tool",
    "__version__",
    "check",
    "convert",
    "errors",
    "fit",
    "open",
    "open_sync",
    "repair",
    "tool",
]

if TYPE_CHECKING:
    from backstory import errors as errors
    from backstory.agent.backstory import Backstory as Backstory
    from backstory.agent.backstory import Reply as Reply
    from backstory.agent.blocking import SyncBackstory as SyncBackstory
    from backstory.agent.blocking import open_sync as open_sync
    from backstory.agent.open import open as open  # noqa: A004
    from backstory.agent.tools import Tool as Tool
    from backstory.agent.tools import tool as tool
    from backstory.context.fit import Fitted as Fitted
    from backstory.context.fit import fit as fit
    from backstory.context.ledger import Ledger as Ledger
    from backstory.formats.base import Loss as Loss
    from backstory.formats.convert import Converted as Converted
    from backstory.formats.convert import convert as convert
    from backstory.legality.bench import Repair as Repair
    from backstory.legality.rules import Problem as Problem
    from backstory.legality.wire import Repaired as Repaired
    from backstory.legality.wire import check as check
    from backstory.legality.wire import repair as repair
    from backstory.messages import Message as Message
    from backstory.messages import Origin as Origin
    from backstory.targets import Target as Target
    from backstory.tokens import Calibration as Calibration
    from backstory.upkeep.summarise import Compaction as Compaction
else:

    def __getattr__(name: str) -> object:
        module = _EXPORTS.get(name)
        if module is None:
            raise AttributeError(f"module 'backstory' has no attribute {name!r}")
        value = import_module(f"backstory.{name}" if module == "backstory" else module)
        if module != "backstory":
            value = getattr(value, name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return list(__all__)
