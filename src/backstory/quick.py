"""Frozen values that are made quickly: the `__init__` of a frozen dataclass, written with less ado.

A frozen dataclass sets each field by `object.__setattr__`, which looks the field up by its name; that takes three times
what setting it takes. A turn makes hundreds of values, so that this was a tenth of it (docs/measurements.md, "Turns and
opening"). Where there are slots the field's own descriptor does the same without a look. Nothing else is changed: the
values stay frozen, with the same signature, defaults and `__post_init__`.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

T = TypeVar("T")


def quick(cls: type[T]) -> type[T]:
    """Put above ``@dataclass(frozen=True, kw_only=True, slots=True)``."""
    names: dict[str, Any] = {"not_given": object()}
    arguments: list[str] = []
    lines: list[str] = []
    for field in dataclasses.fields(cls):  # type: ignore[arg-type]
        name = field.name
        names[f"set_{name}"] = getattr(cls, name).__set__
        value = name
        if field.default_factory is not dataclasses.MISSING:
            names[f"make_{name}"] = field.default_factory
            value = f"make_{name}()"
            if field.init:
                arguments.append(f"{name}=not_given")
                value = f"{value} if {name} is not_given else {name}"
        elif field.default is not dataclasses.MISSING:
            names[f"default_{name}"] = field.default
            arguments.append(f"{name}=default_{name}")
        else:
            arguments.append(name)
        lines.append(f"    set_{name}(self, {value})")
    if hasattr(cls, "__post_init__"):
        lines.append("    self.__post_init__()")
    source = f"def __init__(self, *, {', '.join(arguments)}):\n" + "\n".join(lines)
    exec(source, names)
    made, before = names["__init__"], cls.__init__
    made.__qualname__, made.__annotations__ = before.__qualname__, before.__annotations__
    cls.__init__ = made  # type: ignore[method-assign]
    return cls
