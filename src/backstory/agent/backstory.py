"""`Backstory`: sessions, turns and the agent loop in one object. What `backstory.open` gives.

It ties together what stands above it and decides little itself: who may run a turn now (one a session, first come,
first served, in this process and across processes), and what becomes of a message that arrives meanwhile (`policy`).
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from backstory.agent.active import Turn
from backstory.agent.admission import POLICIES as POLICIES
from backstory.agent.admission import Admission, check_policy
from backstory.agent.admission import Policy as Policy
from backstory.agent.commands import Commanded, perform
from backstory.agent.compacting import sent_again, session_frame
from backstory.agent.conversation import Conversation, digest_of, parts_of
from backstory.agent.execute import Tools
from backstory.agent.requests import Shape
from backstory.agent.restore import Opening
from backstory.agent.runner import Event, TurnEnded, run
from backstory.agent.settings import Learned, Settings
from backstory.agent.sources import SkillFolder, WorkspaceFiles, default_sources
from backstory.agent.sources.base import AnyRetriever, AnySource, arrange
from backstory.agent.tool_context import ToolContext
from backstory.agent.toolbox.offloaded import logged_result, read_result
from backstory.agent.tools import AnyTool, as_tools
from backstory.agent.trace import RequestTrace
from backstory.context.passes import HANDLE
from backstory.errors import ConfigurationError
from backstory.messages import Message, Part
from backstory.models.base import Model, Usage
from backstory.sessions import operations
from backstory.sessions.session import Session, Sessions
from backstory.sessions.view import View
from backstory.stores.base import Store
from backstory.stores.large_parts import with_large_parts
from backstory.stores.values import DEFAULT_SCOPE, NewEntry, SessionId
from backstory.targets import Target
from backstory.upkeep.archive import Archiver, Cap
from backstory.upkeep.compactor import Compacted, Compactor
from backstory.upkeep.idle import Idle
from backstory.upkeep.spans import Frame
from backstory.upkeep.summarise import Prefix


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
        trace: RequestTrace | None = None,
    ) -> None:
        self.store = store = with_large_parts(store)
        self.model = model
        self.target = (
            Target.of(target) if target is not None else (model.target if model else Target.of("openai_chat"))
        )
        self.settings = settings or Settings()
        self.workspace = workspace
        files = WorkspaceFiles(workspace) if workspace is not None else None
        self.sources = arrange(default_sources(files), sources)
        self.skills = SkillFolder(files) if files is not None else None
        self.trace = trace
        self.retrievers = tuple(retrievers)
        self.runtime = runtime
        self.learned = Learned()
        self.sessions = Sessions(store)
        compaction = self.settings.compaction
        self.compactor = Compactor(store.clock, compaction) if compaction is not None else None
        self.idle = (
            Idle(self.sessions, self.compactor, self._frame, model, sent=self._sent)
            if self.compactor is not None
            else None
        )
        self._tools = dict(as_tools(tools) if not isinstance(tools, Mapping) else tools)
        cap = self.settings.cap
        self.archiver = Archiver(self.sessions, cap) if cap != Cap() else None
        self._admission = Admission(self.sessions)
        self._process = uuid.uuid4().hex[:12]
        self._turns = itertools.count(1)

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
        return await _replied(
            self.stream(
                key, content, tools=tools, message_id=message_id, scope=scope, policy=policy, model=model
            )
        )

    async def resume(
        self, key: str, *, tools: Tools = (), scope: str = DEFAULT_SCOPE, model: Model | None = None
    ) -> Reply:
        """Go on with the turn that a crash left open, without a new message. `SessionError` where there is none."""
        session_id = SessionId(scope=scope, key=key)
        return await _replied(
            self._stream(session_id, None, None, "queue", self._given(tools), model or self.model)
        )

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
        session_id = SessionId(scope=scope, key=key)
        return self._stream(session_id, content, message_id, policy, self._given(tools), model or self.model)

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
        check_policy(policy)
        given = self._given(tools)
        async with self._admission.hold(SessionId(scope=scope, key=key), policy) as session:
            await session.refresh()
            conversation = Conversation(self, session, given, self.model, target)
            turn = await conversation.open_turn(content, message_id, self._owner())
            await self._admission.begin(turn, policy)
            async with turn, self._admission.under_way(turn):
                yield turn
            await conversation.ended(turn)

    @functools.cached_property
    def reader(self) -> AnyTool:
        """The tool that reads on in a long result. Made where there are tools: its schema takes a while."""
        return read_result(self._read)

    async def _read(self, handle: str, context: ToolContext) -> bytes | str:
        """A long result by its handle: of the asker's scope, and where it is in a log, of the asker's session."""
        if not handle.startswith(HANDLE):
            return await self.store.get_blob(context.scope, handle)
        session = SessionId(scope=context.scope, key=context.session or "")
        return await logged_result(self.store, session, handle.removeprefix(HANDLE))

    # --- from outside a turn -----------------------------------------------------------------

    async def stop(self, key: str, *, scope: str = DEFAULT_SCOPE) -> bool:
        """End the turn that is under way, here or in another process. Whether there was one."""
        return await self._admission.interrupt(SessionId(scope=scope, key=key), "stop")

    async def retract(self, key: str, why: str = "", *, scope: str = DEFAULT_SCOPE) -> Message:
        """Take back the newest turn's answer, which a check found wanting: the log keeps it, and no request shows it.

        The turn's calls and their results remain. Gives what was taken back. Raises `SessionError` where there is none.
        """
        async with self.sessions.hold(SessionId(scope=scope, key=key)) as session:
            return await operations.retract(session, why)

    async def command(self, key: str, text: str, *, scope: str = DEFAULT_SCOPE) -> Commanded:
        """Do what a slash command says (``/undo 2``). `say` knows no commands: see `backstory.agent.commands`."""
        return await perform(self, SessionId(scope=scope, key=key), text)

    async def compact(self, key: str, topic: str = "", *, scope: str = DEFAULT_SCOPE) -> Compacted | None:
        """Write a summary now that stands for what was said long ago; `None` where nothing would be gained.

        What concerns `topic` is favoured. Raises `ConfigurationError` where compaction is off, `SessionBusy` while a
        turn is left open, and `LeaseHeld` where another process runs one.
        """
        if self.compactor is None:
            raise ConfigurationError("compaction is off: open with compaction=True")
        compactor, place = self.compactor, SessionId(scope=scope, key=key)
        async with self.sessions.hold(place) as session:
            await session.refresh()
            frame = await self._frame(session)
            made = await compactor.begin(session, frame, topic=topic)
        # Not held: who speaks meanwhile does not wait for the summariser.
        ready = await compactor.make(place, made, frame, self.model, topic=topic)
        async with self.sessions.hold(place) as session:
            return await compactor.finish(session, frame, ready)

    async def _frame(self, session: Session) -> Frame:
        return await session_frame(session, Conversation(self, session, self._tools, self.model).shape())

    async def _sent(self, session: Session) -> Prefix | None:
        shape = Conversation(self, session, self._tools, self.model).shape()
        return await sent_again(session, shape, self.model)

    async def compacted(self, session: Session, topic: str = "") -> Compacted | None:
        """The same for a session that the caller holds; `None` as well where compaction is off."""
        if self.compactor is None:
            return None
        await session.refresh()
        return await self.compactor.compact(session, await self._frame(session), self.model, topic=topic)

    async def pin(
        self, key: str, text: str = "", *, message: int | None = None, scope: str = DEFAULT_SCOPE
    ) -> int:
        """Pin an instruction, a fact, or the message at a place of the log: see `backstory.sessions.operations.pin`."""
        async with self.sessions.hold(SessionId(scope=scope, key=key)) as session:
            return await operations.pin(session, text, message=message)

    async def unpin(self, key: str, pin: int, *, scope: str = DEFAULT_SCOPE) -> str:
        """Take a pin away; the text that it held."""
        async with self.sessions.hold(SessionId(scope=scope, key=key)) as session:
            return await operations.unpin(session, pin)

    async def late_result(
        self, key: str, call_id: str, text: str, *, name: str | None = None, scope: str = DEFAULT_SCOPE
    ) -> None:
        """A tool's real answer that came after its call was closed: durable at once.

        The model hears of it with its next request; in a new epoch it stands in its place.
        """
        data = {"call_id": call_id, "text": text, **({"name": name} if name else {})}
        await self.store.post(SessionId(scope=scope, key=key), NewEntry(kind="late_result", data=data))

    async def close(self) -> None:
        """Let go of the store; what is prepared in the background is dropped.

        Turns under way in this process are lost to their lease's time to live.
        """
        if self.idle is not None:
            await self.idle.close()
        if self.compactor is not None:
            await self.compactor.close()
        if self.archiver is not None:
            await self.archiver.close()
        await self.store.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # --- how it is done ----------------------------------------------------------------------

    def _given(self, tools: Tools) -> dict[str, AnyTool]:
        return {**self._tools, **(as_tools(tools) if not isinstance(tools, Mapping) else tools)}

    def shape(self, key: str, *, scope: str = DEFAULT_SCOPE) -> Shape:
        """For what the requests of a session are made when nothing else is said: model, budget, tools."""
        session, _ = self.sessions.peek(SessionId(scope=scope, key=key))
        return Conversation(self, session, self._tools, self.model).shape()

    def _owner(self) -> str:
        return f"{self._process}:{next(self._turns)}"

    async def _stream(
        self,
        id: SessionId,
        content: str | Sequence[Part] | None,
        message_id: str | None,
        policy: Policy,
        tools: Mapping[str, AnyTool],
        model: Model | None,
    ) -> AsyncGenerator[Event, None]:
        check_policy(policy)
        if model is None:
            raise ConfigurationError(
                "no model: give one to backstory.open, or run the turn yourself with bs.turn"
            )
        if policy == "steer" and content is not None:
            parts = parts_of(content)
            said = Message(role="user", parts=parts, id=message_id)
            steered = await self._admission.steer(id, said, message_id, digest_of(parts))
            if steered is not None:
                yield TurnEnded(turn=steered)
                return
        async with self._admission.hold(id, policy) as session:
            conversation = Conversation(self, session, tools, model)

            async def first(before: int | None = None) -> None:
                if not goes_on(session.view, content, message_id):
                    await self._serve(Conversation(self, session, tools, model), before)

            await session.refresh()
            await first()
            turn = await conversation.open_turn(content, message_id, self._owner())
            await self._admission.begin(turn, policy, first)
            async with turn, aclosing(self._run(conversation, turn)) as events:
                async for event in events:
                    yield event

    async def _run(self, conversation: Conversation, turn: Turn) -> AsyncGenerator[Event, None]:
        async with self._admission.under_way(turn), aclosing(run(turn, conversation.loop(turn))) as events:
            async for event in events:
                if isinstance(event, TurnEnded):
                    await conversation.ended(turn)
                yield event

    async def _serve(self, conversation: Conversation, before: int | None) -> None:
        """Run what waits in the inbox: before a position, or all of it."""

        async def begin(opening: Opening) -> Turn:
            turn = conversation.turn_for(opening, self._owner())
            await turn.begin()
            return turn

        async def work(turn: Turn) -> None:
            async with aclosing(self._run(conversation, turn)) as events:
                async for _ in events:
                    pass

        await self._admission.serve(conversation.session, before, begin, work)


async def _replied(events: AsyncGenerator[Event, None]) -> Reply:
    async with aclosing(events):
        async for event in events:
            if isinstance(event, TurnEnded):
                return reply_of(event.turn)
    raise AssertionError("a stream ends with TurnEnded")


def goes_on(view: View, content: Any, message_id: str | None) -> bool:
    """Whether a message (or none) goes on with the turn that is open, which no other message may end before."""
    if view.turn is None:
        return False
    known = view.known.get(message_id) if message_id is not None else None
    return content is None or (known is not None and known.turn == view.turn.number)


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
