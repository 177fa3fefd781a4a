"""One session with what its turns are run with: sources, tools, model. Composes messages, makes requests."""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from backstory.agent.active import Turn
from backstory.agent.compacting import COMPACTED, after_answer, frame_of, why_now
from backstory.agent.reading import WHY, Reading
from backstory.agent.requests import Request, Shape, build_request, frozen_epoch, pending_notes
from backstory.agent.restore import Opening
from backstory.agent.results import READ_RESULT
from backstory.agent.runner import Loop
from backstory.agent.settings import Learned, Settings, shape_of
from backstory.agent.sources.base import AnyRetriever, SectionSource, SourceContext, gather, retrieve
from backstory.agent.sources.load_skill import load_skill_tool
from backstory.agent.sources.runtime import runtime_facts
from backstory.agent.sources.skills import SkillFolder
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import AnyTool
from backstory.agent.trace import RequestTrace
from backstory.agent.traced import Traced
from backstory.context import prefix
from backstory.context.builder import compose, is_sticky
from backstory.context.prefix import canonical
from backstory.context.sections import Passage, Section
from backstory.errors import InvalidInput
from backstory.legality.arguments import clean_text
from backstory.messages import Message, Part, Text, to_json
from backstory.models.base import Model, Usage
from backstory.sessions.session import Session
from backstory.sessions.summaries import pinned_texts, summary_of
from backstory.targets import Target
from backstory.tokens import counter_for
from backstory.tokens.messages import count_message
from backstory.upkeep.archive import Archiver
from backstory.upkeep.compactor import Compactor
from backstory.upkeep.idle import Idle


class Means(Protocol):
    """What a conversation draws on: the parts of a `Backstory` that outlive it."""

    @property
    def target(self) -> Target: ...
    @property
    def settings(self) -> Settings: ...
    @property
    def workspace(self) -> Path | None: ...
    @property
    def sources(self) -> Sequence[SectionSource]: ...
    @property
    def retrievers(self) -> Sequence[AnyRetriever]: ...
    @property
    def runtime(self) -> Mapping[str, str] | bool: ...
    @property
    def learned(self) -> Learned: ...
    @property
    def skills(self) -> SkillFolder | None: ...
    @property
    def trace(self) -> RequestTrace | None: ...
    @property
    def reader(self) -> AnyTool: ...
    @property
    def compactor(self) -> Compactor | None: ...
    @property
    def archiver(self) -> Archiver | None: ...
    @property
    def idle(self) -> Idle | None: ...


class Conversation:
    """See the module. One is made for each turn, or run of turns, in a session."""

    def __init__(
        self,
        means: Means,
        session: Session,
        tools: Mapping[str, AnyTool],
        model: Model | None,
        target: Target | str | None = None,
    ) -> None:
        self.means = means
        self.session = session
        self.model = model
        if target is not None:
            self.target = Target.of(target)
        else:
            self.target = model.target if model is not None else means.target
        self.tools = dict(tools)
        if means.skills is not None and means.skills.skills(session.id.scope):
            loader = load_skill_tool(means.skills)
            self.tools.setdefault(loader.name, loader)
        if tools:
            self.tools.setdefault(READ_RESULT, means.reader)
        self._counter = counter_for(model.name if model is not None else None, self.target.format)
        reads = bool(tools) and self.tools[READ_RESULT] is means.reader
        self._reading = Reading(means.learned.long_results) if reads else None
        self._declared = {name: tool.schema(self.target) for name, tool in self.tools.items()}
        self._loose: Sequence[Passage] = ()
        self._notes: list[str] = []
        self._force = ""

    # --- the message that begins a turn --------------------------------------------------------

    async def open_turn(
        self, content: str | Sequence[Part] | None, message_id: str | None, owner: str
    ) -> Turn:
        """A turn for what the user says, not begun yet; `None` resumes the open one. The view must be up to date."""
        if content is None:
            return self.turn_for(Opening(message=None, message_id=message_id), owner)
        parts = parts_of(content)
        composed, told = await self._composed(parts)
        opening = Opening(
            message=Message(role="user", parts=composed, id=message_id),
            message_id=message_id,
            digest=digest_of(parts) if message_id is not None else "",  # nobody else can say it again
            told=tuple(told.items()),
        )
        return self.turn_for(opening, owner)

    def turn_for(self, opening: Opening, owner: str) -> Turn:
        return Turn(
            self.session,
            opening,
            owner=owner,
            make_request=self.request,
            counts=self.counts,
            target=self.target,
            ttl=self.means.settings.lease_ttl,
            learn=self._learn,
        )

    async def _composed(self, parts: tuple[Part, ...]) -> tuple[tuple[Part, ...], dict[str, str]]:
        """The user's parts, with what was looked up for them and what holds at this moment after them.

        And what that tells of changes that wait for the next epoch: each is told once.
        """
        passages: Sequence[Passage] = ()
        failed: Sequence[str] = ()
        sticky = True
        if self.means.retrievers:
            query = "\n".join(part.text for part in parts if isinstance(part, Text))
            passages, failed = await retrieve(self.means.retrievers, query, self.context())
            sticky = is_sticky(passages, self.shape().budget.tokens, self._counter)
        self._loose = () if sticky else passages
        facts: dict[str, str] = {}
        told: dict[str, str] = {}
        if self.means.runtime is not False:
            notes = pending_notes(await frozen_epoch(self.session), await self.sections())
            told = {name: prefix.digest(text) for name, text in notes.items()}
            already = self.session.view.told
            notes = {name: text for name, text in notes.items() if already.get(name) != told[name]}
            given = self.means.runtime if isinstance(self.means.runtime, Mapping) else {}
            facts = runtime_facts(
                session=self.session.id.key,
                tools=dict.fromkeys(self._told(), ""),
                pending=notes,
                notes=[*self._notes, *failed],
                more=given,
            )
        return compose(parts, passages=passages if sticky else (), runtime=facts), told

    # --- requests ------------------------------------------------------------------------------

    def _told(self) -> dict[str, AnyTool]:
        """The tools that the model is told of by now."""
        if self._reading is None or self._reading.told:
            return self.tools
        return {name: tool for name, tool in self.tools.items() if tool is not self.means.reader}

    def shape(self) -> Shape:
        declared = [self._declared[name] for name in self._told()]
        shape = shape_of(self.means.settings, self.model, self.target, declared, self.means.learned)
        return dataclasses.replace(shape, readable=True) if self._reading is not None else shape

    def context(self) -> SourceContext:
        view = self.session.view
        summary = summary_of(view)
        return SourceContext(
            scope=self.session.id.scope,
            session=self.session.id.key,
            turn=view.turns,
            workspace=self.means.workspace,
            tools=tuple(self._told().values()),
            meta=view.meta,
            variables=view.variables,
            summary=summary.rendered if summary is not None else "",
            pinned=pinned_texts(view),
            entries=tuple(view.entries),
        )

    async def sections(self) -> list[Section]:
        gathered = await gather(self.means.sources, self.context())
        self._notes = list(gathered.notes)
        return list(gathered.sections)

    async def request(self, turn: Turn) -> Request:
        """The next request of a turn."""
        force, self._force = self._force, ""
        made = await self._build(force, low=bool(force))
        compactor = self.means.compactor
        why = why_now(compactor, self.session, made) if compactor is not None else ""
        if compactor is None or not why:
            return made
        frame = frame_of(self.shape(), made.frozen)
        compacting = compactor.before_request(self.session, frame, self.model, why)
        if await turn.interrupt.wait_for(compacting) is None:
            return made
        return await self._build(COMPACTED)

    async def _build(self, force: str = "", *, low: bool = False) -> Request:
        reading, view = self._reading, self.session.view
        if reading is not None:
            own = [self._declared[name] for name in self.tools if name != READ_RESULT]
            reading.begin(view, await frozen_epoch(self.session), self.tools, own)
        made = await self._made(force, low=low)
        if reading is not None and not reading.told and reading.finds(self.session.view, made):
            return await self._made(force or WHY, low=low)
        return made

    async def _made(self, force: str, *, low: bool) -> Request:
        sections = await self.sections()
        return await build_request(
            self.session, self.shape(), sections, passages=self._loose, force=force, low=low
        )

    async def ended(self, turn: Turn) -> None:
        """SAVE: what the soft mark asks for once a turn is over."""
        if self.means.compactor is not None:
            await after_answer(self.means.compactor, turn, self.shape(), self.model)
        if self.means.archiver is not None:
            self.means.archiver.after_turn(self.session)
        if self.means.idle is not None:
            self.means.idle.touched(self.session.id)

    def counts(self, message: Message) -> Mapping[str, int]:
        """Token counts of a message, to be stored with it, so that nobody counts it again."""
        count_message(message, self._counter, self.target.format)
        return dict(message._counts)

    def _learn(self, request: Request, usage: Usage) -> None:
        """Estimates are corrected by what the provider billed."""
        if self.model is not None and not request.ledger.exact:
            estimated = round(request.ledger.total / request.state["factor"])
            self.means.learned.observe(self.model.name, estimated, usage.input)

    # --- running -------------------------------------------------------------------------------

    def loop(self, turn: Turn) -> Loop:
        if self.model is None:
            raise InvalidInput("a conversation without a model runs no loop")
        model: Model = self.model
        if self.means.trace is not None:
            place = self.session.id
            model = Traced(model, self.means.trace, scope=place.scope, session=place.key, turn=turn.number)
        return Loop(
            model=model,
            tools=self.tools,
            context=ToolContext(
                scope=self.session.id.scope,
                session=self.session.id.key,
                turn=turn.number,
                offload=self._offload,
                timeout=self.means.settings.tool_timeout,
            ),
            guard=self.means.settings.guard,
            shorter=self._shorter,
            time_limit=self.means.settings.turn_timeout,
        )

    async def _offload(self, data: str | bytes) -> str:
        raw = clean_text(data).encode() if isinstance(data, str) else data
        return await self.session.store.put_blob(self.session.id.scope, raw)

    def _shorter(self, limit: int | None) -> None:
        """The provider says that the request was too long: remember its window, or take a quarter less than we did.

        The next request begins a new epoch at the low mark.
        """
        self._force = "the provider said that the request was too long"
        if self.model is None:
            return
        windows, name = self.means.learned.windows, self.model.name
        if limit is None:
            budget = self.shape().budget
            known = windows.get(name) or ((budget.tokens or 0) + budget.reserve)
            limit = known * 3 // 4 or None
        if limit is not None:
            windows[name] = min(limit, windows.get(name, limit))


def parts_of(content: Any) -> tuple[Part, ...]:
    """What a user says, as parts. Raises `InvalidInput` for what is neither text nor parts, or is empty."""
    if isinstance(content, str):
        if not content.strip():
            raise InvalidInput("the message is empty")
        return (Text(text=clean_text(content)),)
    if isinstance(content, (list, tuple)) and content and all(isinstance(part, Part) for part in content):
        return tuple(content)
    raise InvalidInput(f"a message is text or a list of parts, not {content!r:.80}")


def digest_of(parts: Sequence[Part]) -> str:
    """Stands for what a user said: the same message again has the same, whatever was looked up for it."""
    value = to_json(Message(role="user", parts=tuple(parts)))
    return hashlib.blake2b(canonical(value), digest_size=12).hexdigest()
