"""Where the sections of the system block come from, and how each source is asked.

A source is anything with a name that gives a section, or none; an application adds its own, as an object or as a plain
function. Sources are other people's code: one that fails or hangs costs its section, never the turn.

What a source gives becomes part of the prefix, which is frozen for an epoch. So it should change rarely: what is true
at this moment only belongs into the runtime block (`backstory.agent.sources.runtime`).
"""

from __future__ import annotations

import asyncio
import dataclasses
import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, TypeAlias, TypeVar, runtime_checkable

from backstory.agent.tools import AnyTool
from backstory.agent.waiting import OutOfTime, in_thread, within
from backstory.context.sections import Passage, Section
from backstory.errors import ConfigurationError
from backstory.legality.arguments import clean_text
from backstory.stores.values import DEFAULT_SCOPE

T = TypeVar("T")
logger = logging.getLogger("backstory.agent")

TIMEOUT = 10.0
"""Seconds that one source or retriever gets: a person waits for the answer."""


@dataclass(frozen=True, kw_only=True, slots=True)
class SourceContext:
    """Whose turn a section is wanted for, and what its session holds.

    `session` is the session's key, `turn` its number. `tools` are those of this turn, `summary` is the active summary's
    text, `pinned` what is pinned and not replayed, `entries` are the session's latest history entries, oldest first.
    `note` tells the model and the log of something that went wrong, without failing.
    """

    scope: str = DEFAULT_SCOPE
    session: str = ""
    turn: int = 0
    workspace: Path | None = None
    tools: Sequence[AnyTool] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    variables: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    pinned: Sequence[str] = ()
    entries: Sequence[str] = ()
    noted: list[str] = field(default_factory=list, repr=False, compare=False)

    def note(self, text: str) -> None:
        """Say in the runtime block of this turn that something is not as it should be. Once is enough."""
        if text not in self.noted:
            self.noted.append(text)

    @property
    def tool_names(self) -> frozenset[str]:
        return frozenset(tool.name for tool in self.tools)


@runtime_checkable
class SectionSource(Protocol):
    """A source of one section. `name` is the section's too, and stays the same."""

    @property
    def name(self) -> str: ...

    async def section(self, context: SourceContext) -> Section | None:
        """The section as it is now; `None`, or one without text, where there is nothing to say."""
        ...


@runtime_checkable
class Retriever(Protocol):
    """Looks up passages for a message: old turns, documents, a search engine."""

    async def retrieve(self, query: str, context: SourceContext) -> Sequence[Passage]:
        """Passages with their relevance (`score`, higher is better), best first or not. Only of `context.scope`."""
        ...


Given: TypeAlias = str | Section | None
SectionFunction: TypeAlias = Callable[[SourceContext], Given | Awaitable[Given]]
RetrieverFunction: TypeAlias = Callable[
    [str, SourceContext], Sequence[Passage] | Awaitable[Sequence[Passage]]
]
AnySource: TypeAlias = SectionSource | SectionFunction
AnyRetriever: TypeAlias = Retriever | RetrieverFunction


@dataclass(frozen=True, kw_only=True, slots=True)
class Gathered:
    """The sections there are, in the order of their sources, and what went wrong, in words for the runtime block."""

    sections: tuple[Section, ...] = ()
    notes: tuple[str, ...] = ()


class _FromFunction:
    def __init__(self, name: str, function: SectionFunction, title: str, optional: bool) -> None:
        self.name = name
        self._function = function
        self._title = title
        self._optional = optional

    def __repr__(self) -> str:
        return f"as_source({self.name!r}, {self._function!r})"

    async def section(self, context: SourceContext) -> Section | None:
        given = await _called(self.name, self._function, context)
        if given is None or isinstance(given, Section):
            return given
        if not isinstance(given, str):
            raise TypeError(f"a section is text, a Section or None, not {type(given).__name__}")
        return Section(name=self.name, text=given, title=self._title, optional=self._optional)


class _RetrieverFunction:
    def __init__(self, name: str, function: RetrieverFunction) -> None:
        self.name = name
        self._function = function

    async def retrieve(self, query: str, context: SourceContext) -> Sequence[Passage]:
        found: Sequence[Passage] = await _called(self.name, self._function, query, context)
        return found


def as_source(
    name: str, function: SectionFunction, *, title: str = "", optional: bool = False
) -> SectionSource:
    """A source made of a function `(context) -> str | Section | None`, synchronous (it runs in a thread) or not.

    `title` and `optional` are the section's where the function gives plain text. Raises `ConfigurationError`.
    """
    if not name:
        raise ConfigurationError("a source of context needs a name: as_source('orders', function)")
    if not callable(function):
        raise ConfigurationError(f"source {name!r}: a function is wanted, not {type(function).__name__}")
    return _FromFunction(name, function, title, optional)


def arrange(standard: Iterable[SectionSource], own: Iterable[AnySource] = ()) -> list[SectionSource]:
    """The standard sources with an application's own: one of the same name takes the standard one's place.

    A plain function is named as it is called. Raises `ConfigurationError` for what is no source, and for two of
    one name.
    """
    sources = {source.name: source for source in standard}
    seen: set[str] = set()
    for given in own:
        source = given if isinstance(given, SectionSource) else as_source(_name_of(given), given)
        if source.name in seen:
            raise ConfigurationError(f"two sources are named {source.name!r}: give one of them another name")
        seen.add(source.name)
        sources[source.name] = source
    return list(sources.values())


async def gather(
    sources: Iterable[SectionSource], context: SourceContext, *, seconds: float | None = TIMEOUT
) -> Gathered:
    """Ask every source; each has so many `seconds`, and they work at the same time.

    Never raises but for cancellation: a source that fails is logged, left out, and told of in the notes.
    """
    context = dataclasses.replace(context, noted=[])
    asked: list[tuple[str, Section | asyncio.Task[Section | None] | None]] = []
    for source in sources:
        if isinstance(source, Immediate):
            asked.append((source.name, await _guarded(source.name, source.section(context), context)))
        else:
            bounded = _bounded(source.name, _section(source, context), context, seconds)
            asked.append((source.name, asyncio.create_task(bounded)))
    await _all([task for _, task in asked if isinstance(task, asyncio.Task)])
    sections = []
    for name, found in asked:
        section = found.result() if isinstance(found, asyncio.Task) else found
        if section is not None and section.text.strip():
            text = clean_text(section.text)
            if section.name != name or text != section.text:
                section = dataclasses.replace(section, name=name, text=text)
            sections.append(section)
    return Gathered(sections=tuple(sections), notes=tuple(map(clean_text, context.noted)))


async def retrieve(
    retrievers: Iterable[AnyRetriever], query: str, context: SourceContext, *, seconds: float | None = TIMEOUT
) -> tuple[list[Passage], tuple[str, ...]]:
    """What all retrievers found, as they gave it, and what went wrong. As `gather`, it raises nothing of theirs."""
    context = dataclasses.replace(context, noted=[])
    tasks = []
    for given in retrievers:
        name = _name_of(given)
        retriever = given if isinstance(given, Retriever) else _RetrieverFunction(name, given)
        bounded = _bounded(name, _passages(retriever, query, context), context, seconds)
        tasks.append(asyncio.create_task(bounded))
    await _all(tasks)
    passages = [passage for task in tasks for passage in task.result() or ()]
    return passages, tuple(map(clean_text, context.noted))


class Immediate(ABC):
    """A mark for our own sources, which look at files or at the context and never wait: no task is made for them."""

    name: str = ""

    @abstractmethod
    async def section(self, context: SourceContext) -> Section | None: ...


# --- the boundary to other people's code -----------------------------------------------------


async def _guarded(name: str, asked: Coroutine[Any, Any, T], context: SourceContext) -> T | None:
    """The one place where a source may fail in any way: the turn goes on without it."""
    try:
        return await asked
    except (Exception, SystemExit) as error:
        logger.warning("the source %r failed and is left out", name, exc_info=True)
        context.note(f"the source {name!r} failed ({type(error).__name__}) and is left out of this request")
        return None


async def _bounded(
    name: str, asked: Coroutine[Any, Any, T], context: SourceContext, seconds: float | None
) -> T | None:
    try:
        return await within(_guarded(name, asked, context), seconds)
    except OutOfTime:
        problem = "did not answer in time"
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        problem = "was cancelled from within"
    logger.warning("the source %r %s and is left out", name, problem)
    context.note(f"the source {name!r} {problem} and is left out of this request")
    return None


async def _section(source: SectionSource, context: SourceContext) -> Section | None:
    section: Any = await source.section(context)
    if section is None or isinstance(section, Section):
        return section
    raise TypeError(f"a source gives a Section or None, not {type(section).__name__}")


async def _passages(retriever: Retriever, query: str, context: SourceContext) -> list[Passage]:
    found: list[Any] = list(await retriever.retrieve(query, context))
    for passage in found:
        if not isinstance(passage, Passage):
            raise TypeError(f"a retriever gives Passages, not {type(passage).__name__}")
    return [dataclasses.replace(passage, text=clean_text(passage.text)) for passage in found]


async def _called(name: str, function: Callable[..., Any], *args: Any) -> Any:
    """The function's value: asynchronous ones on the event loop, others in a thread, so that none holds up the rest."""
    if inspect.iscoroutinefunction(function):
        return await function(*args)
    value = await in_thread(lambda: function(*args), name=name)
    return await value if inspect.isawaitable(value) else value


async def _all(tasks: Sequence[asyncio.Task[Any]]) -> None:
    """Wait for all; cancelled, take them along."""
    if not tasks:
        return
    try:
        await asyncio.wait(tasks)
    except asyncio.CancelledError:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        raise


def _name_of(given: Any) -> str:
    if not callable(given) and not isinstance(given, Retriever):
        raise ConfigurationError(f"neither a source nor a function: {given!r}")
    return str(getattr(given, "name", "") or getattr(given, "__name__", "") or type(given).__name__)
