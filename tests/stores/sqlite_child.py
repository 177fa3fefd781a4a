"""A process to be killed or stopped: many sessions append at once, and each batch that was acknowledged is printed.

Arguments: the file, a name, how many batches a session appends (0: until it is killed).
"""

import asyncio
import itertools
import random
import sys

from backstory.errors import StaleLease
from backstory.records import NewRecord
from backstory.stores import LeaseRequest, SessionId, SqliteStore

SESSIONS = 8


def notes(name: str, size: int) -> list[NewRecord]:
    return [
        NewRecord(kind="meta", data={"text": f"{name} {part}", "more": "x" * 999}) for part in range(size)
    ]


async def talk(store: SqliteStore, key: str, name: str, most: int) -> None:
    session = SessionId(key=key)
    for number in range(most) if most else itertools.count():
        batch = f"{name}-{key}-{number}"
        await store.append(session, notes(batch, random.randint(1, 4)), batch=batch)
        print(f"{batch}.", flush=True)


async def hold(store: SqliteStore, name: str) -> None:
    session = SessionId(key="s0")
    lease = await store.acquire(session, LeaseRequest(owner=name, ttl=0.2))
    print("ready", flush=True)
    for number in itertools.count():
        batch = f"{name}-s0-{number}"
        try:
            await store.append(session, notes(batch, 2), fence=lease.fence, batch=batch)
        except StaleLease:
            print("StaleLease", flush=True)
            return
        print(f"{batch}.", flush=True)
        await asyncio.sleep(0.002)


async def main(path: str, name: str, most: int) -> None:
    store = SqliteStore(path)
    if name == "holder":
        await hold(store, name)
    else:
        print("ready", flush=True)
        await asyncio.gather(*(talk(store, f"s{number}", name, most) for number in range(SESSIONS)))
    await store.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], sys.argv[2], int(sys.argv[3])))
