"""A write that somebody waits for, and how they are told: each on its own event loop."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Callable
from contextlib import suppress
from typing import Any


class Job:
    """One write: what it does in the transaction, and who waits for it."""

    __slots__ = ("brief", "call", "error", "future", "loop", "result", "size", "sync")

    def __init__(self, call: Callable[[sqlite3.Connection], Any], sync: bool, brief: bool, size: int) -> None:
        self.call = call
        self.sync = sync
        self.brief = brief
        self.size = size
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] | None = None
        self.result: Any = None
        self.error: BaseException | None = None


def settle(job: Job) -> None:
    if job.future is None or job.future.done():  # its caller was cancelled
        return
    if job.error is not None:
        job.future.set_exception(job.error)
    else:
        job.future.set_result(job.result)


def settle_all(jobs: list[Job]) -> None:
    for job in jobs:
        settle(job)


def tell(jobs: list[Job]) -> None:
    """Tell the callers, each on its event loop, and each loop once."""
    while jobs:
        loop = jobs[0].loop
        with suppress(RuntimeError):  # that event loop is gone, and nobody waits for the answer
            loop.call_soon_threadsafe(settle_all, [job for job in jobs if job.loop is loop])
        jobs = [job for job in jobs if job.loop is not loop]
