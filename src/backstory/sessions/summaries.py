"""A ``summary`` record: one record, so that no compaction is ever half there. And pins, which outlast it. Pure.

What a summary record says::

    summary    text, kept facts, and by whom (`compaction.Summary`)
    start, kept  the cut that it owns: replay begins there, but for the user message that stays (as in a ``cut``)
    since      the first place that it stands for, what it builds on included
    spans      places that it adds to those of the summary that it builds on, whose place is `on` (0: none)
    tokens     of the history that is replayed, the summary included: [before, after]
    refused    why a model's summaries were not taken, in words
    usage      what the model billed, where one was asked; `model` names it
    why        what it was made for
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from backstory.compaction.summary import Summary
from backstory.records import NewRecord
from backstory.sessions.spans import Cut, Span
from backstory.sessions.view import View


def summary_record(
    summary: Summary,
    cut: Cut,
    *,
    spans: Sequence[Span],
    on: int = 0,
    since: int = 1,
    tokens: tuple[int, int] = (0, 0),
    refused: Sequence[str] = (),
    usage: Mapping[str, Any] | None = None,
    model: str = "",
    why: str = "",
) -> NewRecord:
    """The record of one compaction."""
    data: dict[str, Any] = {
        "summary": summary.to_json(),
        "start": cut.start,
        "kept": list(cut.kept) if cut.kept else None,
        "since": since,
        "spans": [list(span) for span in spans],
        "on": on,
        "tokens": list(tokens),
        "why": why,
    }
    if refused:
        data["refused"] = list(refused)
    if usage:
        data["usage"] = dict(usage)
    if model:
        data["model"] = model
    return NewRecord(kind="summary", data=data)


def summary_of(view: View) -> Summary | None:
    """The active summary."""
    return Summary.from_json(view.summary["summary"]) if view.active else None


def pinned_texts(view: View) -> list[str]:
    """What is pinned and not replayed: instructions and facts as they were given, and messages that left the replay.

    A message that was undone is not told of.
    """
    texts = []
    for pin in view.pins.values():
        place = pin.get("message")
        if place is None or not (view.replayed(place) or view.is_hidden(place)):
            texts.append(str(pin["text"]))
    return list(dict.fromkeys(texts))
