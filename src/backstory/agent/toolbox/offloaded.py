"""The tool `read_result`: the rest of a result that was too long to be sent whole."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import AnyTool, tool
from backstory.errors import StoreDamaged, StoreError, ToolError
from backstory.messages import ToolCall, ToolResult, texts
from backstory.sessions.archive import read_through
from backstory.stores.base import Store
from backstory.stores.values import SessionId

Fetch: TypeAlias = Callable[[str, ToolContext], bytes | str | Awaitable[bytes | str]]
"""From a handle, and who asks, to what lies under it. Raises `StoreError` where there is nothing."""

PAGE = 20_000
_KEPT = 2
"""Results kept at hand, since reading on usually follows reading."""
_KEPT_CHARACTERS = 5_000_000


async def logged_result(store: Store, session: SessionId, place: str) -> str:
    """A result, or the arguments of a call, of a session's own log by its place. Raises `StoreDamaged` for none."""
    seq, _, number = place.partition(".")
    records = []
    if seq.isdecimal() and number.isdecimal() and len(place) < 32:
        records = await read_through(store, session, after=int(seq) - 1, before=int(seq) + 1)
    if records and records[0].kind == "message":
        parts = records[0].message.parts
        part = parts[int(number)] if int(number) < len(parts) else None
        if isinstance(part, ToolResult):
            return texts(part.content)
        if isinstance(part, ToolCall):
            return part.arguments
    raise StoreDamaged(f"there is no result at {place[:40]!r} of session {str(session)!r}")


def read_result(fetch: Fetch) -> AnyTool:
    """The tool that reads on in a long result. A handle is no permission: `fetch` is told whose turn it is."""
    kept: OrderedDict[tuple[str, str | None, str], str] = OrderedDict()

    async def text_of(handle: str, context: ToolContext) -> str:
        key = (context.scope, context.session, handle)
        if key in kept:
            kept.move_to_end(key)
            return kept[key]
        try:
            data = fetch(handle, context)
            found = await data if inspect.isawaitable(data) else data
        except StoreError as error:
            raise ToolError(f"there is no result {handle[:80]!r}; copy the handle as it was given") from error
        text = found if isinstance(found, str) else found.decode("utf-8", "replace")
        if len(text) <= _KEPT_CHARACTERS:
            kept[key] = text
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return text

    async def read_result(
        context: ToolContext,
        handle: str,
        offset: Annotated[int, "Characters to skip."] = 0,
        limit: Annotated[int, "Characters to read."] = 10_000,
    ) -> str:
        """Read on in a result shown as a preview, by its handle."""
        if offset < 0 or limit < 1:
            raise ToolError("offset is at least 0, and limit at least 1")
        text = await text_of(handle, context)
        if offset >= len(text) > 0:
            raise ToolError(f"the result has {len(text):,} characters; offset is too large")
        end = min(offset + min(limit, PAGE), len(text))
        more = f"go on with offset={end}" if end < len(text) else "the end"
        return f"{text[offset:end]}\n[characters {offset:,} to {end:,} of {len(text):,}; {more}]"

    return tool(read_result, parallel=True)
