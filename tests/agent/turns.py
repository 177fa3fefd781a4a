"""What the tests of turns share: a model that plays a script over a store in memory, and tools."""

from __future__ import annotations

import asyncio
from typing import Any

import backstory
from backstory.models.scripted import ScriptedModel
from backstory.records import Record
from backstory.stores import InMemoryStore, SessionId

S = SessionId(key="s")


@backstory.tool
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


@backstory.tool(parallel=True)
async def peek(what: str) -> str:
    """Look at something, side by side with others."""
    return f"peeked at {what}"


def play(*script: Any, **options: Any) -> ScriptedModel:
    return ScriptedModel(list(script), name="m", **options)


def opened(*script: Any, store: Any = None, tools: Any = (look, peek), **options: Any) -> backstory.Backstory:
    """A `Backstory` over a script. One store may be opened twice: that is two processes."""
    model = script[0] if len(script) == 1 and isinstance(script[0], ScriptedModel) else play(*script)
    return backstory.open(
        store or InMemoryStore(), model=model, tools=tools, **{"compaction": False, **options}
    )


def scripted(bs: backstory.Backstory) -> ScriptedModel:
    assert isinstance(bs.model, ScriptedModel)
    return bs.model


async def records(bs: backstory.Backstory, key: str = "s", scope: str = "default") -> list[Record]:
    return await bs.store.read(SessionId(scope=scope, key=key))


async def kinds(bs: backstory.Backstory, key: str = "s") -> list[str]:
    return [record.kind for record in await records(bs, key)]


async def messages(bs: backstory.Backstory, key: str = "s") -> list[tuple[str, str]]:
    """Role and first text of each logged message."""
    found: list[tuple[str, str]] = []
    for record in await records(bs, key):
        if record.kind == "message":
            part: Any = record.message.parts[0] if record.message.parts else None
            content = getattr(part, "content", None)
            text = content[0].text if content else getattr(part, "text", getattr(part, "name", ""))
            found.append((record.message.role, text))
    return found


async def until(condition: Any, *, seconds: float = 60.0) -> None:
    """Wait until something holds."""
    async with asyncio.timeout(seconds):
        while not condition():  # noqa: ASYNC110
            await asyncio.sleep(0.002)
