"""A process that runs 8 turns in one session, each under a lease that it waits for; prints what was acknowledged.

Arguments: the URL, the schema or prefix, a name.
"""

import asyncio
import sys

from backstory.errors import LeaseHeld
from backstory.stores import LeaseRequest, SessionId
from backstory.stores.conformance import note
from tests.stores.kinds import MAKERS

S = SessionId(key="s")


async def main(url: str, prefix: str, name: str) -> None:
    kind = "postgres" if url.startswith("postgres") else "redis"
    store = MAKERS[kind][0](url, prefix)
    for number in range(8):
        turn = f"{name}.{number}"
        request = LeaseRequest(owner=turn, ttl=30)
        while True:
            try:
                first = await store.append(
                    S, [note(f"{turn}.a", turn=turn)], acquire=request, batch=f"{turn}.a"
                )
                break
            except LeaseHeld:
                await store.wait(S, free=True, within=30)
        assert first.lease is not None
        fence = first.lease.fence
        for part in "bc":
            await store.append(
                S,
                [note(f"{turn}.{part}", turn=turn)],
                fence=fence,
                batch=f"{turn}.{part}",
                release=part == "c",
            )
        print(*(f"{turn}.{part}" for part in "abc"), flush=True)
    await store.close()


asyncio.run(main(*sys.argv[1:4]))
