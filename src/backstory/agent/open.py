"""`backstory.open`: a place, a model, and how much may be sent; everything else has a default that works."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from backstory.agent.backstory import Backstory
from backstory.agent.execute import Tools
from backstory.agent.loop_guard import LoopGuard
from backstory.agent.settings import Settings
from backstory.agent.sources.base import AnyRetriever, AnySource
from backstory.agent.trace import RequestTrace
from backstory.errors import ConfigurationError
from backstory.models.base import Model
from backstory.sessions.lease import TTL
from backstory.stores.base import Durability, Store
from backstory.stores.files import FilesStore
from backstory.stores.in_memory import InMemoryStore
from backstory.stores.postgres.store import PostgresStore
from backstory.stores.redis.store import RedisStore
from backstory.stores.sqlite import SqliteStore
from backstory.targets import Target
from backstory.upkeep.archive import Cap
from backstory.upkeep.summarise import Compaction


def open(  # noqa: A001 - as `sqlite3.connect` is to SQLite: `backstory.open` is the way in
    location: str | os.PathLike[str] | Store = ".",
    *,
    model: Model | None = None,
    target: Target | str | None = None,
    tools: Tools = (),
    budget: int | None = None,
    window: int | None = None,
    reserve: int | None = None,
    max_turns: int | None = None,
    max_messages: int | None = None,
    preset: str = "chat",
    guard: LoopGuard | None = None,
    sources: Sequence[AnySource] = (),
    retrievers: Sequence[AnyRetriever] = (),
    runtime: Mapping[str, str] | bool = True,
    trace: RequestTrace | None = None,
    durability: Durability = "power",
    lease_ttl: float = TTL,
    turn_timeout: float | None = None,
    tool_timeout: float | None = 120.0,
    compaction: Compaction | bool = True,
    cap_messages: int | None = None,
    cap_bytes: int | None = None,
) -> Backstory:
    """Sessions in a place, and turns over a model.

    `location` is a workspace folder, ``sqlite:///chat.db`` for one file (absolute: ``sqlite:////var/chat.db``),
    ``postgresql://…`` or ``redis://…`` for many machines (docs/stores.md), ``memory:`` for nothing that lasts, or a
    store. `model` is what `say` and `stream` ask; with your own client, leave it out, use `turn`, and name the
    `target`.

    How much is sent: `budget` is tokens of all input; or `window` (input and output) with `reserve` for the output;
    else what the model says of itself. `max_turns` and `max_messages` bind as well. `preset` names the shares by which
    sources are cut when more is asked for than there is (`backstory.context.budget.SHARES`).

    `sources` are an application's own sections of the system block, beside those that read the workspace's files
    (AGENTS.md, SOUL.md, USER.md, memory, skills). `retrievers` look up passages for each message.
    `runtime` puts time, channel and tool status at the end of each message; a mapping adds to it, ``False`` leaves
    it out. `trace` (`backstory.agent.trace.RequestTrace`) keeps the bodies that were sent, secrets taken out.

    `lease_ttl` (seconds) is after how long the turn of a process that died is taken over; `turn_timeout` ends a turn,
    `tool_timeout` a call.

    `compaction` says when summaries take the place of what was said long ago, and who writes them
    (`backstory.Compaction`); by default the model itself, prepared in the background. ``False``: what no longer fits is
    left out, and nothing stands for it.

    `cap_messages` and `cap_bytes` are what the live log of a session may hold: beyond, the oldest turns that no request
    replays move into compressed archive segments, where everything still finds them (docs/stores.md). Without them a
    log grows as long as there is room: no turn and no request costs more for it.

    Raises `ConfigurationError` for settings that contradict each other.
    """
    settings = Settings(
        budget=budget,
        window=window,
        reserve=reserve,
        max_turns=max_turns,
        max_messages=max_messages,
        preset=preset,
        guard=guard or LoopGuard(),
        lease_ttl=lease_ttl,
        turn_timeout=turn_timeout,
        tool_timeout=tool_timeout,
        compaction=(Compaction() if compaction else None) if isinstance(compaction, bool) else compaction,
        cap=Cap(messages=cap_messages, bytes=cap_bytes),
    )
    store, workspace = store_at(location, durability)
    return Backstory(
        store,
        model=model,
        target=target,
        tools=tools,
        settings=settings,
        sources=sources,
        retrievers=retrievers,
        workspace=workspace,
        runtime=runtime,
        trace=trace,
    )


def store_at(
    location: str | os.PathLike[str] | Store, durability: Durability = "power"
) -> tuple[Store, Path | None]:
    """The store that a location means, and its folder where it is a workspace. Raises `ConfigurationError`."""
    if not isinstance(location, (str, os.PathLike)):
        return location, None
    place = os.fspath(location)
    if place == "memory:":
        return InMemoryStore(), None
    scheme, found, _ = place.partition("://")
    if scheme == "sqlite":
        return SqliteStore(place, durability=durability), None
    if found and scheme in ("postgresql", "postgres"):
        return PostgresStore(place, durability=durability), None
    if found and scheme in ("redis", "rediss"):
        return RedisStore(place, durability=durability), None
    if found:
        raise ConfigurationError(
            f"there is no store for {scheme}://…; give a folder, sqlite:///file, postgresql://…, redis://…, or memory:"
        )
    return FilesStore(place, durability=durability), Path(place)
