"""What a compaction would stand for: the cut that leaves the target, and the messages that have to be told of.

The cut is where a full window of that size would be cut, found by the same functions. What is told of is all that the
summary before does not cover: what leaves the replay now, and what bare cuts left out meanwhile, read from the log.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.compaction.policy import Policy
from backstory.compaction.summary import Summary
from backstory.context.budget import Budget
from backstory.context.fit import assemble
from backstory.errors import BudgetExceeded
from backstory.messages import Message
from backstory.messages import system as system_message
from backstory.records import Record
from backstory.sessions.archive import read_through
from backstory.sessions.cuts import newly_covered
from backstory.sessions.session import Session
from backstory.sessions.source import ViewSource, counted
from backstory.sessions.spans import Cut, Span
from backstory.sessions.summaries import summary_of
from backstory.sessions.view import View
from backstory.targets import Target
from backstory.tokens import Counter, count_tools
from backstory.tokens.messages import count_message

MOST_BUDGETS = 4
"""So many budgets of tokens a summary is told of at most. A session that was compacted all its life needs a half."""

_PAGE = 512

UNBOUNDED = 2048
"""Tokens of a summary where the session has no budget, and is compacted by its number of turns."""


WORTH = 0.05
"""Of the budget: what has to leave the replay for a compaction to be worth a prefix that the provider does not know."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frame:
    """What the requests of a session are made for: as `agent.requests.Shape`, with the system block that was sent."""

    target: Target
    counter: Counter
    budget: Budget
    system: str = ""
    tools: Sequence[Any] = ()
    factor: float = 1.0
    max_turns: int | None = None
    max_messages: int | None = None

    def text(self, text: str) -> int:
        """Tokens of a text."""
        return math.ceil(self.counter.count(text) * self.factor)

    def record(self, record: Record) -> int:
        """Tokens of a logged message."""
        return math.ceil(count_message(counted(record), self.counter, self.target.format) * self.factor)

    @property
    def fixed(self) -> int:
        """Tokens that no compaction makes fewer: the system block and the tools."""
        tools = count_tools(self.tools, self.counter) if self.tools else 0
        return self.text(self.system) + math.ceil(tools * self.factor)


@dataclass(frozen=True, kw_only=True, slots=True)
class Plan:
    """A compaction to be: its cut, and what its summary stands for.

    `messages` are those of `spans`, without what is undone. `previous` is the summary that it builds on, whose place is
    `on`, and `since` the first place that both stand for. `limit` is the most tokens of the summary, `leaves` those
    that leave the replay, `told` those of the summary before. `proof` is what must be the same when it is put into
    force.
    """

    cut: Cut
    spans: tuple[Span, ...]
    messages: tuple[Message, ...]
    on: int
    since: int
    previous: Summary | None
    limit: int
    leaves: int
    told: int
    proof: tuple[Any, ...]


def live_turns(view: View) -> int:
    """How many turns are replayed, whole or in part."""
    return sum(span.last >= view.start and not view.is_hidden(span.first) for span in view.spans.values())


def proof_of(view: View, cut: Cut, generation: int) -> tuple[Any, ...]:
    """What a plan rests on: the summary in force, what is undone before its cut, where the user began anew, and that
    nothing was erased or archived (the log's generation).
    """
    undone = frozenset(
        seq for seq, undo in view.hidden.items() if any(span.first < cut.start for span in undo.spans)
    )
    return view.active, undone, _since(view), generation


async def holds(plan: Plan, session: Session) -> bool:
    """Whether a plan that was made before still says what is so: messages that came since do it no harm."""
    view = session.view
    generation = (await session.store.head(session.id)).generation
    return proof_of(view, plan.cut, generation) == plan.proof and view.cut.start <= plan.cut.start


async def plan(
    session: Session, frame: Frame, policy: Policy, *, by_turns: bool = False, grows: int = 0
) -> Plan | None:
    """What to compact now; `None` where nothing would be gained. The view must be up to date.

    `by_turns` keeps the policy's newest turns and no more, however much room there is. `grows` is by how many tokens
    the history is expected to grow until this is put into force.
    """
    view = session.view
    generation = (await session.store.head(session.id)).generation
    await session.load(frame.budget.tokens, frame.record)
    previous = summary_of(view)
    told = frame.text(previous.rendered) if previous is not None else 0
    most = int(frame.budget.tokens * policy.summary) if frame.budget.tokens is not None else UNBOUNDED
    cut = low_cut(view, frame, policy, more=told - most, grows=grows, by_turns=by_turns)
    if cut is None or cut.start <= view.cut.start:
        return None
    spans = newly_covered(view.summary_cut, cut, since=_since(view))
    live, stays = view.live(), staying(view, cut)
    before, after = sum(map(frame.record, live)), sum(map(frame.record, stays))
    if not by_turns and before - after < WORTH * (frame.budget.tokens or 0):
        return None
    records, spans, whole = await _told_of(session, frame, spans)
    if not records:
        return None
    base = view.summary_cut
    messages = tuple([record.message for record in records])
    return Plan(
        cut=cut,
        spans=spans,
        messages=messages,
        on=view.active,
        since=base.since if base is not None and whole else spans[0].first,
        previous=previous,
        limit=min(most, (before + told - after) // 2),
        leaves=before - after,
        told=told,
        proof=proof_of(view, cut, generation),
    )


def staying(view: View, cut: Cut) -> list[Record]:
    """The messages of the view that another cut leaves in it."""
    kept = cut.kept or (0, 0)
    return [r for r in view.live() if r.seq >= cut.start or kept[0] <= r.seq < kept[1]]


def _since(view: View) -> int:
    """The first place after the user last began anew."""
    return max((cut.start for cut in view.cuts if cut.anew), default=1)


def low_cut(
    view: View, frame: Frame, policy: Policy, *, more: int = 0, grows: int = 0, by_turns: bool = False
) -> Cut | None:
    """The cut that leaves the target once the history has grown; where the newest step alone is over it, one that
    leaves more.

    `more` is the room that the next summary leaves of that of the summary so far, which the system block still holds.
    """
    source = ViewSource(view)
    if not len(source) or not view.live():
        return None
    if frame.system:
        source.system = [(-1, system_message(frame.system))]
    turns = min(filter(None, (frame.max_turns, policy.keep_turns if by_turns else None)), default=None)
    for room in _rooms(frame, policy, more, grows):
        try:
            state = assemble(
                source,
                frame.target,
                frame.counter,
                Budget(tokens=room, shares=frame.budget.shares),
                tools=frame.tools,
                max_turns=turns,
                max_messages=frame.max_messages,
                factor=frame.factor,
                ready=False,
            ).state
        except BudgetExceeded:
            continue
        kept = state["kept"]
        return Cut(start=state["cut"], kept=(kept[0], kept[1]) if kept else None)
    return None


def _rooms(frame: Frame, policy: Policy, more: int, grows: int) -> Iterable[int | None]:
    """Input budgets to try, the target first.

    Where system and tools take most of it, the history still gets a quarter of what they leave, as where a window
    steps.
    """
    total = frame.budget.tokens
    if total is None:
        return (None,)
    target = max(int(total * policy.target) - grows, frame.fixed + max(0, total - frame.fixed) // 4)
    return [room for room in (target + more, int(total * policy.hard) + more, total + more) if room > 0]


async def _told_of(
    session: Session, frame: Frame, spans: Sequence[Span]
) -> tuple[list[Record], tuple[Span, ...], bool]:
    """The messages of spans that are not undone, in order; the spans as far as these were read, and whether wholly.

    Read from the newest back, as many tokens as `MOST_BUDGETS` say: a long import is not summarised from its beginning.
    """
    view, left = session.view, MOST_BUDGETS * (frame.budget.tokens or UNBOUNDED * 10)
    found: list[Record] = []
    read: list[Span] = []
    for span in reversed(spans):
        before = span.last + 1
        while before > span.first and left > 0:
            first = max(span.first, before - _PAGE)
            for record in reversed(await _between(session, first, before)):
                if left > 0 and record.kind == "message" and not view.is_hidden(record.seq):
                    found.append(record)
                    left -= frame.record(record)
                    before = record.seq
            before = first if left > 0 else before
        read.append(Span(before, span.last))
        if left <= 0:
            break
    whole = len(read) == len(spans) and read[-1].first == spans[0].first
    return found[::-1], tuple(read[::-1]), whole


async def _between(session: Session, first: int, before: int) -> list[Record]:
    """Records of some places, oldest first: from the view where it holds their messages, else from the log."""
    view = session.view
    if first >= view.loaded:
        return [record for record in view.messages if first <= record.seq < before]
    return await read_through(session.store, session.id, after=first - 1, before=before)
