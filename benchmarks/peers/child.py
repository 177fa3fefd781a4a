"""The measurements, the same for everybody; each contestant is a `Peer` in a script of its own. Standard library alone.

A script runs in the environment of what it measures, and prints one line of JSON: CPU and wall milliseconds of a turn,
and CPU milliseconds of a request of about 8,000 tokens, at each number of messages held; turns a second with 64
sessions at once; bytes a message; the memory that it took.
"""

from __future__ import annotations

import asyncio
import json
import resource
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from talk import Row, rows


class Peer:
    """One library with its storage in a folder. A session is a number."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def open(self) -> None: ...

    async def fill(self, given: list[Row]) -> None:
        """Session 0 holds these turns; as quickly as the library lets one."""
        for number, row in enumerate(given):
            await self.turn(0, number, row)

    async def turn(self, session: int, number: int, row: Row) -> None:
        """One turn, as durable as the library makes it."""
        raise NotImplementedError

    async def settle(self) -> None:
        """After the measured turns, before requests are: what a session has had that was asked all along."""

    async def ready(self) -> None:
        """What a library has to be told before it is asked for a request; not measured where it is open already."""

    async def request(self) -> int:
        """The newest messages of session 0 for a request of about 8,000 tokens; how many."""
        raise NotImplementedError

    async def close(self) -> None: ...


async def _warm(peer: Peer, times: int) -> float:
    await peer.ready()
    await peer.request()
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        await peer.request()
        best = min(best, time.process_time() - start)
    return best * 1000


async def _cold(make: type[Peer], folder: Path, times: int) -> float:
    """A fresh object each time; the modules are loaded."""
    best = float("inf")
    for _ in range(times):
        start = time.process_time()
        fresh = make(folder)
        await fresh.open()
        await fresh.ready()
        await fresh.request()
        best = min(best, time.process_time() - start)
        await fresh.close()
    return best * 1000


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


async def _level(make: type[Peer], folder: Path, held: int, turns: int, rounds: int) -> dict[str, float]:
    peer = make(folder)
    await peer.open()
    await peer.fill(rows(held // 4, seed=held + 1))
    number = held // 4
    cpu, wall = [], []
    for again in range(rounds):
        given = rows(turns, seed=10_000 + again)
        start, clock = time.process_time(), time.perf_counter()
        for row in given:
            await peer.turn(0, number, row)
            number += 1
        cpu.append((time.process_time() - start) / turns * 1000)
        wall.append((time.perf_counter() - clock) / turns * 1000)
    found = {"cpu": min(cpu), "wall": min(wall)}
    await peer.settle()
    if held:
        found["warm"] = await _warm(peer, rounds)
    await peer.close()
    if held:
        found["cold"] = await _cold(make, folder, rounds)
        found["bytes"] = _size(folder) / (held + turns * rounds * 4)
    return found


async def _together(make: type[Peer], folder: Path, sessions: int, turns: int) -> float:
    """Turns a second of so many sessions at once."""
    peer = make(folder)
    await peer.open()
    given = [rows(turns + 1, seed=500 + session) for session in range(sessions)]
    await asyncio.gather(*(peer.turn(session, 0, given[session][0]) for session in range(sessions)))

    async def talk(session: int) -> None:
        for number in range(1, turns + 1):
            await peer.turn(session, number, given[session][number])

    start = time.perf_counter()
    await asyncio.gather(*map(talk, range(sessions)))
    took = time.perf_counter() - start
    await peer.close()
    return sessions * turns / took


def measure(make: type[Peer]) -> None:
    """The whole of it, as the parent asks: JSON in the first argument, JSON to standard output."""
    asked = json.loads(sys.argv[1])
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss

    async def everything() -> dict[str, Any]:
        found: dict[str, Any] = {"held": {}}
        place = Path(tempfile.mkdtemp(prefix="peer-", dir=asked["folder"]))
        try:
            for held in asked["held"]:
                folder = place / str(held)
                folder.mkdir()
                found["held"][str(held)] = await _level(make, folder, held, asked["turns"], asked["rounds"])
            found["memory"] = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
            if asked["sessions"]:
                folder = place / "together"
                folder.mkdir()
                found["together"] = await _together(make, folder, asked["sessions"], asked["each"])
        finally:
            shutil.rmtree(place, ignore_errors=True)
        return found

    print(json.dumps(asyncio.run(everything())))
