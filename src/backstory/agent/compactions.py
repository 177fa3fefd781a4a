"""The compactions of a session, each explained from its record: what it covers and kept, what was refused, its cost."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from backstory.compaction.summary import Summary
from backstory.errors import SessionNotFound
from backstory.sessions.forks import pages
from backstory.sessions.view import View, fold
from backstory.stores.base import Store
from backstory.stores.values import SessionId


@dataclass(frozen=True, kw_only=True, slots=True)
class CompactionTold:
    """One compaction. `seq` is the place of its record, `spans` are the places that it covers anew, `turns` their
    turns, `on` is the place of the summary that it builds on (0: none), `before` and `after` are tokens of the history.

    `state` is ``in force``, ``built upon`` (a later one stands for what it did), ``undone``, ``ended`` (the user
    began anew) or ``copied`` (a fork began with it). `usage` is what the model billed, `model` which was asked; the
    summary's `by` is who wrote what was taken.
    """

    seq: int
    at: str
    why: str
    state: str
    summary: Summary
    spans: tuple[tuple[int, int], ...] = ()
    turns: tuple[int, ...] = ()
    messages: int = 0
    on: int = 0
    before: int = 0
    after: int = 0
    refused: tuple[str, ...] = ()
    model: str = ""
    usage: Mapping[str, int] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)


async def compactions(store: Store, id: SessionId) -> list[CompactionTold]:
    """The compactions of a session, oldest first. Raises `SessionNotFound`."""
    records = [record async for page in pages(store, id) for record in page]
    if not records:
        raise SessionNotFound(f"there is no session {str(id)!r}")
    view = fold(records)
    told = []
    for record in records:
        if record.kind != "summary":
            continue
        data = record.data
        spans = tuple((first, last) for first, last in data["spans"])
        covered = [r for r in records if r.kind == "message" and any(a <= r.seq <= b for a, b in spans)]
        told.append(
            CompactionTold(
                seq=record.seq,
                at=record.at,
                why=str(data.get("why", "")),
                state=_state(view, record.seq, copied=bool(data.get("copied"))),
                summary=Summary.from_json(data["summary"]),
                spans=spans,
                turns=tuple(sorted({r.turn for r in covered})),
                messages=len(covered),
                on=data.get("on", 0),
                before=data["tokens"][0],
                after=data["tokens"][1],
                refused=tuple(data.get("refused", ())),
                model=str(data.get("model", "")),
                usage=dict(data.get("usage", {})),
            )
        )
    return told


def _state(view: View, seq: int, *, copied: bool) -> str:
    if seq == view.active:
        return "copied" if copied else "in force"
    if any(cut.anew and cut.seq > seq for cut in view.cuts):
        return "ended"
    active = view.active
    while active:
        active = view.summaries.get(active, {}).get("on", 0)
        if active == seq:
            return "built upon"
    return (
        "undone"
        if any(undo.lifts == seq or undo.of == "turn" for undo in view.hidden.values())
        else "built upon"
    )
