"""Mends that stay inside one message: text, shape, names, kinds of calls, arguments, reasoning, cache markers."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any

from backstory.legality.arguments import clean, clean_id, clean_text, mended
from backstory.legality.bench import Bench, Entry
from backstory.legality.find import dangling_reasoning, repeated_items
from backstory.legality.naming import new_name
from backstory.legality.shapes import may_be_held, misshapen, misshapen_part, out_of_place
from backstory.legality.values import (
    good_name,
    has_blank_text,
    is_blank_part,
    is_object,
    is_strict_message,
    markers,
    takes_kind,
)
from backstory.messages import Message, Native, Opaque, Part, ToolCall, ToolResult, evolve


def strictness(bench: Bench) -> None:
    """Replace what JSON cannot hold: NaN, lone surrogates, bottomless nesting."""
    memo: dict[int, Any] = {}
    for number, (position, message) in enumerate(bench.entries):
        if not is_strict_message(message, bench.target):
            bench.replace(number, _cleaned_message(message, bench.target.format, memo))
            bench.report("json.strict", position, "replaced what JSON cannot hold")


def _cleaned_message(message: Message, format: str, memo: dict[int, Any]) -> Message:
    native = _cleaned_native(message.native, format, memo)
    parts = tuple(_cleaned_part(part, format, memo) for part in message.parts)
    name = None if message.name is None else clean_text(message.name)
    item_id = None if message.id is None else clean_text(message.id)
    cleaned = dataclasses.replace(message, parts=parts, name=name, id=item_id, native=native)
    renamed = any(_id(new) != clean_text(_id(old)) for new, old in zip(parts, message.parts, strict=True))
    return cleaned.evolve() if renamed else cleaned


def _cleaned_part(part: Part, format: str, memo: dict[int, Any]) -> Part:
    changes: dict[str, Any] = {}
    for held in dataclasses.fields(part):
        value = getattr(part, held.name)
        if isinstance(value, str):
            changes[held.name] = clean_id(value) if held.name in ("id", "call_id") else clean_text(value)
        elif isinstance(value, tuple):
            changes[held.name] = tuple(_cleaned_part(inner, format, memo) for inner in value)
    cleaned = dataclasses.replace(part, native=_cleaned_native(part.native, format, memo), **changes)
    renamed: Part = evolve(cleaned) if _id(cleaned) != clean_text(_id(part)) else cleaned
    return renamed


def _id(part: Part) -> str:
    return part.id if isinstance(part, ToolCall) else part.call_id if isinstance(part, ToolResult) else ""


def _cleaned_native(native: Native | None, format: str, memo: dict[int, Any]) -> Native | None:
    """Another format's item is not written: it stays. A block inside an item stays the same object as there."""
    if native is None or native.format != format:
        return native
    if id(native.value) not in memo:
        clean(native.value, memo=memo)
    return dataclasses.replace(native, value=memo[id(native.value)])


def shapes(bench: Bench) -> None:
    """Write anew what its own API would refuse as it stands; leave out parts that their role has no place for."""
    target = bench.target
    out: list[Entry] = []
    for position, message in bench.entries:
        what = misshapen(message, target)
        parts = tuple(_reshaped(part, bench) for part in message.parts)
        if what is not None or any(new is not old for new, old in zip(parts, message.parts, strict=True)):
            message = message.evolve(parts=parts)
            bench.report("message.shape", position, f"written anew: {what or 'a call or a result'}")
        wrong = set(out_of_place(message, target))
        if not wrong:
            out.append(Entry(position, message))
            continue
        kept = tuple(part for number, part in enumerate(message.parts) if number not in wrong)
        out.append(Entry(position, message.evolve(parts=kept)))
        for number in sorted(wrong):
            part = message.parts[number]
            kind = type(part).__name__.lower()
            if isinstance(part, ToolResult):
                out.append(Entry(position, Message(role="tool", parts=(part,))))
                bench.report("message.part", position, "a result became a message of its own")
            else:
                bench.report("message.part", position, f"left out a part ({kind}) that cannot stand there")
    bench.entries = out


def _reshaped(part: Part, bench: Bench) -> Part:
    if not misshapen_part(part, bench.target):
        return part
    changes: dict[str, Any] = {}
    if isinstance(part, ToolResult):
        changes["content"] = tuple(inner for inner in part.content if may_be_held(inner, bench.target))
    changed: Part = evolve(part, **changes)
    return changed


def developer_role(bench: Bench) -> None:
    """`developer` becomes `system` where the target does not know it."""
    if bench.target.developer:
        return
    for number, (position, message) in enumerate(bench.entries):
        if message.role == "developer":
            bench.replace(number, message.evolve(role="system"))
            bench.report("system.developer", position, "role 'developer' sent as 'system'")


def repeated_ids(bench: Bench) -> None:
    """Responses: an item whose id stands before is sent without it; one that nothing else names is left out."""
    if bench.target.format != "openai_responses":
        return
    gone: set[int] = set()
    for number in repeated_items(bench.messages):
        position, message = bench.entries[number]
        if any(isinstance(part, Opaque) for part in message.parts):
            gone.add(number)
            bench.report("item.id_twice", position, f"dropped the item {message.id!r}, which stands before")
        else:
            bench.replace(number, _without_id(message))
            bench.report("item.id_twice", position, f"sent without the item id {message.id!r}")
    if gone:
        bench.entries = [entry for number, entry in enumerate(bench.entries) if number not in gone]


def _without_id(message: Message) -> Message:
    def stripped(native: Native | None) -> Native | None:
        if native is None or "id" not in native.value:
            return native
        return dataclasses.replace(native, value={k: v for k, v in native.value.items() if k != "id"})

    parts = tuple(dataclasses.replace(part, native=stripped(part.native)) for part in message.parts)
    return dataclasses.replace(message, id=None, parts=parts, native=stripped(message.native))


def calls(bench: Bench) -> None:
    """Kinds, arguments and names of calls; the names of results and of speakers."""
    pattern = bench.target.speaker_pattern
    for number, (position, message) in enumerate(bench.entries):
        if message.role in ("assistant", "tool"):
            parts = tuple(_called(part, bench, position) for part in message.parts)
            if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
                message = message.evolve(parts=parts)
                bench.replace(number, message)
        name = message.name
        if name is not None and message.role != "tool" and not good_name(name, pattern):
            alias = new_name(name, pattern, instead="speaker")
            bench.replace(number, message.evolve(name=alias))
            bench.report("message.name", position, f"speaker {name!r} renamed {alias!r}")


def _called(part: Part, bench: Bench, position: int) -> Part:
    if isinstance(part, ToolCall):
        return _call(part, bench, position)
    if isinstance(part, ToolResult) and part.name is not None:
        pattern = bench.target.name_pattern
        if not good_name(part.name, pattern):  # as its call's, so that the two still belong together
            name = new_name(part.name, pattern, instead="tool") if part.name else None
            bench.report("call.name", position, f"the name of a result, {part.name!r}, renamed {name!r}")
            renamed: Part = evolve(part, name=name)
            return renamed
    return part


def _call(call: ToolCall, bench: Bench, position: int) -> ToolCall:
    target = bench.target
    given = call
    if not takes_kind(call, target):
        wrapped = call.arguments
        if call.kind == "custom":
            wrapped = json.dumps({"input": wrapped}, ensure_ascii=False, separators=(",", ":"))
        call = dataclasses.replace(call, kind="function", arguments=wrapped, native=None)
        bench.report("call.kind", position, f"{given.kind} call {call.id!r} sent as a function call")
    if target.object_arguments and call.kind == "function" and not is_object(call.arguments, target):
        call = evolve(call, arguments=mended(call.arguments))
        bench.report("call.arguments", position, f"mended the arguments of call {call.id!r}")
    if call.kind in ("function", "custom") and not good_name(call.name, target.name_pattern):
        name = new_name(call.name, target.name_pattern, instead="tool")
        bench.report("call.name", position, f"call {call.name!r} renamed {name!r}")
        call = evolve(call, name=name)
    return call


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
    shorter: Part = evolve(part, content=kept) if len(kept) < len(part.content) else part
    return shorter


def dangling(bench: Bench) -> None:
    """Responses: leave out a reasoning item that lost the item which followed it."""
    if bench.target.format != "openai_responses":
        return
    gone = set(dangling_reasoning(bench.messages, bench.target))
    for number in sorted(gone):
        bench.report(
            "reasoning.dangling", bench.entries[number].position, "left out a reasoning item without its item"
        )
    if gone:
        bench.entries = [entry for number, entry in enumerate(bench.entries) if number not in gone]


def breakpoints(bench: Bench) -> None:
    """Drop the oldest cache markers above the target's number. Nothing else of an item changes by it."""
    if bench.target.format != "anthropic":
        return
    marked = [part for message in bench.messages for part in message.parts if markers(part)]
    extra = sum(map(markers, marked)) - bench.target.cache_markers
    bare: dict[int, Any] = {}  # an item's or a block's value, by the one that it had before
    for part in marked:
        if extra > 0 and part.native is not None:
            extra -= markers(part)
            bare[id(part.native.value)] = _without_markers(part.native.value)
    if not bare:
        return
    for number, (position, message) in enumerate(bench.entries):
        parts = tuple(_unmarked(part, bare) for part in message.parts)
        if any(new is not old for new, old in zip(parts, message.parts, strict=True)):
            native = _bare_item(message.native, bare)
            bench.replace(number, dataclasses.replace(message, parts=parts, native=native))
            bench.report("cache.breakpoints", position, "dropped a cache_control marker")


def _unmarked(part: Part, bare: dict[int, Any]) -> Part:
    """Without the markers on it and inside it."""
    if part.native is None or id(part.native.value) not in bare:
        return part
    native = dataclasses.replace(part.native, value=bare[id(part.native.value)])
    if not isinstance(part, ToolResult):
        return dataclasses.replace(part, native=native)
    for inner in part.content:
        if inner.native is not None:
            bare[id(inner.native.value)] = _without_markers(inner.native.value)
    content = tuple(_unmarked(inner, bare) for inner in part.content)
    return dataclasses.replace(part, native=native, content=content)


def _bare_item(native: Native | None, bare: dict[int, Any]) -> Native | None:
    """The item with the bare blocks; the same value for all messages that were read from it."""
    if native is None:
        return None
    value = native.value
    if id(value) not in bare:
        held = {
            key: [bare.get(id(block), block) for block in inner] if isinstance(inner, list) else inner
            for key, inner in value.items()
        }
        bare[id(value)] = held
    return dataclasses.replace(native, value=bare[id(value)])


def _without_markers(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_markers(inner) for inner in value]
    if not isinstance(value, Mapping):
        return value
    kept = {key: inner for key, inner in value.items() if key != "cache_control"}
    if "content" in kept:
        kept["content"] = _without_markers(kept["content"])
    return kept
