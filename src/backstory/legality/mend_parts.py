"""Mends that stay inside one message: text, names, kinds of calls, arguments, reasoning, cache markers."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from backstory.legality.arguments import clean, clean_text, mend
from backstory.legality.bench import Bench, Entry
from backstory.legality.find import dangling_reasoning
from backstory.legality.naming import new_name
from backstory.legality.values import (
    count_markers,
    good_name,
    has_blank_text,
    is_blank_part,
    is_marked,
    is_object,
    is_strict,
    strings_of,
    takes_kind,
    takes_reasoning,
)
from backstory.messages import Message, Native, Part, Reasoning, ToolCall, ToolResult, evolve


def strictness(bench: Bench) -> None:
    """Replace what JSON cannot hold: NaN, lone surrogates, bottomless nesting."""
    memo: dict[int, Any] = {}
    for number, (position, message) in enumerate(bench.entries):
        value = message.native.value if message.native is not None else None
        good = is_strict(value) and is_strict(message.name) and is_strict(message.id)
        if good and all(is_strict(strings_of(part)) for part in message.parts):
            continue
        cleaned: Message = _cleaned(message, memo)
        bench.replace(number, cleaned)
        bench.report("json.strict", position, "replaced what JSON cannot hold")


def _cleaned(value: Any, memo: dict[int, Any]) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, tuple):
        return tuple(_cleaned(inner, memo) for inner in value)
    if isinstance(value, Native):
        whole = value.value
        if id(whole) not in memo:
            memo[id(whole)] = clean(dict(whole))
        return dataclasses.replace(value, value=memo[id(whole)])
    if isinstance(value, (Message, Part)):
        fields = [f.name for f in dataclasses.fields(value) if f.init]
        return dataclasses.replace(value, **{name: _cleaned(getattr(value, name), memo) for name in fields})
    return value


def developer_role(bench: Bench) -> None:
    """`developer` becomes `system` where the target does not know it."""
    if bench.target.developer:
        return
    for number, (position, message) in enumerate(bench.entries):
        if message.role == "developer":
            bench.replace(number, message.evolve(role="system"))
            bench.report("system.developer", position, "role 'developer' sent as 'system'")


def call_parts(bench: Bench) -> None:
    """Kinds, arguments and names of calls; the names of results and of speakers."""
    target = bench.target
    for number, (position, message) in enumerate(bench.entries):
        parts = tuple(_call(part, bench, position) for part in message.parts)
        if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
            message = message.evolve(parts=parts)
            bench.replace(number, message)
        name = message.name
        if name is not None and message.role != "tool" and not good_name(name, target.speaker_pattern):
            alias = new_name(name, target.speaker_pattern, instead="speaker")
            bench.replace(number, message.evolve(name=alias))
            bench.report("message.name", position, f"speaker {name!r} renamed {alias!r}")


def _call(part: Part, bench: Bench, position: int) -> Part:
    target = bench.target
    if isinstance(part, ToolCall):
        changes: dict[str, Any] = {}
        if not takes_kind(part, target):
            wrapped = part.arguments
            if part.kind == "custom":
                wrapped = json.dumps({"input": part.arguments}, ensure_ascii=False, separators=(",", ":"))
            changes = {"kind": "function", "arguments": wrapped}
            bench.report("call.kind", position, f"{part.kind} call {part.id!r} sent as a function call")
        arguments = changes.get("arguments", part.arguments)
        if (
            target.object_arguments
            and changes.get("kind", part.kind) != "custom"
            and not is_object(arguments)
        ):
            changes["arguments"] = mend(arguments)
            bench.report("call.arguments", position, f"mended the arguments of call {part.id!r}")
        named = changes.get("kind", part.kind) in ("function", "custom")
        if named and not good_name(part.name, target.name_pattern):
            changes["name"] = new_name(part.name, target.name_pattern, instead="tool")
            bench.report("call.name", position, f"call {part.name!r} renamed {changes['name']!r}")
        changed: Part = evolve(part, **changes) if changes else part
        return changed
    if (
        isinstance(part, ToolResult)
        and part.name is not None
        and not good_name(part.name, target.name_pattern)
    ):
        renamed: Part = evolve(part, name=new_name(part.name, target.name_pattern, instead="tool"))
        return renamed
    return part


def result_kinds(bench: Bench) -> None:
    """A result is of its call's kind: where the call became a function call, so does its result."""
    from_call: dict[str, str] = {}
    for number, (_, message) in enumerate(bench.entries):
        for call in message.calls:
            from_call[call.id] = call.kind
        if message.results:
            parts = tuple(
                evolve(part, kind=from_call[part.call_id])
                if isinstance(part, ToolResult) and from_call.get(part.call_id, part.kind) != part.kind
                else part
                for part in message.parts
            )
            if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
                bench.replace(number, message.evolve(parts=parts))


def blank_text(bench: Bench) -> None:
    """Drop blank text that stands beside other parts."""
    for number, (position, message) in enumerate(bench.entries):
        if not has_blank_text(message, bench.target):
            continue
        if message.role == "tool":
            parts = tuple(_without_blank(part, bench) for part in message.parts)
        else:
            parts = tuple(part for part in message.parts if not is_blank_part(part, bench.target))
        bench.replace(number, message.evolve(parts=parts))
        bench.report("content.blank_text", position, "dropped a text part without text")


def _without_blank(part: Part, bench: Bench) -> Part:
    if not isinstance(part, ToolResult):
        return part
    kept = tuple(inner for inner in part.content if not is_blank_part(inner, bench.target))
    return evolve(part, content=kept) if len(kept) < len(part.content) else part


def foreign_reasoning(bench: Bench) -> None:
    """Leave out native reasoning that the target would refuse, and with it the ids that depended on it."""
    target = bench.target
    if target.format == "openai_chat":
        return
    orphaned = False
    kept: list[Entry] = []
    for position, message in bench.entries:
        refused = [
            part
            for part in message.parts
            if isinstance(part, Reasoning)
            and part.native is not None
            and part.native.format == target.format
            and not takes_reasoning(part, target)
        ]
        if refused:
            bench.report("reasoning.foreign", position, "left out reasoning that this target would refuse")
            rest = tuple(part for part in message.parts if part not in refused)
            if not rest and target.format == "openai_responses":
                orphaned = True
                continue
            message = message.evolve(parts=rest)
        elif orphaned and message.joined and message.role == "assistant":
            message = _without_id(message)
            if not kept or kept[-1].message.role != "assistant":
                message = message.evolve(joined=False)
        else:
            orphaned = False
        kept.append(Entry(position, message))
    bench.entries = kept


def dangling(bench: Bench) -> None:
    """Responses: leave out a reasoning item that lost the item which followed it."""
    if bench.target.format != "openai_responses":
        return
    gone = set(dangling_reasoning(bench.messages))
    for number in gone:
        bench.report(
            "reasoning.dangling", bench.entries[number].position, "left out a reasoning item without its item"
        )
    if gone:
        bench.entries = [entry for number, entry in enumerate(bench.entries) if number not in gone]


def _without_id(message: Message) -> Message:
    """A Responses item whose own id is dropped: ``fc_…`` is refused where its ``rs_…`` item is missing."""

    def stripped(native: Native | None) -> Native | None:
        if native is None or "id" not in native.value:
            return native
        return dataclasses.replace(native, value={k: v for k, v in native.value.items() if k != "id"})

    parts = tuple(dataclasses.replace(part, native=stripped(part.native)) for part in message.parts)
    return dataclasses.replace(message, id=None, parts=parts, native=stripped(message.native))


def breakpoints(bench: Bench) -> None:
    """Drop the oldest cache markers above the target's number."""
    if bench.target.format != "anthropic":
        return
    extra = sum(count_markers(message) for message in bench.messages) - bench.target.cache_markers
    for number, (position, message) in enumerate(bench.entries):
        if extra <= 0:
            return
        if not count_markers(message):
            continue
        parts: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolResult) and any(is_marked(inner) for inner in part.content) and extra > 0:
                extra -= sum(is_marked(inner) for inner in part.content)
                part = evolve(part, content=tuple(_unmarked(inner) for inner in part.content))
            if is_marked(part) and extra > 0:
                extra -= 1
                part = _unmarked(part)
            parts.append(part)
        bench.replace(number, message.evolve(parts=tuple(parts)))
        bench.report("cache.breakpoints", position, "dropped a cache_control marker")


def _unmarked(part: Part) -> Part:
    if not is_marked(part) or part.native is None:
        return part
    value = {key: inner for key, inner in part.native.value.items() if key != "cache_control"}
    return dataclasses.replace(part, native=dataclasses.replace(part.native, value=value))
