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
import dataclasses
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

from backstory.agent.mail import FOR_THE_TURN, Counts, logged
from backstory.agent.requests import Request
from backstory.agent.responses import answer_of, result_of
from backstory.agent.usage import total, usage_json, with_usage
from backstory.errors import (
    HeadMoved,
    MessageConflict,
    NothingToSend,
    SessionError,
    StaleLease,
    TurnInterrupted,
)
from backstory.messages import Message, Text, ToolCall, ToolResult
from backstory.models.base import Answer, Usage
from backstory.records import NewRecord, new_message
from backstory.sessions.lease import TTL, Renewal
from backstory.sessions.recovery import close_calls, end_turn, open_calls
from backstory.sessions.session import Session
from backstory.sessions.view import Known
from backstory.stores.values import LeaseRequest
from backstory.targets import Target

NO_ANSWER = "(no answer)"

NOT_ANSWERED = ("interrupted", "stopped", "failed")
"""Reasons for which a turn ended that the same client message may take up again."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Opening:
    """What begins a turn: the user's message as it is logged, the client's id of it, and a digest of what was said.

    `message` is `None` to resume an open turn without a message.
    """

    message: Message | None
    message_id: str | None = None
    digest: str = ""


class Turn:
    """See the module. Made by `Backstory.turn`; `number` counts the turns of the session from 1."""

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
        self._owner = owner
        self._make_request = make_request
        self._counts = counts
        self._target = target
        self._ttl = ttl
        self._pending: Request | None = None
        self._renewal = Renewal(session, ttl)

    # --- beginning -------------------------------------------------------------------------

    async def begin(self) -> None:
        """RESTORE: take the lease, close what a crash left open, and make the user's message durable.

        Raises `LeaseHeld` where another process runs a turn, `MessageConflict`, `SessionError` where there is nothing
        to resume, and the store's errors.
        """
        while True:
            await self.session.refresh()
            try:
                await self._begin()
            except HeadMoved:
                continue  # somebody wrote between our look and our append: look again
            break
        if not self.done:
            self._renewal.start()

    async def _begin(self) -> None:
        view, opening = self.session.view, self.opening
        known = view.known.get(opening.message_id) if opening.message_id is not None else None
        if known is not None and not view.is_hidden(known.seq):
            if known.digest != opening.digest:
                raise MessageConflict(
                    f"message id {opening.message_id!r} is known in session {str(self.session.id)!r} with other content"
                )
            if view.turn is None or view.turn.number != known.turn:
                reopened = await self._answer_from_log(known)
                if not reopened:
                    return
                await self.session.append(reopened, acquire=LeaseRequest(owner=self._owner, ttl=self._ttl))
                self.number = known.turn
                return
        elif opening.message is None and view.turn is None:
            raise SessionError(f"session {str(self.session.id)!r} has no open turn to resume")
        await self._load_turn()
        same = view.turn is not None and (opening.message is None or known is not None)
        draft = await self._draft() if view.turn is not None and not same else ""
        records = close_calls(view) if same else end_turn(view, "interrupted", draft=draft)
        healed = [part for r in records if r.kind == "message" for part in _results(r)]
        self.recovered = tuple(f"{part.name}: {part.synthetic}" for part in healed if part.synthetic)
        number = view.turn.number if same and view.turn is not None else view.turns + 1
        if not same:
            records += self._first_records(number)
        await self.session.append(records, acquire=LeaseRequest(owner=self._owner, ttl=self._ttl))
        self.number = number

    def _first_records(self, number: int) -> list[NewRecord]:
        opening, message = self.opening, self.opening.message
        if message is None:
            raise SessionError("a new turn needs a message")
        started = {"digest": opening.digest, **({"id": opening.message_id} if opening.message_id else {})}
        return [
            NewRecord(kind="turn_started", data=started, turn=number),
            self._message(message, number, message_id=opening.message_id, digest=opening.digest),
        ]

    async def _load_turn(self) -> None:
        view = self.session.view
        if view.turn is not None and view.loaded > view.turn.seq:
            older = await self.session.store.read(
                self.session.id, after=view.turn.seq - 1, before=view.loaded
            )
            view.load(older)

    async def _draft(self) -> str:
        draft = await self.session.store.draft(self.session.id)
        return str(draft.data.get("text", "")) if draft is not None else ""

    async def _answer_from_log(self, known: Known) -> list[NewRecord]:
        """The message is known and its turn ended: the answer is in the log.

        The newest turn that ended without one is taken up again instead: these are the records that open it, and take
        its mark out of the view.
        """
        span = self.session.view.spans.get(known.turn)
        after, before = (span.first - 1, span.last + 1) if span else (known.seq - 1, None)
        records = await self.session.store.read(self.session.id, after=after, before=before)
        mine = [record for record in records if record.turn == known.turn]
        answers = [r.message for r in mine if r.kind == "message" and r.message.role == "assistant"]
        ended = next((r for r in mine if r.kind == "turn_ended"), None)
        reason = str(ended.data["reason"]) if ended is not None else ""
        if reason in NOT_ANSWERED and known.turn == self.session.view.turns:
            marks = [r.seq for r in mine if r.data.get("mark")]
            hidden = [NewRecord(kind="undo", data={"first": seq, "last": seq, "of": "mark"}) for seq in marks]
            again = {"id": self.opening.message_id, "digest": self.opening.digest, "again": True}
            return [*hidden, NewRecord(kind="turn_started", data=again, turn=known.turn)]
        self.number, self.reason = known.turn, reason
        self.answer = answers[-1] if answers else None
        self.answered_before = self.done = True
        return []

    # --- the loop --------------------------------------------------------------------------

    @property
    def text(self) -> str:
        """The answer's text; empty before there is one."""
        return self.answer.text if self.answer is not None else ""

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        """The calls of this turn that have no result yet."""
        return tuple(call for _, call in open_calls(self.session.view)) if not self.done else ()

    @property
    def steps(self) -> list[tuple[ToolCall, ...]]:
        """The calls of each answer of this turn so far, in order."""
        return [r.message.calls for r in self.session.view.of_turn(self.number) if r.message.calls]

    async def request(self) -> Request:
        """BUILD: what to send now, after taking in what waits in the inbox.

        Raises `TurnInterrupted` where a message in the inbox ended this turn, `NothingToSend` while calls are open or
        when the turn is done, and what `backstory.fit` raises.
        """
        self._renewal.check()
        if self.done:
            raise NothingToSend("this turn is done")
        if self.open_calls:
            names = ", ".join(call.name for call in self.open_calls)
            raise NothingToSend(f"calls wait for their results: {names}; give each to turn.result first")
        await self.take_mail()
        self._pending = await self._make_request(self)
        self.requests.append(self._pending)
        return self._pending

    async def record(self, response: Any, *, started: Sequence[ToolCall] | None = None) -> Answer:
        """RUN or SAVE: the model's answer becomes durable; without calls it ends the turn.

        `response` is what the provider's SDK gave, its JSON, an `Answer`, or a `Message`. `started` are the calls
        recorded as started with it: all of them where nothing is said (the safe reading: after a crash their outcome is
        unknown), or those that really are.
        """
        self._renewal.check()
        pending = self._pending
        answer = answer_of(response, self._target)
        if answer.usage is not None:
            self.usage = total(self.usage, answer.usage)
        records = list(with_usage(pending.records, answer.usage)) if pending is not None else []
        records = [dataclasses.replace(r, turn=self.number) for r in records]
        messages = answer.messages
        if answer.finish == "empty":
            messages = (Message(role="assistant", parts=(Text(text=NO_ANSWER),)),)
        first = self.session.next_seq() + len(records)
        records += [self._message(message, self.number) for message in messages]
        ends = not answer.calls and answer.finish != "pause"
        if ends:
            reason = {"stop": "done", "tool_calls": "done"}.get(answer.finish, answer.finish)
            records.append(self._ended(reason))
        else:
            chosen = answer.calls if started is None else tuple(started)
            records += self._starts(messages, first, chosen)
        await self.session.append(records, release=ends)
        if pending is not None:
            self.session.state = pending.state
            self.session.frozen, self.session.frozen_seq = pending.frozen, self.session.view.epoch_seq
        self._pending = None
        if ends:
            self._finish(
                answer.message if answer.finish != "empty" else messages[0], records[-1].data["reason"]
            )
        return answer

    async def result(self, call: ToolCall, value: Any, *, next_started: Sequence[ToolCall] = ()) -> None:
        """The result of one call becomes durable. `value` is a `ToolResult`, or anything that can be told as text.

        `next_started` are calls that begin now: recorded in the same batch.
        """
        self._renewal.check()
        waiting = open_calls(self.session.view)
        if not any(open_call is call or open_call == call for _, open_call in waiting):
            raise SessionError(f"call {call.id!r} of {call.name!r} waits for no result in this turn")
        result = result_of(call, value)
        message = Message(role="tool", parts=(result,))
        records = [self._message(message, self.number)]
        records += [
            self._started(place)
            for place, open_call in waiting
            if any(open_call == other for other in next_started)
        ]
        await self.session.append(records)

    async def start(self, call: ToolCall) -> None:
        """Record that a call begins now: after a crash its outcome is unknown, and not known to be none."""
        self._renewal.check()
        view = self.session.view
        for place, open_call in open_calls(view):
            if open_call == call and view.turn is not None and place not in view.turn.started:
                await self.session.append([self._started(place)])
                return

    async def say_more(self, text: str, *, message_id: str | None = None, digest: str = "") -> None:
        """A steering message of the user's, at a step boundary: it continues this turn."""
        message = Message(role="user", parts=(Text(text=text),))
        await self.session.append([self._message(message, self.number, message_id=message_id, digest=digest)])

    async def draft(self, text: str) -> None:
        """Keep the text that is being streamed, beside the log."""
        lease = self.session.lease
        if lease is not None:
            await self.session.store.put_draft(
                self.session.id, {"text": text}, after=self.session.view.head, fence=lease.fence
            )

    # --- the end ---------------------------------------------------------------------------

    async def end(self, reason: str, *, draft: str = "") -> None:
        """End the turn without an answer: open calls closed, a mark of the assistant's, the lease given back."""
        if self.done:
            return
        records = end_turn(self.session.view, reason, draft=draft, usage=usage_json(self.usage))
        await self.session.append(records, release=True)
        last = self.session.view.of_turn(self.number)
        self._finish(last[-1].message if last and last[-1].message.role == "assistant" else None, reason)

    def _finish(self, answer: Message | None, reason: str) -> None:
        self.done, self.answer, self.reason = True, answer, reason
        self._renewal.stop()

    async def __aenter__(self) -> Self:
        if not self.number:
            await self.begin()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if not self.done and not isinstance(error, StaleLease):
                await asyncio.shield(self.end("interrupted" if kind is None or _is_stop(error) else "failed"))
        finally:
            self._renewal.stop()

    # --- mail ------------------------------------------------------------------------------

    async def take_mail(self, *, draft: str = "") -> None:
        """Take in what others left: steering messages and late results; an interrupt or a stop ends the turn.

        `draft` is what the model was saying when it was interrupted. Raises `TurnInterrupted` when the turn is over.
        """
        entries = await self.session.store.inbox(self.session.id)
        mine = [entry for entry in entries if entry.kind in FOR_THE_TURN]
        if not mine:
            return
        known = self.session.view.known
        records = [
            record
            for entry in mine
            if entry.id not in known
            for record in logged(entry, self.number, self._counts)
        ]
        if records:
            await self.session.append(records)
        lease = self.session.lease
        await self.session.store.take(
            self.session.id, [entry.id for entry in mine], fence=lease.fence if lease is not None else None
        )
        ended = next((entry for entry in mine if entry.kind in ("interrupt", "stop")), None)
        if ended is not None:
            await self.end("stopped" if ended.kind == "stop" else "interrupted", draft=draft)
            raise TurnInterrupted(
                f"turn {self.number} of {str(self.session.id)!r} was ended by "
                + ("a stop" if ended.kind == "stop" else "another message")
            )

    # --- records ---------------------------------------------------------------------------

    def _message(self, message: Message, turn: int, **extra: Any) -> NewRecord:
        return new_message(message, turn=turn, tokens=self._counts(message), **_given(extra))

    def _starts(self, messages: Sequence[Message], first: int, chosen: Sequence[ToolCall]) -> list[NewRecord]:
        return [
            self._started((first + offset, number))
            for offset, message in enumerate(messages)
            for number, call in enumerate(message.calls)
            if any(call is other or call == other for other in chosen)
        ]

    def _started(self, place: tuple[int, int]) -> NewRecord:
        return NewRecord(kind="call_started", data={"message": place[0], "call": place[1]}, turn=self.number)

    def _ended(self, reason: str) -> NewRecord:
        return NewRecord(
            kind="turn_ended", data={"reason": reason, "usage": usage_json(self.usage)}, turn=self.number
        )


def _results(record: NewRecord) -> list[ToolResult]:
    message = record._cache.get("message")
    return [part for part in message.parts if isinstance(part, ToolResult)] if message is not None else []


def _given(extra: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in extra.items() if value}


def _is_stop(error: BaseException | None) -> bool:
    return isinstance(error, (asyncio.CancelledError, KeyboardInterrupt, TurnInterrupted, GeneratorExit))
