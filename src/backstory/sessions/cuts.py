"""Which cut is in force, and which summary: bare cuts and the cuts that summaries own are one list, newest last. Pure.

A cut is a record, and so is a summary, which owns its cut: one record each, so that neither can be half there. Undoing
turns before a cut takes it out of force, since without these there was more room, and a summary that told of them would
lie. An undo of a summary takes it out, and whatever was cut on top of it.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from backstory.sessions.spans import Cut, Span, Undo

KNOWN_CUTS = 16
"""So many of the newest cuts can be gone back to by undoing."""

KNOWN_SUMMARIES = 3
"""So many of the newest summaries are kept by value, and can be gone back to: a snapshot holds the text of each. Where
more are taken out of force, the cuts stand that are no summary's, and at last none: everything is in the view again."""


def cut_of(data: Mapping[str, Any], seq: int, *, stands: bool) -> Cut:
    """The cut of a ``cut`` record, or of a ``summary`` record, which stands for what it left out."""
    kept = data.get("kept")
    return Cut(
        start=data["start"],
        kept=tuple(kept) if kept else None,
        anew=bool(data.get("anew")),
        stands=stands,
        since=data.get("since", 1),
        seq=seq,
    )


def with_cut(cuts: Sequence[Cut], cut: Cut) -> tuple[Cut, ...]:
    """The cuts that are remembered once there is another one."""
    known = [*cuts, cut][-KNOWN_CUTS:]
    oldest = [c.seq for c in known if c.stands][-KNOWN_SUMMARIES:]
    return tuple(c for c in known if not c.stands or c.seq >= oldest[0])


def in_force(cuts: Sequence[Cut], hidden: Mapping[int, Undo]) -> tuple[Cut, int]:
    """The cut in force, and the place of the active summary, 0 where there is none.

    The newest cut that no undo since has taken out of force; where all are, the oldest that is remembered. The summary
    is the newest such, if the user did not begin anew since: bare cuts on top of it leave it active.
    """
    standing: Cut | None = None
    for cut in reversed(cuts):
        if not cut.anew and _taken_out(cut, hidden):
            continue
        standing = standing or cut
        if cut.anew:
            return standing, 0
        if cut.stands:
            return standing, cut.seq
    return standing or cuts[0], 0


def _taken_out(cut: Cut, hidden: Mapping[int, Undo]) -> bool:
    for seq, undo in hidden.items():
        if seq > cut.seq and (
            (undo.lifts and undo.lifts <= cut.seq) or (undo.of == "turn" and undo.first < cut.start)
        ):
            return True
    return False


def without_blind(cuts: Sequence[Cut], redone: int, undo: Undo) -> tuple[Cut, ...]:
    """The cuts once an undo is taken back: without summaries that were written while its turns were hidden.

    They never saw what is shown again, and it must not be taken for summarised.
    """
    if undo.of != "turn":
        return tuple(cuts)
    return tuple(c for c in cuts if not (c.stands and c.seq > redone and undo.first < c.start))


def covered_by(seq: int, *, cut: Cut, active: Cut | None, hidden: Mapping[int, Undo]) -> tuple[str, int]:
    """What covers a message (law 5): ``view``, ``undo``, ``summary`` or ``cut``, and the place of that record.

    Exactly one holds. What was undone is no summary's business; what the view shows is nobody's; before the active
    summary's own cut everything is the summary's but the user message that its cut keeps, which a later bare cut takes,
    and what is older than a summary was told of, which was cut all the same.
    """
    for place, undo in hidden.items():
        if seq in undo:
            return "undo", place
    if seq >= cut.start or _is_kept(seq, cut):
        return "view", 0
    if active is not None and active.since <= seq < active.start and not _is_kept(seq, active):
        return "summary", active.seq
    return "cut", cut.seq


def newly_covered(base: Cut | None, cut: Cut, since: int = 1) -> tuple[Span, ...]:
    """The spans that a summary with this cut adds to those of the summary that it builds on: what it has to tell of.

    `since` is the first place after the user last began anew. All that the base did not cover, what bare cuts left out
    meanwhile included, up to the cut; without the user message that it keeps.
    """
    spans = [Span(base.start if base is not None else since, cut.start - 1)]
    if base is not None and base.kept is not None:
        spans.insert(0, Span(base.kept[0], base.kept[1] - 1))
    if cut.kept is not None:
        spans = [piece for span in spans for piece in _without(span, cut.kept)]
    return tuple(span for span in spans if span.first <= span.last)


def _without(span: Span, kept: tuple[int, int]) -> Collection[Span]:
    if kept[1] <= span.first or kept[0] > span.last:
        return (span,)
    return (Span(span.first, kept[0] - 1), Span(kept[1], span.last))


def _is_kept(seq: int, cut: Cut) -> bool:
    return cut.kept is not None and cut.kept[0] <= seq < cut.kept[1]
