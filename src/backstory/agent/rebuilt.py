"""Any past request again, from the log alone, and the proof that it is the one that was sent. Pure.

A request is a function of what was logged: the epoch that froze the system and the tools, the state that the
request's own record holds, and the messages as they stood then. The record also holds a digest of every item that was
sent; what was rebuilt and does not have it is not claimed to be the request.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.agent.requests import Frozen
from backstory.agent.written import written_again
from backstory.context import prefix
from backstory.context.markers import mark
from backstory.context.state import State
from backstory.errors import BackstoryError, ConfigurationError
from backstory.formats.request import read_all, request_body
from backstory.messages import Message
from backstory.records import Record
from backstory.sessions.view import View, fold
from backstory.targets import PRESETS, Target
from backstory.tokens import Counter


@dataclass(frozen=True, kw_only=True, slots=True)
class Sent:
    """One message of a request and its tokens (of several in one item, the first has those of the item)."""

    message: Message
    tokens: int


@dataclass(frozen=True, kw_only=True, slots=True)
class Rebuilt:
    """A request, rebuilt. `proven`: its bytes are those that were sent; else `doubt` says why that is not known.

    `sections` are the pieces of the system block by name. `view` is the session as it stood then.
    """

    body: Mapping[str, Any]
    sent: tuple[Sent, ...]
    sections: tuple[tuple[str, str], ...]
    view: View
    proven: bool
    doubt: str = ""


def requests_of(records: Iterable[Record]) -> list[Record]:
    """The records of the requests that were answered, oldest first."""
    return [record for record in records if record.kind == "request"]


def epoch_of(records: Iterable[Record], request: Record) -> Record | None:
    """The record of the epoch that a request belongs to."""
    found = None
    for record in records:
        if record.seq > request.seq:
            break
        if record.kind == "epoch":
            found = record
    return found


def rebuild(
    records: Sequence[Record], request: Record, frozen: Frozen, target: Target | None = None
) -> Rebuilt:
    """The request of a ``request`` record. `records` is the log, from its beginning or from a snapshot on.

    `target` is needed where the request was made for one that is no preset.
    """
    state = request.data["state"]
    view = fold(record for record in records if record.seq <= request.seq)
    sections = pieces(frozen)

    def failed(doubt: str) -> Rebuilt:
        return Rebuilt(body={}, sent=(), sections=sections, view=view, proven=False, doubt=doubt)

    before = State.from_json({**state, "items": [], "tokens": [], "head": 0})
    if isinstance(before, str):
        return failed(before)
    try:
        goal, counter = shape_of(before.shape, target)
        draft = written_again(view, frozen.system, before, goal, counter)
        tools = prefix.same_order(before.tools, frozen.tools)
        body = mark(request_body(goal, draft.written, tools), goal, replayed=0)
        read, positions = read_all(draft.written.items, goal.format)
    except BackstoryError as error:
        return failed(f"it cannot be rebuilt: {error}")
    firsts = {at: number for number, at in reversed(list(enumerate(positions)))}
    sent = tuple(
        Sent(message=message, tokens=draft.tokens[at] if firsts[at] == number else 0)
        for number, (message, at) in enumerate(zip(read, positions, strict=True))
    )
    made = {
        "items": list(draft.items),
        "system": draft.system,
        "tools": [prefix.digest(tool) for tool in tools],
    }
    doubt = _doubt(made, request.data)
    return Rebuilt(
        body={**({"model": frozen.model} if frozen.model else {}), **frozen.settings, **body},
        sent=sent,
        sections=sections,
        view=view,
        proven=not doubt,
        doubt=doubt,
    )


def _doubt(made: Mapping[str, Any], logged: Mapping[str, Any]) -> str:
    if prefix.digest(made["items"]) == logged["prefix"] and all(
        made[name] == logged["state"][name] for name in ("system", "tools")
    ):
        return ""
    if logged["state"].get("loose") is not None:
        return "passages were sent with it for this once, and are not in the log"
    return "its digest is another one: the log was changed since, or made by another version"


def shape_of(shape: str, target: Target | None = None) -> tuple[Target, Counter]:
    """Target and counter by what a state calls them. Raises `ConfigurationError` for a target that nobody knows."""
    name, counter, _ = (*shape.split("/"), "", "")[:3]
    for goal in filter(None, (target, PRESETS.get(name), *PRESETS.values())):
        if goal.name == name:
            return goal, Counter(name=counter)
    raise ConfigurationError(f"it was made for the target {name!r}, which is no preset: give target=")


def pieces(frozen: Frozen) -> tuple[tuple[str, str], ...]:
    """The sections of a frozen system block in their order, each with its text; what has no name is called ``other``.

    They are told apart by their digests, at headings: a section that was shortened is among the others.
    """
    blocks = frozen.system.split("\n\n") if frozen.system else []
    starts = [n for n, block in enumerate(blocks) if n == 0 or block.startswith("## ")]
    ends = [*starts[1:], len(blocks)]
    names = {digest: name for name, digest in frozen.sections.items()}
    found: list[tuple[str, str]] = []
    at = 0
    while at < len(starts):
        for stop in range(len(ends) - 1, at - 1, -1):
            text = "\n\n".join(blocks[starts[at] : ends[stop]])
            name = names.get(prefix.digest(text))
            if name is not None:
                break
        else:
            name, stop = "other", at
            text = "\n\n".join(blocks[starts[at] : ends[at]])
        if name == "other" and found and found[-1][0] == "other":
            found[-1] = ("other", f"{found[-1][1]}\n\n{text}")
        else:
            found.append((name, text))
        at = stop + 1
    return tuple(found)
