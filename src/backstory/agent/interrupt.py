"""The wish to end a turn, heard in the middle of waiting: for the model, for a tool, for the next piece of a stream.

It costs next to nothing until it comes. Unlike a cancellation it leaves the task alive, which has a turn to end.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import TypeVar

from backstory.errors import BackstoryError

T = TypeVar("T")


class Interrupted(BackstoryError):
    """Waiting was ended by an `Interrupt`; its `kind` says why, ``limit`` where the time was up."""

    def __init__(self, kind: str) -> None:
        super().__init__(kind)
        self.kind = kind


class Interrupt:
    """Set once, by `set`; `kind` is empty before. `limit` is a time of the event loop's clock."""

    def __init__(self) -> None:
        self.kind = ""
        self.limit: float | None = None
        self._waiting: asyncio.Timeout | None = None
        self._loop: asyncio.AbstractEventLoop | None = None

    def set(self, kind: str) -> None:
        """End the turn for this reason, the first that is given. From the turn's own event loop only."""
        self.kind = self.kind or kind
        if self._waiting is not None and self._loop is not None:
            self._waiting.reschedule(self._loop.time())

    def check(self) -> None:
        """Raise `Interrupted` where the turn is to end."""
        if self.kind:
            raise Interrupted(self.kind)

    async def wait_for(self, awaited: Awaitable[T]) -> T:
        """The outcome of what is awaited. Raises `Interrupted`; it is then cancelled."""

        async def alone() -> AsyncIterator[tuple[T]]:
            yield (await awaited,)

        found = await self.next_of(alone())
        assert found is not None
        return found[0]

    async def next_of(self, events: AsyncIterator[T]) -> T | None:
        """The next of a stream, `None` at its end. Raises `Interrupted`; what the stream did is then cancelled."""
        self.check()
        self._loop = asyncio.get_running_loop()
        waiting = asyncio.timeout_at(self.limit)
        try:
            async with waiting:
                self._waiting = waiting
                return await anext(events, None)
        except TimeoutError:
            if not waiting.expired():
                raise  # the stream's own
            self.check()
            raise Interrupted("limit") from None
        finally:
            self._waiting = None
