"""A cut that somebody asked for where compaction is off: replay begins later, and no summary stands for what is before.

The cut is the one of a compaction (`upkeep.spans`); the log keeps what is before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstory.compaction.policy import Policy
from backstory.errors import SessionBusy
from backstory.records import NewRecord
from backstory.sessions.operations import write
from backstory.sessions.session import Session
from backstory.sessions.view import View
from backstory.upkeep.spans import Frame, low_cut, staying


@dataclass(frozen=True, kw_only=True, slots=True)
class Cutback:
    """What a cut left out: messages, and the tokens of the history before and after."""

    left_out: int
    before: int
    after: int


async def cut_back(session: Session, frame: Frame, *, reason: str = "compact") -> Cutback | None:
    """Cut the history to the low mark of the budget; `None` where that changes nothing, or there is no budget.

    Raises `SessionBusy` while a turn is open, and the store's errors.
    """
    await session.refresh()
    view = session.view
    if view.turn is not None:
        raise SessionBusy(f"turn {view.turn.number} is open in session {str(session.id)!r}")
    if frame.budget.tokens is None:
        return None
    await session.load(frame.budget.tokens, frame.record)
    cut = low_cut(view, frame, Policy())
    live = view.live()
    stays = staying(view, cut) if cut is not None else live
    if cut is None or len(stays) == len(live):
        return None
    before, after = sum(map(frame.record, live)), sum(map(frame.record, stays))
    kept = list(cut.kept) if cut.kept else None
    await write(session, [NewRecord(kind="cut", data={"start": cut.start, "kept": kept, "reason": reason})])
    session.state = None
    return Cutback(left_out=len(live) - len(stays), before=before, after=after)


def last_request(view: View) -> Mapping[str, Any]:
    """The ledger of the newest request, as it was logged; empty where there is none."""
    found: Mapping[str, Any] = view.request.get("ledger", {})
    return found
