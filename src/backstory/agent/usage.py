"""What a turn cost: usages added up, and as they are logged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from backstory.models.base import Usage
from backstory.records import NewRecord

_NAMES = tuple(field.name for field in dataclasses.fields(Usage))


def with_usage(records: Sequence[NewRecord], usage: Usage | None) -> Sequence[NewRecord]:
    """The records of a request, with what the provider billed for it."""
    if usage is None:
        return records
    return [
        NewRecord(kind=r.kind, data={**r.data, "usage": usage_json(usage)}) if r.kind == "request" else r
        for r in records
    ]


def usage_json(usage: Usage) -> dict[str, int]:
    """What there is of a usage, by name."""
    return {name: value for name in _NAMES if (value := getattr(usage, name))}


def total(one: Usage, other: Usage) -> Usage:
    """Both together."""
    return Usage(**{name: getattr(one, name) + getattr(other, name) for name in _NAMES})
