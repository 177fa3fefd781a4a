"""What a durable turn and a cold request cost, at any length, against a raw floor and against nanobot's sessions.

    python benchmarks/turns.py                     # 1,000 and 50,000 messages; makes an environment for nanobot-ai
    python benchmarks/turns.py --no-peers          # ours and the floor alone, no network

The conversation is that of the peers' figures: turns of four messages (the user's 60 tokens, a call, its result of 400,
an answer of 120), English and Chinese mixed. CPU time of the process, user and system; the least of many short rounds,
taken in alternation, since a machine that does other work besides adds to every figure and takes from none.

- *durable turn*: four durable points (user · assistant with its call · result · final answer) on the files store, fsync
  before each acknowledgement. The floor makes the same four raw appends with fdatasync, and counts their tokens.
- *cold request*: open the session in a fresh object, make the next user message durable, and build its request, of
  8,000 tokens. The session's newest turns have had their requests, as a live one's have.
- *nanobot*: a fresh SessionManager opens the session and gives a history within as many tokens; nothing is written.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import backstory
from backstory.tokens import count_text

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

from talk import Row, rows  # noqa: E402

KEY = "bench:1"
BUDGET = 8_000
LIVE = 50
"""So many of the newest turns have had their requests; more than a window holds. They say the same at each length, so
that the next request goes on with as long a window at each."""


def call(number: int, arguments: str) -> dict[str, object]:
    function = {"name": "look", "arguments": arguments}
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": f"c{number}", "type": "function", "function": function}],
    }


async def say(bs: backstory.Backstory, number: int, row: Row, *, requests: bool = False) -> None:
    """One durable turn, with the model's part given."""
    user, arguments, result, answer = row
    async with bs.turn(KEY, user) as turn:
        if requests:
            await turn.request()
        await turn.record(call(number, arguments))
        for waiting in turn.open_calls:
            await turn.result(waiting, result)
        if requests:
            await turn.request()
        await turn.record({"role": "assistant", "content": answer})


def floor(file: int, number: int, row: Row) -> None:
    """The same four messages as raw lines, each synced, each counted."""
    user, arguments, result, answer = row
    for message, text in (
        ({"role": "user", "content": user}, user),
        (call(number, arguments), arguments),
        ({"role": "tool", "tool_call_id": f"c{number}", "content": result}, result),
        ({"role": "assistant", "content": answer}, answer),
    ):
        line = json.dumps({**message, "tokens": count_text(text)}, ensure_ascii=False)
        os.write(file, line.encode() + b"\n")
        os.fdatasync(file)


async def rounds(work: Callable[[list[Row]], Awaitable[None]], count: int, seed: int) -> float:
    """CPU milliseconds of one turn, over so many with texts that were never counted."""
    given = rows(count, seed)
    start = time.process_time()
    await work(given)
    return (time.process_time() - start) / count * 1000


async def fill(folder: Path, messages: int) -> None:
    """A session of so many messages, written by turns, without waiting for the disk."""
    async with backstory.open(
        folder, target="openai_chat", budget=BUDGET, runtime=False, compaction=False, durability="process"
    ) as bs:
        older, newest = rows(messages // 4 - LIVE, 2), rows(LIVE)
        for number, row in enumerate([*older, *newest]):
            await say(bs, number, row, requests=number >= len(older))


async def durable_turn(folder: Path, turns: int, times: int, seed: int) -> tuple[float, float, float]:
    """CPU milliseconds of a turn, floor and ours, the least of each; and the median ratio of rounds side by side.

    `seed` is another for each call: what was counted once in this process is known, which helps the floor most.
    """
    raw = os.open(folder / "floor.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    async def floors(given: list[Row]) -> None:
        for number, row in enumerate(given):
            floor(raw, number, row)

    async with backstory.open(
        folder, target="openai_chat", budget=BUDGET, runtime=False, compaction=False
    ) as bs:

        async def ours(given: list[Row]) -> None:
            for number, row in enumerate(given):
                await say(bs, number, row)

        await ours(rows(16, 7))
        pairs = [
            (await rounds(floors, turns, seed + 2 * n), await rounds(ours, turns, seed + 2 * n + 1))
            for n in range(times)
        ]
    os.close(raw)
    return (
        min(pair[0] for pair in pairs),
        min(pair[1] for pair in pairs),
        statistics.median(o / r for r, o in pairs),
    )


@contextlib.contextmanager
def put_back(folder: Path) -> Iterator[None]:
    """Afterwards every file is as it was. (A copy for each round would sweep the processor's caches, and the more so
    the longer the session is; nanobot's rounds have nothing of the kind.)"""
    logs = {path: path.stat().st_size for path in folder.rglob("*.jsonl")}
    others = {path: path.read_bytes() for path in folder.rglob("*") if path.is_file() and path not in logs}
    yield
    for path in filter(Path.is_file, folder.rglob("*")):
        if path in logs:
            os.truncate(path, logs[path])
        elif path not in others:
            path.unlink()
        elif path.read_bytes() != others[path]:
            path.write_bytes(others[path])


async def cold_request(folder: Path) -> float:
    """CPU milliseconds to open a session in a fresh object and build its next request."""
    with put_back(folder):
        start = time.process_time()
        async with (
            backstory.open(
                folder, target="openai_chat", budget=BUDGET, runtime=False, compaction=False
            ) as bs,
            bs.turn(KEY, "How many boxes are left?") as turn,
        ):
            request = await turn.request()
            took = (time.process_time() - start) * 1000
        assert request.ledger.total <= BUDGET
        assert request.ledger.why == "goes on", request.ledger.why
    return took


NANOBOT = """
import json, pathlib, sys, time
from nanobot.session.manager import SessionManager
home, given = pathlib.Path(sys.argv[1]), json.load(open(sys.argv[2]))
folder, root = home / "workspace", home / "sessions"
folder.mkdir()
manager = SessionManager(folder, sessions_root=root)
session = manager.get_or_create("bench:1")
for message in given:
    role = message.pop("role"); content = message.pop("content") or ""
    session.add_message(role, content, **message)
manager.save(session)
best = []
for _ in range(5):
    start = time.process_time()
    fresh = SessionManager(folder, sessions_root=root).get_or_create("bench:1")
    fresh.get_history(max_tokens=int(sys.argv[3]))
    best.append(time.process_time() - start)
print(min(best) * 1000)
"""


def nanobot(python: str, messages: int) -> float | None:
    """CPU milliseconds in which nanobot's SessionManager opens a session of this length and gives its history."""
    given = []
    for number, (user, arguments, result, answer) in enumerate(rows(messages // 4)):
        given += [
            {"role": "user", "content": user},
            call(number, arguments),
            {"role": "tool", "tool_call_id": f"c{number}", "name": "look", "content": result},
            {"role": "assistant", "content": answer},
        ]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "given.json")
        file.write_text(json.dumps(given, ensure_ascii=False), encoding="utf-8")
        done = subprocess.run(
            [python, "-c", NANOBOT, folder, str(file), str(BUDGET)],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "HOME": folder},
        )
    if done.returncode:
        print(f"nanobot-ai could not be measured: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    return float(done.stdout.strip().splitlines()[-1])


def peer() -> str | None:
    """The Python of an environment with nanobot-ai, made where there is none; `None` where that fails."""
    home = ROOT / ".venv-peers" / "nanobot"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    install = [
        str(python),
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "nanobot-ai==0.3.5",
    ]
    if subprocess.run(install, check=False).returncode:
        print("nanobot-ai cannot be installed here: its figures are left out", file=sys.stderr)
        return None
    return str(python)


async def measure(arguments: argparse.Namespace) -> None:
    count_text("load the vocabulary")
    python = peer() if arguments.peers else None
    print(
        f"{'messages':>10} {'floor':>8} {'turn':>8} {'ratio':>7} {'cold request':>14} {'nanobot':>10}  (CPU ms)"
    )
    place = Path(tempfile.mkdtemp(prefix="backstory-bench-", dir=arguments.folder))
    workspaces = {messages: place / str(messages) for messages in arguments.messages}
    for messages, workspace in workspaces.items():
        await fill(workspace, messages)
    cold = dict.fromkeys(workspaces, math.inf)
    for _ in range(arguments.times):
        for messages, workspace in workspaces.items():
            cold[messages] = min(cold[messages], await cold_request(workspace))
    theirs: float | None = None
    for number, (messages, workspace) in enumerate(workspaces.items(), 1):
        raw, ours, ratio = await durable_turn(workspace, arguments.turns, arguments.times, number * 10_000)
        theirs = nanobot(python, messages) if python else None
        told = f"{theirs:10,.1f}" if theirs is not None else f"{'-':>10}"
        print(f"{messages:>10,} {raw:8.2f} {ours:8.2f} {ratio:7.2f} {cold[messages]:14.2f} {told}")
    shutil.rmtree(place)
    print(f"cold request, largest to smallest: {max(cold.values()) / min(cold.values()):.2f} (at most 1.3)")
    if theirs is not None:
        longest = max(arguments.messages)
        print(f"nanobot to ours at {longest:,} messages: {theirs / cold[longest]:,.0f} times (at least 100)")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, nargs="+", default=[1_000, 50_000])
    parser.add_argument("--turns", type=int, default=16, help="of one round")
    parser.add_argument("--times", type=int, default=25, help="rounds")
    parser.add_argument(
        "--folder", default=None, help="where to write; a real disk, not a memory file system"
    )
    parser.add_argument("--no-peers", dest="peers", action="store_false")
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
