"""What can be wrong with a session that its store takes for whole: its fold, its messages, its calls, its view. Pure.

Each check looks at the records, or at the view folded from all of them, and gives findings in words: what it is, the
cause where it can be told, and what to do. Nothing here reads or writes.
"""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from backstory.context.prefix import canonical
from backstory.errors import StoreDamaged
from backstory.legality.repair import mend
from backstory.legality.steps import pair
from backstory.records import Record
from backstory.sessions.view import View
from backstory.stores.values import Damage
from backstory.targets import Target

Level = Literal["broken", "mended", "note"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """One thing about a session. ``broken`` is not as it should be, ``mended`` was, ``note`` is worth knowing."""

    level: Level
    what: str
    cause: str = ""
    remedy: str = ""


DAMAGE: dict[str, tuple[str, str]] = {
    "torn": ("a write was cut short by a crash", "it was not acknowledged; the next write puts it aside"),
    "zeros": ("the machine lost power, or the disk failed", "what stood there is gone; look at the disk"),
    "encoding": (
        "bytes changed: the disk, an editor, or a merge",
        "compare with a backup or with version control",
    ),
    "json": (
        "bytes changed: the disk, an editor, or a merge",
        "compare with a backup or with version control",
    ),
    "checksum": ("the line was edited by hand, or bits flipped", "read the line: it is used as it stands"),
    "order": ("two versions of the file were merged", "compare with a backup or with version control"),
    "gap": ("lines were deleted by hand, or by a merge", "compare with a backup or with version control"),
    "header": ("the first line was edited, or is not of this session", "compare with a backup"),
}
"""What stands behind each kind of damage, as far as can be told, and what to do."""


def damage(found: Damage, *, mended: bool = False) -> Finding:
    """Damage that the store reports."""
    cause, remedy = DAMAGE[found.kind]
    where = f"after record {found.after}" if found.after else "at the beginning"
    if found.kind == "torn" and not mended:  # a crash does this, and the store deals with it by itself
        return Finding(level="note", what=f"torn {where}: {found.detail}", cause=cause, remedy=remedy)
    return Finding(
        level="mended" if mended else "broken",
        what=f"{found.kind} {where}: {found.detail}",
        cause=cause,
        remedy=remedy if mended else f"{remedy}; --repair takes it out of the log and keeps the original",
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Folded:
    """A session folded from its first record on. `view` is `None` where that is impossible; `stale` are the places of
    snapshots that say something else than the records before them.
    """

    view: View | None
    findings: tuple[Finding, ...] = ()
    stale: tuple[int, ...] = ()


def fold_whole(records: Sequence[Record]) -> Folded:
    """Fold every record, and compare each snapshot on the way with the state that it stands for."""
    if not records:
        return Folded(view=View())
    first = records[0]
    view = View(loaded=first.first)
    findings: list[Finding] = []
    stale: list[int] = []
    for record in records:
        if record.kind == "snapshot" and record is not first:
            differs = _differs(view, record)
            if differs:
                stale.append(record.seq)
                findings.append(_snapshot(record.seq, differs))
        try:
            if record.kind == "snapshot" and record is first:
                view = View.from_snapshot(record)
            else:
                view.apply(record)
        except (StoreDamaged, KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            cause = f"its data is not what that kind holds ({error!r})"
            findings.append(
                Finding(
                    level="broken", what=f"record {record.seq} ({record.kind}) cannot be folded", cause=cause
                )
            )
            return Folded(view=None, findings=tuple(findings))
    return Folded(view=view, findings=tuple(findings), stale=tuple(stale))


def _differs(view: View, record: Record) -> list[str]:
    now = view.to_json()
    return [name for name in now if canonical(now[name]) != canonical(record.data.get(name))]


def _snapshot(seq: int, differs: Sequence[str]) -> Finding:
    return Finding(
        level="broken",
        what=f"the snapshot at record {seq} differs from the records before it ({', '.join(differs)})",
        cause="records were edited, or another version of Backstory wrote it",
        remedy="--repair writes a new one; a snapshot can always be computed again",
    )


def unreadable(records: Sequence[Record]) -> Iterator[Finding]:
    """Messages that cannot be read."""
    for record in records:
        if record.kind == "message":
            try:
                _ = record.message.role
            except StoreDamaged as error:
                yield Finding(
                    level="broken",
                    what=str(error),
                    cause="the line was edited by hand",
                    remedy="undo the edit",
                )


def calls(view: View) -> Iterator[Finding]:
    """Calls without a result, and results without a call, outside of the open turn: requests are healed for them."""
    live = [record for record in view.live() if view.turn is None or record.turn != view.turn.number]
    live = [record for record in live if _readable(record)]
    pairing = pair([record.message for record in live])
    for place in pairing.unanswered:
        call, seq = pairing.calls[place], live[place.message].seq
        yield Finding(
            level="note", what=f"the call of {call.name} in record {seq} has no result", cause=_HEALED
        )
    for place in pairing.orphans:
        if not live[place.message].data.get("late"):
            yield Finding(
                level="note",
                what=f"a result in record {live[place.message].seq} answers no call",
                cause=_HEALED,
            )


def legality(view: View, target: Target) -> Iterator[Finding]:
    """What the target's API would refuse about the view, and so is healed in each request."""
    messages = [record.message for record in view.live() if _readable(record)]
    repairs = Tally(repair.rule for repair in mend(messages, target).repairs)
    if repairs:
        told = ", ".join(f"{rule} ×{count}" if count > 1 else rule for rule, count in sorted(repairs.items()))
        yield Finding(level="note", what=f"its view is healed for {target.name}: {told}", cause=_HEALED)


_HEALED = "imported, or left by a crash; each request is healed, the log stays as it is"


def _readable(record: Record) -> bool:
    try:
        return bool(record.message.role)
    except StoreDamaged:
        return False
