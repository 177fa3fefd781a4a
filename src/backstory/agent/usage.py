"""What a turn cost: usages added up, and as they are logged."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from backstory.models.base import Usage
from backstory.records import NewRecord


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
    return {name: value for name, value in dataclasses.asdict(usage).items() if value}


def total(one: Usage, other: Usage) -> Usage:
    """Both together."""
    return Usage(**{f.name: getattr(one, f.name) + getattr(other, f.name) for f in dataclasses.fields(Usage)})
