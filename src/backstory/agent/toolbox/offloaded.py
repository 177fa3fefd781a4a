"""The tool `read_result`: the rest of a result that was too long to be sent whole."""

from __future__ import annotations

import inspect
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from typing import Annotated, TypeAlias

from backstory.agent.tools import AnyTool, tool
from backstory.errors import StoreError, ToolError

Fetch: TypeAlias = Callable[[str], bytes | str | Awaitable[bytes | str]]
"""From a handle to what was offloaded under it. Raises `StoreError` where there is nothing."""

PAGE = 20_000
_KEPT = 2
"""Results kept at hand, since reading on usually follows reading."""
_KEPT_CHARACTERS = 5_000_000


def read_result(fetch: Fetch) -> AnyTool:
    """The tool that reads on in a long result. `fetch` must be bound to one scope: a handle is no permission."""
    kept: OrderedDict[str, str] = OrderedDict()

    async def text_of(handle: str) -> str:
        if handle in kept:
            kept.move_to_end(handle)
            return kept[handle]
        try:
            data = fetch(handle)
            found = await data if inspect.isawaitable(data) else data
        except StoreError as error:
            raise ToolError(f"there is no result {handle[:80]!r}; copy the handle as it was given") from error
        text = found if isinstance(found, str) else found.decode("utf-8", "replace")
        if len(text) <= _KEPT_CHARACTERS:
            kept[handle] = text
            while len(kept) > _KEPT:
                kept.popitem(last=False)
        return text

    async def read_result(
        handle: Annotated[str, "As the preview gave it."],
        offset: Annotated[int, "Characters to skip."] = 0,
        limit: Annotated[int, "Characters to read."] = 10_000,
    ) -> str:
        """Read on in a long result of an earlier call, of which only a preview was shown."""
        if offset < 0 or limit < 1:
            raise ToolError("offset is at least 0, and limit at least 1")
        text = await text_of(handle)
        if offset >= len(text) > 0:
            raise ToolError(f"the result has {len(text):,} characters; offset is too large")
        end = min(offset + min(limit, PAGE), len(text))
        more = f"go on with offset={end}" if end < len(text) else "the end"
        return f"{text[offset:end]}\n[characters {offset:,} to {end:,} of {len(text):,}; {more}]"

    return tool(read_result, parallel=True)
