"""Workers over one server that are killed, stopped and started, while the server itself restarts in the middle.

Small in every slow run; ``CHAOS_TURNS=2000 CHAOS_SESSIONS=200`` is the size that docs/measurements.md tells of. The
seed is printed, and taken from ``CHAOS_SEED`` where that is set.
"""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
from collections import Counter, deque
from typing import IO

import pytest

from backstory.stores import SessionId
from tests.servers import ROOT

TURNS = int(os.environ.get("CHAOS_TURNS", "120"))
SESSIONS = int(os.environ.get("CHAOS_SESSIONS", "15"))
WORKERS = 4
AT_ONCE = 6
TTL = 2.0


class Worker:
    """A child process with the jobs that it has taken and not answered."""

    def __init__(self, fleet: "Fleet") -> None:
        self.fleet = fleet
        self.jobs: dict[str, dict[str, str]] = {}
        self.stopped = False

    async def run(self) -> None:
        """Start the process, and take its answers until it ends; what it did not answer goes to others."""
        self.process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.stores.chaos_child",
            self.fleet.url,
            str(TTL),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=self.fleet.log,
            cwd=ROOT,
        )
        assert self.process.stdout is not None
        await self.feed()
        while line := await self.process.stdout.readline():
            if line.endswith(b"\n"):
                self.fleet.hear(self, json.loads(line))
                await self.feed()
        await self.process.wait()
        self.fleet.waiting.extend(self.jobs.values())
        self.jobs.clear()

    async def feed(self) -> None:
        assert self.process.stdin is not None
        while self.fleet.waiting and len(self.jobs) < AT_ONCE:
            job = self.fleet.waiting.popleft()
            self.jobs[job["id"]] = job
            with contextlib.suppress(ConnectionError):
                self.process.stdin.write(json.dumps(job).encode() + b"\n")
                await self.process.stdin.drain()


class Fleet:
    """The workers and what they have acknowledged."""

    def __init__(self, url: str, jobs: list[dict[str, str]], log: IO[bytes]) -> None:
        self.url = url
        self.log = log
        self.waiting = deque(jobs)
        self.wanted = len(jobs)
        self.answers: dict[str, str] = {}
        self.errors: Counter[str] = Counter()
        self.bugs: list[str] = []
        self.workers = [Worker(self) for _ in range(WORKERS)]
        self.done = asyncio.Event()

    def hear(self, worker: Worker, heard: dict[str, str]) -> None:
        job = worker.jobs.pop(heard["id"])
        if "answer" in heard:
            self.answers[heard["id"]] = heard["answer"]
            if len(self.answers) == self.wanted:
                self.done.set()
        else:
            self.errors[heard["error"]] += 1
            if heard["error"] == "bug":
                self.bugs.append(heard["what"])
            self.waiting.append(job)

    async def keep(self, worker: Worker) -> None:
        """Start it again whenever it dies."""
        while not self.done.is_set():
            await worker.run()

    async def stop(self) -> None:
        for worker in self.workers:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGCONT)
                worker.process.kill()


async def harm(fleet: Fleet, server, dice: random.Random) -> Counter[str]:
    """Kill, stop and restart until everything is answered."""
    loop = asyncio.get_running_loop()
    did: Counter[str] = Counter()
    restarts = [0.35, 0.7]
    while not fleet.done.is_set():
        await asyncio.sleep(dice.uniform(0.5, 2.5))
        worker = dice.choice(fleet.workers)
        if restarts and len(fleet.answers) > restarts[0] * fleet.wanted:
            restarts.pop(0)
            did["restart"] += 1
            await loop.run_in_executor(None, dice.choice([server.stop, server.crash]))
            await asyncio.sleep(0.3)
            await loop.run_in_executor(None, server.start)
        elif dice.random() < 0.6:
            with contextlib.suppress(ProcessLookupError):
                worker.process.kill()
                did["kill"] += 1
        else:
            with contextlib.suppress(ProcessLookupError):
                worker.process.send_signal(signal.SIGSTOP)
                await asyncio.sleep(TTL * 1.5)
                worker.process.send_signal(signal.SIGCONT)
                did["stop"] += 1
    return did


@pytest.mark.slow
@pytest.mark.timeout(1800)
async def test_nothing_acknowledged_is_lost_and_nothing_is_there_twice(own, tmp_path):
    seed = int(os.environ.get("CHAOS_SEED", random.randrange(1 << 30)))
    dice = random.Random(seed)
    keys = [f"s{number}" for number in range(SESSIONS)]
    jobs = [
        {"key": dice.choice(keys), "id": f"m{number}", "text": f"question {number}"}
        for number in range(TURNS)
    ]
    log = (tmp_path / "workers.log").open("wb")
    fleet = Fleet(own.server.url(), jobs, log)
    keeping = [asyncio.ensure_future(fleet.keep(worker)) for worker in fleet.workers]
    await asyncio.sleep(1)
    did = await harm(fleet, own.server, dice)
    await fleet.stop()
    await asyncio.gather(*keeping)
    log.close()
    print(f"\nseed {seed}: {len(fleet.answers)} turns, {dict(did)}, told to try again: {dict(fleet.errors)}")
    assert not fleet.bugs
    store = own.make(own.server.url(), "chaos")
    said: Counter[str] = Counter()
    for key in keys:
        records = await store.read(SessionId(key=key))
        assert [record.seq for record in records] == list(range(1, len(records) + 1))
        turns = [record.turn for record in records if record.turn]
        begun = [
            record.turn
            for record in records
            if record.kind == "turn_started" and not record.data.get("again")  # taken up after a crash
        ]
        assert begun == sorted(set(begun))
        assert turns == sorted(turns), f"turns of {key} interleave"
        ids = {
            record.turn: record.message_id
            for record in records
            if record.kind == "message" and record.message.role == "user" and record.message_id
        }
        said.update(ids.values())
        for turn, name in ids.items():
            told = [
                record.message.text
                for record in records
                if record.turn == turn and record.kind == "message" and record.message.role == "assistant"
            ]
            assert fleet.answers[name] in told, (key, name, told)
        assert (await store.verify(SessionId(key=key))).sound
    assert said == Counter(job["id"] for job in jobs)
    await store.close()
