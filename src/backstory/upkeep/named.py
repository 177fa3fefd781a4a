"""Which blobs are named: by the lines of a log, and by what these blobs hold. Pure.

A handle is looked for in the bytes, wherever it stands: one in somebody's words names no blob of ours, and costs no
more than a look for it, or a blob that is kept longer.
"""

from __future__ import annotations

import re
import zlib

from backstory.records import Record
from backstory.sessions.archive import inflated, segments

_HANDLE = re.compile(rb"sha256:[0-9a-f]{64}")


def handles(data: bytes) -> list[str]:
    """Every handle in it, in order."""
    return [found.decode() for found in _HANDLE.findall(data)]


def segments_of(record: Record) -> set[str]:
    """The handles of the archive's segments that a record stands for."""
    return {part["blob"] for part in segments(record)} if record.kind == "archived" else set()


def within(data: bytes, *, segment: bool) -> list[str]:
    """What a blob names: a segment of the archive in its lines, any other in its text, compressed or not.

    Raises `StoreDamaged` and `ConfigurationError` where a segment cannot be read.
    """
    if segment:
        return handles(inflated(data))
    try:
        return handles(zlib.decompress(data))
    except zlib.error:
        return handles(data)
