"""Which neighbouring messages become one wire item: for the formats that hold results and words in one user item.

Anthropic and Gemini know two roles only, so several messages may share one item: the results of one step, or the
items of another API that made up one answer. It knows nothing of
blocks: the format renders those. It pairs, moves and renames nothing: that is `backstory.legality`'s business.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.formats.base import Item, unknown_fields
from backstory.messages import Message, Opaque, Origin, Reasoning, Role
from backstory.targets import Target

Render = Callable[[int, Message], list[Item]]
"""The blocks of one message, given its position; none where nothing of it can be carried."""


@dataclass(kw_only=True, slots=True)
class Unit:
    """One wire item to be: an item as it was read (`native`), or new `blocks` and the fields to keep (`extra`)."""

    role: str
    start: int
    stop: int
    native: Mapping[str, Any] | None = None
    blocks: list[Item] = field(default_factory=list)
    extra: Item = field(default_factory=dict)
    results: bool = False  # its last message holds results


def runs(parts: Sequence[Any], is_result: Callable[[Any], bool]) -> list[tuple[bool, tuple[Any, ...]]]:
    """The parts of one user item in runs of results and of everything else, in their order."""
    found: list[tuple[bool, tuple[Any, ...]]] = []
    start = 0
    kind = is_result(parts[0])
    for position in range(1, len(parts)):
        if is_result(parts[position]) is not kind:
            found.append((kind, tuple(parts[start:position])))
            start, kind = position, not kind
    found.append((kind, tuple(parts[start:])))
    return found


def late_system(text: str) -> str:
    """A system message that stands in the middle, as the user's text."""
    return f"<system>\n{text}\n</system>"


def accepts(target: Target, origin: Origin) -> bool:
    """Whether the target reads opaque items of this origin (nearly always the very same value: be quick)."""
    return origin is target.origin or target.origin.matches(origin)


def gather(
    messages: Sequence[Message],
    begin: int,
    *,
    target: Target,
    field: str,
    known: frozenset[str],
    roles: Mapping[Role, str],
    render: Render,
) -> list[Unit]:
    """The messages from `begin` on as units, in order.

    An item that was read whole and not changed stays alone, whatever stands beside it, with two exceptions: the
    results of one step share an item, and a `joined` message goes to the one before it. New messages of the
    assistant's share an item with a new one before them. The user's do not: the first may have been sent already,
    and must come again byte for byte; both APIs join such neighbours themselves.

    `field` is the item's field that holds its blocks, `known` the fields that our types know.
    """
    units: list[Unit] = []
    position, end = begin, len(messages)
    while position < end:
        message = messages[position]
        last = units[-1] if units else None
        results = message.role == "tool"
        count = _whole(messages, position, field, target)
        if count:
            stop = position + count
            if last and last.native is None and results and last.results and last.role == roles["tool"]:
                _add(last, messages, position, stop, render, known, target.format)
            else:
                role = "system" if message.role in ("system", "developer") else roles[message.role]
                assert message.native is not None
                units.append(Unit(role=role, start=position, stop=stop, native=message.native.value))
            units[-1].results = messages[stop - 1].role == "tool"
            position = stop
            continue
        role = roles[message.role]
        blocks = render(position, message)
        if blocks:
            near = last is not None and last.role == role
            new = last is not None and last.native is None and message.role == "assistant"
            if last and near and (new or message.joined or (results and last.results)):
                if last.native is not None:
                    last.native = None
                    _add(last, messages, last.start, last.stop, render, known, target.format)
            else:
                last = Unit(role=role, start=position, stop=position + 1)
                units.append(last)
            last.blocks += blocks
            last.stop = position + 1
            last.results = results
            _keep(last, message, known, target.format)
        position += 1
    return units


def _add(
    unit: Unit,
    messages: Sequence[Message],
    start: int,
    stop: int,
    render: Render,
    known: frozenset[str],
    format: str,
) -> None:
    for position in range(start, stop):
        unit.blocks += render(position, messages[position])
    unit.stop = stop
    _keep(unit, messages[start], known, format)


def _keep(unit: Unit, message: Message, known: frozenset[str], format: str) -> None:
    if message.native is not None:
        for key, value in unknown_fields(message.native, format, known).items():
            unit.extra.setdefault(key, value)


def _whole(messages: Sequence[Message], position: int, field: str, target: Target) -> int:
    """How many messages from here on are one unchanged item of the target's format; none: zero.

    They are when together they hold every block of it. (Read back from a log, they hold equal values, not
    the same.)
    """
    message = messages[position]
    native = message.native
    if native is None or not native.intact or native.format != target.format or message.joined:
        return 0
    if message.role == "assistant" and not _carried(message, target):
        return 0
    blocks = native.value.get(field)
    if not isinstance(blocks, list):
        return 1
    held, stop = len(message.parts), position + 1
    while held < len(blocks) and stop < len(messages):
        message = messages[stop]
        other = message.native
        if not message.joined or other is None or not other.intact or other.format != native.format:
            break
        if other.value is not native.value and other.value != native.value:
            break
        held += len(message.parts)
        stop += 1
    return stop - position if held == len(blocks) else 0


def _carried(message: Message, target: Target) -> bool:
    """Whether the target takes every reasoning and opaque part: whoever made them may be somebody else."""
    for part in message.parts:
        if isinstance(part, Reasoning):
            if target.reasoning == "never" or not accepts(target, part.origin):
                return False
        elif isinstance(part, Opaque) and not accepts(target, part.origin):
            return False
    return True
