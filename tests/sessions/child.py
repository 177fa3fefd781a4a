"""A process that talks, to be killed: turns with tools on one session, each thing that it was told is durable reported.

What it reports goes through a pipe, whose content survives it: ``said ID TEXT`` once `say` returned, ``result TOKEN``
once a call's result was handed on. Its tool leaves each effect in a file, so that what was done can be counted.
"""

from __future__ import annotations

import asyncio
import json
import os
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import backstory
from backstory.agent import drafts, runner
from backstory.agent.tools import AnyTool
from backstory.errors import StaleLease
from backstory.models.scripted import ScriptedModel, calls
from backstory.stores import FilesStore

TTL = 0.3


def tools(root: Path) -> list[AnyTool]:
    """Two tools that leave a mark of each effect: one runs alone, one beside others."""

    def mark(token: str) -> str:
        with open(root / "effects", "a") as file:
            file.write(f"{token}\n")
        return f"did {token}"

    @backstory.tool
    async def act(token: str) -> str:
        """Do something."""
        return mark(token)

    @backstory.tool(parallel=True)
    async def act_beside(token: str) -> str:
        """Do something beside others."""
        await asyncio.sleep(0)
        return mark(token)

    return [act, act_beside]


def reply(body: dict[str, Any]) -> Any:
    """What a message asks for: after its name, how many calls, and of which kind."""
    last = body["messages"][-1]
    text = last["content"] if isinstance(last["content"], str) else last["content"][0]["text"]
    words = text.split()
    if last["role"] == "user" and words[:1] == ["do"]:
        name, kind, count = words[1:4]
        if int(count):
            return calls(
                *((kind, {"token": f"{name}/{n}"}) for n in range(int(count))), text="thinking about it " * 3
            )
    return f"answer after {len(body['messages'])} messages"


def model() -> ScriptedModel:
    return ScriptedModel(reply, name="m", size=8)


def opened(root: Path, ttl: float = TTL) -> backstory.Backstory:
    store = FilesStore(root, durability="process")
    return backstory.open(store, model=model(), tools=tools(root), budget=6000, lease_ttl=ttl, runtime=False)


def asked(name: str, number: int) -> str:
    kind, count = [("act", 2), ("act_beside", 3), ("act", 0), ("act", 1)][number % 4]
    return f"do {name} {kind} {count} please"


def warm() -> None:
    """One turn that lasts nowhere: vocabulary and modules are loaded before a child is forked, and not in each."""
    bs = backstory.open("memory:", model=model(), tools=tools(Path(os.devnull)), budget=6000)
    asyncio.run(bs.say("s", "do nothing act 0"))


def talk(root: str, name: str, turns: int, key: str, ttl: float, drafting: bool, pipe: Connection) -> None:
    """Say one message after another until killed, or until all are said."""
    if drafting:
        drafts.DRAFT_EVERY = 0.0
    asyncio.run(_talk(Path(root), name, turns, key, ttl, pipe))


async def _talk(root: Path, name: str, turns: int, key: str, ttl: float, pipe: Connection) -> None:
    bs = opened(root, ttl)
    pipe.send_bytes(b"ready")
    for number in range(turns):
        message_id = f"{name}.{number}"
        text = ""
        try:
            async for event in bs.stream(key, asked(message_id, number), message_id=message_id):
                if isinstance(event, runner.ToolFinished):
                    token = json.loads(event.call.arguments)["token"]
                    pipe.send_bytes(f"result {token}".encode())
                if isinstance(event, runner.TurnEnded):
                    text = event.turn.text
        except StaleLease:
            pipe.send_bytes(b"stale")
            continue
        pipe.send_bytes(f"said {message_id} {text}".encode())
    await bs.close()
    pipe.send_bytes(b"finished")
    os._exit(0)


def sessions(root: str, name: str, keys: list[str], turns: int, pipe: Connection) -> None:
    """Turns in many sessions side by side, of one process."""
    asyncio.run(_sessions(Path(root), name, keys, turns, pipe))


async def _sessions(root: Path, name: str, keys: list[str], turns: int, pipe: Connection) -> None:
    bs = opened(root, 30.0)

    async def one(key: str) -> None:
        for number in range(turns):
            message_id = f"{name}.{number}"
            said = await bs.say(key, asked(f"{key}.{message_id}", number), message_id=message_id)
            pipe.send_bytes(f"said {message_id} {said.text}".encode())

    await asyncio.gather(*(one(key) for key in keys))
    await bs.close()
    pipe.send_bytes(b"finished")
    os._exit(0)
