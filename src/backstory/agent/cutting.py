"""A cut that somebody asked for: replay begins later, so that about half of the window is free. No model is asked.

The cut is where a full window would be cut, found by the same functions; the log keeps what is before it. (A summary
that stands for it is another record, and not this module's business.)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstory.agent.requests import Shape, frozen_epoch
from backstory.context.budget import Budget
from backstory.context.fit import assemble
from backstory.errors import BudgetExceeded, SessionBusy
from backstory.messages import system as system_message
from backstory.records import NewRecord, Record
from backstory.sessions.operations import write
from backstory.sessions.session import Session
from backstory.sessions.source import ViewSource, counted
from backstory.sessions.view import View
from backstory.tokens.messages import count_message


@dataclass(frozen=True, kw_only=True, slots=True)
class Cutback:
    """What a cut left out: messages, and the tokens of the history before and after."""

    left_out: int
    before: int
    after: int


async def cut_back(session: Session, shape: Shape, *, reason: str = "compact") -> Cutback | None:
    """Cut the history to the low mark of the budget; `None` where that changes nothing, or there is no budget.

    Raises `SessionBusy` while a turn is open, and the store's errors.
    """
    await session.refresh()
    view = session.view
    if view.turn is not None:
        raise SessionBusy(f"turn {view.turn.number} is open in session {str(session.id)!r}")
    low = shape.budget.low
    if low is None:
        return None

    def count(record: Record) -> int:
        return count_message(counted(record), shape.counter, shape.target.format)

    frozen = await frozen_epoch(session)
    await session.load(shape.budget.tokens, count)
    source = ViewSource(view)
    if frozen is not None and frozen.system:
        source.system = [(-1, system_message(frozen.system))]
    try:
        state = assemble(
            source,
            shape.target,
            shape.counter,
            Budget(tokens=low, shares=shape.budget.shares),
            tools=frozen.tools if frozen is not None else shape.tools,
            factor=shape.factor,
            ready=False,
        ).state
    except BudgetExceeded:
        return None  # the newest step alone is over the mark
    start, kept = state["cut"], state["kept"]
    live = view.live()
    stays = [r for r in live if r.seq >= start or (kept and kept[0] <= r.seq < kept[1])]
    if len(stays) == len(live):
        return None
    before, after = sum(map(count, live)), sum(map(count, stays))
    await write(session, [NewRecord(kind="cut", data={"start": start, "kept": kept, "reason": reason})])
    session.state = None
    return Cutback(left_out=len(live) - len(stays), before=before, after=after)


def last_request(view: View) -> Mapping[str, Any]:
    """The ledger of the newest request, as it was logged; empty where there is none."""
    found: Mapping[str, Any] = view.request.get("ledger", {})
    return found
