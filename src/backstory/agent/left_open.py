"""What a crash left open in a session, told before anything is done about it. Reads the log, writes nothing."""

from __future__ import annotations

from dataclasses import dataclass

from backstory.agent.sources.runtime import without_runtime
from backstory.sessions.recovery import draft_of, open_calls
from backstory.sessions.session import Session


@dataclass(frozen=True, kw_only=True, slots=True)
class LeftOpen:
    """The turn that is open: the words that began it, and its calls by what is known of them.

    `held_for` is for how many seconds somebody may still be at work on it: 0 where nobody is. `draft` is what the model
    had said of its answer.
    """

    turn: int
    text: str
    finished: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()
    not_started: tuple[str, ...] = ()
    draft: str = ""
    held_for: float = 0.0

    def __str__(self) -> str:
        rows = (
            ("finished, and kept", self.finished),
            ("started, outcome unknown", self.unknown),
            ("never started", self.not_started),
        )
        told = "; ".join(f"{what}: {', '.join(names)}" for what, names in rows if names)
        return told or ("the answer had begun" if self.draft else "no answer had begun")


async def left_open(session: Session) -> LeftOpen | None:
    """The open turn of a session; `None` where there is none."""
    await session.refresh()
    view = session.view
    if view.turn is None:
        return None
    if view.loaded > view.turn.seq:
        view.load(await session.store.read(session.id, after=view.turn.seq - 1, before=view.loaded))
    waiting = open_calls(view)
    messages = [record.message for record in view.of_turn(view.turn.number)]
    said = next((message for message in messages if message.role == "user"), None)
    names = {call.id: call.name for message in messages for call in message.calls}
    lease = await session.store.lease(session.id)
    draft = await session.store.draft(session.id)
    return LeftOpen(
        turn=view.turn.number,
        text=without_runtime(said).text if said is not None else "",
        finished=tuple(r.name or names.get(r.call_id, "?") for message in messages for r in message.results),
        unknown=tuple(call.name for place, call in waiting if place in view.turn.started),
        not_started=tuple(call.name for place, call in waiting if place not in view.turn.started),
        draft=draft_of(draft.data)[0] if draft is not None else "",
        held_for=max(0.0, lease.expires - session.store.clock.now()) if lease is not None else 0.0,
    )
