"""The governance of a request: what is done to tool results, over a copy, before and after the window is chosen.

A request goes through these in this order; each says what must have run before it.

    condense_old, cap_results    decide which results are shown as previews: at a new epoch, where a caller asks
    condense                     shows them so, in every request, as decided
    repair.mend                  drops malformed calls, pairs calls and results
    Fitting.narrow               trims the oldest, whole turns or steps at a time
    rules.problems               checks that the result is legal for the target

Decisions are values (place of a result → its preview), sticky until their message is cut, so that the prefix is not
rewritten call by call. `Fitting` makes them in batches: where the newest step does not fit; and, for who governs a
whole session, at a new epoch over the soft mark, where what is condensed costs no prefix.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from backstory.context.preview import LEAST, preview
from backstory.context.shapes import shorter_object
from backstory.legality.steps import turns
from backstory.messages import Message, Part, Text, ToolCall, ToolResult, evolve, texts

Entries = list[tuple[int, Message]]
"""Messages with their positions in the caller's list; an item that was read as two has its position twice."""

Sizes = Callable[[Part], int]
"""Tokens of a part."""

HANDLE = "result:"
"""What a handle begins with that names a result of the session's own log: the place of its record, and the part."""
BULKY = (ToolResult, ToolCall)
"""What may be shown as a preview."""
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


def note(place: str) -> str:
    """How the whole of a result can be read again: for who has the tool `read_result`."""
    return f'[Preview of a long result. The whole: read_result(handle="{HANDLE}{place}").]'


def condense_old(
    entries: Entries, size: Sizes, *, keep: int = OLD_STEPS, cap: int = OLD_CAP
) -> dict[str, int]:
    """Previews for the big results, and calls, of all but the newest `keep` steps. Runs before anything is trimmed."""
    messages = [message for _, message in entries]
    steps = [step for turn in turns(messages) for step in turn.steps]
    end = steps[-keep].start if keep and len(steps) >= keep else (len(messages) if not keep else 0)
    places = numbered(entries[:end])
    return {place: cap for place, part in places if isinstance(part, BULKY) and size(part) > 2 * cap}


def cap_results(entries: Entries, size: Sizes, *, room: int) -> dict[str, int]:
    """Previews so that all results together take `room` tokens at most: the biggest give way first.

    Runs after `condense_old`, over entries that show its previews.
    """
    sizes = {place: size(part) for place, part in numbered(entries) if isinstance(part, ToolResult)}
    if sum(sizes.values()) <= room:
        return {}
    cap = max(LEAST, level(list(sizes.values()), room))
    return {place: cap for place, tokens in sizes.items() if tokens > cap}


def condense(
    entries: Entries, decided: Mapping[str, int], count: Callable[[str], int], *, told: Collection[str] = ()
) -> Entries:
    """The entries with the decided results as previews, those `told` with a line that says how to read the whole.

    Runs before mending, since it does not move anything.
    """
    if not decided:
        return entries
    places = iter(numbered(entries))
    out: Entries = []
    for position, message in entries:
        parts = tuple(_preview(*next(places), decided, count, told) for _ in message.parts)
        changed = any(new is not old for new, old in zip(parts, message.parts, strict=True))
        out.append((position, message.evolve(parts=parts) if changed else message))
    return out


def _preview(
    place: str,
    part: Part,
    decided: Mapping[str, int],
    count: Callable[[str], int],
    told: Collection[str],
) -> Part:
    if place not in decided:
        return part
    shown: Part = part
    if isinstance(part, ToolCall):
        shown = evolve(part, arguments=_shorter(part.arguments, decided[place], count))
    elif isinstance(part, ToolResult):
        short = preview(texts(part.content), decided[place], count, note=note(place) if place in told else "")
        shown = evolve(part, content=(Text(text=short),))
    return shown


def _shorter(arguments: str, tokens: int, count: Callable[[str], int]) -> str:
    """The arguments of a call as a shorter object; strict servers refuse what is none."""
    room = tokens * 4
    while room > LEAST:
        short = shorter_object(arguments, room)
        if count(short) <= tokens or short == arguments:
            return short
        room = room * 3 // 4
    return shorter_object(arguments, LEAST)


def level(sizes: Sequence[int], room: int) -> int:
    """The cap under which sizes add up to `room` at most: small ones stay whole, big ones share what is left."""
    left, count = room, len(sizes)
    for size in sorted(sizes):
        if size * count > left:
            return left // count
        left -= size
        count -= 1
    return max(sizes, default=0)
