"""The governance of a request: what is done to tool results, over a copy, before and after the window is chosen.

A request goes through these in this order; each says what must have run before it.

    condense_old, cap_results    decide which results are shown as previews: at a new epoch, where a caller asks
    condense                     shows them so, in every request, as decided
    repair.mend                  drops malformed calls, pairs calls and results
    Fitting.narrow               trims the oldest, whole turns or steps at a time
    rules.problems               checks that the result is legal for the target

Decisions are values (place of a result → tokens of its preview), sticky until their message is cut, so that the
prefix is not rewritten call by call. Today `Fitting` alone makes them, for the newest step where it does not fit;
`condense_old` and `cap_results` are for callers that govern whole sessions, and no request is condensed by them yet.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from backstory.context.preview import LEAST, preview
from backstory.legality.steps import turns
from backstory.messages import Message, Part, Text, ToolResult, evolve, texts

Entries = list[tuple[int, Message]]
"""Messages with their positions in the caller's list; an item that was read as two has its position twice."""

Sizes = Callable[[Part], int]
"""Tokens of a part."""

OLD_STEPS = 3
"""Results of the newest steps are left alone: the model is working with them."""
OLD_CAP = 400
"""Tokens of the preview of an old result: a screenful, which is what it takes to know whether to read it again."""


def numbered(entries: Sequence[tuple[int, Message]]) -> list[tuple[str, Part]]:
    """Every part with its place: ``position.number``, the number counted over all messages of that position."""
    found: list[tuple[str, Part]] = []
    last, number = None, 0
    for position, message in entries:
        number = number if position == last else 0
        last = position
        for part in message.parts:
            found.append((f"{position}.{number}", part))
            number += 1
    return found


def condense_old(
    entries: Entries, size: Sizes, *, keep: int = OLD_STEPS, cap: int = OLD_CAP
) -> dict[str, int]:
    """Previews for the big results of all but the newest `keep` steps. Runs before anything is trimmed."""
    messages = [message for _, message in entries]
    steps = [step for turn in turns(messages) for step in turn.steps]
    end = steps[-keep].start if keep and len(steps) >= keep else (len(messages) if not keep else 0)
    places = numbered(entries[:end])
    return {place: cap for place, part in places if isinstance(part, ToolResult) and size(part) > 2 * cap}


def cap_results(entries: Entries, size: Sizes, *, room: int) -> dict[str, int]:
    """Previews so that all results together take `room` tokens at most: the biggest give way first.

    Runs after `condense_old`, over entries that show its previews.
    """
    sizes = {place: size(part) for place, part in numbered(entries) if isinstance(part, ToolResult)}
    if sum(sizes.values()) <= room:
        return {}
    cap = max(LEAST, level(list(sizes.values()), room))
    return {place: cap for place, tokens in sizes.items() if tokens > cap}


def condense(entries: Entries, decided: Mapping[str, int], count: Callable[[str], int]) -> Entries:
    """The entries with the decided results as previews. Runs before mending, since it does not move anything."""
    if not decided:
        return entries
    places = iter(numbered(entries))
    out: Entries = []
    for position, message in entries:
        parts = tuple(_preview(*next(places), decided, count) for _ in message.parts)
        changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
        out.append((position, message.evolve(parts=parts) if changed else message))
    return out


def _preview(place: str, part: Part, decided: Mapping[str, int], count: Callable[[str], int]) -> Part:
    if place not in decided or not isinstance(part, ToolResult):
        return part
    short = preview(texts(part.content), decided[place], count)
    shown: Part = evolve(part, content=(Text(text=short),))
    return shown


def level(sizes: Sequence[int], room: int) -> int:
    """The cap under which sizes add up to `room` at most: small ones stay whole, big ones share what is left."""
    left, count = room, len(sizes)
    for size in sorted(sizes):
        if size * count > left:
            return left // count
        left -= size
        count -= 1
    return max(sizes, default=0)
