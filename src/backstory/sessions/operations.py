"""What is done to a session between turns: undo, redo, begin anew, fork, move, delete. Each is a few records.

Nothing here rewrites what happened: an undo hides a span of the view and can be undone; a fork copies what is live
under its own places and refers to the rest. Effects that tools had in the world remain, and the undo says which ran.
"""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.errors import SessionBusy, SessionError, SessionExists, SessionNotFound
from backstory.records import NewRecord, Record
from backstory.sessions.session import Session
from backstory.sessions.view import Span
from backstory.stores.base import Store
from backstory.stores.values import LeaseRequest, SessionId

PAGE = 512
"""Records that are copied or listed at a time."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Undone:
    """What an undo hid: the turns, the user's words that began the first of them, and the tools that had run."""

    turns: tuple[int, ...]
    text: str
    tools: tuple[str, ...] = ()


async def undo(session: Session, turns: int = 1) -> Undone:
    """Hide the newest turns. Raises `SessionError` where there are not so many, `SessionBusy` while one is open."""
    await session.refresh()
    view = session.view
    if view.turn is not None:
        raise SessionBusy(
            f"turn {view.turn.number} is open in session {str(session.id)!r}; resume or end it first"
        )
    shown = [number for number, span in view.spans.items() if not view.is_hidden(span.first)]
    if turns < 1 or len(shown) < turns:
        raise SessionError(
            f"session {str(session.id)!r} has {len(shown)} turns that can be undone, not {turns}"
        )
    chosen = shown[-turns:]
    spans = [view.spans[number] for number in chosen]
    records = await session.store.read(session.id, after=spans[0].first - 1, before=spans[-1].last + 1)
    messages = [record for record in records if record.kind == "message"]
    tools = tuple(call.name for record in messages for call in record.message.calls)
    text = next((record.message.text for record in messages if record.message.role == "user"), "")
    data: dict[str, Any] = {"first": spans[0].first, "last": spans[-1].last, "of": "turn", "turns": chosen}
    if tools:
        data["effects"] = list(dict.fromkeys(tools))
    await write(session, [NewRecord(kind="undo", data=data)])
    return Undone(turns=tuple(chosen), text=text, tools=tuple(dict.fromkeys(tools)))


async def redo(session: Session) -> Span:
    """Take back the newest undo of turns. Raises `SessionError` where there is none, or turns came since."""
    await session.refresh()
    view = session.view
    undos = [seq for seq, span in view.hidden.items() if span.last > span.first]
    if not undos:
        raise SessionError(f"nothing was undone in session {str(session.id)!r}")
    newest = max(undos)
    if any(span.first > newest for span in view.spans.values()):
        raise SessionError("there were turns since the undo: undo these first")
    span = view.hidden[newest]
    await write(session, [NewRecord(kind="undo", data={"undoes": newest, "of": "undo"})])
    return span


async def begin_anew(session: Session, reason: str = "new") -> None:
    """From here on nothing before is replayed. It stays in the log; an undo of later turns does not bring it back."""
    await session.refresh()
    view = session.view
    if view.turn is not None:
        raise SessionBusy(f"turn {view.turn.number} is open in session {str(session.id)!r}")
    if view.head:
        data = {"start": session.next_seq() + 1, "kept": None, "reason": reason}
        await write(session, [NewRecord(kind="cut", data=data)])


async def write(session: Session, records: Sequence[NewRecord]) -> None:
    """Write between turns: the lease is taken and given back with the batch. Raises `LeaseHeld` while a turn runs."""
    owner = f"operation:{uuid.uuid4().hex[:8]}"
    await session.append(records, acquire=LeaseRequest(owner=owner, ttl=10.0), release=True)


async def fork(session: Session, to: SessionId) -> int:
    """Begin another session with what is live in this one; how many messages were copied.

    The copies have places of their own; older records stay in the parent, to which the first record of the fork refers.
    Raises `SessionNotFound`, `SessionExists`.
    """
    await session.refresh()
    if not session.view.head:
        raise SessionNotFound(f"there is no session {str(session.id)!r}")
    if (await session.store.head(to)).seq:
        raise SessionExists(f"there is a session {str(to)!r} already")
    view = session.view
    await session.load(None, lambda record: 0)
    first = NewRecord(
        kind="fork", data={"parent": session.id.key, "scope": session.id.scope, "at": view.head}
    )
    copied = [first, *_copies(view.live(), view.turn.number if view.turn is not None else None)]
    await session.store.append(to, copied, expected=0)
    await write(session, [NewRecord(kind="fork", data={"child": to.key, "scope": to.scope})])
    return sum(record.kind == "message" for record in copied)


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


async def move(store: Store, source: SessionId, to: SessionId) -> None:
    """Give a session another key: every record copied, compared, and then the old one deleted.

    Raises `SessionNotFound`, `SessionExists`, `LeaseHeld` while a turn runs.
    """
    head = await store.head(source)
    if not head.seq:
        raise SessionNotFound(f"there is no session {str(source)!r}")
    if (await store.head(to)).seq:
        raise SessionExists(f"there is a session {str(to)!r} already")
    lease = await store.acquire(source, LeaseRequest(owner=f"move:{uuid.uuid4().hex[:8]}", ttl=600.0))
    done = 0
    async for records in pages(store, source):
        batch = [NewRecord(kind=record.kind, data=record.data, turn=record.turn) for record in records]  # type: ignore[arg-type]
        if records[0].first != done + 1 or any(record.first != record.seq for record in records):
            raise SessionError(
                f"session {str(source)!r} has gaps in its log: run doctor first, or export and import it"
            )
        await store.append(to, batch, expected=done)
        done += len(batch)
    await store.delete(source, fence=lease.fence)


async def pages(store: Store, id: SessionId) -> AsyncIterator[list[Record]]:
    """The whole log of a session, oldest first, a page at a time."""
    after = 0
    while True:
        records = await store.read(id, after=after, limit=PAGE)
        if not records:
            return
        yield records
        after = records[-1].seq
