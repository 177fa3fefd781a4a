"""A store in the memory of one process: the public fake, for tests and for what need not last.

It keeps the whole contract but durability, and is the plainest reading of it. It refuses to know of files.
"""

from __future__ import annotations

import asyncio
import itertools
import uuid
from bisect import bisect_left, bisect_right
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.errors import InvalidInput, StoreDamaged, StoreUnavailable
from backstory.records import NewRecord, Record, encode_json, stamp
from backstory.stores import rules
from backstory.stores.clock import Clock, SystemClock, timestamp
from backstory.stores.values import (
    Appended,
    Draft,
    Entry,
    Head,
    Lease,
    LeaseRequest,
    NewEntry,
    Posted,
    Replacement,
    Report,
    SessionId,
    SessionInfo,
    SessionPage,
)


@dataclass(slots=True)
class _Session:
    """Everything that is known of one session; `records` empty: it is not there (but may be leased)."""

    records: list[Record] = field(default_factory=list)
    batches: dict[str, tuple[Record, ...]] = field(default_factory=dict)
    generation: int = 0
    active: tuple[float, int] = (0.0, 0)
    lease: Lease | None = None
    entries: list[Entry] = field(default_factory=list)
    draft: Draft | None = None
    changed: asyncio.Event = field(default_factory=asyncio.Event)

    def head(self) -> Head:
        if not self.records:
            return Head()
        last = self.records[-1]
        return Head(seq=last.seq, generation=self.generation, at=last.at)


class InMemoryStore:
    """See `backstory.stores.base.Store`. For one event loop at a time; `clock` is public: pass a `ManualClock`."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self.clock: Clock = clock or SystemClock()
        self._sessions: dict[SessionId, _Session] = {}
        self._blobs: dict[tuple[str, str], tuple[bytes, float]] = {}
        self._positions = itertools.count(1)
        self._generations = itertools.count(1)
        self._activity = itertools.count(1)
        self._last_fence = 0
        self._closed = False

    def _of(self, session: SessionId) -> _Session:
        self._check_open()
        return self._sessions.setdefault(session, _Session())

    def _peek(self, session: SessionId) -> _Session:
        self._check_open()
        return self._sessions.get(session) or _Session()

    def _check_open(self) -> None:
        if self._closed:
            raise StoreUnavailable("the store was closed")

    # --- the log

    async def append(
        self,
        session: SessionId,
        records: Sequence[NewRecord],
        *,
        expected: int | None = None,
        fence: int | None = None,
        batch: str | None = None,
        acquire: LeaseRequest | None = None,
        release: bool = False,
    ) -> Appended:
        rules.check_request(records, fence=fence, acquire=acquire, release=release)
        state, now = self._of(session), self.clock.now()
        earlier = state.batches.get(batch, ()) if batch is not None else ()
        if earlier and batch is not None:
            rules.check_repeat(batch, earlier, records)
            lease = self._grant(session, acquire) if acquire is not None else None
            if release and state.lease is not None and (lease is not None or state.lease.fence == fence):
                self._free(state)
            return Appended(head=state.head(), records=earlier, lease=lease, repeated=True)
        if acquire is not None:
            lease = rules.grant(session, state.lease, acquire, now=now, last_fence=self._last_fence)
        else:
            lease = None
            rules.check_fence(session, state.lease, fence, now=now)
        rules.check_head(session, expected, state.head().seq)
        stamped = stamp(records, seq=state.head().seq + 1, at=timestamp(now), batch=batch)
        state.records += stamped
        if batch is not None and stamped:
            state.batches[batch] = tuple(stamped)
        if stamped:
            state.generation = state.generation or next(self._generations)
            state.active = (now, next(self._activity))
        if lease is not None:
            self._hold(state, lease)
        if release:
            self._free(state)
        return Appended(head=state.head(), records=tuple(stamped), lease=lease)

    async def read(
        self,
        session: SessionId,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        records = self._peek(session).records
        start = bisect_right(records, after, key=_place)
        stop = len(records) if before is None else bisect_left(records, before, key=_place)
        most = max(0, stop - start if limit is None else min(limit, stop - start))
        if newest_first:
            return records[stop - most : stop][::-1]
        return records[start : start + most]

    async def head(self, session: SessionId) -> Head:
        return self._peek(session).head()

    async def sessions(self, scope: str, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        self._check_open()
        if cursor is not None and not cursor.isdecimal():
            raise InvalidInput(f"not a cursor of this store: {cursor!r}")
        below = int(cursor) if cursor is not None else None
        listed = sorted(
            (
                (state.active[1], SessionInfo(session=session, active=state.active[0]))
                for session, state in self._sessions.items()
                if session.scope == scope and state.records and (below is None or state.active[1] < below)
            ),
            key=lambda item: -item[0],
        )
        page = listed[: max(1, limit)]
        more = len(listed) > len(page)
        return SessionPage(
            sessions=tuple(info for _, info in page), cursor=str(page[-1][0]) if more else None
        )

    async def scopes(self) -> list[str]:
        self._check_open()
        return sorted({session.scope for session, state in self._sessions.items() if state.records})

    async def rewrite(
        self,
        session: SessionId,
        replacements: Sequence[Replacement],
        *,
        expected: int,
        fence: int | None = None,
        purge: bool = False,
    ) -> Head:
        state, now = self._peek(session), self.clock.now()
        rules.check_fence(session, state.lease, fence, now=now)
        rules.check_head(session, expected, state.head().seq)
        head = state.head().seq
        state.records = list(rules.replaced(state.records, replacements, head=head, at=timestamp(now)))
        state.batches = _batches(state.records)
        state.generation = next(self._generations)
        if purge:
            state.draft = None
        return state.head()

    async def delete(self, session: SessionId, *, fence: int | None = None) -> bool:
        state = self._peek(session)
        rules.check_fence(session, state.lease, fence, now=self.clock.now())
        gone = self._sessions.pop(session, None)
        if gone is not None:
            gone.changed.set()
        return bool(state.records)

    async def verify(self, session: SessionId) -> Report:
        state = self._peek(session)
        return Report(session=session, head=state.head(), records=len(state.records))

    async def repair(self, session: SessionId, *, fence: int | None = None) -> Report:
        rules.check_fence(session, self._peek(session).lease, fence, now=self.clock.now())
        return await self.verify(session)

    # --- leases

    def _grant(self, session: SessionId, request: LeaseRequest) -> Lease:
        state = self._of(session)
        lease = rules.grant(session, state.lease, request, now=self.clock.now(), last_fence=self._last_fence)
        self._hold(state, lease)
        return lease

    def _hold(self, state: _Session, lease: Lease) -> None:
        state.lease = lease
        self._last_fence = max(self._last_fence, lease.fence)

    def _free(self, state: _Session) -> None:
        state.lease = None
        self._wake(state)

    @staticmethod
    def _wake(state: _Session) -> None:
        state.changed.set()
        state.changed = asyncio.Event()

    async def acquire(self, session: SessionId, request: LeaseRequest) -> Lease:
        return self._grant(session, request)

    async def renew(self, lease: Lease, ttl: float) -> Lease:
        state = self._peek(lease.session)
        state.lease = rules.extend(lease, state.lease, ttl, now=self.clock.now())
        return state.lease

    async def release(self, lease: Lease) -> None:
        state = self._peek(lease.session)
        if state.lease is not None and state.lease.fence == lease.fence:
            self._free(state)

    async def lease(self, session: SessionId) -> Lease | None:
        lease = self._peek(session).lease
        return lease if rules.in_force(lease, self.clock.now()) else None

    # --- the inbox

    async def post(self, session: SessionId, entry: NewEntry) -> Posted:
        state = self._of(session)
        waiting = rules.posted_before(state.entries, entry)
        if waiting is not None:
            return Posted(entry=waiting, repeated=True)
        encode_json(entry.data)
        made = Entry(
            id=entry.id or uuid.uuid4().hex,
            position=next(self._positions),
            at=timestamp(self.clock.now()),
            kind=entry.kind,
            data=entry.data,
        )
        state.entries.append(made)
        self._wake(state)
        return Posted(entry=made)

    async def inbox(self, session: SessionId) -> list[Entry]:
        return list(self._peek(session).entries)

    async def take(self, session: SessionId, ids: Collection[str], *, fence: int | None = None) -> None:
        state = self._peek(session)
        rules.check_fence(session, state.lease, fence, now=self.clock.now())
        state.entries = [entry for entry in state.entries if entry.id not in ids]

    async def wait(
        self, session: SessionId, *, free: bool = False, mail_after: int | None = None, within: float
    ) -> bool:
        deadline = asyncio.get_running_loop().time() + within
        while True:
            state, now = self._of(session), self.clock.now()
            if free and not rules.in_force(state.lease, now):
                return True
            if mail_after is not None and any(entry.position > mail_after for entry in state.entries):
                return True
            left = deadline - asyncio.get_running_loop().time()
            if left <= 0:
                return False
            changed = asyncio.ensure_future(state.changed.wait())
            waits: list[asyncio.Future[Any]] = [changed]
            if free and state.lease is not None:
                waits.append(asyncio.ensure_future(self.clock.sleep(state.lease.expires - now)))
            try:
                await asyncio.wait(waits, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for waiting in waits:
                    waiting.cancel()

    # --- drafts and blobs

    async def put_draft(
        self, session: SessionId, data: Mapping[str, Any] | None, *, after: int, fence: int
    ) -> None:
        state = self._peek(session)
        rules.check_fence(session, state.lease, fence, now=self.clock.now())
        if data is not None:
            encode_json(data)
        state.draft = None if data is None else Draft(after=after, fence=fence, data=data)

    async def draft(self, session: SessionId) -> Draft | None:
        state = self._peek(session)
        return state.draft if state.draft is not None and state.draft.after == state.head().seq else None

    async def put_blob(self, scope: str, data: bytes) -> str:
        self._check_open()
        handle = rules.blob_handle(data)
        self._blobs[scope, handle] = (bytes(data), self.clock.now())
        return handle

    async def get_blob(self, scope: str, handle: str) -> bytes:
        self._check_open()
        rules.blob_digest(handle)
        found = self._blobs.get((scope, handle))
        if found is None:
            raise StoreDamaged(f"blob {handle} is not there")
        return found[0]

    async def delete_blob(self, scope: str, handle: str, *, before: float | None = None) -> bool:
        self._check_open()
        rules.blob_digest(handle)
        found = self._blobs.get((scope, handle))
        if found is None or (before is not None and found[1] >= before):
            return False
        del self._blobs[scope, handle]
        return True

    async def old_blobs(self, scope: str, *, before: float, after: str = "", limit: int = 1000) -> list[str]:
        self._check_open()
        return sorted(
            handle
            for (of, handle), (_, at) in self._blobs.items()
            if of == scope and at < before and handle > after
        )[:limit]

    async def blob_scopes(self) -> list[str]:
        self._check_open()
        return sorted({scope for scope, _ in self._blobs})

    async def close(self) -> None:
        self._closed = True
        for state in self._sessions.values():
            state.changed.set()


def _place(record: Record) -> int:
    return record.seq


def _batches(records: Sequence[Record]) -> dict[str, tuple[Record, ...]]:
    """What is left of each batch."""
    found: dict[str, tuple[Record, ...]] = {}
    for record in records:
        if record.batch is not None:
            found[record.batch] = (*found.get(record.batch, ()), record)
    return found
