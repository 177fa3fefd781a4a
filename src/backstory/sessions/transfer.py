"""Conversations in and out of a store: foreign messages become a session's log, and a session becomes lines.

An import goes into a session that is not there yet. What was said keeps its order; turns
are told as everywhere (`legality.steps`), and what is broken stays as it is, to be healed in the view.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.errors import InvalidInput, SessionExists
from backstory.legality.steps import head_length, turns
from backstory.messages import Message
from backstory.records import KINDS, NewRecord, Record, new_message
from backstory.sessions.operations import pages
from backstory.sessions.recovery import end_turn
from backstory.sessions.session import Session
from backstory.stores.base import Store
from backstory.stores.large_parts import spelled_out, with_large_parts
from backstory.stores.values import LeaseRequest, SessionId
from backstory.tokens import Counter
from backstory.tokens.messages import count_message

_LEFT_BEHIND = ("epoch", "request", "snapshot")
"""Kinds that refer to blobs, or that can be computed again: an import keeps their places and nothing else."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Imported:
    """What an import wrote. `system` is what the file's own system message said: it is no part of a history."""

    session: SessionId
    messages: int
    turns: int
    system: str = ""


async def import_messages(
    store: Store, id: SessionId, messages: Sequence[Message], *, source: str, counter: Counter, format: str
) -> Imported:
    """A new session of foreign messages. Raises `SessionExists`, `InvalidInput` where nothing was said."""
    await _free(store, id)
    head = head_length(messages)
    system = "\n\n".join(message.text for message in messages[:head])
    found = turns(messages)
    if not found:
        raise InvalidInput(
            f"nothing was said in this conversation, so there is no session {str(id)!r} to make"
        )
    about: dict[str, Any] = {"imported": source, **({"system": system} if system else {})}
    records = [NewRecord(kind="meta", data=about)]
    for number, turn in enumerate(found, 1):
        records.append(NewRecord(kind="turn_started", data={"imported": True}, turn=number))
        for message in messages[turn.start : turn.stop]:
            count_message(message, counter, format)
            records.append(new_message(message, turn=number, tokens=message._counts))
        if number < len(found):
            records.append(NewRecord(kind="turn_ended", data={"reason": "done"}, turn=number))
    session = Session(store, id)
    await session.append(records, acquire=LeaseRequest(owner="import", ttl=60.0))
    whole = messages[-1].role == "assistant" and not messages[-1].calls
    ended = [NewRecord(kind="turn_ended", data={"reason": "done"}, turn=len(found))]
    await session.append(ended if whole else end_turn(session.view, "interrupted"), release=True)
    return Imported(session=id, messages=len(messages) - head, turns=len(found), system=system)


async def import_records(store: Store, id: SessionId, lines: Sequence[Mapping[str, Any]]) -> Imported:
    """A session from the records that `export_records` gave. Places stay as they were.

    What belongs to blobs of another store is left behind: the requests of then cannot be explained here.
    Raises `SessionExists`, and `InvalidInput` for what are no records.
    """
    await _free(store, id)
    records: list[NewRecord] = []
    count = newest = 0
    for line in lines:
        seq, kind, data = line.get("seq"), line.get("kind"), line.get("data")
        turn = line.get("turn", 0)
        if type(seq) is not int or kind not in KINDS or not isinstance(data, dict) or type(turn) is not int:
            raise InvalidInput(f"line {len(records) + 1} is no record of a session")
        if seq <= len(records):
            raise InvalidInput(f"record {seq} does not follow record {len(records)}")
        records += [NewRecord(kind="erased", data={"reason": "not exported"})] * (seq - 1 - len(records))
        left = kind in _LEFT_BEHIND
        records.append(
            NewRecord(kind="meta", data={}) if left else NewRecord(kind=kind, data=data, turn=turn)
        )
        count, newest = count + (kind == "message"), max(newest, turn)
    if not count:
        raise InvalidInput("there is no message in these records")
    await with_large_parts(store).append(id, records, expected=0)
    return Imported(session=id, messages=count, turns=newest)


async def export_records(store: Store, id: SessionId) -> AsyncIterator[Record]:
    """Every record of a session, oldest first; `Record.line` is its JSON, with all that lies in blobs in its place."""
    async for page in pages(with_large_parts(store), id):
        for record in page:
            yield spelled_out(record)


async def _free(store: Store, id: SessionId) -> None:
    if (await store.head(id)).seq:
        raise SessionExists(f"there is a session {str(id)!r} already; give the import another key")
