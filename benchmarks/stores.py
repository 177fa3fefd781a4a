"""What a durable turn costs in our stores, beside raw floors that do the same commits and nothing else.

    python benchmarks/stores.py                 # 0 … 50k messages held; 64 sessions at once; bytes a message
    python benchmarks/stores.py --long          # and SQLite with 1M messages held

A turn is four durable points: the user's message with the start of the turn, the tool call with its start, the tool
result, the answer with the end of the turn: 7 records. Each contestant makes the same four awaited commits of the same
lines; `+count` also counts the tokens of the four texts (o200k_base), as every row of ours does. Contestants alternate
within a run, so that the machine's other work meets all of them: trust the ratios. CPU is of the whole process.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sqlite3
import statistics
import sys
import tempfile
import threading
from collections.abc import Callable
from pathlib import Path
from queue import SimpleQueue
from random import Random
from time import perf_counter, process_time

from backstory.messages import Message, Text, ToolCall, ToolResult
from backstory.records import NewRecord, new_message, stamp
from backstory.stores import FilesStore, InMemoryStore, LeaseRequest, SessionId, SqliteStore, Store
from backstory.tokens import tokenizer

AT = "2026-01-01T00:00:00.000Z"
ENGLISH = (
    "the|order was sent to|a warehouse in|Hamburg|arrives on|Tuesday|if customs|let it pass|nobody|has told"
)
CHINESE = "订单|已经|发货|到|仓库|客户|询问|退款|发票|地址|价格|茶叶|周二|送达|海关|清关|需要|等待|确认|信息"


class Talk:
    """Turns with texts of 60, 400 and 120 tokens or so, English and Chinese, none of them twice."""

    def __init__(self, seed: int) -> None:
        self._random = Random(seed)
        self._number = 0
        self.written = 0  # bytes of text

    def text(self, tokens: int) -> str:
        words = (CHINESE if self._number % 2 else ENGLISH).split("|")
        joint = "" if self._number % 2 else " "
        return f"{self._number} " + joint.join(self._random.choice(words) for _ in range(tokens * 2 // 3))

    def turn(self, count: bool) -> list[list[NewRecord]]:
        self._number += 1
        number = self._number
        call = ToolCall(id=f"c{number}", name="lookup_order", arguments=f'{{"order": {number}}}')
        asks, finds, says = (self.text(tokens) for tokens in (60, 400, 120))
        result = ToolResult(call_id=call.id, name=call.name, content=(Text(text=finds),))
        user, called, found, answer = (
            new_message(
                message, turn=number, tokens={"o200k_base": tokenizer().count(text)} if count else None
            )
            for message, text in (
                (Message(role="user", parts=(Text(text=asks),)), asks),
                (Message(role="assistant", parts=(call,)), call.arguments),
                (Message(role="tool", parts=(result,)), finds),
                (Message(role="assistant", parts=(Text(text=says),)), says),
            )
        )
        started = NewRecord(kind="turn_started", turn=number)
        begins = NewRecord(kind="call_started", turn=number, data={"call": number})
        ended = NewRecord(kind="turn_ended", turn=number, data={"reason": "answered"})
        self.written += sum(len(text.encode()) for text in (asks, call.arguments, finds, says))
        return [[started, user], [called, begins], [found], [answer, ended]]


class Contestant:
    """`turn` makes one durable turn in a session; `fill` makes it hold messages already."""

    counts = True

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    async def fill(self, session: int, talk: Talk, messages: int) -> None:
        raise NotImplementedError

    async def turn(self, session: int, talk: Talk) -> None:
        raise NotImplementedError

    async def close(self) -> None:
        pass


class Ours(Contestant):
    make: Callable[[Path], Store]

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.store = type(self).make(folder)
        self.heads: dict[int, int] = {}

    async def fill(self, session: int, talk: Talk, messages: int) -> None:
        batch: list[NewRecord] = []
        for done in range(0, messages, 4):
            batch += [record for point in talk.turn(False) for record in point]
            if len(batch) > 3500 or done + 4 >= messages:
                ended = await self.store.append(SessionId(key=f"s{session}"), batch)
                self.heads[session], batch = ended.head.seq, []

    async def turn(self, session: int, talk: Talk) -> None:
        place, head = SessionId(key=f"s{session}"), self.heads.get(session, 0)
        fence = None
        for number, records in enumerate(talk.turn(self.counts)):
            request = LeaseRequest(owner="bench", ttl=30) if number == 0 else None
            done = await self.store.append(
                place, records, expected=head, fence=fence, acquire=request, release=number == 3
            )
            fence = done.lease.fence if done.lease is not None else fence
            head = done.head.seq
        self.heads[session] = head

    async def close(self) -> None:
        await self.store.close()


class Sqlite(Ours):
    make = staticmethod(lambda folder: SqliteStore(folder / "ours.db"))


class SqliteProcess(Ours):
    make = staticmethod(lambda folder: SqliteStore(folder / "ours.db", durability="process"))


class Files(Ours):
    make = staticmethod(lambda folder: FilesStore(folder / "files"))


class Memory(Ours):
    make = staticmethod(lambda folder: InMemoryStore())


class Raw(Contestant):
    """One table, one connection, a commit for each durable point on the event loop. Lines are made as ours are."""

    synchronous = "FULL"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.connection = sqlite3.connect(folder / "raw.db", isolation_level=None, check_same_thread=False)
        self.connection.execute("PRAGMA journal_mode = WAL")
        self.connection.execute(f"PRAGMA synchronous = {self.synchronous}")
        self.connection.execute(
            "CREATE TABLE records (place INTEGER PRIMARY KEY, session INTEGER, line BLOB)"
        )
        self.connection.execute("CREATE INDEX by_session ON records (session, place)")

    def rows(self, session: int, records: list[NewRecord]) -> list[tuple[int, bytes]]:
        return [(session, record.line) for record in stamp(records, seq=1, at=AT)]

    def write(self, rows: list[tuple[int, bytes]]) -> None:
        self.connection.execute("BEGIN IMMEDIATE")
        self.connection.executemany("INSERT INTO records (session, line) VALUES (?, ?)", rows)
        self.connection.execute("COMMIT")

    async def fill(self, session: int, talk: Talk, messages: int) -> None:
        for _ in range(0, messages, 4):
            rows = [row for point in talk.turn(False) for row in self.rows(session, point)]
            if not self.connection.in_transaction:
                self.connection.execute("BEGIN IMMEDIATE")
            self.connection.executemany("INSERT INTO records (session, line) VALUES (?, ?)", rows)
        if self.connection.in_transaction:
            self.connection.execute("COMMIT")

    async def commit(self, rows: list[tuple[int, bytes]]) -> None:
        self.write(rows)

    async def turn(self, session: int, talk: Talk) -> None:
        for records in talk.turn(self.counts):
            await self.commit(self.rows(session, records))

    async def close(self) -> None:
        self.connection.close()


class RawCountless(Raw):
    counts = False


class RawNormal(Raw):
    synchronous = "NORMAL"


class RawNormalCountless(RawNormal):
    counts = False


class RawGroup(Raw):
    """Group commit as one would write it: a queue, a thread, one transaction for whatever waits."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.queue: SimpleQueue[tuple[list[tuple[int, bytes]], asyncio.Future[None]] | None] = SimpleQueue()
        self.thread = threading.Thread(target=self.serve)
        self.thread.start()

    async def commit(self, rows: list[tuple[int, bytes]]) -> None:
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.queue.put((rows, future))
        await future

    def serve(self) -> None:
        while (item := self.queue.get()) is not None:
            group = [item]
            while not self.queue.empty():
                more = self.queue.get()
                if more is None:
                    return
                group.append(more)
            self.write([row for rows, _ in group for row in rows])
            item[1].get_loop().call_soon_threadsafe(_finish, [future for _, future in group])

    async def close(self) -> None:
        self.queue.put(None)
        self.thread.join()
        await super().close()


class RawGroupCountless(RawGroup):
    counts = False


class RawGroupNormal(RawGroup):
    synchronous = "NORMAL"


def _finish(futures: list[asyncio.Future[None]]) -> None:
    for future in futures:
        future.set_result(None)


class Jsonl(Raw):
    """A line each, one write and one fdatasync for each durable point."""

    def __init__(self, folder: Path) -> None:
        Contestant.__init__(self, folder)
        self.fd = os.open(folder / "raw.jsonl", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def write(self, rows: list[tuple[int, bytes]]) -> None:
        os.write(self.fd, b"".join(line + b"\n" for _, line in rows))
        os.fdatasync(self.fd)

    async def fill(self, session: int, talk: Talk, messages: int) -> None:
        for _ in range(0, messages, 4):
            rows = [row for point in talk.turn(False) for row in self.rows(session, point)]
            os.write(self.fd, b"".join(line + b"\n" for _, line in rows))

    async def close(self) -> None:
        os.close(self.fd)


class JsonlCountless(Jsonl):
    counts = False


ALONE: dict[str, type[Contestant]] = {
    "floor: SQLite FULL": RawCountless,
    "floor: SQLite FULL +count": Raw,
    "floor: SQLite FULL, group commit +count": RawGroup,
    "floor: SQLite NORMAL": RawNormalCountless,
    "floor: SQLite NORMAL +count": RawNormal,
    "floor: JSONL, fdatasync": JsonlCountless,
    "floor: JSONL, fdatasync +count": Jsonl,
    "SqliteStore": Sqlite,
    "SqliteStore, process": SqliteProcess,
    "FilesStore": Files,
    "InMemoryStore": Memory,
}
CROWD: dict[str, type[Contestant]] = {
    "floor: SQLite FULL +count": Raw,
    "floor: SQLite FULL, group commit": RawGroupCountless,
    "floor: SQLite FULL, group commit +count": RawGroup,
    "floor: SQLite NORMAL, group commit +count": RawGroupNormal,
    "SqliteStore": Sqlite,
    "SqliteStore, process": SqliteProcess,
    "FilesStore": Files,
}
FLOOR, GROUP_FLOOR = "floor: SQLite FULL +count", "floor: SQLite FULL, group commit +count"

LONG = ("floor: SQLite FULL +count", "SqliteStore", "SqliteStore, process")
"""Who also holds a million messages."""


class Place:
    folder = "."


async def rounds(
    kinds: dict[str, type[Contestant]], held: int, sessions: int, number: int, turns: int
) -> dict[str, list[tuple[float, float]]]:
    """CPU and wall seconds a turn, round by round, contestants taking turns. `sessions` run at once."""
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in kinds}
    with tempfile.TemporaryDirectory(dir=Place.folder) as folder:
        contestants: dict[str, Contestant] = {}
        for name, kind in kinds.items():
            place = Path(folder) / str(len(contestants))
            place.mkdir()
            contestants[name] = kind(place)
            if held:
                await contestants[name].fill(0, Talk(1), held)
        talks = {name: Talk(2) for name in kinds}

        async def run(one: Contestant, talk: Talk, session: int) -> None:
            for _ in range(turns):
                await one.turn(session, talk)

        for warm in range(-1, number):
            for name, one in contestants.items():
                cpu, wall = process_time(), perf_counter()
                await asyncio.gather(*(run(one, talks[name], session) for session in range(sessions)))
                cost = (process_time() - cpu, perf_counter() - wall)
                if warm >= 0:
                    figures[name].append((cost[0] / turns / sessions, cost[1] / turns / sessions))
        for one in contestants.values():
            await one.close()
    return figures


def median(rows: list[tuple[float, float]], which: int) -> float:
    return statistics.median(row[which] for row in rows)


def ratio(rows: list[tuple[float, float]], floor: list[tuple[float, float]], which: int) -> float:
    """Of neighbours in time, so that a busy machine counts for both."""
    return statistics.median(a[which] / b[which] for a, b in zip(rows, floor, strict=True))


async def alone(levels: list[int], number: int, turns: int) -> None:
    print(
        "| a durable turn, CPU ms (wall ms) | "
        + " | ".join(f"{level:,}" for level in levels)
        + " | CPU / floor |"
    )
    print("| --- |" + " --- |" * (len(levels) + 1))
    some = {name: ALONE[name] for name in LONG}
    long = max(levels) >= 1_000_000
    kinds = some if long else ALONE
    found = {level: await rounds(kinds, level, 1, number, turns) for level in levels}
    for name in kinds:
        cells = [
            f"{median(found[level][name], 0) * 1e3:.2f} ({median(found[level][name], 1) * 1e3:.1f})"
            for level in levels
        ]
        of_floor = " / ".join(f"{ratio(found[level][name], found[level][FLOOR], 0):.2f}" for level in levels)
        print(f"| {name} | {' | '.join(cells)} | {of_floor} |", flush=True)


async def crowd(sessions: int, number: int, turns: int) -> None:
    found = await rounds(CROWD, 0, sessions, number, turns)
    print(f"\n| {sessions} sessions at once | turns a second | of the group floor | CPU ms a turn |")
    print("| --- | --- | --- | --- |")
    for name, rows in found.items():
        speed = 1 / ratio(rows, found[GROUP_FLOOR], 1)
        print(
            f"| {name} | {1 / median(rows, 1):,.0f} | {speed:.0%} | {median(rows, 0) * 1e3:.2f} |", flush=True
        )


def files(folder: str) -> list[Path]:
    return [path for path in Path(folder).rglob("*") if path.is_file()]


async def size(messages: int) -> None:
    print("\n| bytes a message | in a file | of which text |\n| --- | --- | --- |")
    for name, kind, sessions in (
        ("SqliteStore, one session", Sqlite, 1),
        ("SqliteStore, 64 sessions in turn", Sqlite, 64),
        ("FilesStore, one session", Files, 1),
    ):
        with tempfile.TemporaryDirectory(dir=Place.folder) as folder:
            one, talk = kind(Path(folder)), Talk(3)
            for number in range(messages // 4):
                for records in talk.turn(True):
                    await one.store.append(SessionId(key=f"s{number % sessions}"), records)
            await one.close()
            total = sum(entry.stat().st_size for entry in files(folder))
            print(f"| {name} | {total / messages:,.0f} | {talk.written / messages:,.0f} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--long", action="store_true", help="also with 1,000,000 messages held")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--turns", type=int, default=10, help="turns a round")
    parser.add_argument("--levels", default="0,100,1000,10000,50000")
    parser.add_argument("--folder", default=".", help="on the disk that is to be measured")
    parser.add_argument("--only", choices=("alone", "crowd", "size"))
    chosen = parser.parse_args()
    Place.folder = chosen.folder
    tokenizer().count("warm")
    print(f"Python {sys.version.split()[0]}, SQLite {sqlite3.sqlite_version}, {os.cpu_count()} cores\n")
    levels = [int(level) for level in chosen.levels.split(",")]
    if chosen.only in (None, "alone"):
        asyncio.run(alone(levels, chosen.rounds, chosen.turns))
        if chosen.long:
            print()
            asyncio.run(alone([100, 1_000_000], chosen.rounds, chosen.turns))
    if chosen.only in (None, "crowd"):
        asyncio.run(crowd(64, max(3, chosen.rounds // 2), 4))
    if chosen.only in (None, "size"):
        asyncio.run(size(4000))


if __name__ == "__main__":
    main()
