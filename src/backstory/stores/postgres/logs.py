"""What is done to a log within its transaction: append, rewrite, check, mend. `rules` and `rows` decide."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from backstory.errors import StaleLease
from backstory.records import NewRecord, stamp
from backstory.stores import rules
from backstory.stores.clock import timestamp
from backstory.stores.postgres.locked import Locked
from backstory.stores.remote import rows
from backstory.stores.values import Appended, Head, LeaseRequest, Replacement, Report


async def append(
    locked: Locked,
    records: Sequence[NewRecord],
    *,
    expected: int | None,
    fence: int | None,
    batch: str | None,
    mark: bytes,
    acquire: LeaseRequest | None,
    release: bool,
    again: bool,
) -> Callable[[], Awaitable[Appended]]:
    """See `Log.append`. `mark` stands for the batch in the table; `again`: an earlier try may have taken effect."""
    state = locked.state
    locked.news = release
    earlier = rows.read(state.session, locked.batch)
    if earlier:
        if batch is not None:
            rules.check_repeat(batch, earlier, records)
        lease = state.grant(acquire) if acquire is not None else None
        gives_back = release and state.owner is not None and (lease is not None or state.fence == fence)
        if gives_back:
            state.free()
        if lease is not None or gives_back:
            await locked.hold()
        done = Appended(head=state.head, records=tuple(earlier), lease=lease, repeated=not again)
        return _value(done)
    lease = None
    if acquire is not None:
        lease = state.grant(acquire)
    else:
        try:
            state.check(fence)
        except StaleLease:
            if not (again and release and not records and state.owner is None and state.fence == fence):
                raise
            return _value(Appended(head=state.head, records=()))  # an earlier try gave it back
    rules.check_head(state.session, expected, state.seq)
    if release:
        state.free()
    stamped = stamp(records, seq=state.seq + 1, at=timestamp(state.now), batch=batch)
    if not stamped:
        await locked.hold()
        return _value(Appended(head=state.head, records=(), lease=lease))
    cursor = await locked.advance(stamped, mark)

    async def result() -> Appended:
        state.generation = await _number(cursor)
        return Appended(head=state.head, records=tuple(stamped), lease=lease)

    return result


async def rewrite(
    locked: Locked, replacements: Sequence[Replacement], *, expected: int, fence: int | None, purge: bool
) -> Callable[[], Awaitable[Head]]:
    """See `Log.rewrite`. Reads the ends of the spans alone, however long they or the log are."""
    state, sql = locked.state, locked.sql
    state.check(fence)
    rules.check_head(state.session, expected, state.seq)
    list(rules.replaced([], replacements, head=state.seq, at=""))  # what makes no sense is not looked up
    lines: list[bytes] = []
    for span in sorted(replacements, key=lambda span: span.first):
        for place in (span.first, span.last):
            cursor = await locked.run(sql.first_from, (state.id, place))
            lines += [line for (line,) in await cursor.fetchall()]
    ends = rows.read(state.session, dict.fromkeys(lines))
    change = rows.changed(ends, replacements, head=state.seq, at=timestamp(state.now))
    return await _apply(locked, change, purge=purge)


async def _apply(locked: Locked, change: rows.Change, *, purge: bool) -> Callable[[], Awaitable[Head]]:
    state, sql = locked.state, locked.sql
    for first, last in change.removed:
        await locked.run(sql.drop_records, (state.id, first, last))
    for record in change.written:
        await locked.run(sql.insert, (state.id, record.seq, None, record.line))
        if record.seq == state.seq:
            state.at = record.at
    if purge:
        for statement in sql.forget[:2]:
            await locked.run(statement, (state.id,))
    cursor = await locked.run(sql.rewritten, (state.at, state.id))

    async def result() -> Head:
        if state.id:
            state.generation = await _number(cursor)
        return state.head

    return result


async def verify(locked: Locked) -> Report:
    """See `Log.verify`."""
    state = locked.state
    cursor = await locked.run(locked.sql.rows, (locked.name,))
    found = [(seq, line) for seq, line in await cursor.fetchall()]
    cursor = await locked.run(locked.sql.kept, (state.id,))
    kept = [_kept(session) for (session,) in await cursor.fetchall()]
    return rows.check(state.session, state.head, found, kept)


async def repair(locked: Locked, *, fence: int | None) -> Callable[[], Awaitable[Report]]:
    """See `Log.repair`. The whole log as it stood is kept in the table `quarantine`."""
    state = locked.state
    state.check(fence)
    report = await verify(locked)
    if report.sound:
        return _value(report)
    cursor = await locked.run(locked.sql.rows, (locked.name,))
    found = [(seq, line) for seq, line in await cursor.fetchall()]
    await locked.run(locked.sql.keep, (state.id,))
    change = rows.mended(found, head=state.seq, at=timestamp(state.now))
    done = await _apply(locked, change, purge=False)

    async def result() -> Report:
        return Report(
            session=state.session,
            head=await done(),
            records=report.records,
            damage=report.damage,
            kept=(*report.kept, _kept(state.id)),
        )

    return result


def _kept(session: int) -> str:
    return f"table quarantine, session {session}"


async def _number(cursor: Any) -> int:
    return int((await cursor.fetchone())[0])


def _value(value: Any) -> Callable[[], Awaitable[Any]]:
    async def result() -> Any:
        return value

    return result
