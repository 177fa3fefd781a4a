"""For how long sessions are kept: which are due is a pure function of their last record's time; removing them is not.

A session that expired is gone as if it had been deleted: its forks keep what they refer to, and a later session of its
name is a new one. What is read or listed renews nothing; only what is written does.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from backstory.errors import ConfigurationError, HeadMoved, LeaseHeld, SessionBusy, SessionNotFound
from backstory.sessions import operations
from backstory.sessions.session import Session
from backstory.stores.base import Store
from backstory.stores.values import Head, SessionId
from backstory.upkeep.migrate import listed

DAY = 86_400.0


@dataclass(frozen=True, kw_only=True, slots=True)
class Retention:
    """`max_age` in seconds since a session was last written to, `None` for ever; `scopes` says otherwise for some.

    Raises `ConfigurationError` for an age that is not above 0.
    """

    max_age: float | None = None
    scopes: Mapping[str, float | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for age in (self.max_age, *self.scopes.values()):
            if age is not None and not age > 0:
                raise ConfigurationError(f"sessions are kept for a time above 0 s, not {age!r}")

    def of(self, scope: str) -> float | None:
        return self.scopes.get(scope, self.max_age)


@dataclass(frozen=True, kw_only=True, slots=True)
class Expired:
    """A session that was due, and how old it was, in seconds. `problem` says why it is still there."""

    session: SessionId
    age: float
    problem: str = ""


def age_of(head: Head, now: float) -> float:
    """Seconds since the last record was written; 0 for a session that is not there."""
    if head.at is None:
        return 0.0
    return max(0.0, now - datetime.fromisoformat(head.at).timestamp())


def is_due(session: SessionId, head: Head, retention: Retention, now: float) -> bool:
    most = retention.of(session.scope)
    return most is not None and bool(head.seq) and age_of(head, now) > most


async def expire(
    store: Store, retention: Retention, *, scope: str | None = None, act: bool = True
) -> AsyncIterator[Expired]:
    """Remove every session that is due, of one scope or of all; as it is done with each. Without `act` name them only.

    One that is written to, or runs a turn, meanwhile stays. Raises the store's other errors.
    """
    for session in await listed(store, scope):
        head = await store.head(session)
        now = store.clock.now()
        if not is_due(session, head, retention, now):
            continue
        problem = ""
        if act:
            try:
                await operations.delete(Session(store, session), expected=head.seq)
            except (HeadMoved, LeaseHeld, SessionBusy) as error:
                problem = str(error)
            except SessionNotFound:
                continue
        yield Expired(session=session, age=age_of(head, now), problem=problem)
