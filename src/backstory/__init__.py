"""Backstory, the context layer for LLM agents.

This module holds the public names and nothing else. Each is loaded when it is first asked for (PEP 562), so
that `import backstory` costs next to nothing whatever the caller then uses.
"""

from importlib import import_module
from typing import TYPE_CHECKING

__version__ = "0.1.0"

# Public name -> the module that defines it; "backstory" itself where the name is a module of its own.
_EXPORTS: dict[str, str] = {
    "Message": "backstory.messages",
    "Target": "backstory.targets",
    "errors": "backstory",
}

__all__ = ["Message", "Target", "__version__", "errors"]

if TYPE_CHECKING:
    from backstory import errors as errors
    from backstory.messages import Message as Message
    from backstory.targets import Target as Target
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
