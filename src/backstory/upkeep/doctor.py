"""Looks over every session of a store, and mends what can be mended. What it finds has a cause wherever it can be told.

It reads whole logs, so it takes as long as they are; turns may go on meanwhile. A repair needs the session's lease.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass

from backstory.errors import (
    ConfigurationError,
    HeadMoved,
    LeaseHeld,
    NewerFormat,
    StaleLease,
    StoreDamaged,
    StoreUnavailable,
)
from backstory.records import NewRecord, Record
from backstory.sessions.archive import segments, unpacked
from backstory.sessions.operations import pages
from backstory.sessions.view import View
from backstory.stores.base import Store
from backstory.stores.large_parts import long_of
from backstory.stores.values import LeaseRequest, SessionId
from backstory.targets import Target
from backstory.upkeep.checks import Finding, calls, damage, fold_whole, legality, unreadable
from backstory.upkeep.named import handles

_TTL = 60.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkup:
    """What was found about one session. `kept` names what was put aside, now or earlier."""

    session: SessionId
    records: int = 0
    turns: int = 0
    findings: tuple[Finding, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not any(finding.level == "broken" for finding in self.findings)


async def examine_all(
    store: Store, *, scope: str | None = None, target: Target | None = None, repair: bool = False
) -> AsyncIterator[Checkup]:
    """Every session of a scope, or of all; as it is done with each."""
    for each in [scope] if scope is not None else await store.scopes():
        cursor: str | None = None
        while True:
            page = await store.sessions(each, cursor=cursor)
            for info in page.sessions:
                yield await examine(store, info.session, target=target, repair=repair)
            cursor = page.cursor
            if cursor is None:
                break


async def examine(
    store: Store, id: SessionId, *, target: Target | None = None, repair: bool = False
) -> Checkup:
    """One session. `target` is for whom its view is judged. Raises nothing that is the session's own fault."""
    findings: list[Finding] = []
    kept: tuple[str, ...] = ()
    try:
        report = await store.verify(id)
        kept = report.kept
        if report.damage and repair:
            kept = await _repair(store, id, findings)
        elif report.damage:
            findings += [damage(each) for each in report.damage]
        records = [record async for page in pages(store, id, raw=True) for record in page]
    except (NewerFormat, StoreDamaged, StoreUnavailable) as error:
        findings.append(Finding(level="broken", what=str(error)))
        return Checkup(session=id, findings=tuple(findings), kept=kept)
    folded = fold_whole(records)
    view = folded.view
    if folded.stale and view is not None and repair:
        findings += await _snapshot_again(store, id, view, folded.stale)
    else:
        findings += folded.findings
    findings += unreadable(records)
    told, old = await _archive(store, id, records)
    findings += [*await _blobs(store, id, [*old, *records]), *told]
    if view is not None:
        findings += [*calls(view), *legality(view, target or Target.of("openai_chat"))]
        findings += await _around(store, id, view)
    return Checkup(
        session=id,
        records=len(records),
        turns=view.turns if view is not None else 0,
        findings=tuple(findings),
        kept=kept,
    )


async def _repair(store: Store, id: SessionId, findings: list[Finding]) -> tuple[str, ...]:
    """Let the store mend its log, under a lease of our own."""
    try:
        lease = await store.acquire(id, LeaseRequest(owner=f"doctor:{uuid.uuid4().hex[:8]}", ttl=_TTL))
    except LeaseHeld as held:
        findings.append(Finding(level="broken", what="not mended: a turn is under way", cause=str(held)))
        return ()
    try:
        mended = await store.repair(id, fence=lease.fence)
    finally:
        await store.release(lease)
    findings += [damage(each, mended=True) for each in mended.damage]
    return mended.kept


async def _snapshot_again(store: Store, id: SessionId, view: View, stale: Sequence[int]) -> list[Finding]:
    """Append a snapshot that is true: sessions are opened from the newest one on."""
    told = f"snapshots at records {', '.join(map(str, stale))} differed from the log"
    try:
        await store.append(
            id,
            [NewRecord(kind="snapshot", data=view.to_json())],
            expected=view.head,
            acquire=LeaseRequest(owner=f"doctor:{uuid.uuid4().hex[:8]}", ttl=_TTL),
            release=True,
        )
    except (LeaseHeld, HeadMoved, StaleLease) as error:
        return [Finding(level="broken", what=told, cause=f"not mended: {error}")]
    return [Finding(level="mended", what=told, remedy="a new one stands at the end")]


async def _blobs(store: Store, id: SessionId, records: Sequence[Record]) -> list[Finding]:
    """Large results and epochs whose bytes are gone."""
    wanted: dict[str, Record] = {}
    parts: dict[str, str] = {}
    for record in records:
        if record.kind in ("epoch", "message"):
            for handle in handles(record.line):
                wanted.setdefault(handle, record)
            parts |= {one.blob: f"{one.size:,} bytes of {one.type}" for one in long_of(record)}
    findings = []
    for handle, record in wanted.items():
        try:
            await store.get_blob(id.scope, handle)
        except StoreDamaged as error:
            if handle in parts:
                what = f"a part of record {record.seq} is gone ({parts[handle]})"
                remedy = "a note stands for it; put the blob back from a backup, and it is there again"
                findings.append(Finding(level="broken", what=what, cause=str(error), remedy=remedy))
                continue
            if record.kind == "epoch":
                lost = "its requests cannot be shown again"
                findings.append(
                    Finding(
                        level="broken",
                        what=f"the blob of epoch {record.data.get('number')} is gone, so {lost}",
                    )
                )
            elif record.data["message"].get("role") == "tool":  # else somebody merely mentioned a hash
                what = f"the whole of a long result in record {record.seq} is gone"
                findings.append(Finding(level="broken", what=what, cause=str(error)))
    return findings


async def _archive(
    store: Store, id: SessionId, records: Sequence[Record]
) -> tuple[list[Finding], list[Record]]:
    """What is wrong with segments: missing, damaged, or with others in them than they should; and the records held."""
    findings: list[Finding] = []
    old: list[Record] = []
    for record in records[:1]:
        for segment in segments(record) if record.kind == "archived" else ():
            what = f"records {segment['first']} to {segment['last']} are not in the archive"
            try:
                held = unpacked(await store.get_blob(id.scope, segment["blob"]))
            except StoreDamaged as error:
                findings.append(Finding(level="broken", what=f"{what}: {segment['blob']}", cause=str(error)))
                continue
            except ConfigurationError as error:
                findings.append(Finding(level="note", what=str(error)))
                break
            places = (held[0].first, held[-1].seq, len(held))
            if places != (segment["first"], segment["last"], segment["records"]):
                findings.append(Finding(level="broken", what=f"{what}: {segment['blob']} holds others"))
            old += held
    return findings, old


async def _around(store: Store, id: SessionId, view: View) -> list[Finding]:
    """What lies beside the log: a lease, an open turn, mail, a draft."""
    findings = []
    lease = await store.lease(id)
    waiting = await store.inbox(id)
    if lease is not None:
        left = max(0.0, lease.expires - store.clock.now())
        findings.append(
            Finding(level="note", what=f"{lease.owner} holds it, for {left:.0f} s more unless it renews")
        )
    elif view.turn is not None:
        findings.append(
            Finding(
                level="note",
                what=f"turn {view.turn.number} is open",
                cause="a process was killed in the middle of it",
                remedy="resume it, or say something else: nothing is lost",
            )
        )
    if waiting and lease is None:
        count = "1 message waits" if len(waiting) == 1 else f"{len(waiting)} messages wait"
        findings.append(
            Finding(
                level="note", what=f"{count} in the inbox", remedy="the next turn takes them up, in order"
            )
        )
    if lease is None and await store.draft(id) is not None:
        findings.append(
            Finding(level="note", what="an answer that was being written is kept", remedy="resume adopts it")
        )
    return findings
