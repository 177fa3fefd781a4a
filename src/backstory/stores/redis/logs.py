"""What is done to a log: append, rewrite, check, mend. `rules` and `rows` decide; this puts it into commands."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.errors import StaleLease
from backstory.records import NewRecord, Record, stamp
from backstory.stores import rules
from backstory.stores.clock import timestamp
from backstory.stores.redis import state
from backstory.stores.redis.keys import SessionKeys
from backstory.stores.redis.sessions import Sight
from backstory.stores.redis.state import Commands
from backstory.stores.remote import rows
from backstory.stores.remote.naming import digest
from backstory.stores.values import Appended, Head, LeaseRequest, Replacement, Report, SessionId

Command = Callable[..., Awaitable[Any]]
_PAGE = 2000


@dataclass(frozen=True, kw_only=True, slots=True)
class Append:
    """The arguments of `Log.append`; `mark` is what the batch is found by."""

    records: Sequence[NewRecord]
    expected: int | None
    fence: int | None
    batch: str | None
    mark: bytes
    acquire: LeaseRequest | None
    release: bool


def append(sight: Sight, commands: Commands, asked: Append, channel: str, *, again: bool) -> Appended:
    """See `Log.append`. `again`: an earlier try may have taken effect."""
    held, earlier = sight.state, sight.earlier
    if asked.release:
        commands.tell(channel)
    if earlier:
        if asked.batch is not None:
            rules.check_repeat(asked.batch, earlier, asked.records)
        lease = held.grant(asked.acquire) if asked.acquire is not None else None
        gives_back = (
            asked.release and held.owner is not None and (lease is not None or held.fence == asked.fence)
        )
        if gives_back:
            held.owner = None
        if lease is not None or gives_back:
            commands.remember(held)
        return Appended(head=held.head, records=tuple(earlier), lease=lease, repeated=not again)
    lease = None
    if asked.acquire is not None:
        lease = held.grant(asked.acquire)
    else:
        try:
            held.check(asked.fence)
        except StaleLease:
            if not (
                again
                and asked.release
                and not asked.records
                and held.owner is None
                and held.fence == asked.fence
            ):
                raise
            return Appended(head=held.head, records=())  # an earlier try gave it back
    rules.check_head(held.session, asked.expected, held.seq)
    if asked.release:
        held.owner = None
    stamped = stamp(asked.records, seq=held.seq + 1, at=timestamp(held.now), batch=asked.batch)
    if not stamped:
        commands.remember(held)
        return Appended(head=held.head, records=(), lease=lease)
    commands.append(stamped, asked.mark, named=asked.batch is not None)
    held.generation = held.generation or held.next_generation()
    held.seq, held.at = stamped[-1].seq, stamped[-1].at
    commands.remember(held, active=held.now)
    return Appended(head=held.head, records=tuple(stamped), lease=lease)


@dataclass(frozen=True, kw_only=True, slots=True)
class Rewrite:
    """The arguments of `Log.rewrite`."""

    replacements: Sequence[Replacement]
    expected: int
    fence: int | None
    purge: bool


async def touched(
    command: Command, log: str, session: SessionId, replacements: Sequence[Replacement]
) -> list[Record]:
    """The records that the spans touch, in order: those within, and the one that reaches over each end."""
    lines: list[bytes] = []
    for span in sorted(replacements, key=lambda span: span.first):
        lines += await command("ZRANGEBYSCORE", log, span.first, span.last)
        lines += await command("ZRANGEBYSCORE", log, span.last, "+inf", "LIMIT", 0, 1)
    return rows.read(session, dict.fromkeys(lines))


def rewrite(sight: Sight, commands: Commands, asked: Rewrite, records: Sequence[Record]) -> Head:
    """See `Log.rewrite`. `records` are those that the spans touch."""
    held = sight.state
    held.check(asked.fence)
    rules.check_head(held.session, asked.expected, held.seq)
    change = rows.changed(records, asked.replacements, head=held.seq, at=timestamp(held.now))
    _rewritten(sight, commands, change)
    commands.add_many("HDEL", state.BATCHES, _gone(records, asked.replacements))
    if asked.purge:
        commands.add("UNLINK", state.KEPT)
        commands.add("UNLINK", state.DRAFT)
    return held.head


def _gone(records: Sequence[Record], replacements: Sequence[Replacement]) -> list[bytes]:
    """The marks of batches of which nothing is left."""
    replaced: Counter[tuple[str, int]] = Counter()
    for record in records:
        inside = any(span.first <= record.seq <= span.last for span in replacements)
        if record.batch is not None and inside:
            replaced[record.batch, record.part[1]] += 1
    return [digest(batch)[:16] for (batch, size), count in replaced.items() if count == size]


def _rewritten(sight: Sight, commands: Commands, change: rows.Change) -> None:
    held = sight.state
    commands.rewrite(change)
    for record in change.written:
        if record.seq == held.seq:
            held.at = record.at
    if held.version:
        held.generation = held.next_generation()
        commands.remember(held)


async def everything(command: Command, log: str) -> list[rows.Row]:
    """Every row of a log."""
    found: list[rows.Row] = []
    start = 0
    while True:
        page = await command("ZRANGE", log, start, start + _PAGE - 1, "WITHSCORES")
        pairs = (
            page if page and isinstance(page[0], (list, tuple)) else zip(page[::2], page[1::2], strict=True)
        )
        found += [(int(float(score)), line) for line, score in pairs]
        start += _PAGE
        if len(found) < start:
            return found


async def verify(command: Command, keys: SessionKeys, session: SessionId, head: Head) -> Report:
    """See `Log.verify`."""
    kept = (keys.kept,) if await command("EXISTS", keys.kept) else ()
    return rows.check(session, head, await everything(command, keys.log), kept)


def repair(sight: Sight, commands: Commands, report: Report, found: Sequence[rows.Row]) -> Report:
    """See `Log.repair`. The whole log as it stood is kept beside it."""
    if report.sound:
        return report
    held = sight.state
    commands.add("ZUNIONSTORE", state.KEPT, 2, commands.keys.log, commands.keys.kept, "AGGREGATE", "MIN")
    _rewritten(sight, commands, rows.mended(found, head=held.seq, at=timestamp(held.now)))
    return Report(
        session=held.session,
        head=held.head,
        records=report.records,
        damage=report.damage,
        kept=(commands.keys.kept,),
    )
