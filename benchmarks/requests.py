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
"""

from __future__ import annotations

import argparse
import asyncio
import functools
import itertools
import json
import os
import shutil
import sqlite3
import statistics
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
            left -= count_text(spoken(message)) if counted else message["tokens"]
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
    first = next(iter(taken.values()))
    return {
        name: (min(found), statistics.median(ours / floor for ours, floor in zip(found, first, strict=True)))
        for name, found in taken.items()
    }


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

    with put_back(place):
        async with opened(home) as bs, bs.turn(KEY, "How many boxes are left?") as turn:
            sent = (await turn.request()).body["messages"]
            most = len(sent) - 2  # the system's and the newest
            warm = await side_by_side(
                {"floor": plain, "floor, counted": counted, "ours": turn.request}, rounds, 40
            )
    print(f"{kind}, {held:,} held: {len(floor.request(handle, most))} messages the floor's, {len(sent)} ours")
    for name, (least, ratio) in warm.items():
        print(f"  warm  {name:<16} {least:8.3f} ms  {ratio:6.2f}")
    taken: dict[str, list[float]] = {}
    for _ in range(rounds):
        for name, work in (
            ("floor", anew),
            ("floor, counted", functools.partial(anew, counts=True)),
            ("ours", cold),
        ):
            with put_back(place):
                taken.setdefault(name, []).append(await timed(work, 1))
    for name, found in taken.items():
        ratio = statistics.median(a / b for a, b in zip(found, taken["floor"], strict=True))
        print(f"  cold  {name:<16} {min(found):8.3f} ms  {ratio:6.2f}")


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
