"""Tries a call again while the connection is at fault, and no longer than the caller waits.

Only calls that are safe to repeat come here: what is not so by nature carries an id by which its first try is found.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from backstory.errors import StoreUnavailable

T = TypeVar("T")

AT_ONCE = 2
"""So many retries come without a pause: an idle connection was dead, the next one is new."""
FIRST_PAUSE = 0.05
LONGEST_PAUSE = 1.0


class Lost(Exception):
    """The connection failed, or the server is not ready. Whether the call took effect is not known."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Try:
    """One try of a call: `number` is 0 for the first; `deadline` is on the event loop's clock."""

    number: int
    deadline: float

    @property
    def left(self) -> float:
        """Seconds that this call may still take, a little above zero at least."""
        return max(0.001, self.deadline - asyncio.get_running_loop().time())


async def persist(call: Callable[[Try], Awaitable[T]], *, within: float, place: str) -> T:
    """The result of the first try that is not `Lost`. Raises `StoreUnavailable` after `within` seconds of them."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    number = 0
    while True:
        try:
            return await call(Try(number=number, deadline=deadline))
        except Lost as lost:
            pause = 0.0 if number < AT_ONCE else FIRST_PAUSE * 2 ** min(number - AT_ONCE, 10)
            pause = min(pause, LONGEST_PAUSE)
            if loop.time() + pause >= deadline:
                raise StoreUnavailable(
                    f"{place} does not answer ({lost}); gave up after {within:g} s and {number + 1} tries. "
                    "Whether the last one took effect is not known: the same call with its batch id or message id "
                    "is safe to repeat"
                ) from lost
        number += 1
        await asyncio.sleep(pause)
