"""What a fork refers to: the older records of its parent, wherever these are by now.

The first record of a fork names them as ``older``, oldest first: ``[key, last]`` for the records of a session up to a
place, ``[handle]`` for a blob that holds such records as lines. A parent that is deleted hands down to its forks what
they refer to: they get it as a blob, and a record that says so. The blob is shared by all of them.
"""

from __future__ import annotations

import uuid
import zlib
from collections.abc import AsyncIterator
from typing import Any

from backstory.errors import LeaseHeld, SessionBusy
from backstory.records import NewRecord, Record, from_line, to_line
from backstory.sessions.archive import pages_through
from backstory.sessions.session import Session
from backstory.sessions.view import View
from backstory.stores.base import Store
from backstory.stores.large_parts import made_whole
from backstory.stores.values import LeaseRequest, SessionId

PAGE = 512
"""Records that are copied or listed at a time."""

Older = list[list[Any]]


async def pages(
    store: Store, id: SessionId, *, before: int | None = None, raw: bool = False
) -> AsyncIterator[list[Record]]:
    """The whole log of a session, or what lies before a place, oldest first, a page at a time.

    With what was archived in its place; `raw`: with the record that stands for it. Raises `StoreDamaged` where a
    segment of the archive cannot be read.
    """
    if not raw:
        async for records in pages_through(store, id, before=before, limit=PAGE):
            yield records
        return
    after = 0
    while records := await store.read(id, after=after, before=before, limit=PAGE):
        yield records
        after = records[-1].seq


def refers(view: View) -> Older:
    """What a session refers to beside its own records; nothing where it is no fork."""
    return [list(piece) for piece in (view.parent or {}).get("older", [])]


async def older(store: Store, scope: str, pieces: Older) -> AsyncIterator[Record]:
    """The records that a fork refers to, oldest first, those that its parent refers to included.

    Their places are those in the session that they come from. Raises `StoreDamaged` where a blob is missing.
    """
    for piece in pieces:
        if len(piece) == 1:
            lines = zlib.decompress(await store.get_blob(scope, piece[0])).splitlines()
            for record in await made_whole(store, scope, list(map(from_line, lines))):
                yield record
            continue
        source = SessionId(scope=scope, key=piece[0])
        above = refers(await Session(store, source).refresh())
        async for record in older(store, scope, above):
            yield record
        async for records in pages(store, source, before=piece[1] + 1):
            for record in records:
                yield record


async def hand_down(store: Store, id: SessionId, view: View) -> None:
    """Before a session is deleted: its forks get what they refer to. Raises `SessionBusy` while one runs a turn."""
    above = refers(view)
    handles: dict[int, str] = {}
    for key in view.children:
        child = Session(store, SessionId(scope=id.scope, key=key))
        given = refers(await child.refresh())
        if not any(piece[0] == id.key and len(piece) == 2 for piece in given):
            continue
        found: Older = []
        for piece in given:
            if len(piece) == 2 and piece[0] == id.key:
                if piece[1] not in handles:
                    handles[piece[1]] = await _as_blob(store, id, piece[1])
                found += [*above, [handles[piece[1]]]]
            else:
                found.append(piece)
        for piece in above:  # whom we referred to has to know of those who do now
            if len(piece) == 2:
                await _append(
                    store, SessionId(scope=id.scope, key=piece[0]), {"child": key, "without": id.key}
                )
        await _append(store, child.id, {**dict(child.view.parent or {}), "older": found, "gone": id.key})


async def renamed(store: Store, source: SessionId, to: SessionId) -> None:
    """After a session was copied to another key: its forks refer to that, and whom it refers to knows of it."""
    view = await Session(store, source).refresh()
    for key in view.children:
        child = Session(store, SessionId(scope=source.scope, key=key))
        given = refers(await child.refresh())
        if any(piece[0] == source.key for piece in given):
            pieces = [[to.key, *piece[1:]] if piece[0] == source.key else piece for piece in given]
            await _append(
                store, child.id, {**dict(child.view.parent or {}), "parent": to.key, "older": pieces}
            )
    for piece in refers(view):
        if len(piece) == 2:
            await _append(
                store, SessionId(scope=source.scope, key=piece[0]), {"child": to.key, "without": source.key}
            )


async def _as_blob(store: Store, id: SessionId, last: int) -> str:
    lines = [to_line(record) async for records in pages(store, id, before=last + 1) for record in records]
    return await store.put_blob(id.scope, zlib.compress(b"\n".join(lines)))


async def _append(store: Store, id: SessionId, data: dict[str, Any]) -> None:
    session = Session(store, id)
    if not (await session.refresh()).head:
        return
    request = LeaseRequest(owner=f"fork:{uuid.uuid4().hex[:8]}", ttl=10.0)
    try:
        await session.append([NewRecord(kind="fork", data=data)], acquire=request, release=True)
    except LeaseHeld as held:
        raise SessionBusy(f"session {str(id)!r} refers to this one and runs a turn: try again") from held
