"""A process to be killed or stopped: appends to one session until it is, and prints each batch that was acknowledged.

Arguments: the workspace, a name, the seconds that its lease lasts. A name that begins with ``free`` appends 25
batches without a lease and ends; ``sync`` and ``write`` sleep in the midst of one, and say ``sleeping`` before.
"""

import asyncio
import random
import sys
import time

from backstory.errors import LeaseHeld, StaleLease
from backstory.records import NewRecord
from backstory.stores import FilesStore, LeaseRequest, SessionId
from backstory.stores.disk import Disk

S = SessionId(key="s")


class Sleepy(Disk):
    count = 0

    def sync(self, fd: int) -> None:
        self._sleep("sync")
        super().sync(fd)

    def write(self, fd: int, data: bytes | memoryview) -> int:
        self._sleep("write")
        return super().write(fd, data)

    @staticmethod
    def _sleep(where: str) -> None:
        Sleepy.count += where == sys.argv[2]
        if Sleepy.count == 8 and where == sys.argv[2]:
            print("sleeping", flush=True)
            time.sleep(1)


def notes(name: str, size: int) -> list[NewRecord]:
    return [
        NewRecord(kind="meta", data={"text": f"{name} {part}", "more": "x" * 999}) for part in range(size)
    ]


async def free(store: FilesStore, name: str) -> None:
    for number in range(25):
        batch = f"{name}-{number}"
        await store.append(S, notes(batch, 2), batch=batch)
        print(f"{batch}.", flush=True)
    await store.close()


async def main(root: str, name: str, ttl: float) -> None:
    store = FilesStore(root, disk=Sleepy() if name in ("sync", "write") else None)
    if name.startswith("free"):
        await free(store, name)
        return
    while True:
        try:
            lease = await store.acquire(S, LeaseRequest(owner=name, ttl=ttl))
            break
        except LeaseHeld as held:
            await asyncio.sleep(held.expires_in)
    print("ready", flush=True)
    number = 0
    while True:
        number += 1
        batch = f"{name}-{number}"
        try:
            await store.append(S, notes(batch, random.randint(1, 4)), fence=lease.fence, batch=batch)
        except StaleLease:
            print("StaleLease", flush=True)
            return
        print(f"{batch}.", flush=True)


asyncio.run(main(sys.argv[1], sys.argv[2], float(sys.argv[3])))
