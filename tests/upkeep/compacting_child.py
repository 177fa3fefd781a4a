"""A process that talks at length in a small window, to be killed around its compactions."""

from __future__ import annotations

import asyncio
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import backstory
from backstory.models.scripted import Play, ScriptedModel
from backstory.stores import FilesStore
from backstory.upkeep.summarise import Compaction

BUDGET = 1_200
TTL = 0.3


def asked(message_id: str) -> str:
    return f"{message_id}: " + "they stand in a row by the harbour " * 12


def answer(body: dict[str, Any]) -> str:
    return f"answer after {len(body['messages'])} messages"


def summary(body: dict[str, Any]) -> Play:
    """Good, and slow enough to be killed over."""
    return Play(step="## Facts\n- They count boxes.\n\n## To do\n- Count on.", delay=0.005)


def opened(root: Path) -> backstory.Backstory:
    compaction = Compaction(model=ScriptedModel(summary, name="cheap"))
    model = ScriptedModel(answer, name="m")
    store = FilesStore(root, durability="process")
    return backstory.open(
        store, model=model, budget=BUDGET, lease_ttl=TTL, runtime=False, compaction=compaction
    )


def talk(root: str, name: str, pipe: Connection) -> None:
    """Say one message after another, now and then compact, undo that or take it back, until killed."""
    asyncio.run(_talk(Path(root), name, pipe))


async def _talk(root: Path, name: str, pipe: Connection) -> None:
    bs = opened(root)
    pipe.send_bytes(b"ready")
    for number in range(10_000):
        message_id = f"{name}.{number}"
        reply = await bs.say("s", asked(message_id), message_id=message_id)
        pipe.send_bytes(f"said {message_id} {reply.text}".encode())
        if number % 5 == 4:
            await bs.command("s", "/compact")
        if number % 11 == 10 and (await bs.sessions.peek(_S)[0].refresh()).active:
            await bs.command("s", "/undo compact")
            await bs.command("s", "/redo")


_S = backstory.stores.SessionId(key="s")
