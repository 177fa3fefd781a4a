"""The inbox, drafts and news of a session, as rows say them."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

from backstory.stores import rules
from backstory.stores.clock import timestamp
from backstory.stores.postgres.locked import Locked
from backstory.stores.remote import naming
from backstory.stores.remote.waking import Seen
from backstory.stores.values import Draft, Entry, NewEntry, Posted


def entry(row: Sequence[Any]) -> Entry:
    """A row of `Statements.inbox`."""
    position, name, at, kind, data = row
    return Entry(
        id=naming.held(name), position=position, at=at, kind=naming.held(kind), data=json.loads(bytes(data))
    )


async def post(locked: Locked, new: NewEntry, data: bytes, *, again: bool) -> Callable[[], Awaitable[Posted]]:
    """See `Inboxes.post`. `new` has its id. Positions are taken under the session's lock, so they show in order."""
    state, sql = locked.state, locked.sql
    name = str(new.id)
    locked.news = True
    cursor = await locked.run(sql.inbox_one, (locked.name, naming.digest(name)))
    waiting = rules.posted_before([entry(row) for row in await cursor.fetchall()], new)
    if waiting is not None:

        async def repeated() -> Posted:
            return Posted(entry=waiting, repeated=not again)

        return repeated
    at = timestamp(state.now)
    parameters = (state.id, naming.digest(name), naming.holdable(name), at, naming.holdable(new.kind), data)
    cursor = await locked.run(sql.post, parameters)

    async def result() -> Posted:
        (position,) = await cursor.fetchone()
        return Posted(entry=Entry(id=name, position=position, at=at, kind=new.kind, data=new.data))

    return result


def draft(row: Sequence[Any]) -> Draft:
    """A row of `Statements.draft`."""
    after, fence, data = row
    return Draft(after=after, fence=fence, data=json.loads(bytes(data)))


def seen(found: Sequence[Any], *, now: float | None, free: bool, mail_after: int | None) -> Seen:
    """What a look at `Statements.news` means for who waits; `now` stands for the database's time where given."""
    if not found:
        return Seen(done=free)
    owner, expires, server_now, newest = found[0]
    left = expires - (server_now if now is None else now)
    held = owner is not None and left > 0
    mail = mail_after is not None and newest is not None and newest > mail_after
    return Seen(done=mail or (free and not held), expires_in=left if free and held else None)
