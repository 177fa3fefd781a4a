"""Keeps the lease of a running turn alive, and says so when it was lost.

The lease is the right to run a turn in a session: a number (fence) that stores check at each append. Its time is the
store's clock. Who stops renewing, because it died or was suspended, is taken over after the time to live.
"""

from __future__ import annotations

import asyncio

from backstory.errors import StaleLease, StoreUnavailable
from backstory.sessions.session import Session

TTL = 30.0
"""Seconds. Long enough for a garbage collection or a slow disk, short enough that a dead holder is not waited for."""


class Renewal:
    """Renews a session's lease in the background, at a third of its time to live. Use `start`, `stop`, `check`."""

    def __init__(self, session: Session, ttl: float = TTL) -> None:
        self._session = session
        self._ttl = ttl
        self._task: asyncio.Task[None] | None = None
        self._lost: StaleLease | None = None

    def start(self) -> None:
        self._task = asyncio.create_task(self._run())

    def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            self._task = None

    def check(self) -> None:
        """Raise `StaleLease` where the lease was lost; the store refuses what comes under it in any case."""
        if self._lost is not None:
            raise self._lost

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._ttl / 3)
            lease = self._session.lease
            if lease is None:
                return
            try:
                renewed = await self._session.store.renew(lease, self._ttl)
            except StaleLease as error:
                self._lost = error
                return
            except StoreUnavailable:
                continue  # it may be back before the lease expires; if not, the fence refuses us
            if self._session.lease is lease:
                self._session.lease = renewed
