"""Copies a whole store into another: every line of every session as it is, its inbox, and the blobs that it names.

A session is the same bytes in every store. What is there already is compared and not copied again, so that a copy that
was stopped goes on where it was; a session that is there with other content is left alone, and named. Leases and drafts
are of the moment, and stay behind. Turns may go on meanwhile: who wants all of it runs this once more when they ended.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, replace

from backstory.errors import HeadMoved, InvalidInput, LeaseHeld, StoreDamaged
from backstory.records import Record, copied
from backstory.stores.base import Store
from backstory.stores.values import NewEntry, SessionId
from backstory.upkeep.named import handles, segments_of, within

PAGE = 256
"""Records that are copied in one batch, more where a batch of the source ends later."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Copied:
    """One session's copy. `problem` says why it is not whole; `records` is how many the target holds now.

    `new` of them were copied by this run, with `blobs` blobs and `waiting` entries of the inbox.
    """

    session: SessionId
    records: int = 0
    new: int = 0
    blobs: int = 0
    waiting: int = 0
    problem: str = ""


async def listed(store: Store, scope: str | None = None) -> list[SessionId]:
    """Every session, of one scope or of all, those that were written to last at the end: so they stay in order."""
    found: list[SessionId] = []
    for each in [scope] if scope is not None else await store.scopes():
        cursor: str | None = None
        of_scope: list[SessionId] = []
        while True:
            page = await store.sessions(each, cursor=cursor)
            of_scope += [info.session for info in page.sessions]
            cursor = page.cursor
            if cursor is None:
                break
        found += reversed(of_scope)
    return found


async def migrate(source: Store, target: Store, sessions: Sequence[SessionId]) -> AsyncIterator[Copied]:
    """Copy sessions one after the other; as it is done with each. What is a session's own fault is its `problem`.

    Raises the stores' other errors: copy again, and it goes on.
    """
    done: set[tuple[str, str]] = set()
    for session in sessions:
        made = Copied(session=session)
        try:
            made = await _session(source, target, session, done)
        except (StoreDamaged, InvalidInput, LeaseHeld, HeadMoved) as error:
            made = replace(made, problem=str(error))
        yield made


async def compare(source: Store, target: Store, sessions: Sequence[SessionId]) -> AsyncIterator[Copied]:
    """Read both stores once more: every line of every session, every blob and every entry that waits."""
    seen: set[tuple[str, str]] = set()
    for session in sessions:
        try:
            yield await _compared(source, target, session, seen)
        except StoreDamaged as error:
            yield Copied(session=session, problem=str(error))


async def _session(source: Store, target: Store, session: SessionId, done: set[tuple[str, str]]) -> Copied:
    there = (await target.head(session)).seq
    at, new, blobs = 0, 0, 0
    async for records in _batches(source, session):
        held = [record for record in records if record.seq <= there]
        if held:
            theirs = await target.read(session, after=at, before=held[-1].seq + 1)
            if [record.line for record in theirs] != [record.line for record in held]:
                return Copied(session=session, records=there, problem=_OTHER)
        rest = records[len(held) :]
        if not held and records[0].first != at + 1:
            return Copied(session=session, records=at, new=new, problem=_GAPS)
        if any(after.first != before.seq + 1 for before, after in itertools.pairwise(records)):
            return Copied(session=session, records=at, new=new, problem=_GAPS)
        blobs += await _blobs(source, target, session.scope, rest, done)
        if rest:
            await target.append(session, [copied(record) for record in rest], expected=max(there, at))
        at, new = records[-1].seq, new + len(rest)
    if there > at:
        return Copied(session=session, records=there, problem=_OTHER)
    waiting = 0
    for entry in await source.inbox(session):
        posted = await target.post(session, NewEntry(id=entry.id, kind=entry.kind, data=entry.data))
        waiting += not posted.repeated
    return Copied(session=session, records=at, new=new, blobs=blobs, waiting=waiting)


_OTHER = (
    "the target holds a session of this name with other content: delete it there, or copy to another place"
)
_GAPS = "its log has gaps: mend it first with backstory doctor --repair"


async def _batches(store: Store, session: SessionId) -> AsyncIterator[list[Record]]:
    """The log a page at a time; each ends where a batch ends, since a log ends with a whole batch."""
    after = 0
    while True:
        records = await store.read(session, after=after, limit=PAGE)
        if not records:
            return
        while records[-1].part[0] != records[-1].part[1]:
            more = await store.read(session, after=records[-1].seq, limit=PAGE)
            if not more:
                break
            ends = next((i for i, one in enumerate(more) if one.part[0] == one.part[1]), len(more) - 1)
            records += more[: ends + 1]
        yield records
        after = records[-1].seq


async def _blobs(
    source: Store, target: Store, scope: str, records: Sequence[Record], done: set[tuple[str, str]]
) -> int:
    """Copy the blobs that records name, before the records; how many."""
    count = 0
    for handle, data in [(handle, data) async for handle, data in _named(source, scope, records, done)]:
        if await target.put_blob(scope, data) != handle:
            raise StoreDamaged(f"blob {handle} of scope {scope!r} is not what its name says")
        count += 1
    return count


async def _named(
    store: Store, scope: str, records: Sequence[Record], done: set[tuple[str, str]]
) -> AsyncIterator[tuple[str, bytes]]:
    """The blobs that records name, and those that blobs of records name, each once.

    A handle in somebody's words names no blob of ours; one that is missing is missing in the source as well. Raises
    `StoreDamaged` and `ConfigurationError` where a segment of the archive, which names blobs too, cannot be read.
    """
    archive = {handle for record in records for handle in segments_of(record)}
    left = [handle for record in records for handle in handles(record.line)]
    while left:
        handle = left.pop()
        if (scope, handle) in done:
            continue
        done.add((scope, handle))
        try:
            data = await store.get_blob(scope, handle)
        except StoreDamaged:
            continue
        yield handle, data
        left += within(data, segment=handle in archive)


async def _compared(source: Store, target: Store, session: SessionId, seen: set[tuple[str, str]]) -> Copied:
    count, blobs = 0, 0
    async for records in _batches(source, session):
        theirs = await target.read(session, after=count, before=records[-1].seq + 1)
        if [record.line for record in theirs] != [record.line for record in records]:
            grown = not theirs or theirs == records[: len(theirs)]
            why = "it was written to meanwhile: copy once more" if grown else _OTHER
            return Copied(session=session, records=count, problem=why)
        async for handle, data in _named(source, session.scope, records, seen):
            if await target.get_blob(session.scope, handle) != data:
                return Copied(session=session, records=count, problem=f"blob {handle} is not the same")
            blobs += 1
        count = records[-1].seq
    here = [(entry.id, entry.kind, entry.data) for entry in await source.inbox(session)]
    there = [(entry.id, entry.kind, entry.data) for entry in await target.inbox(session)]
    if here != there:
        return Copied(
            session=session, records=count, problem="what waits in its inbox is not the same: copy once more"
        )
    return Copied(session=session, records=count, blobs=blobs, waiting=len(here))
