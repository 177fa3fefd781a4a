"""To run what may hang: a synchronous function in a thread of its own, and anything for so long at most.

Python can stop no thread. A thread whose time is up is abandoned: it goes on, nobody waits for it any more,
and, being a daemon, it does not hold up the end of the process. That is why this is not `asyncio.to_thread`, whose pool
has few threads and joins them at exit.
"""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")

GRACE = 2.0
"""Seconds that a cancelled task gets to clean up before it is left alone."""

_CARRIED = (Exception, SystemExit, asyncio.CancelledError)

_abandoned: set[asyncio.Task[Any]] = set()
"""The event loop holds tasks weakly; these still run, so somebody has to."""


class OutOfTime(Exception):
    """The limit passed. Ours alone, so that a tool's own `TimeoutError` is told apart."""


async def in_thread(function: Callable[[], T], *, name: str) -> T:
    """What `function` returns or raises, run in a new thread with the caller's context variables."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    context = contextvars.copy_context()

    def settle(error: BaseException | None, value: Any) -> None:
        if future.done():
            return
        if error is None:
            future.set_result(value)
        elif isinstance(error, _CARRIED) and not isinstance(error, StopIteration):
            future.set_exception(error)
        else:  # a future cannot carry it, or it would end the event loop
            future.set_exception(RuntimeError(f"raised {type(error).__name__}"))

    def work() -> None:
        error: BaseException | None = None
        value: Any = None
        try:
            value = context.run(function)
        except BaseException as raised:
            error = raised
        if not loop.is_closed():
            try:
                loop.call_soon_threadsafe(settle, error, value)
            except RuntimeError:  # closed meanwhile: nobody waits for the outcome
                return

    threading.Thread(target=work, name=f"backstory-tool-{name}", daemon=True).start()
    return await future


async def within(coroutine: Coroutine[Any, Any, T], seconds: float | None) -> T:
    """What the coroutine returns, or `OutOfTime`. Being cancelled cancels it, too.

    Cancelled, it has `GRACE` seconds to clean up; one that ignores this is left alone.
    """
    task = asyncio.create_task(coroutine)
    try:
        await asyncio.wait({task}, timeout=seconds)
    except asyncio.CancelledError:
        await _end(task)
        raise
    if not task.done():
        await _end(task)
        raise OutOfTime
    return task.result()


async def _end(task: asyncio.Task[Any]) -> None:
    task.cancel()
    _abandoned.add(task)
    task.add_done_callback(_forget)
    await asyncio.wait({task}, timeout=GRACE)


def _forget(task: asyncio.Task[Any]) -> None:
    _abandoned.discard(task)
    if not task.cancelled():
        task.exception()  # asked for, so that asyncio does not report it as never retrieved
