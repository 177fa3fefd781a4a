"""What a store is: a log a session, the right to write to it, an inbox, a draft, and blobs. Nothing else.

Everything that Backstory does is built on this protocol, once; a store adds no meaning of its own. It refuses
to know what the records say. The contract is prose here and tests in `backstory.stores.conformance`: a store
that passes them is a store.

For every method:

- Ids are hostile (see `SessionId`); what differs in a single character is another session, and nothing that is
  asked for in one scope ever shows what lies in another.
- What was returned from `append`, `post`, `put_blob`, `rewrite` or `delete` is durable: it survives kill -9, and with
  ``durability="power"`` (the default) the loss of power. What raised is not there, with one exception: a
  connection or a caller lost in mid-call leaves the outcome unknown, and a *batch id* makes the retry safe.
- A cancelled caller does not cancel a write that has begun: it is whole, or it is not there at all.
- Errors are `StoreError`s: `StoreUnavailable` (try again later), `StoreDamaged`, `NewerFormat`, `HeadMoved`,
  `StaleLease`, `LeaseHeld`; and `InvalidInput` for arguments that make no sense. Nothing is retried in silence.
- Methods may be called from any event loop and concurrently; calls for one session take effect in some order,
  those for different sessions do not wait for one another.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal, Protocol

from backstory.records import NewRecord, Record
from backstory.stores.clock import Clock
from backstory.stores.values import (
    Appended,
    Draft,
    Entry,
    Head,
    Lease,
    LeaseRequest,
    NewEntry,
    Posted,
    Replacement,
    Report,
    SessionId,
    SessionPage,
)

Durability = Literal["power", "process"]

KNOWN_BATCHES = 64
"""So many of a session's newest batches are recognised by their id, at least."""


class Log(Protocol):
    """The records of sessions. A session is there when it has a record; the first append makes it."""

    async def append(
        self,
        session: SessionId,
        records: Sequence[NewRecord],
        *,
        expected: int | None = None,
        fence: int | None = None,
        batch: str | None = None,
        acquire: LeaseRequest | None = None,
        release: bool = False,
    ) -> Appended:
        """Add one batch to the end: all of it or nothing, durable before this returns.

        Places go up by one, from 1. Checks, in this order, all before anything is written:

        1. `batch` is known among the newest `KNOWN_BATCHES`, or anywhere after `expected`: nothing is written, the
           earlier result is returned as `repeated` (other content under the same id: `InvalidInput`). Its lease is
           taken or given back as asked, as far as that still applies.
        2. The lease. `acquire` takes it with this batch, or extends it where `owner` holds it already
           (`LeaseHeld` when somebody else does). Without it `fence` must be the number of the lease in force, expired
           or not (`StaleLease`). With neither, the session must not be leased by anybody (`LeaseHeld`).
        3. `expected` is the place of the last record that the writer knows, 0 for a session that it makes
           (`HeadMoved` otherwise). `None` skips this check.

        `release` gives the lease back with this batch; it needs `fence` or `acquire`. `records` may be empty
        only where a lease is taken or given back. An append is never made to a session that vanished under the
        writer: where a store notices, it raises `HeadMoved` with `actual` 0, once, even when `expected` is `None`.
        """
        ...

    async def read(
        self,
        session: SessionId,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        """Records with places above `after` and below `before`, at most `limit` of them, from the named end.

        Costs what is returned, not what the log holds, from either end. A record of a span is returned when its own
        place (the last of its span) is asked for. A session that is not there has no records. Damaged lines are
        left out and reported (`verify`); whole batches show, or nothing of them.
        """
        ...

    async def head(self, session: SessionId) -> Head:
        """Where the log ends; `Head()` for a session that is not there. Cheap: ask before using a cached view."""
        ...

    async def sessions(self, scope: str, *, limit: int = 100, cursor: str | None = None) -> SessionPage:
        """The sessions of one scope, last written to first; `rewrite` does not count as activity."""
        ...

    async def scopes(self) -> list[str]:
        """Every scope that has a session, sorted. For the operator's tools, never for a user's request."""
        ...

    async def rewrite(
        self,
        session: SessionId,
        replacements: Sequence[Replacement],
        *,
        expected: int,
        fence: int | None = None,
        purge: bool = False,
    ) -> Head:
        """Put records in the place of spans, in one atomic step; all other lines keep their bytes.

        For archive, erase and nothing else. The head keeps its place, `generation` grows by one. Checks lease and head
        as `append`. Spans are within the log, do not overlap, and do not cut through the span of an older
        replacement (`InvalidInput`). `purge` also removes whatever the store kept aside of this session (torn tails,
        copies from before a repair, its draft): needed whenever the aim is that something be gone.
        """
        ...

    async def delete(self, session: SessionId, *, fence: int | None = None) -> bool:
        """Remove a session with its inbox, draft and everything kept aside. Whether there was one.

        Checks the lease as `append` does. A later session of the same name is a new one, and no fence that was
        given before is good for it.
        """
        ...

    async def verify(self, session: SessionId) -> Report:
        """Read the whole log and say what is wrong with it. Changes nothing."""
        ...

    async def repair(self, session: SessionId, *, fence: int | None = None) -> Report:
        """Make `verify` find nothing: damaged lines leave the log, and a record of kind ``erased`` (``data.reason``:
        ``damaged``) keeps their places. The original is kept whole beside it, and named in the report, which lists
        what was mended. Nothing is done where nothing is wrong. Checks the lease as `append` does.
        """
        ...


class Leases(Protocol):
    """Who may run a turn, on the store's own `clock`. Taking and giving back also ride in `append`."""

    @property
    def clock(self) -> Clock: ...

    async def acquire(self, session: SessionId, request: LeaseRequest) -> Lease:
        """Take a lease that is free or has expired; `LeaseHeld` otherwise.

        The fence is larger than any given before in this session. The owner that holds it extends it and keeps
        its fence. The session need not be there yet.
        """
        ...

    async def renew(self, lease: Lease, ttl: float) -> Lease:
        """Extend it from now by `ttl` seconds, also when it has expired but nobody took it; else `StaleLease`."""
        ...

    async def release(self, lease: Lease) -> None:
        """Give it back. Nothing happens where it is somebody else's by now."""
        ...

    async def lease(self, session: SessionId) -> Lease | None:
        """The lease in force: `None` where it is free or has expired."""
        ...


class Inboxes(Protocol):
    """Where messages for a session wait while somebody else holds it. Posting needs no lease."""

    async def post(self, session: SessionId, entry: NewEntry) -> Posted:
        """Add an entry to the end, durable before this returns.

        Where an entry of the same id waits already, it is returned as `repeated`; with other content:
        `MessageConflict`. An id that was taken before is not remembered: the log knows it.
        """
        ...

    async def inbox(self, session: SessionId) -> list[Entry]:
        """What waits, in the order of posting."""
        ...

    async def take(self, session: SessionId, ids: Collection[str], *, fence: int | None = None) -> None:
        """Remove entries that are in the log by now. Ids that do not wait are ignored.

        Checks the lease as `append`. After a crash an entry may be there again: whoever drains recognises its id.
        """
        ...

    async def wait(
        self,
        session: SessionId,
        *,
        free: bool = False,
        mail_after: int | None = None,
        within: float,
    ) -> bool:
        """Return true once the lease is free or expired (with `free`), or an entry with a position above
        `mail_after` waits; false after `within` seconds. True at once where it is so already; it never spins.
        """
        ...


class Drafts(Protocol):
    """The text that is being streamed, beside the log. Survives kill -9; power need not be survived."""

    async def put_draft(
        self, session: SessionId, data: Mapping[str, Any] | None, *, after: int, fence: int
    ) -> None:
        """Replace the draft, or remove it with `None`. `StaleLease` unless `fence` is in force.

        `after` is the head that the text follows: any later append puts the draft out of force.
        """
        ...

    async def draft(self, session: SessionId) -> Draft | None:
        """The draft, where one is in force."""
        ...


class Blobs(Protocol):
    """Large bytes outside the log, named by scope and SHA-256."""

    async def put_blob(self, scope: str, data: bytes) -> str:
        """Keep them, durable before this returns. The handle is ``sha256:`` and 64 hexadecimal digits.

        What is there already is as new again: garbage is told by its age as well (`backstory.upkeep.sweep`).
        """
        ...

    async def get_blob(self, scope: str, handle: str) -> bytes:
        """The bytes. `StoreDamaged` where they are missing in this scope or are not what was put there."""
        ...

    async def delete_blob(self, scope: str, handle: str, *, before: float | None = None) -> bool:
        """Remove them; with `before` only if they were put before that time, for the last time. Whether it did."""
        ...

    async def old_blobs(self, scope: str, *, before: float, after: str = "", limit: int = 1000) -> list[str]:
        """Handles above `after`, in order, of what was put before a time on the store's clock, for the last time."""
        ...

    async def blob_scopes(self) -> list[str]:
        """Every scope that has a blob, sorted, as far as its name can be told. For the operator's tools."""
        ...


class Store(Log, Leases, Inboxes, Drafts, Blobs, Protocol):
    """All of it. See the module's docstring for what holds for every method."""

    async def close(self) -> None:
        """Let go of threads, files and connections.

        Every later call raises `StoreUnavailable`; closing twice is fine.
        """
        ...
