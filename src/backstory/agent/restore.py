"""RESTORE: how a turn begins. What the log and the user's message make of each other, and the records that follow.

A known message goes on with its turn, or has its answer in the log already; another one ends a turn that a crash left
open, and begins its own. This decides and reads; `Turn.begin` writes.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backstory.agent.mail import Counts
from backstory.errors import MessageConflict, SessionError
from backstory.messages import Message
from backstory.models.base import Answer
from backstory.quick import quick
from backstory.records import NewRecord, Record, new_message
from backstory.sessions.archive import pages_through, read_through
from backstory.sessions.recovery import NOTHING, SoFar, close_calls, draft_of, end_turn
from backstory.sessions.session import PAGE, Session
from backstory.sessions.view import Known

NOT_ANSWERED = ("interrupted", "stopped", "failed")
"""Reasons for which a turn ended that the same client message may take up again."""


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """What begins a turn: the user's message as it is logged, the client's id of it, and a digest of what was said.

    `message` is `None` to resume an open turn without a message. Without an id there is no digest. `told` is what the
    message's runtime block tells of changes that wait for the next epoch (section → digest).
    """

    message: Message | None
    message_id: str | None = None
    digest: str = ""
    told: tuple[tuple[str, str], ...] = ()


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Beginning:
    """The number of the turn and the records that open it; or, where it is `over`, its answer and how it ended.

    `healed` says which calls got a synthetic result.
    """

    turn: int
    records: Sequence[NewRecord] = ()
    healed: tuple[str, ...] = ()
    over: bool = False
    reason: str = ""
    answer: Message | None = None


async def beginning(session: Session, opening: Opening, counts: Counts) -> Beginning:
    """What a turn begins with. The view must be up to date.

    Raises `MessageConflict` for a known id with other content, `SessionError` where there is nothing to resume.
    """
    view = session.view
    known = view.known.get(opening.message_id) if opening.message_id is not None else None
    if known is not None and view.is_hidden(known.seq):
        known = None  # undone: it may be said again
    if known is not None and known.digest != opening.digest:
        raise MessageConflict(
            f"message id {opening.message_id!r} is known in session {str(session.id)!r} with other content"
        )
    if known is not None and (view.turn is None or view.turn.number != known.turn):
        return await _known(session, opening, known)
    if opening.message is None and view.turn is None:
        raise SessionError(f"session {str(session.id)!r} has no open turn to resume")
    await _load(session, view.turn.seq if view.turn is not None else view.loaded)
    if view.turn is not None and (opening.message is None or known is not None):
        _, so_far = await _draft(session)
        closed = close_calls(view, so_far)
        return Beginning(turn=view.turn.number, records=closed, healed=_healed(closed))
    draft, so_far = await _draft(session)
    ended = end_turn(view, "interrupted", draft=draft, so_far=so_far)
    number = view.turns + 1
    return Beginning(
        turn=number, records=[*ended, *_first_records(opening, number, counts)], healed=_healed(ended)
    )


def _first_records(opening: Opening, number: int, counts: Counts) -> list[NewRecord]:
    message = opening.message
    if message is None:
        raise SessionError("a new turn needs a message")
    extra: dict[str, Any] = {"digest": opening.digest} if opening.digest else {}
    started = {**extra, **({"id": opening.message_id} if opening.message_id else {})}
    if opening.told:
        extra["told"] = dict(opening.told)
    said = new_message(
        message, turn=number, tokens=counts(message), message_id=opening.message_id or None, **extra
    )
    return [NewRecord(kind="turn_started", data=started, turn=number), said]


async def _known(session: Session, opening: Opening, known: Known) -> Beginning:
    """The message is known and its turn ended: the answer is in the log.

    The newest turn that ended without one is taken up again instead: these are the records that open it, and take
    its marks out of the view.
    """
    view = session.view
    mine = await _of_turn(session, known)
    ended = next((r for r in reversed(mine) if r.kind == "turn_ended"), None)
    reason = str(ended.data["reason"]) if ended is not None else ""
    if reason in NOT_ANSWERED and known.turn == view.turns and view.replayed(known.seq):
        await _load(session, view.spans[known.turn].first)
        marks = [r.seq for r in mine if r.data.get("mark") and not view.is_hidden(r.seq)]
        hidden = [NewRecord(kind="undo", data={"first": seq, "last": seq, "of": "mark"}) for seq in marks]
        again = {"id": opening.message_id, "digest": opening.digest, "again": True}
        opened = NewRecord(kind="turn_started", data=again, turn=known.turn)
        return Beginning(turn=known.turn, records=[*hidden, opened])
    return Beginning(turn=known.turn, over=True, reason=reason, answer=_answer(mine))


def _answer(records: Sequence[Record]) -> Message | None:
    """What the assistant said last: one message, or several that are one response."""
    said: list[Message] = []
    for record in reversed(records):
        if record.kind == "message" and record.message.role == "assistant":
            said.insert(0, record.message)
            if not record.message.joined:
                break
        elif said:
            break
    return Answer(messages=tuple(said)).message if said else None


async def _of_turn(session: Session, known: Known) -> list[Record]:
    """The records of a turn, however far back they are."""
    span = session.view.spans.get(known.turn)
    if span is not None:
        records = await read_through(session.store, session.id, after=span.first - 1, before=span.last + 1)
        return [record for record in records if record.turn == known.turn]
    found: list[Record] = []
    async for page in pages_through(session.store, session.id, after=known.seq - 1, limit=PAGE):
        found += [record for record in page if record.turn == known.turn]
        if any(record.turn > known.turn for record in page):
            break
    return found


async def _load(session: Session, first: int) -> None:
    view = session.view
    if view.loaded > first:
        view.load(await session.store.read(session.id, after=first - 1, before=view.loaded))


async def _draft(session: Session) -> tuple[str, SoFar]:
    draft = await session.store.draft(session.id) if session.view.turn is not None else None
    return draft_of(draft.data) if draft is not None else ("", NOTHING)


def _healed(records: Sequence[NewRecord]) -> tuple[str, ...]:
    return tuple(
        f"{part['name']}: {part['synthetic']}"
        for record in records
        if record.kind == "message"
        for part in record.data["message"].get("parts", ())
        if part.get("synthetic")
    )
