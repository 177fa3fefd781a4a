"""Keeps the lease of a running turn alive, says so when it was lost, and listens for whoever wants the turn to end.

The lease is the right to run a turn in a session: a number (fence) that stores check at each append. Its time is the
store's clock. Who stops renewing, because it died or was suspended, is taken over after the time to live.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from backstory.errors import StaleLease, StoreUnavailable
from backstory.sessions.session import Session
from backstory.stores.values import Entry

TTL = 30.0
"""Seconds. Long enough for a garbage collection or a slow disk, short enough that a dead holder is not waited for."""

LISTEN_AFTER = 0.2
"""Seconds from which on a turn is long enough to renew its lease and to listen for interrupts between its steps."""

ENDINGS = ("interrupt", "stop")
"""Kinds of entries that want a turn to end. They name it by its fence: what comes too late ends no later turn."""


class Renewal:
    """Renews a session's lease in the background, at a third of its time to live. Use `start`, `stop`, `check`."""

    def __init__(
        self, session: Session, ttl: float = TTL, ended: Callable[[str], None] | None = None
    ) -> None:
        self._session = session
        self._ttl = ttl
        self._ended = ended
        self._timer: asyncio.TimerHandle | None = None
        self._tasks: list[asyncio.Task[None]] = []
        self._lost: StaleLease | None = None

    def start(self) -> None:
        """Begin. Most turns are short: for these it is a timer that is never heard of."""
        delay = min(LISTEN_AFTER, self._ttl / 6)
        self._timer = asyncio.get_running_loop().call_later(delay, self._begin)

    def _begin(self) -> None:
        self._tasks.append(asyncio.create_task(self._run()))
        if self._ended is not None:
            self._tasks.append(asyncio.create_task(self._listen(self._ended)))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        for task in self._tasks:
            task.cancel()
        self._tasks.clear()

    def check(self) -> None:
        """Raise `StaleLease` where the lease was lost; the store refuses what comes under it in any case."""
        if self._lost is not None:
            raise self._lost

    async def _run(self) -> None:
        store = self._session.store
        while True:
            await store.clock.sleep(self._ttl / 3)
            lease = self._session.lease
            if lease is None:
                return
            try:
                renewed = await store.renew(lease, self._ttl)
            except StaleLease as error:
                self._lost = error
                if self._ended is not None:
                    self._ended("lost")
                return
            except StoreUnavailable:
                continue  # it may be back before the lease expires; if not, the fence refuses us
            if self._session.lease is lease:
                self._session.lease = renewed

    async def _listen(self, ended: Callable[[str], None]) -> None:
        """Tell at once of an interrupt that another process left in the inbox; the turn itself takes it from there."""
        store, session_id = self._session.store, self._session.id
        heard = 0
        while self._session.lease is not None:
            try:
                if not await store.wait(session_id, mail_after=heard, within=self._ttl):
                    continue
                for entry in await store.inbox(session_id):
                    heard = max(heard, entry.position)
                    if ends(entry, self._session):
                        ended(entry.kind)
            except StoreUnavailable:
                await asyncio.sleep(self._ttl / 3)


def ends(entry: Entry, session: Session) -> bool:
    """Whether an entry wants the turn to end that the session's lease is for."""
    lease = session.lease
    return entry.kind in ENDINGS and lease is not None and entry.data.get("fence") in (None, lease.fence)
