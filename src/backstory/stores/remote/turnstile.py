"""One process's writers of a session stand in line, so that they neither undo one another's work nor hold a connection
each while they wait for one another."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from backstory.stores.remote.retrying import Lost, Try
from backstory.stores.values import SessionId


class Turnstile:
    """First come, first served, for each session by itself. Within one event loop."""

    def __init__(self) -> None:
        self._lines: dict[SessionId, tuple[asyncio.Lock, list[None]]] = {}

    @asynccontextmanager
    async def through(self, session: SessionId, attempt: Try) -> AsyncIterator[None]:
        """Wait until it is this one's turn. Raises `Lost` where the time of the try is over before."""
        lock, present = self._lines.setdefault(session, (asyncio.Lock(), []))
        present.append(None)
        try:
            try:
                async with asyncio.timeout(attempt.left):
                    await lock.acquire()
            except TimeoutError as error:
                raise Lost("other writers of this session had no answer either") from error
            try:
                yield
            finally:
                lock.release()
        finally:
            present.pop()
            if not present:
                self._lines.pop(session, None)
