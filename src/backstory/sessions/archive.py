"""Archive segments: old records as compressed lines in blobs, and the one record that stands for them in the log.

An ``archived`` record covers the places ``1 …`` up to its own. It names its segments, oldest first, and holds the
state of the view at its place, so that a log is folded from it as from a snapshot. A segment is a blob, which a store
checks by its SHA-256 whenever it is read; inside are the lines as they were, byte for byte.
"""

from __future__ import annotations

import itertools
import zlib
from collections.abc import AsyncIterator, Sequence
from importlib.util import find_spec
from typing import Any

from backstory.errors import ConfigurationError, StoreDamaged
from backstory.records import Record, from_line
from backstory.stores.base import Store
from backstory.stores.large_parts import made_whole
from backstory.stores.values import SessionId

SEGMENT = 2_000
"""Records of one segment: read whole where one of them is wanted."""

_ZSTD = b"\x28\xb5\x2f\xfd"
_LEVEL = 10


def packed(records: Sequence[Record]) -> bytes:
    """Lines, compressed: by zstandard where that is installed (``pip install 'backstory[archive]'``), else by zlib."""
    lines = b"\n".join(record.line for record in records)
    if find_spec("zstandard") is None:
        return zlib.compress(lines, 6)
    import zstandard

    return zstandard.ZstdCompressor(level=_LEVEL, write_checksum=True).compress(lines)


def unpacked(data: bytes) -> list[Record]:
    """The records again. Raises as `inflated` does."""
    return [from_line(line) for line in inflated(data).split(b"\n")]


def inflated(data: bytes) -> bytes:
    """The lines of a segment. Raises `StoreDamaged`, and `ConfigurationError` where zstandard is needed and missing."""
    if data.startswith(_ZSTD):
        if find_spec("zstandard") is None:
            raise ConfigurationError(
                "this archive was written with zstandard, which is not installed: pip install 'backstory[archive]'"
            )
        import zstandard

        try:
            return zstandard.ZstdDecompressor().decompress(data)
        except zstandard.ZstdError as error:
            raise StoreDamaged(f"an archive segment cannot be unpacked ({error})") from error
    else:
        try:
            return zlib.decompress(data)
        except zlib.error as error:
            raise StoreDamaged(f"an archive segment cannot be unpacked ({error})") from error


def segments(record: Record) -> list[dict[str, Any]]:
    """What an ``archived`` record names: of each segment `blob`, `first`, `last`, `records`, `messages`, `bytes`."""
    return list(record.data.get("segments", ()))


async def archived(
    store: Store, scope: str, record: Record, *, after: int = 0, before: int | None = None
) -> AsyncIterator[list[Record]]:
    """The records that an ``archived`` record stands for, oldest first, a segment at a time, as their lines are.

    Raises `StoreDamaged` where a segment is missing or damaged.
    """
    for segment in segments(record):
        if segment["last"] <= after or (before is not None and segment["first"] >= before):
            continue
        found = unpacked(await store.get_blob(scope, segment["blob"]))
        wanted = [r for r in found if r.seq > after and (before is None or r.seq < before)]
        if wanted:
            yield wanted


async def pages_through(
    store: Store, id: SessionId, *, after: int = 0, before: int | None = None, limit: int | None = None
) -> AsyncIterator[list[Record]]:
    """As `store.read`, oldest first, a page at a time, with what was archived in its place.

    Records may move into the archive between two pages: each is given once all the same. Raises `StoreDamaged` where
    a segment is missing or damaged.
    """
    while before is None or after < before - 1:
        records = await store.read(id, after=after, before=before, limit=limit)
        if not records and before is not None:
            over = await store.read(id, after=before - 1, limit=1)  # what is archived may reach over the end
            records = [record for record in over if record.kind == "archived"]
        if not records:
            return
        for kind, alike in itertools.groupby(records, key=lambda record: record.kind == "archived"):
            if not kind:
                yield list(alike)
                continue
            for record in alike:
                async for page in archived(store, id.scope, record, after=after, before=before):
                    yield await made_whole(store, id.scope, page)
        after = records[-1].seq


async def read_through(store: Store, id: SessionId, *, after: int, before: int | None = None) -> list[Record]:
    """As `store.read`, oldest first, with what was archived in its place."""
    return [record async for page in pages_through(store, id, after=after, before=before) for record in page]
