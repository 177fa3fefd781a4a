"""Heals a history for its target: the smallest change first, each reported; the identity on what is legal.

A history that was read back is data to be repaired, never an error. The mends run in an order in which none
undoes another; what they make is judged by the table in `backstory.legality.rules`, as everything is.
Repair never empties a history, and it keeps the order of what it keeps.

It is monotonic: where a history was sent as it stood (all its calls answered, the assistant's answer next), the
repair of a longer one begins with the repair of the shorter. Where something did change that was sent already,
the caller says so by `seals` and `sent`, and the repair adds instead of changing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from backstory.legality import mend_order, mend_parts, mend_steps
from backstory.legality.bench import Bench, CallPlace, Entry, Repair, entries_of
from backstory.legality.rules import problems
from backstory.messages import Message, texts, user
from backstory.targets import Target

MENDS: tuple[Callable[[Bench], None], ...] = (
    mend_parts.strictness,
    mend_parts.developer_role,
    mend_parts.foreign_reasoning,
    mend_parts.call_parts,
    mend_parts.blank_text,
    mend_steps.pairing,
    mend_parts.result_kinds,
    mend_steps.parallel,
    mend_steps.ids,
    mend_parts.dangling,
    mend_order.empties,
    mend_order.one_system,
    mend_order.late_system,
    mend_order.user_first,
    mend_order.alternation,
    mend_parts.breakpoints,
)
"""In this order: what is inside a message first, since it decides which messages are empty and which calls count;
then calls and results, which decide what stands beside what; then the order of messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mended:
    """The legal messages, the position in the caller's list that each comes from, and what was changed."""

    messages: list[Message]
    positions: list[int]
    repairs: tuple[Repair, ...]


def mend(
    messages: Sequence[Message],
    target: Target,
    *,
    positions: Iterable[int] | None = None,
    seals: Collection[int] = (),
    sent: Collection[CallPlace] = (),
    not_started: Collection[str] = (),
) -> Mended:
    """Messages that are legal for the target. See `Bench` for what the arguments mean."""
    entries = entries_of(messages, positions)
    if not sent and next(problems(messages, target), None) is None:
        return Mended(messages=list(messages), positions=[entry.position for entry in entries], repairs=())
    bench = Bench(entries, target, seals, sent, not_started)
    for step in MENDS:
        step(bench)
    _never_empty(bench, messages)
    _unshare(bench, messages)
    return Mended(
        messages=bench.messages,
        positions=[entry.position for entry in bench.entries],
        repairs=tuple(bench.repairs),
    )


def _never_empty(bench: Bench, given: Sequence[Message]) -> None:
    """Keep what the user or a tool said, as a note, where nothing else of the history is left."""
    if any(message.role not in ("system", "developer") for message in bench.messages):
        return
    lost = [m for m in given if m.role not in ("system", "developer")]
    if not lost:
        return
    told = "\n\n".join(filter(None, (texts(message.parts) for message in lost)))
    note = f"[From earlier in this conversation:]\n{told}" if told.strip() else mend_order.EMPTY
    bench.entries.append(Entry(bench.entries[-1].position if bench.entries else 0, user(note)))
    mend_parts.strictness(bench)
    bench.report("content.empty", bench.entries[-1].position, "kept what was left as a note of the user's")


def _unshare(bench: Bench, given: Sequence[Message]) -> None:
    """An item that was read as several messages is verbatim only while all of them stand unchanged in a row."""
    groups: dict[int, list[Message]] = {}
    for message in given:
        if message.native is not None:
            groups.setdefault(id(message.native.value), []).append(message)
    shared = {key: group for key, group in groups.items() if len(group) > 1}
    if not shared:
        return
    messages = bench.messages
    number = 0
    while number < len(messages):
        native = messages[number].native
        group = shared.get(id(native.value)) if native is not None else None
        if group is None:
            number += 1
            continue
        row = messages[number : number + len(group)]
        if len(row) == len(group) and all(a is b for a, b in zip(row, group, strict=True)):
            number += len(group)
            continue
        before = messages[number - 1] if number else None
        together = before is not None and before.native is not None and native is not None
        joined = together and before.native.value is native.value and messages[number].joined  # type: ignore[union-attr]
        bench.replace(number, messages[number].evolve(joined=bool(joined)))
        number += 1
