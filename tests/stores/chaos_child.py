"""A worker to be killed: takes turns from its input, a line of JSON each, and says of each whether it was done.

Arguments: the URL, the seconds that its leases last. In: ``{"key", "id", "text"}``. Out: ``{"id", "answer"}`` or
``{"id", "error", "what"}``. The model is scripted, calls a tool in every second turn, and refuses any request that its
API would refuse.
"""

import asyncio
import json
import random
import sys

import backstory
from backstory.errors import BackstoryError, SessionError, StoreError
from backstory.models.scripted import ScriptedModel, calls
from backstory.stores import Store
from tests.stores.kinds import MAKERS


@backstory.tool
async def look(what: str) -> str:
    """Look at something."""
    await asyncio.sleep(random.uniform(0, 0.05))
    return f"saw {what}"


def reply(body):
    asked = next(one["content"] for one in reversed(body["messages"]) if one["role"] == "user")
    text = asked if isinstance(asked, str) else "".join(part.get("text", "") for part in asked)
    text = text.split("\n")[0]
    if body["messages"][-1]["role"] == "user" and text.endswith("0"):
        return calls(("look", {"what": text}))
    return f"answer to {text}"


def say(**what: object) -> None:
    sys.stdout.write(json.dumps(what) + "\n")
    sys.stdout.flush()


async def serve(bs: backstory.Backstory, job: dict[str, str]) -> None:
    try:
        done = await bs.say(job["key"], job["text"], message_id=job["id"])
    except (StoreError, SessionError) as error:
        say(id=job["id"], error=type(error).__name__, what=str(error))
    except BackstoryError as error:
        say(id=job["id"], error="bug", what=f"{type(error).__name__}: {error}")
    else:
        say(id=job["id"], answer=str(done))


async def main(url: str, ttl: float) -> None:
    kind = "postgres" if url.startswith("postgres") else "redis"
    store: Store = MAKERS[kind][0](url, "chaos", timeout=10.0)
    model = ScriptedModel(reply, name="m", window=16_000)
    bs = backstory.open(store, model=model, tools=[look], lease_ttl=ttl, runtime=False)
    jobs = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(jobs), sys.stdin)
    under_way: set[asyncio.Task[None]] = set()
    while line := await jobs.readline():
        task = asyncio.ensure_future(serve(bs, json.loads(line)))
        under_way.add(task)
        task.add_done_callback(under_way.discard)
    await asyncio.gather(*under_way)
    await bs.close()


asyncio.run(main(sys.argv[1], float(sys.argv[2])))
