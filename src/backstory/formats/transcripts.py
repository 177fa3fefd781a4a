"""Conversations as other programs keep them on disk: nanobot's sessions, Claude Code's transcripts, ShareGPT.

From JSON values to messages; nothing is repaired and nothing is decided. What is of no use in a conversation (hooks,
snapshots of files, side chains of sub-agents, branches that were gone back from) is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from backstory.errors import InvalidInput
from backstory.formats import anthropic, openai_chat
from backstory.messages import Message, Text, ToolCall, ToolResult

Source = Literal["nanobot", "claude-code", "sharegpt"]
SOURCES: tuple[Source, ...] = ("nanobot", "claude-code", "sharegpt")

_CHAT_FIELDS = ("role", "content", "tool_calls", "tool_call_id", "name", "refusal", "reasoning_content")


@dataclass(frozen=True, kw_only=True, slots=True)
class Transcript:
    """One conversation of a file. `key` is how its program calls it, where it tells; `title` is for people."""

    source: str
    messages: tuple[Message, ...]
    key: str | None = None
    title: str = ""


def detect_transcript(values: Sequence[Any]) -> Source | None:
    """Whose file this is, told from its values (of a JSON list, or of the lines); `None` where it is none of these."""
    objects = [value for value in values[:50] if isinstance(value, Mapping)]
    if any(value.get("_type") == "metadata" for value in objects[:1]):
        return "nanobot"
    if any("sessionId" in value and ("uuid" in value or "type" in value) for value in objects):
        return "claude-code"
    if any(isinstance(value.get("conversations"), list) for value in objects):
        return "sharegpt"
    return None


def read_transcripts(values: Sequence[Any], source: Source) -> list[Transcript]:
    """The conversations in a file's values. Raises `InvalidInput` for what is no such file, or holds none."""
    found = [each for each in _READERS[source](values) if each.messages]
    if not found:
        raise InvalidInput(f"there is no conversation of {source} in this")
    return found


# --- nanobot: https://github.com/HKUDS/nanobot, nanobot/session/manager.py -----------------------


def _nanobot(values: Sequence[Any]) -> Iterator[Transcript]:
    """A line of metadata, then a chat message a line with fields of its own (``timestamp``, ``tools_used``)."""
    head = values[0] if values and isinstance(values[0], Mapping) else {}
    messages: list[Message] = []
    for index, value in enumerate(values):
        if not isinstance(value, Mapping) or "role" not in value:
            continue
        item = {name: value[name] for name in _CHAT_FIELDS if name in value}
        messages += openai_chat.read(item, index=index, origin=openai_chat.ORIGIN)
    key = head.get("key") or head.get("session_key")
    yield Transcript(source="nanobot", messages=tuple(messages), key=key if isinstance(key, str) else None)


# --- Claude Code: ~/.claude/projects/*/*.jsonl ---------------------------------------------------


def _claude_code(values: Sequence[Any]) -> Iterator[Transcript]:
    """An event a line. A response is spread over lines that share its id, a content block each."""
    lines = [value for value in values if isinstance(value, Mapping)]
    title = next((str(v["summary"]) for v in lines if v.get("type") == "summary" and v.get("summary")), "")
    key = next((str(v["sessionId"]) for v in lines if v.get("sessionId")), None)
    items: list[dict[str, Any]] = []
    answer: str | None = None
    for line in _on_the_way(lines):
        given = line["message"]
        content = given.get("content")
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else list(content or ())
        same = given["role"] == "assistant" and answer is not None and given.get("id") == answer
        if same:
            items[-1]["content"] += blocks
        elif blocks:
            items.append({"role": given["role"], "content": blocks})
        answer = given.get("id") if given["role"] == "assistant" else None
    messages: list[Message] = []
    for index, item in enumerate(items):
        messages += anthropic.read(item, index=index, origin=anthropic.ORIGIN)
    yield Transcript(source="claude-code", messages=tuple(messages), key=key, title=title)


def _on_the_way(lines: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The lines that hold what was said, without branches that were gone back from.

    Where several things that a user said answer the same line, the last of them is the one that counts.
    """
    said = [line for line in lines if _says(line)]
    chosen: dict[str, str] = {}
    for line in said:
        if _is_prompt(line) and line.get("parentUuid"):
            chosen[line["parentUuid"]] = line["uuid"]
    left: set[str] = set()
    kept = []
    for line in lines:
        name, parent = line.get("uuid"), line.get("parentUuid")
        abandoned = parent in left or (
            _says(line) and _is_prompt(line) and chosen.get(str(parent), name) != name
        )
        if abandoned and isinstance(name, str):
            left.add(name)
        elif _says(line):
            kept.append(line)
    return kept


def _says(line: Mapping[str, Any]) -> bool:
    message = line.get("message")
    return (
        line.get("type") in ("user", "assistant")
        and isinstance(message, Mapping)
        and message.get("role") in ("user", "assistant")
        and isinstance(line.get("uuid"), str)
        and not any(
            line.get(flag) for flag in ("isSidechain", "isMeta", "isCompactSummary", "isApiErrorMessage")
        )
    )


def _is_prompt(line: Mapping[str, Any]) -> bool:
    content = line["message"].get("content")
    if line["type"] != "user":
        return False
    return isinstance(content, str) or not any(
        isinstance(block, Mapping) and block.get("type") == "tool_result" for block in content or ()
    )


# --- ShareGPT: https://github.com/lm-sys/FastChat, and the tool roles of LLaMA-Factory ------------

_SPEAKERS = {
    "human": "user",
    "user": "user",
    "gpt": "assistant",
    "assistant": "assistant",
    "chatgpt": "assistant",
}
_SPEAKERS |= {"bing": "assistant", "bard": "assistant", "system": "system"}


def _sharegpt(values: Sequence[Any]) -> Iterator[Transcript]:
    """A conversation each, with `from` and `value`; calls and their results by order, since they have no ids."""
    for number, value in enumerate(values, 1):
        if not isinstance(value, Mapping) or not isinstance(value.get("conversations"), list):
            raise InvalidInput(f"conversation {number} has no list of conversations")
        messages = list(_turns(value["conversations"], number))
        if isinstance(value.get("system"), str) and value["system"].strip():
            messages.insert(0, Message(role="system", parts=(Text(text=value["system"]),)))
        key = value.get("id")
        yield Transcript(
            source="sharegpt", messages=tuple(messages), key=str(key) if isinstance(key, str | int) else None
        )


def _turns(given: Sequence[Any], number: int) -> Iterator[Message]:
    calls = 0
    for item in given:
        speaker = str(item.get("from", item.get("role", ""))) if isinstance(item, Mapping) else ""
        text = item.get("value", item.get("content")) if isinstance(item, Mapping) else None
        if not isinstance(text, str):
            raise InvalidInput(f"conversation {number} holds an entry without a text")
        if speaker in ("function_call", "tool_call"):
            calls += 1
            yield Message(role="assistant", parts=(_call(text, f"call_{calls}"),))
        elif speaker in ("observation", "tool", "function_response"):
            yield Message(
                role="tool", parts=(ToolResult(call_id=f"call_{calls}", content=(Text(text=text),)),)
            )
        elif speaker in _SPEAKERS:
            yield Message(role=_SPEAKERS[speaker], parts=(Text(text=text),))  # type: ignore[arg-type]
        else:
            raise InvalidInput(f"conversation {number} has a speaker that nobody knows: {speaker!r}")


def _call(text: str, name: str) -> ToolCall:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, Mapping) or "name" not in value:
        return ToolCall(id=name, name="unknown", arguments=text)
    arguments = value.get("arguments", value.get("parameters", {}))
    told = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
    return ToolCall(id=name, name=str(value["name"]), arguments=told)


_READERS = {"nanobot": _nanobot, "claude-code": _claude_code, "sharegpt": _sharegpt}
