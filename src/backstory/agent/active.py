"""One turn under way: from the user's message to the answer, whoever calls the model.

    async with bs.turn("telegram:12345", "…") as turn:
        while not turn.done:
            request = await turn.request()
            await turn.record(await client.chat.completions.create(**request.body))
            for call in turn.open_calls:
                await turn.result(call, await run(call))

Each method ends with what it did durable in the log: the user's message before any model is called, each answer with
the calls that it declares, every single result. The agent's own loop (`backstory.agent.runner`) uses the same methods.
"""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
from collections.abc import Awaitable, Callable, Sequence
from types import TracebackType
from typing import Any, Self

from backstory.agent.interrupt import Interrupt, Interrupted
from backstory.agent.mail import FOR_THE_TURN, Counts, logged
from backstory.agent.requests import Request
from backstory.agent.responses import answer_of, result_of
from backstory.agent.restore import Opening, beginning
from backstory.agent.turn import State, facts_of, state_of
from backstory.agent.usage import with_usage
from backstory.errors import HeadMoved, NothingToSend, SessionError, StaleLease, StoreError, TurnInterrupted
from backstory.messages import Message, Text, ToolCall
from backstory.models.base import Answer, Usage
from backstory.models.billing import total, usage_json
from backstory.records import NewRecord, new_message
from backstory.sessions.lease import TTL, Renewal, ends
from backstory.sessions.recovery import Place, draft_json, end_turn, open_calls
from backstory.sessions.session import Session
from backstory.stores.values import LeaseRequest
from backstory.targets import Target

logger = logging.getLogger("backstory.agent")

NO_ANSWER = "(no answer)"
ENDED_BY = {"interrupt": "interrupted", "stop": "stopped"}


class Turn:
    """See the module. Made by `Backstory.turn`; `number` counts the turns of the session from 1.

    `done` once there is an answer, or the turn ended without one; `reason` says how. `over` is set then.
    """

    def __init__(
        self,
        session: Session,
        opening: Opening,
        *,
        owner: str,
        make_request: Callable[[Turn], Awaitable[Request]],
        counts: Counts,
        target: Target,
        ttl: float = TTL,
        learn: Callable[[Request, Usage], None] = lambda request, usage: None,
    ) -> None:
        self.session = session
        self.opening = opening
        self.number = 0
        self.done = False
        self.reason = ""
        self.answer: Message | None = None
        self.answered_before = False
        self.recovered: tuple[str, ...] = ()
        self.usage = Usage(input=0, output=0)
        self.requests: list[Request] = []
        self.interrupt = Interrupt()
        self.over = asyncio.Event()
        self._owner = owner
        self._make_request = make_request
        self._counts = counts
        self._target = target
        self._ttl = ttl
        self._learn = learn
        self._pending: Request | None = None
        self._drafted = False
        self._open_at = -1
        self._open_then: list[tuple[Place, ToolCall]] = []
        self._so_far: dict[Place, str] = {}
        self._renewal = Renewal(session, ttl, self.interrupt.set)

    # --- beginning -------------------------------------------------------------------------

    async def begin(self) -> None:
        """RESTORE: take the lease, close what a crash left open, and make the user's message durable.

        What the view says is good enough to try: where it is behind the log, the store refuses, and we look again.
        Raises `LeaseHeld` where another process runs a turn, `MessageConflict`, `SessionError` where there is nothing
        to resume, and the store's errors.
        """
        while True:
            self._drafted = self.session.view.turn is not None  # whoever crashed may have left a draft
            begun = await beginning(self.session, self.opening, self._counts)
            if begun.over:
                self.number, self.answered_before = begun.turn, True
                self._finish(begun.answer, begun.reason)
                return
            try:
                await self.session.append(
                    begun.records, acquire=LeaseRequest(owner=self._owner, ttl=self._ttl)
                )
            except HeadMoved:
                await self.session.refresh()
                continue
            except asyncio.CancelledError as cancelled:
                if self.session.lease is not None:  # it was written all the same
                    self.number = begun.turn
                    await asyncio.shield(self._abandon(cancelled))
                raise
            break
        self.number, self.recovered = begun.turn, begun.healed
        self._renewal.start()

    # --- the loop --------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The answer's text, or the words of a refusal; empty before there is one."""
        return Answer(messages=(self.answer,)).text if self.answer is not None else ""

    @property
    def state(self) -> State:
        """Where the turn stands, as the log says it."""
        return state_of(facts_of(self.session.view, held=self.session.lease is not None))

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of this turn that have no result yet."""
        return tuple(call for _, call in self._open()) if not self.done else ()

    def _open(self) -> list[tuple[Place, ToolCall]]:
        """The same with their places; looked for once after each write whose outcome is not plain (`_now_open`)."""
        view = self.session.view
        if self._open_at != view.head:
            self._open_at, self._open_then = view.head, open_calls(view)
        return self._open_then

    def _now_open(self, calls: list[tuple[Place, ToolCall]]) -> None:
        """What is open after a write of ours: who knows it need not pair the turn's messages anew."""
        self._open_at, self._open_then = self.session.view.head, calls

    @property
    def steps(self) -> list[tuple[ToolCall, ...]]:
        """The calls of each answer of this turn so far, in order."""
        return [r.message.calls for r in self.session.view.of_turn(self.number) if r.message.calls]

    async def request(self) -> Request:
        """BUILD: what to send now, after taking in what waits in the inbox.

        Raises `TurnInterrupted` where another message or a stop ended this turn, `NothingToSend` while calls are
        open or when the turn is done, and what `backstory.fit` raises.
        """
        self._check()
        if self.done:
            raise NothingToSend("this turn is done")
        if self.open_calls:
            names = ", ".join(call.name for call in self.open_calls)
            raise NothingToSend(f"calls wait for their results: {names}; give each to turn.result first")
        await self.take_mail()
        if self.interrupt.kind:
            await self.interrupted(self.interrupt.kind)
        try:
            self._pending = await self._make_request(self)
        except Interrupted as stopped:  # while a summary was written
            await self.take_mail()
            await self.interrupted(stopped.kind)
            raise
        self.requests.append(self._pending)
        return self._pending

    async def record(self, response: Any, *, started: Sequence[ToolCall] | None = None) -> Answer:
        """RUN or SAVE: the model's answer becomes durable; without calls it ends the turn.

        `response` is what the provider's SDK gave, its JSON, an `Answer`, or a `Message`. `started` are the calls
        recorded as started with it: all of them where nothing is said (the safe reading: after a crash their outcome is
        unknown), or those that really are.
        """
        self._check()
        if self.done:
            raise SessionError(f"turn {self.number} is done: nothing can be recorded in it any more")
        if self.open_calls:
            names = ", ".join(call.name for call in self.open_calls)
            raise SessionError(f"calls wait for their results first: {names}")
        pending = self._pending
        answer = answer_of(response, self._target)
        self.spent(answer.usage)
        records = list(with_usage(pending.records, answer.usage)) if pending is not None else []
        records = [dataclasses.replace(r, turn=self.number) for r in records]
        messages = answer.messages
        if answer.finish == "empty":
            messages = (Message(role="assistant", parts=(Text(text=NO_ANSWER),)),)
        first = self.session.next_seq() + len(records)
        records += [self._message(message) for message in messages]
        declared = _placed(messages, first)
        over = not declared and answer.finish != "pause"
        if over:
            reason = {"stop": "done", "tool_calls": "done"}.get(answer.finish, answer.finish)
            records.append(self._ended(reason))
        else:
            records += [
                self._started(place) for place, call in declared if started is None or call in started
            ]
        await self._write(records, last=over)
        self._now_open(declared)  # none was open before
        if pending is not None:
            self.session.state = pending.state
            self.session.frozen, self.session.frozen_seq = pending.frozen, self.session.view.epoch_seq
            if answer.usage is not None and answer.usage.input > 0:
                self._learn(pending, answer.usage)
        self._pending = None
        if over:
            self._finish(
                answer.message if answer.finish != "empty" else messages[0], records[-1].data["reason"]
            )
        return answer

    async def result(self, call: ToolCall, value: Any, *, next_started: Sequence[ToolCall] = ()) -> None:
        """The result of one call becomes durable. `value` is a `ToolResult`, or anything that can be told as text.

        `next_started` are calls that begin now: recorded in the same batch.
        """
        self._check()
        waiting = self._open()
        if not any(open_call is call or open_call == call for _, open_call in waiting):
            raise SessionError(f"call {call.id!r} of {call.name!r} waits for no result in this turn")
        result = result_of(call, value)
        message = Message(role="tool", parts=(result,))
        records = [self._message(message)]
        records += [
            self._started(place)
            for place, open_call in waiting
            if any(open_call == other for other in next_started)
        ]
        await self.session.append(records)
        ids = [open_call.id for _, open_call in waiting]
        if call.id and ids.count(call.id) == 1:  # else it is for the pairing to say which was answered
            self._now_open([(place, other) for place, other in waiting if other.id != call.id])

    async def start(self, call: ToolCall) -> None:
        """Record that a call begins now: after a crash its outcome is unknown, and not known to be none."""
        self._check()
        view = self.session.view
        for place, open_call in self._open():
            if open_call == call and view.turn is not None and place not in view.turn.started:
                await self.session.append([self._started(place)])
                return

    def spent(self, usage: Usage | None) -> None:
        """Add to what the turn cost."""
        if usage is not None:
            self.usage = total(self.usage, usage)

    def tell(self, call: ToolCall, text: str) -> None:
        """What a call has done so far, for the model to know should it be interrupted; the next draft keeps it, too."""
        self._so_far.update((place, text) for place, open_call in self._open() if open_call == call)

    async def draft(self, text: str | None) -> None:
        """Keep the text that is being streamed, and what calls told, beside the log; or with `None` remove it."""
        lease = self.session.lease
        if lease is not None:
            self._drafted = text is not None
            data = draft_json(text, self._so_far) if text is not None else None
            await self.session.store.put_draft(
                self.session.id, data, after=self.session.view.head, fence=lease.fence
            )

    async def _write(self, records: Sequence[NewRecord], *, last: bool) -> None:
        """Append; with the last batch of a turn its lease is given back, and no draft stays behind."""
        if last and self._drafted:
            await self.draft(None)
        await self.session.append(records, release=last)

    # --- the end ---------------------------------------------------------------------------

    async def end(self, reason: str, *, draft: str = "") -> None:
        """End the turn without an answer: open calls closed, a mark of the assistant's, the lease given back."""
        if self.done:
            return
        view = self.session.view
        if view.turn is not None:  # a cancelled `record` may have ended it
            records = end_turn(view, reason, draft=draft, so_far=self._so_far, usage=usage_json(self.usage))
            await self._write(records, last=True)
        last = view.of_turn(self.number)
        self._finish(last[-1].message if last and last[-1].message.role == "assistant" else None, reason)

    def _finish(self, answer: Message | None, reason: str) -> None:
        self.done, self.answer, self.reason = True, answer, reason
        self._renewal.stop()
        self.over.set()

    def _check(self) -> None:
        self._renewal.check()
        if not self.number:
            raise SessionError("this turn has not begun: use it in `async with`")

    async def __aenter__(self) -> Self:
        if not self.number:
            await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self.done and not isinstance(error, StaleLease):
                await asyncio.shield(self._abandon(error))
        finally:
            self._renewal.stop()
            self.session.lease = None
            self.over.set()

    async def _abandon(self, error: BaseException | None) -> None:
        """End a turn that was left before its answer. What happened to it counts for more than a failure to say so."""
        try:
            await self.end("interrupted" if error is None or _is_stop(error) else "failed")
        except StoreError as failed:
            await self._give_back()
            if error is None:
                raise
            logger.warning("turn %d of %r stays open: %s", self.number, str(self.session.id), failed)

    async def _give_back(self) -> None:
        """The lease at least, so that nobody has to wait until it expires."""
        lease = self.session.lease
        if lease is not None:
            with contextlib.suppress(StoreError):
                await self.session.store.release(lease)

    # --- mail ------------------------------------------------------------------------------

    async def take_mail(self, *, draft: str = "") -> None:
        """Take in what others left: steering messages and late results; an interrupt or a stop ends the turn.

        `draft` is what the model was saying when it was interrupted. Raises `TurnInterrupted` when the turn is over.
        """
        session = self.session
        mine = [e for e in await session.store.inbox(session.id) if e.kind in FOR_THE_TURN]
        if not mine:
            return
        live = [record.message for record in session.view.live()]
        records = [
            record
            for entry in mine
            if entry.id not in session.view.known
            for record in logged(entry, self.number, self._counts, live)
        ]
        if records:
            await session.append(records)
        ending = next((entry for entry in mine if ends(entry, session)), None)
        fence = session.lease.fence if session.lease is not None else None
        await session.store.take(session.id, [entry.id for entry in mine], fence=fence)
        if ending is not None:
            await self.interrupted(ending.kind, draft=draft)

    async def interrupted(self, kind: str, *, draft: str = "") -> None:
        """End the turn since somebody wanted it so. Raises `TurnInterrupted`."""
        await self.end(ENDED_BY.get(kind, kind), draft=draft)
        by = "a stop" if kind == "stop" else "another message"
        raise TurnInterrupted(f"turn {self.number} of {str(self.session.id)!r} was ended by {by}")

    # --- records ---------------------------------------------------------------------------

    def _message(self, message: Message) -> NewRecord:
        return new_message(message, turn=self.number, tokens=self._counts(message))

    def _started(self, place: Place) -> NewRecord:
        return NewRecord(kind="call_started", data={"message": place[0], "call": place[1]}, turn=self.number)

    def _ended(self, reason: str) -> NewRecord:
        return NewRecord(
            kind="turn_ended", data={"reason": reason, "usage": usage_json(self.usage)}, turn=self.number
        )


def _placed(messages: Sequence[Message], first: int) -> list[tuple[Place, ToolCall]]:
    """The calls of messages that are written from place `first` on, each with its place."""
    return [
        ((first + offset, number), call)
        for offset, message in enumerate(messages)
        for number, call in enumerate(message.calls)
    ]


def _is_stop(error: BaseException | None) -> bool:
    return isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, TurnInterrupted, GeneratorExit))
