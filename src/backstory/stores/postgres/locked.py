"""One transaction on one session's row: locked, decided by `rules` in Python, written in one go.

Two round trips a write: the first locks the row and brings what there is to know, the second carries the changes, the
commit and the news. The news go out after the commit and outside it, because a transaction that notifies holds a lock
of the whole cluster's until its commit is on disk.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from backstory.records import Record
from backstory.stores import rules
from backstory.stores.postgres.schema import Statements
from backstory.stores.remote import naming
from backstory.stores.values import Head, Lease, LeaseRequest, SessionId


@dataclass(kw_only=True, slots=True)
class State:
    """A session's row. `id` 0: there is no row. `now` is the time of the store's clock."""

    session: SessionId
    now: float
    id: int = 0
    seq: int = 0
    generation: int = 0
    at: str | None = None
    owner: str | None = None
    fence: int = 0
    expires: float = 0.0

    @property
    def head(self) -> Head:
        return Head(seq=self.seq, generation=self.generation, at=self.at) if self.seq else Head()

    @property
    def lease(self) -> Lease | None:
        """The lease, expired or not; `None` where it was given back."""
        if self.owner is None:
            return None
        return Lease(session=self.session, owner=self.owner, fence=self.fence, expires=self.expires)

    def grant(self, request: LeaseRequest) -> Lease:
        """Take or extend the lease in this state. Raises `LeaseHeld`."""
        lease = rules.grant(self.session, self.lease, request, now=self.now, last_fence=self.fence)
        self.hold(lease)
        return lease

    def hold(self, lease: Lease) -> None:
        self.owner, self.fence, self.expires = lease.owner, lease.fence, lease.expires

    def free(self) -> None:
        self.owner = None

    def check(self, fence: int | None) -> None:
        """Raises `StaleLease` or `LeaseHeld`."""
        rules.check_fence(self.session, self.lease, fence, now=self.now)


def state_of(session: SessionId, row: Sequence[Any], now: float | None) -> State:
    """`row` as `Statements.lock` and `look` select it; `now` stands for the database's time where it is given."""
    number, seq, generation, at, owner, fence, expires, server_now = row
    return State(
        session=session,
        now=server_now if now is None else now,
        id=number,
        seq=seq,
        generation=generation,
        at=at,
        owner=naming.held(owner) if owner is not None else None,
        fence=fence,
        expires=expires,
    )


class Locked:
    """The transaction: `state` may be changed, and is written by `hold` or with the records by `advance`."""

    def __init__(self, conn: Any, sql: Statements, name: bytes) -> None:
        self.conn = conn
        self.sql = sql
        self.name = name
        self.state: State
        self.batch: list[bytes] = []
        self.news = False

    async def begin(
        self,
        session: SessionId,
        *,
        now: float | None,
        create: bool,
        batch: bytes | None,
        lightly: bool = False,
    ) -> None:
        """Begin, lock the row (and make it where `create`), and find the lines of a batch."""
        await self.run(self.sql.begin, prepare=False)
        if lightly:
            await self.run(self.sql.lightly, prepare=False)
        while True:
            locking = await self.run(self.sql.lock, (self.name,))
            finding = await self.run(self.sql.batch, (self.name, batch)) if batch is not None else None
            row = await locking.fetchone()
            if row is not None:
                self.state = state_of(session, row, now)
                self.batch = [line for (line,) in await finding.fetchall()] if finding is not None else []
                return
            if not create:
                asked = await self.run(self.sql.now)
                (server_now,) = await asked.fetchone()
                self.state = State(session=session, now=server_now if now is None else now)
                return
            scope, key = naming.holdable(session.scope), naming.holdable(session.key)
            await self.run(self.sql.create, (self.name, naming.digest(session.scope), scope, key))

    async def commit(self) -> None:
        await self.run("COMMIT", prepare=False)
        if self.news:
            await self.run(self.sql.notify, (self.name.hex(),))

    async def run(
        self, statement: str, parameters: Sequence[Any] | None = None, *, prepare: bool = True
    ) -> Any:
        """Send a statement with the next round trip."""
        return await self.conn.execute(statement, parameters, prepare=prepare, binary=True)

    async def hold(self) -> None:
        """Write down the lease as the state has it."""
        await self.run(self.sql.hold, (*self._lease(), self.state.id))

    def _lease(self) -> tuple[str | None, int, float]:
        state = self.state
        owner = naming.holdable(state.owner) if state.owner is not None else None
        return owner, state.fence, state.expires

    async def advance(self, records: Sequence[Record], batch: bytes) -> Any:
        """Write records and, with them, head and lease; the cursor gives the generation."""
        state = self.state
        if len(records) == 1:
            (record,) = records
            await self.run(self.sql.insert, (state.id, record.seq, batch, record.line))
        else:
            places = [record.seq for record in records]
            lines = [record.line for record in records]
            await self.run(self.sql.insert_many, (state.id, batch, places, lines))
        last = records[-1]
        state.seq, state.at = last.seq, last.at
        return await self.run(self.sql.advance, (last.seq, last.at, state.now, *self._lease(), state.id))
