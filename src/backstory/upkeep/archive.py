"""The hard cap: what a live log may hold. The oldest turns beyond it move into archive segments, and can be moved back.

Only what no request replays moves, whole turns at a time, down to a low mark, so that it happens rarely and a turn
costs the same however long the session is. Segments are durable before one atomic rewrite puts their record into the
log: a crash at any point leaves every record in the log or in a segment; segments that nothing names are garbage.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections import OrderedDict
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.errors import ConfigurationError, HeadMoved, LeaseHeld, SessionNotFound, StoreError
from backstory.records import NewRecord, Record
from backstory.sessions.archive import SEGMENT, archived, packed, segments
from backstory.sessions.session import Session, Sessions
from backstory.sessions.view import fold
from backstory.stores.base import Store
from backstory.stores.large_parts import plain
from backstory.stores.values import Head, LeaseRequest, Replacement, SessionId

logger = logging.getLogger("backstory.upkeep")

LOW = 0.8
"""Of the cap: what archiving leaves, so that it has to be done again only after a fifth of the cap was said."""
_TTL = 120.0
_LOOK = 400
"""Records after which a session is looked at again, where a fifth of its cap is more."""
_REMEMBERED = 4_096
_PAGE = 2_000


@dataclass(frozen=True, kw_only=True, slots=True)
class Cap:
    """What a live log may hold: `messages`, and `bytes` of records; `None` for no limit.

    Raises `ConfigurationError` for a cap under which a window would not fit.
    """

    messages: int | None = None
    bytes: int | None = None

    def __post_init__(self) -> None:
        for name, least in (("messages", 50), ("bytes", 100_000)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise ConfigurationError(f"a cap of {name} is at least {least:,}, not {value!r}")

    def exceeded(self, messages: int, size: int, share: float = 1.0) -> bool:
        return (self.messages is not None and messages > share * self.messages) or (
            self.bytes is not None and size > share * self.bytes
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class Archived:
    """What moved: records and messages, and the place up to which the log is archived now."""

    records: int
    messages: int
    last: int


class Archiver:
    """Keeps the sessions of a process under their cap, in the background, after turns."""

    def __init__(self, sessions: Sessions, cap: Cap) -> None:
        self._sessions = sessions
        self._cap = cap
        self._looked: OrderedDict[SessionId, int] = OrderedDict()
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}

    def after_turn(self, session: Session) -> bool:
        """Begin to look whether a session is over its cap, where it grew enough. Whether a look began."""
        place, head = session.id, session.view.head
        most = self._cap.messages or _LOOK
        known = self._looked.get(place)
        grown = head - known if known is not None else head - most
        if place in self._tasks or grown < min(_LOOK, (1 - LOW) * most):
            return False
        self._looked[place] = head
        self._looked.move_to_end(place)
        while len(self._looked) > _REMEMBERED:
            self._looked.popitem(last=False)
        task = asyncio.create_task(self._archive(place), name=f"archive {place}")
        self._tasks[place] = task
        task.add_done_callback(lambda _: self._tasks.pop(place, None))
        return True

    async def _archive(self, id: SessionId) -> None:
        try:
            async with self._sessions.hold(id) as session:
                await archive(session, self._cap)
        except StoreError as error:
            logger.warning("session %r stays over its cap: %s", str(id), error)

    async def close(self) -> None:
        """Wait for what is under way: it is short, and half of it would have to be done again."""
        if self._tasks:
            await asyncio.wait(list(self._tasks.values()))


async def archive(session: Session, cap: Cap) -> Archived | None:
    """Bring a session under its cap; `None` where it is, or where all that is over it is still replayed.

    The caller holds the session and runs no turn. Where another process does, or wrote meanwhile, nothing moves.
    Raises the store's other errors.
    """
    view = await session.refresh()
    if view.turn is not None:
        return None
    store, start = session.store, view.start
    head = await store.head(session.id)
    if head.seq != view.head:
        return None
    records = [record async for page in _raw(store, session.id) for record in page]
    before = records[0] if records and records[0].kind == "archived" else None
    live = records[1:] if before is not None else records
    bound = _boundary(live, cap, start)
    if bound is None:
        return None
    if await store.head(session.id) != head:  # what was read is not one log, but parts of two
        return None
    moved = [record for record in live if record.seq < bound]
    state = fold([*([before] if before is not None else ()), *moved]).to_json()
    named = segments(before) if before is not None else []
    for at in range(0, len(moved), SEGMENT):
        named.append(await _kept(store, session.id.scope, moved[at : at + SEGMENT]))
    record = NewRecord(kind="archived", data={"segments": named, "state": state})
    last = moved[-1].seq
    if not await _rewritten(session, Replacement(first=1, last=last, record=record), head):
        return None
    await session.refresh()
    return Archived(records=len(moved), messages=_messages(moved), last=last)


async def restore(session: Session) -> int:
    """Put everything that was archived back into the log, line by line; how many records.

    Raises `SessionNotFound`, `LeaseHeld` while a turn runs, `HeadMoved` where somebody wrote meanwhile, and
    `StoreDamaged` where a segment cannot be read; then nothing was changed.
    """
    store = session.store
    view = await session.refresh()
    if not view.head:
        raise SessionNotFound(f"there is no session {str(session.id)!r}")
    lease = await store.acquire(session.id, LeaseRequest(owner=f"restore:{uuid.uuid4().hex[:8]}", ttl=_TTL))
    try:  # nobody else archives from here on
        first = await store.read(session.id, limit=1)
        if not first or first[0].kind != "archived":
            return 0
        back = [r async for page in archived(store, session.id.scope, first[0]) for r in page]
        replacement = Replacement(
            first=1, last=first[0].seq, record=NewRecord(kind="archived"), records=tuple(back)
        )
        await store.rewrite(session.id, [replacement], expected=view.head, fence=lease.fence)
    finally:
        await store.release(lease)
    await session.refresh()
    return len(back)


async def _raw(store: Store, id: SessionId) -> AsyncIterator[list[Record]]:
    after = 0
    store = plain(store)  # lines move, and nobody reads them
    while records := await store.read(id, after=after, limit=_PAGE):
        yield records
        after = records[-1].seq


def _boundary(live: Sequence[Record], cap: Cap, start: int) -> int | None:
    """The place before which records move: where a turn begins, at or before `start`, and little enough is left."""
    messages, size = _messages(live), sum(len(record.line) + 1 for record in live)
    if not cap.exceeded(messages, size):
        return None
    found = None
    for record in live:
        if record.seq > start:
            break
        if record.kind == "turn_started" and not record.data.get("again") and record is not live[0]:
            found = record.seq
            if not cap.exceeded(messages, size, LOW):
                break
        messages -= record.kind == "message"
        size -= len(record.line) + 1
    return found


def _messages(records: Sequence[Record]) -> int:
    return sum(record.kind == "message" for record in records)


async def _kept(store: Store, scope: str, records: Sequence[Record]) -> dict[str, Any]:
    return {
        "blob": await store.put_blob(scope, packed(records)),
        "first": records[0].first,
        "last": records[-1].seq,
        "records": len(records),
        "messages": _messages(records),
        "bytes": sum(len(record.line) + 1 for record in records),
    }


async def _rewritten(session: Session, replacement: Replacement, head: Head) -> bool:
    """Whether it was put in place. Not where the log was written to, or rewritten by another process, meanwhile."""
    store = session.store
    try:
        lease = await store.acquire(
            session.id, LeaseRequest(owner=f"archive:{uuid.uuid4().hex[:8]}", ttl=_TTL)
        )
    except LeaseHeld:
        return False
    try:
        if await store.head(session.id) != head:  # a rewrite by others does not move where the log ends
            return False
        await store.rewrite(session.id, [replacement], expected=head.seq, fence=lease.fence)
    except HeadMoved:
        return False
    finally:
        await store.release(lease)
    return True
