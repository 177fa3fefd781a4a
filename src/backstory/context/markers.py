"""Anthropic's cache markers: where a request says that its prefix may be kept.

Set after the tools, after the system, after the part that the request before had, and after the newest message; the
caller's own are respected, and there are never more than the target takes.
https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching: up to 4, looked up backwards over 20 blocks.
"""

from __future__ import annotations

from typing import Any

from backstory.targets import Target

MARKER = {"type": "ephemeral"}
_UNMARKABLE = ("thinking", "redacted_thinking")


def mark(body: dict[str, Any], target: Target, *, replayed: int) -> dict[str, Any]:
    """The body with markers, as a copy where anything changes. `replayed` is how many items the last request had.

    Contents that are a string become a list of one text block, in every item, so that an item reads the same
    whether or not it bears a marker.
    """
    if target.format != "anthropic" or not target.cache_markers:
        return body
    marked = {**body, "messages": [_blocks(item) for item in body["messages"]]}
    if isinstance(marked.get("system"), str):
        marked["system"] = [{"type": "text", "text": marked["system"]}]
    left = target.cache_markers - count(marked)
    last = len(marked["messages"]) - 1
    wanted = [index for index in (last, replayed - 1) if 0 <= index <= last]
    for index in dict.fromkeys(wanted):
        item = marked["messages"][index]
        if left > 0 and (content := _with_marker(item["content"])) is not None:
            marked["messages"][index] = {**item, "content": content}
            left -= 1
    for field in ("system", "tools"):
        blocks = marked.get(field)
        if left > 0 and isinstance(blocks, list) and (content := _with_marker(blocks)) is not None:
            marked[field] = content
            left -= 1
    return marked


def count(value: Any) -> int:
    """Markers in a body, at whatever place they may stand."""
    if isinstance(value, dict):
        own = int(value.get("cache_control") is not None)
        return own + sum(
            count(value[key]) for key in ("content", "system", "tools", "messages") if key in value
        )
    if isinstance(value, list):
        return sum(count(inner) for inner in value)
    return 0


def _blocks(item: dict[str, Any]) -> dict[str, Any]:
    content = item.get("content")
    return {**item, "content": [{"type": "text", "text": content}]} if isinstance(content, str) else item


def _with_marker(blocks: list[Any]) -> list[Any] | None:
    """The blocks with a marker on the last one that may bear it; `None` where it bears one already, or none may."""
    for index in range(len(blocks) - 1, -1, -1):
        block = blocks[index]
        if not isinstance(block, dict) or block.get("type") in _UNMARKABLE:
            continue
        if block.get("cache_control") is not None:
            return None
        return [*blocks[:index], {**block, "cache_control": MARKER}, *blocks[index + 1 :]]
    return None
