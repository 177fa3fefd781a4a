"""A few threads for calls that block, so that an event loop never waits for a disk.

Calls under one key run one at a time and in their order: what belongs to a key needs no lock. Nothing here knows what
the calls do. It is a plain queue a thread, since an executor's futures cost more than the append they carry.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from queue import SimpleQueue
from time import monotonic, perf_counter
from typing import Any, TypeVar

from backstory.errors import StoreUnavailable

T = TypeVar("T")
_SLICE = 0.005
"""Seconds that calls on the event loop may take before others get their turn."""
_Job = tuple[asyncio.AbstractEventLoop, "asyncio.Future[Any]", Callable[..., Any], tuple[Any, ...]]


_BRIEF = 0.005
"""A call under so many seconds is brief."""


class Paces:
    """How long each kind of call took lately: whether the next is `expected` to be brief enough for an event loop.

    `expected` are the kinds that are so from the first, since they wait for no sync; others have to show it.
    """

    def __init__(self, *, expected: Sequence[Callable[..., Any]]) -> None:
        self._seconds = {call.__qualname__: 0.0 for call in expected}

    def is_brief(self, call: Callable[..., Any]) -> bool:
        return self._seconds.get(call.__qualname__, _BRIEF) < _BRIEF

    def timed(self, call: Callable[..., T], *args: Any) -> T:
        """Make a call, and learn from it."""
        start = perf_counter()
        try:
            return call(*args)
        finally:
            kind, took = call.__qualname__, perf_counter() - start
            known = self._seconds.get(kind, took)
            self._seconds[kind] = known + (took - known) / 16


class Workers:
    """`count` threads, started when first needed. They are daemons: a process may end without closing."""

    def __init__(self, count: int, name: str) -> None:
        self._queues: list[SimpleQueue[_Job | None]] = [SimpleQueue() for _ in range(count)]
        self._threads: list[threading.Thread | None] = [None] * count
        self._name = name
        self._lock = threading.Lock()
        self._turns = [
            threading.Lock() for _ in range(count)
        ]  # held while a slot's call runs, wherever it runs
        self._under_way: set[asyncio.Future[Any]] = set()
        self._yielded = 0.0
        self._closed = False

    def slot(self, key: object) -> int:
        """Which thread serves a key."""
        return hash(key) % len(self._queues)

    async def run(self, slot: int, call: Callable[..., T], *args: Any, brief: bool = False) -> T:
        """The call's result, or what it raised. A cancelled caller leaves the call to finish by itself.

        `brief`: the caller expects it to take less than anybody would notice. It is then made here and now, as long
        as nothing else is under way.
        """
        if self._closed:
            raise StoreUnavailable("the store was closed")
        if brief and not self._under_way and self._turns[slot].acquire(blocking=False):
            try:
                return call(*args)
            finally:
                self._turns[slot].release()
                if monotonic() - self._yielded > _SLICE:  # many brief calls in a row are not brief
                    await asyncio.sleep(0)
                    self._yielded = monotonic()
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        if self._threads[slot] is None:
            self._start(slot)
        self._under_way.add(future)
        self._queues[slot].put((loop, future, call, args))
        return await future

    def _start(self, slot: int) -> None:
        with self._lock:
            if self._threads[slot] is None and not self._closed:
                thread = threading.Thread(
                    target=self._serve, args=(slot,), name=f"{self._name}-{slot}", daemon=True
                )
                self._threads[slot] = thread
                thread.start()

    async def close(self, last: Callable[[int], None]) -> None:
        """Take nothing more. Each thread ends what is queued, calls `last` with its slot, and stops; where none was
        needed, `last` is called here."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
            slots = [slot for slot, thread in enumerate(self._threads) if thread is not None]
        for slot in set(range(len(self._threads))).difference(slots):
            last(slot)
        loop = asyncio.get_running_loop()
        ends: list[asyncio.Future[Any]] = [loop.create_future() for _ in slots]
        for slot, end in zip(slots, ends, strict=True):
            self._queues[slot].put((loop, end, last, (slot,)))
            self._queues[slot].put(None)
        if ends:
            await asyncio.wait(ends)

    def _serve(self, slot: int) -> None:
        queue, turn = self._queues[slot], self._turns[slot]
        while (job := queue.get()) is not None:
            loop, future, call, args = job
            result: Any = None
            error: BaseException | None = None
            try:
                with turn:
                    result = call(*args)
            except BaseException as raised:  # handed to the caller, whatever it is
                error = raised
            self._under_way.discard(future)
            with suppress(RuntimeError):  # the caller's event loop is gone, and nobody waits for the answer
                loop.call_soon_threadsafe(_settle, future, result, error)
            del job, future, call, args, result, error


def _settle(future: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)
