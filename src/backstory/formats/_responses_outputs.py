"""Outputs of calls in the Responses API, as they are written: each kind of call has a shape of its own.

It knows nothing of which result answers which call.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from backstory.formats._openai_writer import Content
from backstory.formats._responses_parts import NAME, OUTPUT_OF, TYPE_OF
from backstory.formats.base import Item, unknown_fields
from backstory.messages import Image, ToolResult, texts
from backstory.targets import Target

_KNOWN = frozenset({"type", "id", "call_id", "approval_request_id", "output"})

BLANK_SCREENSHOT = (
    "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNg"
    "YAAAAAMAASsJTYQAAAAASUVORK5CYII="
)
"""One transparent pixel: a computer call must be answered by a screenshot, even where none was taken."""


def output_item(result: ToolResult, content: Content, target: Target, given_id: Item) -> Item:
    """The output item for a result. `given_id` is the item's own id, where it has one.

    https://developers.openai.com/api/reference/resources/responses/methods/create lists the shapes.
    """
    call = TYPE_OF.get(result.kind, result.kind)
    kind = OUTPUT_OF.get(call, "function_call_output")
    native = result.native if result.native is not None and result.native.format == NAME else None
    was: Mapping[str, Any] = native.value if native is not None else {}
    item: Item = {"type": kind, **given_id, "call_id": result.call_id}
    if kind in ("function_call_output", "custom_tool_call_output"):
        if target.tool_content == "string" or not content.parts:
            item["output"] = content.all_text("\n")
        else:
            item["output"] = content.whole() if len(content.parts) == 1 else content.parts
    elif kind == "shell_call_output":
        item["output"] = _chunks(result)
    elif kind == "computer_call_output":
        item["output"] = _screenshot(result)
    elif kind == "tool_search_output":
        item |= {"execution": "client", "tools": []}
    elif kind == "mcp_approval_response":
        item = {"type": kind, **given_id, "approval_request_id": result.call_id}
        item |= {"approve": False} if was else {"approve": False, "reason": texts(result.content)}
    else:
        item["output"] = texts(result.content)
        if kind == "apply_patch_call_output":
            item["status"] = "failed" if result.is_error or result.synthetic else "completed"
        elif "call_id" not in was:  # a local shell's output has the call's id in `id`
            item = {"type": kind, "id": result.call_id, "output": item["output"]}
    return item | unknown_fields(native, NAME, _KNOWN)


def _chunks(result: ToolResult) -> list[Item]:
    """https://developers.openai.com/api/docs/guides/tools-shell: `stdout`, `stderr` and how it ended."""
    found: list[Item] = []
    for part in result.content:
        native = part.native if part.native is not None and part.native.format == NAME else None
        if native is not None and "stdout" not in native.value:
            native = None  # a piece of another kind of output
        if native is not None and native.intact:
            found.append(dict(native.value))
            continue
        failed = bool(result.is_error or result.synthetic)
        item: Item = {
            "stdout": texts([part]),
            "stderr": "",
            "outcome": {"type": "exit", "exit_code": int(failed)},
        }
        found.append(item | unknown_fields(native, NAME, frozenset({"stdout", "stderr"})))
    return found


def _screenshot(result: ToolResult) -> Item:
    for part in result.content:
        if isinstance(part, Image):
            if part.native is not None and part.native.format == NAME and part.native.intact:
                return {**part.native.value, "type": "computer_screenshot"}
            if part.file_id is not None:
                return {"type": "computer_screenshot", "file_id": part.file_id}
            url = part.url or f"data:{part.media_type or 'image/png'};base64,{part.data or ''}"
            return {"type": "computer_screenshot", "image_url": url}
    return {"type": "computer_screenshot", "image_url": BLANK_SCREENSHOT}
