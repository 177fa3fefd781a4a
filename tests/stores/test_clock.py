"""The clock that stands still until it is moved, and the threads that serve a store."""

import asyncio
import threading

import pytest

from backstory.errors import StoreUnavailable
from backstory.stores.clock import ManualClock, SystemClock, timestamp
from backstory.stores.workers import Workers


async def test_sleepers_wake_in_their_time():
    clock = ManualClock(start=100.0)
    woken: list[int] = []

    async def sleeper(seconds: int) -> None:
        await clock.sleep(seconds)
        woken.append(seconds)

    tasks = [asyncio.ensure_future(sleeper(seconds)) for seconds in (30, 10, 20, 0)]
    await asyncio.sleep(0.01)
    assert woken == [0]
    clock.advance(10)
    await asyncio.sleep(0.01)
    assert woken == [0, 10]
    tasks[2].cancel()
    clock.advance(100)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert woken == [0, 10, 30]
    assert clock.now() == 210.0


async def test_the_machines_own_time():
    clock = SystemClock()
    start = clock.now()
    await clock.sleep(0.01)
    assert clock.now() > start
    assert timestamp(0) == "1970-01-01T00:00:00.000Z"


async def test_calls_of_one_slot_keep_their_order():
    workers = Workers(3, "test")
    done: list[int] = []
    await asyncio.gather(*(workers.run(1, done.append, number) for number in range(100)))
    assert done == list(range(100))
    await workers.close(lambda slot: None)


async def test_what_a_call_raises_reaches_its_caller():
    workers = Workers(1, "test")
    for brief in (False, True):
        with pytest.raises(ZeroDivisionError):
            await workers.run(0, lambda: 1 // 0, brief=brief)
    await workers.close(lambda slot: None)


async def test_a_brief_call_waits_for_no_thread_and_yields_to_what_is_under_way():
    workers = Workers(2, "test")
    here = threading.current_thread()
    assert await workers.run(0, threading.current_thread, brief=True) is here
    gate = threading.Event()
    slow = asyncio.ensure_future(workers.run(1, gate.wait))
    await asyncio.sleep(0)
    assert await workers.run(0, threading.current_thread, brief=True) is not here
    gate.set()
    await slow
    assert await workers.run(0, threading.current_thread, brief=True) is here
    await workers.close(lambda slot: None)


async def test_a_cancelled_caller_leaves_the_call_to_finish():
    workers = Workers(1, "test")
    gate, done = threading.Event(), threading.Event()

    def call() -> None:
        gate.wait()
        done.set()

    task = asyncio.ensure_future(workers.run(0, call))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    gate.set()
    ended: list[int] = []
    await workers.close(ended.append)
    assert done.is_set()
    assert ended == [0]
    with pytest.raises(StoreUnavailable):
        await workers.run(0, call)


def test_one_store_of_threads_serves_many_event_loops():
    workers = Workers(2, "test")

    async def use() -> int:
        return sum(await asyncio.gather(*(workers.run(n % 2, lambda n=n: n) for n in range(10))))

    assert [asyncio.run(use()) for _ in range(3)] == [45] * 3
    asyncio.run(workers.close(lambda slot: None))
