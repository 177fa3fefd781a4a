"""Trying again: only what may be, never what was already handed out, each time later and not in step with others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import dataclass

from backstory.models.base import Event
from backstory.models.failures import Failure


@dataclass(frozen=True, kw_only=True, slots=True)
class Retry:
    """How often, and how long between.

    Before try n + 1 a random time up to ``first * 2**n`` seconds is waited, `most` at the most; where the server
    says how long, that. Who is asked to wait longer than `patience` is told at once instead.
    """

    retries: int = 2
    first: float = 0.5
    most: float = 8.0
    patience: float = 60.0

    def wait(self, failure: Failure, tried: int) -> float | None:
        """Seconds until the next try after `tried` tries; `None`: no more."""
        if not failure.retry or tried > self.retries:
            return None
        if failure.wait is not None:
            # A little more than asked, so that not all come back in the same moment.
            return None if failure.wait > self.patience else failure.wait * (1 + 0.1 * random.random())
        # "Full jitter", half of it fixed: https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/
        longest = min(self.most, self.first * 2.0 ** (tried - 1))
        return longest * (0.5 + 0.5 * random.random())


async def tried(
    once: Callable[[], AsyncGenerator[Event, None]],
    understand: Callable[[Exception], Failure],
    caught: tuple[type[Exception], ...],
    retry: Retry,
    *,
    hand_out: bool = True,
) -> AsyncGenerator[Event, None]:
    """The events of one try that went well, or of the first that handed anything out.

    `caught` are the errors that `understand` can read; others pass through. Without `hand_out` only the last
    event is given, so that a stream that broke in the middle can be tried again.
    """
    count = 0
    while True:
        count += 1
        handed = False
        last: Event | None = None
        try:
            async with aclosing(once()) as events:
                async for event in events:
                    last = event
                    if hand_out:
                        handed = True
                        yield event
        except caught as error:
            cause = error
        else:
            if not hand_out and last is not None:
                yield last
            return
        failure = understand(cause)
        wait = None if handed else retry.wait(failure, count)
        if wait is None:
            hidden = failure.error is cause
            raise failure.error from (None if hidden else cause)
        await asyncio.sleep(wait)
