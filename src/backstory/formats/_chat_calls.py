"""Tool calls and reasoning of Chat Completions, as they are written.

It knows the fields that servers add, and what of them a target takes; nothing of content or order.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, cast

from backstory.formats._chat_parts import NAME
from backstory.formats._openai_media import inner_fields
from backstory.formats.base import Item, unknown_fields, verbatim
from backstory.messages import Message, Reasoning, ToolCall
from backstory.targets import Target

Lose = Callable[[str, str], None]
"""Report a loss by its kind and in a sentence."""

REASONING_FIELDS = frozenset({"reasoning_content", "reasoning", "reasoning_details"})

_CALL = frozenset({"id", "type", "function", "custom"})
_FUNCTION = frozenset({"name", "arguments"})
_CUSTOM = frozenset({"name", "input"})


# https://api-docs.deepseek.com/guides/thinking_mode: `reasoning_content`; https://docs.vllm.ai/en/latest/features/
# reasoning_outputs.html: `reasoning`; https://openrouter.ai/docs/use-cases/reasoning-tokens: `reasoning_details`.
def reasoning_text(item: Mapping[str, Any]) -> str | None:
    """The readable reasoning in the fields that servers have for it; `None` where there is none of these."""
    for field in ("reasoning_content", "reasoning"):
        text = item.get(field)
        if type(text) is str:
            return text
    details = item.get("reasoning_details")
    if not isinstance(details, list) or not details:
        return None
    held = [detail.get("text") or detail.get("summary") for detail in details if isinstance(detail, Mapping)]
    return "\n".join(text for text in held if type(text) is str)


def is_legacy(call: ToolCall, message: Message) -> bool:
    """Whether a call stands in its message's `function_call`, the form before `tool_calls`, which has no id."""
    native = message.native
    if call.id or native is None or native.format != NAME or native.value.get("function_call") is None:
        return False
    return call.native is None or _CALL.isdisjoint(call.native.value)


def write_call(call: ToolCall, target: Target, lose: Lose) -> Item:
    """One entry of `tool_calls`."""
    custom = call.kind == "custom"
    if not custom or target.custom_calls:
        value = verbatim(call.native, NAME)
        if value is not None:
            return cast("Item", value)
    native = call.native if call.native is not None and call.native.format == NAME else None
    if custom and target.custom_calls:
        inner = {"name": call.name, "input": call.arguments, **inner_fields(native, NAME, "custom", _CUSTOM)}
        return {"id": call.id, "type": "custom", "custom": inner, **_extra(call, target, lose)}
    if native is not None and call.kind not in ("function", "custom"):
        return {**native.value, "id": call.id}
    arguments = call.arguments
    if call.kind != "function":
        if custom:
            arguments = json.dumps({"input": arguments}, ensure_ascii=False, separators=(",", ":"))
        lose("call", f"the {call.kind} call of {call.name!r} was written as a function call")
    inner = {"name": call.name, "arguments": arguments, **inner_fields(native, NAME, "function", _FUNCTION)}
    return {"id": call.id, "type": "function", "function": inner, **_extra(call, target, lose)}


def _extra(call: ToolCall, target: Target, lose: Lose) -> Item:
    """The unknown fields of a call, and its thought signature where the target has a field for it."""
    legacy = (
        call.native is not None and "function" not in call.native.value
    )  # a `function_call` that got an id
    extra = unknown_fields(call.native, NAME, _CALL | _FUNCTION if legacy else _CALL)
    content = extra.get("extra_content")
    if isinstance(content, Mapping):
        if call.signature is None:  # taken away: the rest stays
            kept = {
                provider: {k: v for k, v in inner.items() if k != "thought_signature"}
                if isinstance(inner, Mapping)
                else inner
                for provider, inner in content.items()
            }
            kept = {provider: inner for provider, inner in kept.items() if inner != {}}
            extra = {k: v for k, v in extra.items() if k != "extra_content"}
            return extra | ({"extra_content": kept} if kept else {})
        return extra
    if call.signature is not None:
        if target.extensions:
            # https://ai.google.dev/gemini-api/docs/thought-signatures, OpenAI compatibility
            extra["extra_content"] = {"google": {"thought_signature": call.signature}}
        else:
            lose("signature", f"the thought signature of call {call.id!r} has no field here")
    return extra


def reasoning_fields(message: Message, target: Target, expired: bool, lose: Lose) -> Item:
    """The fields that carry a message's reasoning back, as far as the target takes it.

    `expired` says that the turn it belongs to is over.
    """
    parts = [part for part in message.parts if isinstance(part, Reasoning)]
    if not parts:
        return {}
    mode = target.reasoning
    native = message.native if message.native is not None and message.native.format == NAME else None
    own_fields = {} if native is None else {k: v for k, v in native.value.items() if k in REASONING_FIELDS}
    text = "\n".join(part.text for part in parts if part.text)
    if mode == "never" or (mode == "as_given" and not own_fields) or (mode == "turn" and expired):
        if text or any(part.encrypted or part.signature for part in parts):
            if mode == "turn":
                lose("reasoning_expired", "reasoning is sent back within its own turn only")
            else:
                lose(
                    "reasoning",
                    "this target takes no reasoning" + (" of another's" if mode == "as_given" else ""),
                )
        return {}
    if any(part.encrypted or part.signature for part in parts):
        lose("signature", "signed or encrypted reasoning goes back to who made it only")
    if len(parts) == 1 and own_fields and text == reasoning_text(own_fields):
        return own_fields
    field = (
        "reasoning"
        if "reasoning" in own_fields and "reasoning_content" not in own_fields
        else "reasoning_content"
    )
    return {field: text} if text or own_fields else {}
