"""Wire formats by name, each loaded when it is first asked for."""

from __future__ import annotations

from importlib import import_module
from typing import cast

from backstory.errors import ConfigurationError
from backstory.formats.base import WireFormat
from backstory.targets import FORMATS as NAMES

FORMATS: dict[str, WireFormat] = {}
"""What has been loaded so far; ask `wire_format`."""


def wire_format(name: str) -> WireFormat:
    """The module of a format. Raises `ConfigurationError` for a name that nobody knows."""
    found = FORMATS.get(name)
    if found is None:
        if name not in NAMES:
            raise ConfigurationError(f"unknown format {name!r}; one of {', '.join(NAMES)}")
        found = FORMATS[name] = cast(WireFormat, import_module(f"backstory.formats.{name}"))
    return found
