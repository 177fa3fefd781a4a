"""A session of 200,000 messages under a cap of 5,000: a turn at its end costs what one at its beginning does.

    python benchmarks/capped.py                       # SQLite; some minutes
    python benchmarks/capped.py --messages 20000 --cap 1000

Prints the CPU of a turn (durable for the process, so that the disk is not measured) by tenths of the session, archiving
in the background included; the memory that grew; and whether an export gives every record back.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import resource
import sys
import tempfile
import time
from pathlib import Path

import backstory
from backstory.sessions.operations import pages
from backstory.stores import SessionId

sys.path.insert(0, str(Path(__file__).resolve().parent / "peers"))

from talk import rows

KEY = "bench:1"


async def run(messages: int, cap: int, folder: str) -> None:
    turns = messages // 4
    tenth = turns // 10
    written: list[bytes] = []
    spent: list[float] = []
    async with backstory.open(
        f"sqlite:///{folder}/chat.db",
        target="openai_chat",
        budget=8_000,
        runtime=False,
        durability="process",
        cap_messages=cap,
        compaction=False,
    ) as bs:
        session, _ = bs.sessions.peek(SessionId(key=KEY))
        append = session.append
        given = hashlib.sha256()

        async def noted(records, **options):  # type: ignore[no-untyped-def]
            head = session.view.head
            found = await append(records, **options)
            for record in await bs.store.read(session.id, after=head):
                given.update(record.line)
                written.append(b"")
            return found

        session.append = noted  # type: ignore[method-assign]
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        start = time.process_time()
        for number in range(turns):
            if number % tenth == 0 and number:
                spent.append((time.process_time() - start) / tenth * 1000)
                start = time.process_time()
            ((user, arguments, result, answer),) = rows(1, seed=number)
            function = {"name": "look", "arguments": arguments}
            call = {"id": f"c{number}", "type": "function", "function": function}
            async with bs.turn(KEY, user) as turn:
                await turn.request()
                await turn.record({"role": "assistant", "content": None, "tool_calls": [call]})
                for waiting in turn.open_calls:
                    await turn.result(waiting, result)
                await turn.request()
                await turn.record({"role": "assistant", "content": answer})
        spent.append((time.process_time() - start) / tenth * 1000)
        assert bs.archiver is not None
        await bs.archiver.close()
        grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024
        live = len(await bs.store.read(SessionId(key=KEY)))
        exported, count = hashlib.sha256(), 0
        async for page in pages(bs.store, SessionId(key=KEY)):
            for record in page:
                exported.update(record.line)
                count += 1
    print(f"{messages:,} messages, {len(written):,} records, cap {cap:,}: {live:,} records live")
    print(f"CPU of a turn, ms, by tenths: {', '.join(f'{each:.2f}' for each in spent)}")
    print(f"last tenth to second: {spent[-1] / spent[1]:.2f}; memory grew by {grown:,.0f} MB")
    same = count == len(written) and exported.digest() == given.digest()
    print(f"an export gives {count:,} records back: {'each the same' if same else 'NOT the same'}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--messages", type=int, default=200_000)
    parser.add_argument("--cap", type=int, default=5_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="backstory-bench-") as folder:
        asyncio.run(run(arguments.messages, arguments.cap, folder))


if __name__ == "__main__":
    main()
