"""`Backstory`: sessions, turns and the agent loop in one object. What `backstory.open` gives.

It ties together what stands above it and decides little itself: who may run a turn now (one a session, first come,
first served, in this process and across processes), and what becomes of a message that arrives meanwhile (`policy`).
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from backstory.agent.active import Opening, Turn
from backstory.agent.commands import Commanded, perform
from backstory.agent.conversation import Conversation, digest_of
from backstory.agent.execute import Tools
from backstory.agent.requests import Shape
from backstory.agent.runner import Event, TurnEnded, run
from backstory.agent.settings import Learned, Settings
from backstory.agent.sources import default_sources
from backstory.agent.sources.base import AnyRetriever, AnySource, arrange
from backstory.agent.toolbox.offloaded import read_result
from backstory.agent.tools import AnyTool, as_tools
from backstory.errors import ConfigurationError, LeaseHeld, SessionBusy, StaleLease
from backstory.messages import Message, Part, Text, from_json, to_json
from backstory.models.base import Model, Usage
from backstory.sessions.session import Session, Sessions
from backstory.stores.base import Store
from backstory.stores.values import DEFAULT_SCOPE, Entry, NewEntry, SessionId
from backstory.targets import Target

Policy = Literal["queue", "reject", "interrupt", "steer"]
"""What happens to a message while a turn is under way in its session.

``queue``: it waits its turn. ``reject``: `SessionBusy` at once. ``interrupt``: it ends that turn, then has its own.
``steer``: it goes into that turn at its next step, and gets that turn's answer.
"""
POLICIES: tuple[Policy, ...] = ("queue", "reject", "interrupt", "steer")


@dataclass(frozen=True, kw_only=True, slots=True)
class Reply:
    """The answer of a turn. `reason` says how the turn ended: ``done``, or why it did not.

    `before` says that the answer was in the log already: the same client message came again.
    """

    text: str
    turn: int
    reason: str = "done"
    message: Message | None = None
    usage: Usage = field(default_factory=lambda: Usage(input=0, output=0))
    recovered: tuple[str, ...] = ()
    before: bool = False

    def __str__(self) -> str:
        return self.text


@dataclass(slots=True)
class _Running:
    """A turn under way in this process: how to interrupt it, and when it is over."""

    turn: Turn
    interrupted: asyncio.Event
    over: asyncio.Event


class Backstory:
    """See `backstory.open`. Use as an asynchronous context manager, or call `close`."""

    def __init__(
        self,
        store: Store,
        *,
        model: Model | None = None,
        target: Target | str | None = None,
        tools: Tools = (),
        settings: Settings | None = None,
        sources: Sequence[AnySource] = (),
        retrievers: Sequence[AnyRetriever] = (),
        workspace: Path | None = None,
        runtime: Mapping[str, str] | bool = True,
    ) -> None:
        self.store = store
        self.model = model
        self.target = (
            Target.of(target) if target is not None else (model.target if model else Target.of("openai_chat"))
        )
        self.settings = settings or Settings()
        self.workspace = workspace
        self.sources = arrange(default_sources(workspace), sources)
        self.retrievers = tuple(retrievers)
        self.runtime = runtime
        self.learned = Learned()
        self.sessions = Sessions(store)
        self._tools = dict(as_tools(tools) if not isinstance(tools, Mapping) else tools)
        self._readers: dict[str, AnyTool] = {}
        self._running: dict[SessionId, _Running] = {}
        self._process = uuid.uuid4().hex[:12]

    # --- a turn in one call ------------------------------------------------------------------

    async def say(
        self,
        key: str,
        content: str | Sequence[Part],
        *,
        tools: Tools = (),
        message_id: str | None = None,
        scope: str = DEFAULT_SCOPE,
        policy: Policy = "queue",
        model: Model | None = None,
    ) -> Reply:
        """One turn: the user's message in, the answer out, everything in between durable.

        `message_id` is the client's own id of the message: said again after a crash, it goes on with that turn, and
        after the answer, it gets that answer. Raises `MessageConflict` for a known id with other content,
        `SessionBusy` by policy, `BudgetExceeded` where the message does not fit, and the errors of model and store.
        """
        turn: Turn | None = None
        async for event in self.stream(
            key, content, tools=tools, message_id=message_id, scope=scope, policy=policy, model=model
        ):
            if isinstance(event, TurnEnded):
                turn = event.turn
        assert turn is not None
        return reply_of(turn)

    async def resume(
        self, key: str, *, tools: Tools = (), scope: str = DEFAULT_SCOPE, model: Model | None = None
    ) -> Reply:
        """Go on with the turn that a crash left open, without a new message. `SessionError` where there is none."""
        turn: Turn | None = None
        async for event in self._stream(self._conversation(key, scope, tools, model), None, None, "queue"):
            if isinstance(event, TurnEnded):
                turn = event.turn
        assert turn is not None
        return reply_of(turn)

    def stream(
        self,
        key: str,
        content: str | Sequence[Part],
        *,
        tools: Tools = (),
        message_id: str | None = None,
        scope: str = DEFAULT_SCOPE,
        policy: Policy = "queue",
        model: Model | None = None,
    ) -> AsyncGenerator[Event, None]:
        """As `say`, as it happens: pieces of text, calls and their results, and at last `TurnEnded`."""
        conversation = self._conversation(key, scope, tools, model)
        return self._stream(conversation, content, message_id, policy)

    @asynccontextmanager
    async def turn(
        self,
        key: str,
        content: str | Sequence[Part] | None,
        *,
        tools: Tools = (),
        message_id: str | None = None,
        scope: str = DEFAULT_SCOPE,
        policy: Policy = "queue",
        target: Target | str | None = None,
    ) -> AsyncIterator[Turn]:
        """A turn to run by yourself, with your own client: see `backstory.agent.active`. `None` resumes."""
        conversation = self._conversation(key, scope, tools, None, target=target)
        _check_policy(policy)
        async with self._held(conversation.session, policy):
            turn = await conversation.open_turn(content, message_id, self._owner())
            async with self._taken(conversation.session, turn, policy), turn:
                yield turn

    def reader(self, scope: str) -> AnyTool:
        """The tool by which the model reads on in long results of this scope."""
        if scope not in self._readers:

            async def fetch(handle: str) -> bytes:
                return await self.store.get_blob(scope, handle)

            self._readers[scope] = read_result(fetch)
        return self._readers[scope]

    # --- from outside a turn -----------------------------------------------------------------

    async def stop(self, key: str, *, scope: str = DEFAULT_SCOPE) -> bool:
        """End the turn that is under way, here or in another process. Whether there was one."""
        return await self._interrupt(SessionId(scope=scope, key=key), "stop")

    async def command(self, key: str, text: str, *, scope: str = DEFAULT_SCOPE) -> Commanded:
        """Do what a slash command says (``/undo 2``). `say` knows no commands: see `backstory.agent.commands`."""
        return await perform(self, SessionId(scope=scope, key=key), text)

    async def late_result(
        self, key: str, call_id: str, text: str, *, name: str | None = None, scope: str = DEFAULT_SCOPE
    ) -> None:
        """A tool's real answer that came after its call was closed: durable at once.

        The model hears of it with its next request; in a new epoch it stands in its place.
        """
        data = {"call_id": call_id, "text": text, **({"name": name} if name else {})}
        await self.store.post(SessionId(scope=scope, key=key), NewEntry(kind="late_result", data=data))

    async def close(self) -> None:
        """Let go of the store. Turns under way in this process are lost to their lease's time to live."""
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- how it is done ----------------------------------------------------------------------

    def _conversation(
        self, key: str, scope: str, tools: Tools, model: Model | None, *, target: Target | str | None = None
    ) -> Conversation:
        session, _ = self.sessions.peek(SessionId(scope=scope, key=key))
        given = {**self._tools, **(as_tools(tools) if not isinstance(tools, Mapping) else tools)}
        return Conversation(self, session, given, model or self.model, target)

    def shape(self, key: str, *, scope: str = DEFAULT_SCOPE) -> Shape:
        """For what the requests of a session are made when nothing else is said: model, budget, tools."""
        return self._conversation(key, scope, (), None).shape()

    def _owner(self) -> str:
        return f"{self._process}:{uuid.uuid4().hex[:8]}"

    async def _stream(
        self,
        conversation: Conversation,
        content: str | Sequence[Part] | None,
        message_id: str | None,
        policy: Policy,
    ) -> AsyncGenerator[Event, None]:
        _check_policy(policy)
        if conversation.model is None:
            raise ConfigurationError(
                "no model: give one to backstory.open, or run the turn yourself with bs.turn"
            )
        session = conversation.session
        running = self._running.get(session.id) if policy == "steer" else None
        if running is not None and content and await self._steer(running, session.id, content, message_id):
            yield TurnEnded(turn=running.turn)
            return
        async with self._held(session, policy):
            await self._work_off(conversation)
            turn = await conversation.open_turn(content, message_id, self._owner())
            async with self._taken(session, turn, policy), turn:
                async for event in self._run(conversation, turn):
                    yield event

    async def _run(self, conversation: Conversation, turn: Turn) -> AsyncGenerator[Event, None]:
        running = _Running(turn, asyncio.Event(), asyncio.Event())
        self._running[turn.session.id] = running
        try:
            async for event in run(turn, conversation.loop(turn, running.interrupted)):
                yield event
        finally:
            del self._running[turn.session.id]
            running.over.set()

    @asynccontextmanager
    async def _held(self, session: Session, policy: Policy) -> AsyncIterator[None]:
        """This process's turn in the session: first come, first served."""
        if self.sessions.peek(session.id)[1]:
            if policy == "reject":
                raise SessionBusy(f"a turn is under way in session {str(session.id)!r}")
            if policy == "interrupt":
                await self._interrupt(session.id, "interrupt")
        async with self.sessions.hold(session.id):
            yield

    @asynccontextmanager
    async def _taken(self, session: Session, turn: Turn, policy: Policy) -> AsyncIterator[None]:
        """Begin a turn as soon as no other process holds the session; its message waits in the inbox, durable."""
        posted: Entry | None = None
        opening = turn.opening
        while True:
            try:
                await turn.begin()
                break
            except LeaseHeld as held:
                if policy == "reject":
                    raise SessionBusy(
                        f"a turn is under way in session {str(session.id)!r} ({held.owner})"
                    ) from held
                if posted is None and opening.message is not None:
                    posted = await self._post(session.id, turn)
                    if policy == "interrupt":
                        await self._interrupt(session.id, "interrupt")
                await self.store.wait(session.id, free=True, within=max(0.05, held.expires_in + 0.05))
        if posted is not None and not turn.answered_before:
            lease = session.lease
            await self.store.take(session.id, [posted.id], fence=lease.fence if lease else None)
        yield

    async def _post(self, id: SessionId, turn: Turn) -> Entry:
        opening = turn.opening
        assert opening.message is not None
        message_id = opening.message_id or uuid.uuid4().hex
        data = {"message": to_json(opening.message), "digest": opening.digest}
        posted = await self.store.post(id, NewEntry(kind="message", data=data, id=message_id))
        turn.opening = Opening(message=opening.message, message_id=posted.entry.id, digest=opening.digest)
        return posted.entry

    async def _work_off(self, conversation: Conversation) -> None:
        """Messages that wait in the inbox came first, whoever posted them: each gets its turn before ours."""
        session = conversation.session
        for entry in await self.store.inbox(session.id):
            if entry.kind != "message":
                continue
            opening = Opening(
                message=from_json(entry.data["message"]),
                message_id=entry.id,
                digest=str(entry.data["digest"]),
            )
            turn = conversation.turn_for(opening, self._owner())
            try:
                async with turn:
                    if not turn.done:
                        async for _ in self._run(conversation, turn):
                            pass
            except LeaseHeld:
                return  # whoever holds the session works them off
            with contextlib.suppress(StaleLease, LeaseHeld):
                await self.store.take(session.id, [entry.id])

    async def _interrupt(self, id: SessionId, kind: str) -> bool:
        running = self._running.get(id)
        if running is None and await self.store.lease(id) is None:
            return False
        await self.store.post(id, NewEntry(kind=kind))
        if running is not None:
            running.interrupted.set()
        return True

    async def _steer(
        self, running: _Running, id: SessionId, content: str | Sequence[Part], message_id: str | None
    ) -> bool:
        """Put a message into the turn that is under way; whether it was taken in before that turn ended."""
        text = (
            content if isinstance(content, str) else "\n".join(p.text for p in content if isinstance(p, Text))
        )
        entry_id = message_id or uuid.uuid4().hex
        said = digest_of((Text(text=text),))
        await self.store.post(id, NewEntry(kind="steer", data={"text": text, "digest": said}, id=entry_id))
        await running.over.wait()
        if entry_id in running.turn.session.view.known:
            return True
        await self.store.take(id, [entry_id])
        return False


def _check_policy(policy: str) -> None:
    if policy not in POLICIES:
        raise ConfigurationError(f"unknown policy {policy!r}; one of {', '.join(POLICIES)}")


def reply_of(turn: Turn) -> Reply:
    """What a finished turn says."""
    return Reply(
        text=turn.text,
        turn=turn.number,
        reason=turn.reason,
        message=turn.answer,
        usage=turn.usage,
        recovered=turn.recovered,
        before=turn.answered_before,
    )
