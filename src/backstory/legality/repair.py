"""Heals a history for its target: the smallest change first, each reported; the identity on what is legal.

A history that was read back is data to be repaired, never an error. The mends run in an order in which none
undoes another; what they make is judged by the table in `backstory.legality.rules`, as everything is.
Repair never empties a history, and it keeps the order of what it keeps.

It is monotonic: where a history was sent as it stood (all its calls answered, the assistant's answer next), the
repair of a longer one begins with the repair of the shorter. Where something did change that was sent already,
the caller says so by `seals` and `sent`, and the repair adds instead of changing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backstory.legality import mend_order, mend_parts, mend_steps
from backstory.legality.bench import Bench, CallPlace, Repair, entries_of
from backstory.legality.rules import problems
from backstory.messages import Message, Synthetic
from backstory.targets import Target

MENDS: tuple[Callable[[Bench], None], ...] = (
    mend_parts.strictness,
    mend_parts.shapes,
    mend_parts.developer_role,
    mend_parts.repeated_ids,
    mend_parts.calls,
    mend_parts.blank_text,
    mend_steps.steps,
    mend_order.empties,
    mend_parts.dangling,
    mend_order.one_system,
    mend_order.late_system,
    mend_order.user_first,
    mend_order.alternation,
    mend_order.joins,
    mend_order.trailing_space,
    mend_parts.breakpoints,
)
"""In this order: what is inside a message first, since it decides which messages are empty and which calls count;
then calls and results, which decide what stands beside what; then the order of messages. Each leaves alone what
breaks no rule, so that what one breach brings about does not depend on another elsewhere in the list."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Mended:
    """The legal messages, the position in the caller's list that each comes from, and what was changed.

    `made` are the calls for which a result was made up: once that was sent, they are `sent` in the next mending.
    """

    messages: list[Message]
    positions: list[int]
    repairs: tuple[Repair, ...]
    made: tuple[CallPlace, ...] = ()


def mend(
    messages: Sequence[Message],
    target: Target,
    *,
    positions: Iterable[int] | None = None,
    seals: Collection[int] = (),
    sent: Mapping[CallPlace, Synthetic] | Collection[CallPlace] = (),
    not_started: Collection[str] = (),
) -> Mended:
    """Messages that are legal for the target. See `Bench` for what the arguments mean."""
    entries = entries_of(messages, positions)
    if not sent and next(problems(messages, target), None) is None:
        return Mended(messages=list(messages), positions=[entry.position for entry in entries], repairs=())
    bench = Bench(entries, target, seals=seals, sent=sent, not_started=not_started)
    for step in MENDS:
        step(bench)
    mend_order.something_said(bench, messages)
    return Mended(
        messages=bench.messages,
        positions=[entry.position for entry in bench.entries],
        repairs=tuple(bench.repairs),
        made=tuple(bench.made),
    )
