"""What is done to a session between turns: undo, redo, begin anew, edit, fork, move, delete. Each is a few records.

Nothing here rewrites what happened: an undo hides a span of the view and can be undone; a fork copies what is live
under its own places and refers to the rest (`sessions.forks`). Effects that tools had in the world remain, and the undo
says which ran. Whoever calls this holds the session (`Sessions.hold`).
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backstory.errors import (
    HeadMoved,
    InvalidInput,
    SessionBusy,
    SessionError,
    SessionExists,
    SessionNotFound,
)
from backstory.legality.arguments import clean_text
from backstory.messages import Message, Text
from backstory.records import NewRecord, Record, new_message
from backstory.sessions import forks
from backstory.sessions.archive import read_through
from backstory.sessions.forks import pages as pages
from backstory.sessions.session import Session
from backstory.sessions.view import Span, View
from backstory.stores.base import Store
from backstory.stores.large_parts import with_large_parts
from backstory.stores.values import LeaseRequest, SessionId


@dataclass(frozen=True, kw_only=True, slots=True)
class Undone:
    """What an undo hid: the turns, the user's message that began the first of them, and the tools that had run."""

    turns: tuple[int, ...]
    text: str
    tools: tuple[str, ...] = ()
    message: Message | None = None


async def undo(session: Session, turns: int = 1) -> Undone:
    """Hide the newest turns. Raises `SessionError` where there are not so many, `SessionBusy` while one is open."""
    await session.refresh()
    view = _at_rest(session)
    shown = shown_turns(view)
    if turns < 1 or len(shown) < turns:
        raise SessionError(
            f"session {str(session.id)!r} has {len(shown)} turns that can be undone, not {turns}"
        )
    return await _hide(session, shown[-turns:])


async def edit(session: Session, turn: int) -> Undone:
    """Hide a turn and all that came after it, so that its message can be said anew, in other words.

    What was said before stays in the log; `redo` brings it back as long as nothing else was said. Raises `SessionError`
    where there is no such turn, or it is hidden already, `SessionBusy` while one is open.
    """
    await session.refresh()
    shown = shown_turns(_at_rest(session))
    if turn not in shown:
        raise SessionError(f"session {str(session.id)!r} has no turn {turn} that could be edited")
    return await _hide(session, shown[shown.index(turn) :])


def shown_turns(view: View) -> list[int]:
    """The turns that can be undone: not hidden, and begun after the user last began anew."""
    since = max((cut.start for cut in view.cuts if cut.anew), default=0)
    return [n for n, span in view.spans.items() if span.last >= since and not view.is_hidden(span.first)]


async def _hide(session: Session, chosen: Sequence[int]) -> Undone:
    view = session.view
    spans = [view.spans[number] for number in chosen]
    records = await read_through(
        session.store, session.id, after=spans[0].first - 1, before=spans[-1].last + 1
    )
    messages = [r for r in records if r.kind == "message" and r.turn in chosen and not view.is_hidden(r.seq)]
    tools = tuple(dict.fromkeys(call.name for record in messages for call in record.message.calls))
    said = next((record.message for record in messages if record.message.role == "user"), None)
    data: dict[str, Any] = {
        "of": "turn",
        "turns": list(chosen),
        "spans": [[span.first, span.last] for span in spans],
    }
    if tools:
        data["effects"] = list(tools)
    await write(session, [NewRecord(kind="undo", data=data)])
    return Undone(turns=tuple(chosen), text=said.text if said is not None else "", tools=tools, message=said)


async def lift(session: Session) -> int:
    """Undo the newest compaction: its summary leaves the view, and what it stood for is there again.

    The place of the summary's record. `redo` puts it back. Raises `SessionError` where no summary is in force.
    """
    await session.refresh()
    active = _at_rest(session).active
    if not active:
        raise SessionError(f"no summary is in force in session {str(session.id)!r}: there is none to undo")
    await write(session, [NewRecord(kind="undo", data={"of": "summary", "lifts": active})])
    return active


async def redo(session: Session) -> Span:
    """Take back the newest undo, of turns or of a compaction; the span that is shown, or summarised, again.

    Raises `SessionError` where there is none, or turns came since turns were undone.
    """
    await session.refresh()
    view = _at_rest(session)
    undos = [seq for seq, undo in view.hidden.items() if undo.of in ("turn", "summary")]
    if not undos:
        raise SessionError(f"nothing was undone in session {str(session.id)!r}")
    newest = max(undos)
    undo = view.hidden[newest]
    if undo.spans and any(span.first > newest for span in view.spans.values()):
        raise SessionError("there were turns since the undo: undo these first")
    if any(cut.anew and cut.seq > newest for cut in view.cuts):
        raise SessionError("the session was begun anew since the undo")
    await write(session, [NewRecord(kind="undo", data={"undoes": newest, "of": "undo"})])
    if undo.lifts:
        return Span(1, max(1, session.view.start - 1))
    return Span(undo.spans[0].first, undo.spans[-1].last)


async def pin(session: Session, text: str = "", *, message: int | None = None) -> int:
    """Pin an instruction or a fact, or the message at a place: it is in each request from now on, whatever is cut.

    The place of the pin, by which `unpin` takes it away. Raises `InvalidInput` for an empty text, and `SessionError`
    where no message of the view stands at that place.
    """
    await session.refresh()
    view = _at_rest(session)
    said = " ".join(clean_text(text).split())
    data: dict[str, Any] = {}
    if message is not None:
        found = await read_through(session.store, session.id, after=message - 1, before=message + 1)
        if not found or found[0].kind != "message" or view.is_hidden(message):
            raise SessionError(f"record {message} of session {str(session.id)!r} is no message to pin")
        data, said = {"message": message}, said or found[0].message.text
    if not said.strip():
        raise InvalidInput("there is nothing to pin: give a text, or the place of a message that has one")
    place = session.next_seq()
    await write(session, [NewRecord(kind="pin", data={**data, "text": said})])
    return place


async def unpin(session: Session, pin: int) -> str:
    """Take a pin away; the text that it held. Raises `SessionError` where there is none."""
    await session.refresh()
    held = _at_rest(session).pins.get(pin)
    if held is None:
        raise SessionError(f"nothing is pinned as {pin} in session {str(session.id)!r}")
    await write(session, [NewRecord(kind="unpin", data={"pin": pin})])
    return str(held["text"])


async def begin_anew(session: Session, reason: str = "new") -> None:
    """From here on nothing before is replayed. It stays in the log; an undo of later turns does not bring it back."""
    await session.refresh()
    if _at_rest(session).head:
        data = {"start": session.next_seq() + 1, "kept": None, "reason": reason, "anew": True}
        await write(session, [NewRecord(kind="cut", data=data)])


def _at_rest(session: Session) -> View:
    view = session.view
    if view.turn is not None:
        raise SessionBusy(
            f"turn {view.turn.number} is open in session {str(session.id)!r}; resume or end it first"
        )
    return view


async def write(session: Session, records: Sequence[NewRecord]) -> None:
    """Write between turns: the lease is taken and given back with the batch.

    Raises `LeaseHeld` while a turn runs, `HeadMoved` where somebody else wrote since the look that led to this.
    """
    request = LeaseRequest(owner=f"operation:{uuid.uuid4().hex[:8]}", ttl=10.0)
    await session.append(records, acquire=request, release=True)


async def fork(session: Session, to: SessionId, *, turn: int | None = None) -> int:
    """Begin another session with what is live in this one, up to and with a turn; how many messages were copied.

    The copies have places of their own; older records stay in the parent, to which the first record of the fork refers.
    The active summary and what is pinned are copied as well.
    An open turn is left out. Raises `SessionNotFound`, `SessionExists`, `SessionError` where that turn is not live, and
    `InvalidInput` for another scope: nothing crosses scopes.
    """
    await session.refresh()
    session_id = session.id
    if not session.view.head:
        raise SessionNotFound(f"there is no session {str(session_id)!r}")
    if to.scope != session_id.scope:
        raise InvalidInput(f"a fork stays in its scope: {session_id.scope!r}, not {to.scope!r}")
    if (await session.store.head(to)).seq:
        raise SessionExists(f"there is a session {str(to)!r} already")
    await session.load(None)
    view = session.view
    live = view.live()
    if turn is not None:
        ends = [record.seq for record in live if record.turn == turn]
        if not ends:
            raise SessionError(
                f"turn {turn} of session {str(session_id)!r} is not live: it cannot be forked from"
            )
        live = [record for record in live if record.seq <= ends[-1]]
    first = live[0].seq if live else view.head + 1
    more = view.start > 1 or view.hidden or forks.refers(view)
    refers = {
        "parent": session_id.key,
        "at": view.head,
        "older": [[session_id.key, first - 1]] if more else [],
    }
    copied = [
        NewRecord(kind="fork", data=refers),
        *_stands_for(view),
        *_copies(live, view.turn.number if view.turn is not None else None),
    ]
    # The parent hears of it first: a reference to a fork that a crash prevented does no harm, the reverse would.
    await write(session, [NewRecord(kind="fork", data={"child": to.key})])
    try:
        await session.store.append(to, copied, expected=0)
    except HeadMoved as error:
        raise SessionExists(f"there is a session {str(to)!r} already") from error
    return sum(record.kind == "message" for record in copied)


def _stands_for(view: View) -> list[NewRecord]:
    """Pins, and the active summary right before all that is copied, of what a fork begins with."""
    pins = [NewRecord(kind="pin", data={"text": pin["text"]}) for pin in view.pins.values()]
    if not view.active:
        return pins
    start = len(pins) + 3
    data = {**view.summary, "start": start, "kept": None, "since": 1, "spans": [], "on": 0, "copied": True}
    return [*pins, NewRecord(kind="summary", data=data)]


def _copies(records: Sequence[Record], open_turn: int | None) -> list[NewRecord]:
    """Messages and the marks of their turns, under the same numbers of turns; an open turn is left out."""
    out: list[NewRecord] = []
    current = 0
    for record in records:
        if record.turn == open_turn:
            continue
        if record.turn != current:
            if current:
                out.append(NewRecord(kind="turn_ended", data={"reason": "done"}, turn=current))
            current = record.turn
            if current:
                out.append(NewRecord(kind="turn_started", data={"copied": True}, turn=current))
        out.append(NewRecord(kind="message", data=record.data, turn=record.turn))
    if current:
        out.append(NewRecord(kind="turn_ended", data={"reason": "done"}, turn=current))
    return out


RETRACTED = "(retracted)"
"""The assistant's mark in place of an answer that was taken back: the history alternates without merging later."""


async def retract(session: Session, why: str = "") -> Message:
    """Take back the newest turn's answer: it stays in the log, and no request shows it; calls and results remain.

    Gives what was taken back. Raises `SessionError` where the newest turn has no answer, `SessionBusy` while one is
    open.
    """
    await session.refresh()
    view = _at_rest(session)
    shown = shown_turns(view)
    number = shown[-1] if shown else 0
    span = view.spans.get(number, Span(1, 0))
    found = await read_through(session.store, session.id, after=span.first - 1, before=span.last + 1)
    said = [r for r in found if r.kind == "message" and r.turn == number and not view.is_hidden(r.seq)]
    answer: list[Record] = []
    while said and said[-1].message.role == "assistant" and not said[-1].message.calls:
        answer.insert(0, said.pop())
    if not answer or any(record.data.get("mark") for record in answer):
        raise SessionError(
            f"the newest turn of session {str(session.id)!r} has no answer that could be retracted"
        )
    undo = {"of": "mark", "first": answer[0].seq, "last": answer[-1].seq, "reason": why or "retracted"}
    begun = next((r.data for r in found if r.kind == "turn_started" and r.turn == number), {})
    again = {name: begun[name] for name in ("id", "digest") if name in begun}
    mark = Message(role="assistant", parts=(Text(text=RETRACTED),))
    records = [
        NewRecord(kind="undo", data=undo),
        NewRecord(kind="turn_started", data={**again, "again": True}, turn=number),
        new_message(mark, turn=number, mark="retracted"),
        NewRecord(kind="turn_ended", data={"reason": "retracted"}, turn=number),
    ]
    await write(session, records)
    return answer[-1].message


async def delete(session: Session, *, expected: int | None = None) -> None:
    """Remove a session for good. What its forks refer to is kept for them first.

    `expected` is where its log must end: another one is somebody's who came meanwhile (`HeadMoved`). Raises
    `SessionNotFound`, `LeaseHeld` while a turn runs.
    """
    store, session_id = session.store, session.id
    view = await session.refresh()
    if not view.head:
        raise SessionNotFound(f"there is no session {str(session_id)!r}")
    lease = await store.acquire(session_id, LeaseRequest(owner=f"delete:{uuid.uuid4().hex[:8]}", ttl=600.0))
    gone = False
    try:
        head = (await store.head(session_id)).seq
        if expected is not None and head != expected:
            raise HeadMoved(
                f"session {str(session_id)!r} ends at {head} by now, not at {expected}: it stays",
                expected=expected,
                actual=head,
            )
        await forks.hand_down(store, session_id, view)
        gone = await store.delete(session_id, fence=lease.fence)
    finally:
        if not gone:
            await store.release(lease)


async def move(store: Store, source: SessionId, to: SessionId) -> None:
    """Give a session another key: every record copied, and then the old one deleted; its forks learn the new key.

    Raises `SessionNotFound`, `SessionExists`, `LeaseHeld` while a turn runs, `InvalidInput` for another scope.
    """
    if to.scope != source.scope:
        raise InvalidInput(f"a session stays in its scope: {source.scope!r}, not {to.scope!r}")
    store = with_large_parts(store)
    head = await store.head(source)
    if not head.seq:
        raise SessionNotFound(f"there is no session {str(source)!r}")
    if (await store.head(to)).seq:
        raise SessionExists(f"there is a session {str(to)!r} already")
    lease = await store.acquire(source, LeaseRequest(owner=f"move:{uuid.uuid4().hex[:8]}", ttl=600.0))
    done, whole, gone = 0, False, False
    try:
        async for records in pages(store, source):
            batch = [NewRecord(kind=record.kind, data=record.data, turn=record.turn) for record in records]  # type: ignore[arg-type]
            if records[0].first != done + 1 or any(record.first != record.seq for record in records):
                raise SessionError(
                    f"session {str(source)!r} has gaps in its log: run doctor first, or export and import it"
                )
            await store.append(to, batch, expected=done)
            done += len(batch)
        await forks.renamed(store, source, to)
        whole = True
        gone = await store.delete(source, fence=lease.fence)
    finally:
        if done and not whole:
            await store.delete(to)
        if not gone:
            await store.release(lease)
