"""Who may run a turn in a session now, and what becomes of a message that arrives meanwhile.

One turn a session, first come, first served: in this process by a lock, across processes by the lease and the inbox,
where messages wait in the order of their coming. All who wait are woken when the lease comes free; those whose message
is not the first let that one's process go first, and only where it does not (it died, or is slow) run it themselves.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Literal

from backstory.agent.active import Turn
from backstory.agent.mail import carried, message_of
from backstory.agent.restore import Opening
from backstory.errors import (
    BudgetExceeded,
    ConfigurationError,
    IllegalRequest,
    InvalidMessage,
    LeaseHeld,
    MessageConflict,
    ModelError,
    SessionBusy,
    StaleLease,
)
from backstory.messages import Message
from backstory.sessions.session import Session, Sessions
from backstory.stores.values import Entry, NewEntry, SessionId

logger = logging.getLogger("backstory.agent")

Policy = Literal["queue", "reject", "interrupt", "steer"]
"""What happens to a message while a turn is under way in its session.

``queue``: it waits its turn. ``reject``: `SessionBusy` at once. ``interrupt``: it ends that turn, then has its own.
``steer``: it goes into that turn at its next step, and gets that turn's answer.
"""
POLICIES: tuple[Policy, ...] = ("queue", "reject", "interrupt", "steer")

HEAD_START = 0.2
"""Seconds that whoever waits first gets to take a free lease before others run its message for it."""
PATIENCE = 2.0
"""The same where others cannot: their own client runs their turn, and no other."""
_LOOK = 0.02

Serve = Callable[[Opening], Awaitable[Turn]]
"""Begins the turn of a message that waited in the inbox, and gives it."""

Run = Callable[[Turn], Awaitable[None]]
"""Runs a turn that has begun to its end."""


def check_policy(policy: str) -> None:
    """Raises `ConfigurationError` for an unknown one."""
    if policy not in POLICIES:
        raise ConfigurationError(f"unknown policy {policy!r}; one of {', '.join(POLICIES)}")


class Admission:
    """See the module. `running` are the turns under way in this process."""

    def __init__(self, sessions: Sessions) -> None:
        self.sessions = sessions
        self.running: dict[SessionId, Turn] = {}
        self._store = sessions.store

    @asynccontextmanager
    async def hold(self, id: SessionId, policy: Policy) -> AsyncIterator[Session]:
        """This process's turn in the session. Raises `SessionBusy` by policy."""
        if self.sessions.peek(id)[1]:
            if policy == "reject":
                raise _busy(id)
            if policy == "interrupt":
                await self.interrupt(id, "interrupt")
        async with self.sessions.hold(id) as session:
            yield session

    @asynccontextmanager
    async def under_way(self, turn: Turn) -> AsyncIterator[None]:
        """While a turn runs here, it can be interrupted and steered."""
        self.running[turn.session.id] = turn
        try:
            yield
        finally:
            if self.running.get(turn.session.id) is turn:
                del self.running[turn.session.id]

    async def begin(
        self, turn: Turn, policy: Policy, first: Callable[[int], Awaitable[None]] | None = None
    ) -> None:
        """Begin a turn as soon as no other process holds the session; until then its message waits, durable.

        `first` is called after each wait, with the position of our message in the inbox, to run what came before it.
        """
        session_id = turn.session.id
        posted: Entry | None = None
        while True:
            if posted is not None:
                if first is not None:
                    await first(posted.position)
                else:
                    await self._let_pass(session_id, posted.position, PATIENCE)
            try:
                await turn.begin()
                break
            except LeaseHeld as held:
                if policy == "reject":
                    raise _busy(session_id, held.owner) from held
                if posted is None and turn.opening.message is not None:
                    posted = await self._post(turn, "steer" if policy == "steer" else "message")
                    if policy == "interrupt":
                        await self.interrupt(session_id, "interrupt")
                await self._store.wait(session_id, free=True, within=max(0.05, held.expires_in + 0.05))
                await turn.session.refresh()
        if posted is not None:
            await self.taken(turn.session, posted.id)

    async def _post(self, turn: Turn, kind: str) -> Entry:
        """Leave a turn's message in the inbox, under an id by which it is known wherever it is met."""
        opening = turn.opening
        assert opening.message is not None
        posted = await self.post(turn.session.id, kind, opening.message, opening.message_id, opening.digest)
        turn.opening = Opening(
            message=opening.message, message_id=posted.id, digest=opening.digest, told=opening.told
        )
        return posted

    async def post(
        self, id: SessionId, kind: str, message: Message, message_id: str | None, digest: str
    ) -> Entry:
        """Leave a message in the inbox."""
        entry = NewEntry(kind=kind, data=carried(message, digest), id=message_id or uuid.uuid4().hex)
        return (await self._store.post(id, entry)).entry

    async def taken(self, session: Session, entry_id: str) -> None:
        """An entry is in the log: it leaves the inbox. Where somebody else holds the session by now, they see to it."""
        try:
            fence = session.lease.fence if session.lease is not None else None
            await self._store.take(session.id, [entry_id], fence=fence)
        except (LeaseHeld, StaleLease):
            logger.debug("entry %s of %r is left to whoever holds the session", entry_id, str(session.id))

    async def serve(self, session: Session, before: int | None, begin: Serve, run: Run) -> None:
        """Run the messages that came first, whoever posted them: those in the inbox before a position, or all.

        One that cannot be answered (its model fails, it does not fit) has had its turn all the same.
        """
        for entry in await self._let_pass(session.id, before, HEAD_START):
            try:
                message, digest = message_of(entry)
                turn = await begin(Opening(message=message, message_id=entry.id, digest=digest))
            except LeaseHeld:
                return  # whoever holds the session runs them
            except (MessageConflict, InvalidMessage) as error:
                logger.warning("a message in the inbox of %r is dropped: %s", str(session.id), error)
                await self.taken(session, entry.id)
                continue
            try:
                async with turn:
                    await self.taken(session, entry.id)
                    if not turn.done:
                        await run(turn)
            except (ModelError, BudgetExceeded, IllegalRequest) as error:
                logger.warning("a message that waited in %r was not answered: %s", str(session.id), error)

    async def _let_pass(self, id: SessionId, before: int | None, patience: float) -> list[Entry]:
        """The messages that wait before a position, after their own processes had the time to begin their turns.

        Returns at once where there are none, or where the lease is held: there is nothing to do for them then.
        """
        waiting: list[Entry] = []
        left = 0.0
        while True:
            now = [
                entry
                for entry in await self._store.inbox(id)
                if entry.kind == "message" and (before is None or entry.position < before)
            ]
            if now[:1] != waiting[:1]:
                left = patience
            waiting = now
            if not waiting or left <= 0 or await self._store.lease(id) is not None:
                return waiting
            await asyncio.sleep(_LOOK)
            left -= _LOOK

    async def interrupt(self, id: SessionId, kind: str) -> bool:
        """End the turn that is under way, here or in another process. Whether there was one."""
        turn = self.running.get(id)
        if turn is not None:
            turn.interrupt.set(kind)
            return True
        lease = await self._store.lease(id)
        if lease is None:
            return False
        await self._store.post(id, NewEntry(kind=kind, data={"fence": lease.fence}))
        return True

    async def steer(
        self, id: SessionId, message: Message, message_id: str | None, digest: str
    ) -> Turn | None:
        """Put a message into the turn that runs in this process; the turn, once over, if it took the message in."""
        turn = self.running.get(id)
        if turn is None:
            return None
        if message_id is not None and message_id in turn.session.view.known:
            return None  # said before: the log answers
        entry = await self.post(id, "steer", message, message_id, digest)
        await turn.over.wait()
        if entry.id in turn.session.view.known:
            return turn
        await self.taken(turn.session, entry.id)
        return None


def _busy(id: SessionId, owner: str = "") -> SessionBusy:
    return SessionBusy(f"a turn is under way in session {str(id)!r}" + (f" ({owner})" if owner else ""))
