"""What a turn keeps beside the log while it works, so that a crash loses at most a second of it.

It is the text that is being streamed, and what running tools tell of their work so far.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from backstory.agent.active import Turn
from backstory.agent.tool_context import ToolContext
from backstory.errors import StoreError
from backstory.messages import ToolCall

logger = logging.getLogger("backstory.agent")

DRAFT_EVERY = 1.0
"""Seconds between two drafts: what a crash can lose of an unfinished answer, and of what an unfinished call told."""


class Streamed:
    """The text so far of an answer; kept from time to time."""

    def __init__(self, turn: Turn) -> None:
        self.text = ""
        self._turn = turn
        self._kept = time.monotonic()

    async def add(self, text: str) -> None:
        self.text += text
        now = time.monotonic()
        if now - self._kept >= DRAFT_EVERY:
            self._kept = now
            await self._turn.draft(self.text)


@asynccontextmanager
async def hearing(turn: Turn, context: ToolContext) -> AsyncGenerator[ToolContext]:
    """A context whose tools are heard: the turn knows at once what they tell, and it is kept from time to time."""
    here = asyncio.get_running_loop()
    news = asyncio.Event()
    keeping: list[asyncio.Task[None]] = []

    def hear(call: ToolCall, text: str) -> None:
        if not over:
            turn.tell(call, text)
            news.set()
            if not keeping:
                keeping.append(asyncio.create_task(keep()))

    def heard(call: ToolCall, text: str) -> None:
        with contextlib.suppress(RuntimeError):  # a tool that runs on in its thread after the loop was closed
            here.call_soon_threadsafe(hear, call, text)

    async def keep() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while not over and await news.wait():
                news.clear()
                try:
                    await turn.draft("")
                except StoreError as error:
                    logger.warning("what tools of turn %d told was not kept: %s", turn.number, error)
                await asyncio.sleep(DRAFT_EVERY)

    over = False
    try:
        yield replace(context, heard=heard)
    finally:
        over = True
        for task in keeping:
            task.cancel()
        if keeping:
            await asyncio.wait(keeping)
