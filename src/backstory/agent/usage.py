"""What a turn cost, as it goes into the record of its request."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.models.base import Usage
from backstory.models.billing import usage_json
from backstory.records import NewRecord


def with_usage(records: Sequence[NewRecord], usage: Usage | None) -> Sequence[NewRecord]:
    """The records of a request, with what the provider billed for it."""
    if usage is None:
        return records
    return [
        NewRecord(kind=r.kind, data={**r.data, "usage": usage_json(usage)}) if r.kind == "request" else r
        for r in records
    ]
