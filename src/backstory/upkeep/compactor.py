"""Compaction of sessions: prepared in the background after a turn, put into force when the prefix changes anyway.

What is prepared lives in this process's memory alone, on purpose: a crash loses a text that can be written again, and
the log never holds anything half done. It is put into force by one record, written under the lease. At the hard mark
with nothing prepared the request waits for a summary; below it none ever does.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from backstory.compaction.ask import ask_within
from backstory.compaction.policy import Mark, asked, expected, mark, saved
from backstory.errors import SessionBusy, StoreError
from backstory.models.base import Model
from backstory.models.billing import usage_json
from backstory.sessions.operations import write
from backstory.sessions.session import Session
from backstory.sessions.summaries import summary_of, summary_record
from backstory.stores.clock import Clock
from backstory.stores.values import SessionId
from backstory.upkeep.spans import Frame, Plan, holds, live_turns, plan, staying
from backstory.upkeep.summarise import Breaker, Compaction, Prefix, Written, summarise

T = TypeVar("T")
logger = logging.getLogger("backstory.upkeep")

REMEMBERED = 512
"""Sessions of which what is prepared, and when they last sent a request, is kept."""

WORTH_ANOTHER_LOOK = 0.05
"""Of a request: as much more or less it must be, before a compaction that had nothing to gain is thought of again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Prepared:
    """A summary that waits to be put into force."""

    plan: Plan
    written: Written


@dataclass(frozen=True, kw_only=True, slots=True)
class Compacted:
    """A compaction that was put into force: the place of its record, messages it covers anew, tokens of the history
    (with the summary) before and after, by whom it is, and why a model's was not taken.
    """

    seq: int
    messages: int
    before: int
    after: int
    by: str
    refused: tuple[str, ...] = ()


class Compactor:
    """See the module. One for all sessions of a process; at most one compaction at a time in each."""

    def __init__(self, clock: Clock, settings: Compaction) -> None:
        self.settings = settings
        self._clock = clock
        self._breaker = Breaker(self._clock, failures=settings.failures, rest=settings.rest)
        self._prepared: OrderedDict[SessionId, Prepared] = OrderedDict()
        self._last: OrderedDict[SessionId, float] = OrderedDict()
        self._futile: OrderedDict[SessionId, int] = OrderedDict()  # where an attempt cut, and gained nothing
        self._vain: OrderedDict[SessionId, int] = OrderedDict()  # tokens with which there was nothing to plan
        self._unpaid: OrderedDict[SessionId, int] = OrderedDict()  # with which head one would not have paid
        self._tasks: dict[SessionId, asyncio.Task[None]] = {}
        self._asked: set[SessionId] = set()  # for which a summary is written that somebody asked for

    @property
    def busy(self) -> bool:
        """Whether a summary is being written in the background."""
        return bool(self._tasks)

    # --- in the background -------------------------------------------------------------------

    def is_soft(self, session: Session, model: Model | None, used: int, budget: int | None) -> bool:
        """Whether `after_turn` has anything to do, told at once: most turns have not passed the soft mark."""
        place, model = session.id, self.model_of(model)
        if not self._mark(session, used, budget) or model is None or self._breaker.is_open(model.name):
            return False
        if self.is_taken(place):
            return False
        tried = self._vain.get(place)
        return tried is None or abs(used - tried) >= WORTH_ANOTHER_LOOK * used

    async def after_turn(
        self,
        session: Session,
        frame: Frame,
        model: Model | None,
        used: int,
        *,
        sent: Mapping[str, Any] | None = None,
    ) -> bool:
        """SAVE: begin to prepare a summary where the soft mark is passed (`is_soft`). Whether one is being prepared.

        `used` are the tokens of the turn's last request with its answer, `sent` is their body, for `model`. Only what
        is to be told is looked up here, while the session is held; the model is asked in a task of its own.
        """
        if not self.is_soft(session, model, used, frame.budget.tokens):
            return False
        ours = self.model_of(model) is model  # another one has nothing of this conversation in its cache
        prefix = Prefix(body=sent, tokens=used) if sent is not None and ours else None
        try:
            begun = await self.prepare(session, frame, model, prefix=prefix, grows=self._grows(frame, used))
        except StoreError as error:
            logger.warning("no summary of %r is prepared: %s", str(session.id), error)
            return False
        if not begun:
            keep(self._vain, session.id, used)
        return begun

    async def prepare(
        self,
        session: Session,
        frame: Frame,
        model: Model | None,
        *,
        prefix: Prefix | None = None,
        grows: int = 0,
        paying: bool = False,
    ) -> bool:
        """Begin to prepare a summary, whatever the marks say. Whether one is on its way now. The session is held.

        Not where one is or waits already, where no model is asked, or where nothing would be gained; with `paying`,
        where it costs more than it saves once the provider has forgotten the prefix. `grows`: see `plan`. Raises the
        store's errors.
        """
        place, model = session.id, self.model_of(model)
        if model is None or self._breaker.is_open(model.name) or self.is_taken(place):
            return False
        made = await self._plan(session, frame, grows)
        if made is None:
            return False
        if paying and not self._pays(made, frame, model, prefix):
            keep(self._unpaid, place, session.view.head)
            return False
        task = asyncio.create_task(self._prepare(place, made, frame, model, prefix), name=f"compact {place}")
        self._tasks[place] = task
        task.add_done_callback(lambda done: self._done(place, done))
        return True

    async def _prepare(
        self, id: SessionId, made: Plan, frame: Frame, model: Model, prefix: Prefix | None
    ) -> None:
        began = self._clock.now()
        written = await summarise(
            made,
            frame,
            model,
            seconds=self.settings.timeout,
            breaker=self._breaker,
            prefix=prefix,
            cached=self.settings.rates.cached,
        )
        if prefix is not None and written.usage.cached:
            # Reading it keeps the provider's cache warm for another while.
            self._last[id] = max(began, self._last.get(id, began))
        if not written.failed:  # one without a model takes no time: there is nothing to prepare
            keep(self._prepared, id, Prepared(plan=made, written=written))

    def _done(self, id: SessionId, task: asyncio.Task[None]) -> None:
        if self._tasks.get(id) is task:
            del self._tasks[id]
        if not task.cancelled() and (error := task.exception()) is not None:
            logger.error("the compaction of %r failed", str(id), exc_info=error)

    async def settled(self, id: SessionId) -> None:
        """Return once nothing is being prepared for a session."""
        task = self._tasks.get(id)
        if task is not None:
            await asyncio.wait({task})

    async def close(self) -> None:
        """End what is under way. What is prepared is forgotten."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
        self._prepared.clear()

    # --- before a request --------------------------------------------------------------------

    def due(
        self, session: Session, used: int, budget: int | None, *, opens: bool = False, cuts: bool = False
    ) -> str:
        """Why a summary should go into force before a request of `used` tokens is sent; empty where none should.

        ``full``: the hard mark is passed, or the request would have to cut the history (`cuts`). ``another epoch``,
        ``cold cache``: one is prepared, and the prefix changes anyway (`opens`), or the provider has forgotten it.
        """
        place, now = session.id, self._clock.now()
        last = self._last.get(place, now)
        keep(self._last, place, now)
        if cuts or self._mark(session, used, budget) == "hard":
            return "full"
        if place not in self._prepared:
            return ""
        return "another epoch" if opens else "cold cache" if now - last >= self.settings.cache_ttl else ""

    async def before_request(
        self, session: Session, frame: Frame, model: Model | None, why: str
    ) -> Compacted | None:
        """COMPACT: put a summary into force before a request, for a reason that `due` gave; under the turn's lease.

        What is prepared is used if it still holds; with nothing prepared, a summary is written now where the request
        is ``full``. `None` where nothing changed.
        """
        must = why == "full"
        waited = await self._ended(session.id, wait=True) if must else False
        ready = self._prepared.pop(session.id, None)
        if ready is None or not await holds(ready.plan, session):
            ready = None
            made = await self._plan(session, frame) if must else None
            if made is not None:  # where the model has just failed, the user waits for no other try
                ready = await self._written(made, frame, None if waited else self.model_of(model))
                return await self._put(session, frame, ready, why)
        return await self._put(session, frame, ready, f"prepared, {why}") if ready is not None else None

    async def compact(
        self, session: Session, frame: Frame, model: Model | None, *, topic: str = "", why: str = "asked for"
    ) -> Compacted | None:
        """Compact now, whatever the marks say; `None` where nothing would be gained. `topic` is favoured.

        Between turns: the lease is taken for the record alone. Whoever calls this holds the session; `begin` and
        `finish` are its two ends, between which it need not be held. Raises `SessionBusy` while a turn is open,
        `LeaseHeld` while another process runs one, and the store's errors.
        """
        made = await self.begin(session, frame, topic=topic)
        ready = await self.make(session.id, made, frame, model, topic=topic)
        return await self.finish(session, frame, ready, why=why)

    async def begin(self, session: Session, frame: Frame, *, topic: str = "") -> Plan | Prepared | None:
        """What a compaction between turns would write, or what is prepared already; the session is held."""
        await session.refresh()
        if session.view.turn is not None:
            raise SessionBusy(f"turn {session.view.turn.number} is open in session {str(session.id)!r}")
        await self._ended(session.id, wait=not topic)
        ready = self._prepared.pop(session.id, None)
        if ready is not None and not topic and await holds(ready.plan, session):
            return ready
        self._futile.pop(session.id, None)
        return await self._plan(session, frame)

    async def make(
        self,
        id: SessionId,
        made: Plan | Prepared | None,
        frame: Frame,
        model: Model | None,
        *,
        topic: str = "",
    ) -> Prepared | None:
        """The summary of what `begin` gave. Nobody need hold the session meanwhile; nothing else is prepared for it."""
        if not isinstance(made, Plan):
            return made
        self._asked.add(id)
        try:
            return await self._written(made, frame, self.model_of(model), topic=topic)
        finally:
            self._asked.discard(id)

    async def finish(
        self, session: Session, frame: Frame, ready: Prepared | None, *, why: str = "asked for"
    ) -> Compacted | None:
        """Put it into force, if it still holds; the session is held again. Raises as `compact`."""
        await session.refresh()
        if ready is None or session.view.turn is not None or not await holds(ready.plan, session):
            return None
        return await self._put(session, frame, ready, why)

    # --- how it is done ----------------------------------------------------------------------

    async def _written(self, made: Plan, frame: Frame, model: Model | None, *, topic: str = "") -> Prepared:
        written = await summarise(
            made, frame, model, seconds=self.settings.timeout, breaker=self._breaker, topic=topic
        )
        return Prepared(plan=made, written=written)

    async def _ended(self, id: SessionId, *, wait: bool) -> bool:
        """End what is under way in the background, or wait for it; whether there was any. One at a time."""
        task = self._tasks.get(id)
        if task is None:
            return False
        if wait:
            await asyncio.wait({task}, timeout=self.settings.timeout)
        task.cancel()
        await asyncio.wait({task})
        return True

    def _grows(self, frame: Frame, used: int) -> int:
        """What a request of `used` tokens, over the soft mark, has left to grow until the hard mark."""
        tokens, policy = frame.budget.tokens, self.settings.policy
        if tokens is None or used < policy.soft * tokens:
            return 0
        return max(0, int(policy.hard * tokens) - used)

    def _pays(self, made: Plan, frame: Frame, model: Model, prefix: Prefix | None) -> bool:
        """Whether the summary of a plan is earned back by the first requests after the prefix is forgotten."""
        rates, own = self.settings.rates, model is not self.settings.model
        written = expected(made.leaves, made.told, made.limit)
        anew, cached = (made.leaves + made.told, 0) if prefix is None else (0, prefix.tokens)
        anew += frame.text(ask_within(made.limit).text)  # what it is told to do
        costs = asked(rates, anew=anew, cached=cached, written=written, own=own)
        return saved(rates, leaves=made.leaves, told=made.told, written=written) >= costs

    async def _plan(self, session: Session, frame: Frame, grows: int = 0) -> Plan | None:
        """A plan that was not tried in vain before (law 9)."""
        policy = self.settings.policy
        by_turns = policy.every_turns is not None and live_turns(session.view) >= policy.every_turns
        made = await plan(session, frame, policy, by_turns=by_turns, grows=grows)
        if made is None or self._futile.get(session.id) == made.cut.start:
            return None
        return made

    async def _put(self, session: Session, frame: Frame, ready: Prepared, why: str) -> Compacted | None:
        """One record, under the lease that is held, or one taken for it. `None` where nothing is gained."""
        made, written, view = ready.plan, ready.written, session.view
        await session.load(frame.budget.tokens, frame.record)
        told = summary_of(view)
        before = sum(map(frame.record, view.live())) + (frame.text(told.rendered) if told is not None else 0)
        after = sum(map(frame.record, staying(view, made.cut))) + frame.text(written.summary.rendered)
        if not written.summary.rendered.strip() or after >= before:
            keep(self._futile, session.id, made.cut.start)
            logger.info("a compaction of %r would gain nothing and is left", str(session.id))
            return None
        record = summary_record(
            written.summary,
            made.cut,
            spans=made.spans,
            on=made.on,
            since=made.since,
            tokens=(before, after),
            refused=written.refused,
            usage=usage_json(written.usage),
            model=written.model,
            why=why,
        )
        if session.lease is not None:
            await session.append([record])
        else:
            await write(session, [record])
        session.state = None
        return Compacted(
            seq=session.view.active,
            messages=len(made.messages),
            before=before,
            after=after,
            by=written.summary.by,
            refused=written.refused,
        )

    def model_of(self, own: Model | None) -> Model | None:
        """Who writes the summaries of a session whose own model this is; `None` where they are extracted."""
        return None if self.settings.extract else self.settings.model or own

    def is_unpaid(self, session: Session) -> bool:
        """Whether a summary was found to cost more than it saves, and nothing was said since."""
        return self._unpaid.get(session.id) == session.view.head

    def silence(self, id: SessionId) -> float | None:
        """Seconds since this process had the provider read a session's prefix; `None` where it never did."""
        last = self._last.get(id)
        return self._clock.now() - last if last is not None else None

    def is_taken(self, id: SessionId) -> bool:
        """Whether a summary of it is being written, or waits."""
        return id in self._prepared or id in self._tasks or id in self._asked

    def _mark(self, session: Session, used: int, budget: int | None) -> Mark:
        policy = self.settings.policy
        turns = live_turns(session.view) if policy.every_turns is not None else 0
        return mark(used, budget, policy, turns)


def keep(held: OrderedDict[SessionId, T], id: SessionId, value: T, most: int = REMEMBERED) -> None:
    """Remember a value of a session: of so many at most, those that were told of last."""
    held[id] = value
    held.move_to_end(id)
    while len(held) > most:
        held.popitem(last=False)
