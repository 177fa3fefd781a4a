"""The states of a turn, as a table. A state is derived from the log; it is never written.

RESTORE  take the lease, fold the log, close what a crash left open
COMPACT  put a prepared summary into force, or cut, before anything is sent
COMMAND  a slash command: answered here, not sent to the model
BUILD    gather the sources, assemble the request, write its ledger
RUN      the model answers; its tools run, each result durable as it comes
SAVE     the final answer, the end of the turn and the lease given back, in one batch
RESPOND  the answer goes to whoever asked; asked again with the same id, it comes from the log
DONE     nothing is open
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from backstory.context.budget import HARD_MARK
from backstory.sessions.recovery import open_calls
from backstory.sessions.view import View


class State(Enum):
    RESTORE = "restore"
    COMPACT = "compact"
    COMMAND = "command"
    BUILD = "build"
    RUN = "run"
    SAVE = "save"
    RESPOND = "respond"
    DONE = "done"


NEXT: dict[State, tuple[State, ...]] = {
    State.RESTORE: (State.COMPACT, State.COMMAND, State.BUILD, State.RESPOND),
    State.COMPACT: (State.COMMAND, State.BUILD),
    State.COMMAND: (State.RESPOND,),
    State.BUILD: (State.RUN, State.SAVE),
    State.RUN: (State.BUILD, State.RUN, State.SAVE),
    State.SAVE: (State.RESPOND,),
    State.RESPOND: (State.DONE, State.RESTORE),
    State.DONE: (State.RESTORE,),
}
"""What may follow a state. A crash at any of them leads to RESTORE; so does the end of a turn that a crash left open,
for the turn of another message, to which it gives way."""

Last = Literal["none", "user", "results", "calls", "answer"]


@dataclass(frozen=True, kw_only=True, slots=True)
class Facts:
    """What a state is derived from: whether a turn is open and we hold it, and what its newest message is.

    `full`: the last request filled its budget up to the hard mark, and there was no cut since.
    """

    open: bool
    held: bool
    full: bool = False
    command: bool = False
    last: Last = "none"


TABLE: tuple[tuple[Facts, State], ...] = (
    (Facts(open=False, held=False), State.DONE),
    (Facts(open=False, held=True), State.RESPOND),
    (Facts(open=False, held=True, command=True), State.COMMAND),
    (Facts(open=True, held=True, last="user"), State.BUILD),
    (Facts(open=True, held=True, last="user", full=True), State.COMPACT),
    (Facts(open=True, held=True, last="results"), State.BUILD),
    (Facts(open=True, held=True, last="calls"), State.RUN),
    (Facts(open=True, held=True, last="answer"), State.SAVE),
)
"""An open turn that nobody holds is one that a crash left: RESTORE, whatever its newest message is."""


def state_of(facts: Facts) -> State:
    """The state that the facts mean."""
    for row, state in TABLE:
        if row == facts:
            return state
    return State.RESTORE


def facts_of(view: View, *, held: bool, command: bool = False) -> Facts:
    """What the log says. The messages of the open turn must be loaded."""
    if view.turn is None:
        return Facts(open=False, held=held, command=command and held)
    messages = view.of_turn(view.turn.number)
    last: Last = "none"
    if messages:
        role = messages[-1].message.role
        if role == "tool":
            last = "calls" if open_calls(view) else "results"
        elif role == "assistant":
            last = "calls" if messages[-1].message.calls else "answer"
        else:
            last = "user"
    return Facts(open=True, held=held, last=last, full=last == "user" and is_full(view))


def is_full(view: View) -> bool:
    """Whether the last request, made in an earlier turn, filled its budget up to the hard mark."""
    ledger = view.request.get("ledger") or {}
    budget = ledger.get("budget")
    if not budget or view.turn is None or view.request_seq > view.turn.seq or view.cut.seq > view.request_seq:
        return False
    return int(ledger.get("total", 0)) >= HARD_MARK * int(budget)
