"""What a request of 8,000 tokens costs beside its floor: warm (the session in hand) and cold (a fresh object).

    python benchmarks/requests.py                     # 1,000 and 10,000 messages held
    python benchmarks/requests.py --messages 50000

The conversation is that of the peers' figures (benchmarks/peers/talk.py). CPU time of the process, the least of many
rounds taken in alternation, and the median of the ratios of rounds side by side.

- *floor*: the messages as rows (SQLite) or lines (JSONL), each with its tokens stored beside it. As many as ours sends
  are read from the newest back, their tokens added up against 8,000, each parsed, put in order: a list of messages. No
  check, no system block, no ledger, nothing compared with the request before. Cold: the file is opened anew.
- *floor, counted*: the same where no counts are stored, so that each text is counted when it is read, as whoever keeps
  a library's messages within a budget has to. Counts are remembered by text, as ours are, for the warm one.
- *ours*: `await turn.request()`: the whole body, legal, within the budget, proven to extend the request before.
  Cold: `backstory.open`, the session opened, the user's message made durable, and that.
- *as bytes*: both encoded as JSON besides, since a request goes over a wire. The ratio is to the floor as bytes.
- *process*: user and system CPU of a whole interpreter that does what the cold one does: start, imports and, for ours,
  which counts the new message, the tokenizer's vocabulary. Nothing is subtracted.
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import os
import resource
import shutil
import sqlite3
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import backstory
from backstory.tokens import count_text

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

from talk import Row, rows  # noqa: E402
from turns import BUDGET, KEY, LIVE, call, put_back, say  # noqa: E402

Message = dict[str, Any]
Work = Callable[[], Awaitable[object]]


def messages(number: int, row: Row) -> list[tuple[Message, int]]:
    """The four messages of a turn with their tokens."""
    user, arguments, result, answer = row
    return [
        ({"role": "user", "content": user}, count_text(user)),
        (call(number, arguments), count_text(arguments)),
        ({"role": "tool", "tool_call_id": f"c{number}", "content": result}, count_text(result)),
        ({"role": "assistant", "content": answer}, count_text(answer)),
    ]


def spoken(message: Message) -> str:
    content = message["content"]
    return content if content is not None else message["tool_calls"][0]["function"]["arguments"]


class Rows:
    """The floor in SQLite: a row a message."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "floor.db"

    def open(self) -> sqlite3.Connection:
        return sqlite3.connect(self.path)

    def fill(self, given: list[tuple[Message, int]]) -> None:
        db = self.open()
        db.execute("PRAGMA journal_mode=WAL")
        db.execute(
            "CREATE TABLE messages (session TEXT, seq INTEGER, body TEXT, tokens INTEGER, PRIMARY KEY (session, seq))"
        )
        lines = [(KEY, seq, json.dumps(m, ensure_ascii=False), n) for seq, (m, n) in enumerate(given)]
        db.executemany("INSERT INTO messages VALUES (?, ?, ?, ?)", lines)
        db.commit()
        db.close()

    def request(self, db: sqlite3.Connection, most: int, *, counted: bool = False) -> list[Message]:
        found: list[Message] = []
        left = BUDGET
        for body, tokens in db.execute(
            "SELECT body, tokens FROM messages WHERE session = ? ORDER BY seq DESC", (KEY,)
        ):
            message = json.loads(body)
            left -= count_text(spoken(message)) if counted else tokens
            if left < 0 or len(found) == most:
                break
            found.append(message)
        return found[::-1]


class Lines:
    """The floor in a file: a line a message, read from its end."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "floor.jsonl"

    def open(self) -> int:
        return os.open(self.path, os.O_RDONLY)

    def fill(self, given: list[tuple[Message, int]]) -> None:
        lines = [json.dumps({**message, "tokens": tokens}, ensure_ascii=False) for message, tokens in given]
        self.path.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")

    def request(self, file: int, most: int, *, counted: bool = False) -> list[Message]:
        size = os.fstat(file).st_size
        block = min(size, 1 << 16)
        found: list[Message] = []
        left = BUDGET
        for line in reversed(os.pread(file, block, size - block).split(b"\n")[1:-1]):
            message = json.loads(line)
            tokens = message.pop("tokens")
            left -= count_text(spoken(message)) if counted else tokens
            if left < 0 or len(found) == most:
                return found[::-1]
            found.append(message)
        raise AssertionError("a block holds more than a window")


async def fill(place: str, given: list[Row]) -> None:
    """Ours: by turns, those of the end with their requests, as a session's that was asked all along."""
    async with opened(place, durability="process") as bs:
        for number, row in enumerate(given):
            await say(bs, number, row, requests=number >= len(given) - LIVE)


def opened(place: str, **options: Any) -> backstory.Backstory:
    return backstory.open(
        place, target="openai_chat", budget=BUDGET, runtime=False, compaction=False, **options
    )


async def timed(work: Work, times: int) -> float:
    start = time.process_time()
    for _ in range(times):
        await work()
    return (time.process_time() - start) / times * 1000


async def side_by_side(works: dict[str, Work], rounds: int, times: int) -> dict[str, tuple[float, float]]:
    """Of each: the least CPU milliseconds, and the median ratio to the first's."""
    taken: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(rounds):
        for name, work in works.items():
            taken[name].append(await timed(work, times))
    return compared(taken)


def compared(taken: dict[str, list[float]]) -> dict[str, tuple[float, float]]:
    """Of each the least, and the median ratio to the first's, round by round."""
    first = next(iter(taken.values()))
    return {
        name: (min(found), statistics.median(ours / floor for ours, floor in zip(found, first, strict=True)))
        for name, found in taken.items()
    }


def encoded(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()


FLOOR_ROWS = """
import json, sqlite3, sys
path, key, most, left = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
found = []
for body, tokens in sqlite3.connect(path).execute(
    "SELECT body, tokens FROM messages WHERE session = ? ORDER BY seq DESC", (key,)
):
    left -= tokens
    if left < 0 or len(found) == most:
        break
    found.append(json.loads(body))
json.dumps(found[::-1], ensure_ascii=False).encode()
"""
FLOOR_LINES = """
import json, os, sys
path, key, most, left = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
file = os.open(path, os.O_RDONLY)
size = os.fstat(file).st_size
block = min(size, 1 << 16)
found = []
for line in reversed(os.pread(file, block, size - block).split(b"\\n")[1:-1]):
    message = json.loads(line)
    left -= message.pop("tokens")
    if left < 0 or len(found) == most:
        break
    found.append(message)
json.dumps(found[::-1], ensure_ascii=False).encode()
"""
OURS = """
import asyncio, json, sys
import backstory
async def main():
    place, key, budget = sys.argv[1], sys.argv[2], int(sys.argv[3])
    options = {"target": "openai_chat", "budget": budget, "runtime": False, "compaction": False}
    async with backstory.open(place, **options) as bs, bs.turn(key, "How many boxes are left?") as turn:
        json.dumps((await turn.request()).body, ensure_ascii=False).encode()
asyncio.run(main())
"""


def process_cpu(compiled: Path, code: str, *arguments: object) -> float:
    """CPU milliseconds of an interpreter that runs this, from its start to its end.

    Modules are kept `compiled` in this folder, as those of an installed package are.
    """
    environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(compiled)}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)

    def spent() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    start = spent()
    subprocess.run([sys.executable, "-c", code, *map(str, arguments)], check=True, env=environment)
    return (spent() - start) * 1000


def report(heading: str, found: dict[str, tuple[float, float]]) -> None:
    for name, (least, ratio) in found.items():
        print(f"  {heading:<8}{name:<16} {least:8.3f} ms  {ratio:6.2f}")


async def of(kind: str, place: Path, held: int, rounds: int) -> None:
    floor: Rows | Lines = Rows(place) if kind == "SQLite" else Lines(place)
    given = [*rows(held // 4 - LIVE, 2), *rows(LIVE)]
    floor.fill(list(itertools.chain.from_iterable(messages(n, row) for n, row in enumerate(given))))
    home = f"sqlite:///{place}/chat.db" if kind == "SQLite" else str(place / "workspace")
    await fill(home, given)
    handle: Any = floor.open()
    most = 0

    async def plain() -> object:
        return floor.request(handle, most)

    async def counted() -> object:
        return floor.request(handle, most, counted=True)

    async def anew(*, counts: bool = False) -> object:
        fresh: Any = floor.open()
        try:
            return floor.request(fresh, most, counted=counts)
        finally:
            fresh.close() if kind == "SQLite" else os.close(fresh)

    async def cold() -> object:
        async with opened(home) as bs, bs.turn(KEY, "How many boxes are left?") as turn:
            return await turn.request()

    async def floor_bytes() -> object:
        return encoded(floor.request(handle, most))

    async def our_bytes() -> object:
        return encoded((await turn.request()).body)

    with put_back(place):
        async with opened(home) as bs, bs.turn(KEY, "How many boxes are left?") as turn:
            sent = (await turn.request()).body["messages"]
            most = len(sent) - 2  # the system's and the newest
            warm = await side_by_side(
                {"floor": plain, "floor, counted": counted, "ours": turn.request}, rounds, 40
            )
            wire = await side_by_side(
                {"floor, as bytes": floor_bytes, "ours, as bytes": our_bytes}, rounds, 40
            )
    print(f"{kind}, {held:,} held: {len(floor.request(handle, most))} messages the floor's, {len(sent)} ours")
    report("warm", warm)
    report("warm", wire)
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, work in (
            ("floor", anew),
            ("floor, counted", functools.partial(anew, counts=True)),
            ("ours", cold),
        ):
            with put_back(place):
                taken.setdefault(name, []).append(await timed(work, 1))
    report("cold", compared(taken))
    alone: dict[str, list[float]] = {}
    raw = FLOOR_ROWS if kind == "SQLite" else FLOOR_LINES
    with tempfile.TemporaryDirectory() as compiled:
        for _ in range(1 + min(rounds, 7)):  # the first compiles
            with put_back(place):
                alone.setdefault("floor", []).append(
                    process_cpu(Path(compiled), raw, floor.path, KEY, most, BUDGET)
                )
                alone.setdefault("ours", []).append(process_cpu(Path(compiled), OURS, home, KEY, BUDGET))
    report("process", compared({name: found[1:] for name, found in alone.items()}))


async def measure(arguments: argparse.Namespace) -> None:
    count_text("load the vocabulary")
    for held in arguments.messages:
        for kind in ("SQLite", "files"):
            place = Path(tempfile.mkdtemp(prefix="backstory-bench-", dir=arguments.folder))
            try:
                await of(kind, place, held, arguments.rounds)
            finally:
                shutil.rmtree(place)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, nargs="+", default=[1_000, 10_000])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--folder", default=None, help="where to write; a real disk, not a memory file system"
    )
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()
