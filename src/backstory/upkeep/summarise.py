"""A summary written: by a model where there is one that works, else by extraction, which always holds the place.

A model's words are used only when they are whole and pass the check (`compaction.check`). What goes wrong is told in
the summary's record, and nothing is lost by it: the log keeps everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.compaction.ask import ask, ask_within, chunks, transcript
from backstory.compaction.check import check
from backstory.compaction.extract import extract, language_of
from backstory.compaction.policy import CACHED, Policy, Rates
from backstory.compaction.summary import Summary
from backstory.errors import ConfigurationError, ModelError
from backstory.formats import wire_format
from backstory.formats.request import request_body
from backstory.messages import Message
from backstory.models.base import Model, Usage
from backstory.models.billing import total
from backstory.stores.clock import Clock
from backstory.upkeep.spans import Frame, Plan

logger = logging.getLogger("backstory.upkeep")

MOST_PIECES = 8
"""Calls of a model for one summary. What is older than so many pieces is extracted, and they build on that."""

FRAMING = 600
"""Tokens of a summariser's window for what it is told to do."""

CAUTIOUS_WINDOW = 16_384
"""Tokens, where a summariser does not say how large its window is."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Compaction:
    """How sessions are compacted.

    `policy` says when and to what size. `model` writes the summaries, the session's own where it is `None`; with
    ``extract=True`` none is asked. `timeout` is in seconds, for a whole summary. After `failures` in a row no model is
    asked for `rest` seconds. `cache_ttl` is how long (seconds) the provider keeps a prefix: a session idle for longer
    gets a prepared summary with its next request. `prepare_at` is the share of it after which a silent session has one
    prepared, while the provider still has the prefix, where that pays by the `rates`; `None` for never. `idle_after` is
    after how long (seconds) without a turn a session is compacted by itself, once `cache_ttl` is over too; `None` for
    never. Raises `ConfigurationError` for numbers that are not above 0, and a `prepare_at` that is 1 or more.
    """

    policy: Policy = field(default_factory=Policy)
    model: Model | None = None
    extract: bool = False
    timeout: float = 60.0
    failures: int = 3
    rest: float = 300.0
    cache_ttl: float = 300.0
    idle_after: float | None = 900.0
    prepare_at: float | None = 0.8
    rates: Rates = field(default_factory=Rates)

    def __post_init__(self) -> None:
        for name in ("timeout", "failures", "rest", "cache_ttl", "idle_after", "prepare_at"):
            value = getattr(self, name)
            if value is not None and not value > 0:
                raise ConfigurationError(
                    f"compaction: {name} must be above 0, and is {getattr(self, name)!r}"
                )
        if self.prepare_at is not None and self.prepare_at >= 1:
            raise ConfigurationError(
                f"compaction: prepare_at is a share of cache_ttl, below 1, and is {self.prepare_at!r}"
            )


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A summary with how it came about: why a model's was refused, what the model billed, and its name.

    `failed`: a model was asked in vain, and the text was extracted.
    """

    summary: Summary
    refused: tuple[str, ...] = ()
    failed: bool = False
    usage: Usage = field(default_factory=lambda: Usage(input=0, output=0))
    model: str = ""


class Breaker:
    """Stops asking a model that fails, for a while. Time is the store's."""

    def __init__(self, clock: Clock, *, failures: int, rest: float) -> None:
        self._clock = clock
        self._failures = failures
        self._rest = rest
        self._failed: dict[str, tuple[int, float]] = {}

    def is_open(self, model: str) -> bool:
        count, last = self._failed.get(model, (0, 0.0))
        return count >= self._failures and self._clock.now() < last + self._rest

    def told(self, model: str, *, failed: bool) -> None:
        """How an attempt ended. After a rest one attempt is free; if that fails too, there is another rest."""
        if failed:
            self._failed[model] = (self._failed.get(model, (0, 0.0))[0] + 1, self._clock.now())
        else:
            self._failed.pop(model, None)


@dataclass(frozen=True, kw_only=True, slots=True)
class Prefix:
    """The body of the session's last request with its answer, `tokens` long, which the provider has in its cache."""

    body: Mapping[str, Any]
    tokens: int


async def summarise(
    plan: Plan,
    frame: Frame,
    model: Model | None,
    *,
    seconds: float,
    breaker: Breaker,
    topic: str = "",
    prefix: Prefix | None = None,
    cached: float = CACHED,
) -> Written:
    """The summary of a plan. Its text is empty where there is no room for any.

    With a `prefix`, which must be the same model's, that model is asked in the conversation itself where that is
    cheaper (`cached`: what a token costs that the cache serves); what it says then is checked like anything else, and
    where it is refused, the model is asked again as any summariser is. Raises nothing but what is no fault of a
    model's: one that fails is told of in `refused`.
    """
    if model is None or breaker.is_open(model.name):
        return Written(summary=await _extracted(plan.messages, plan, frame, plan.previous, topic))
    until = asyncio.get_running_loop().time() + seconds
    attempt = _Attempt(plan=plan, frame=frame, model=model, topic=topic, until=until)
    await attempt.begin()
    try:
        if prefix is not None and _is_cheaper(prefix, plan, frame, model, cached):
            await attempt.within(prefix)
        while attempt.left and await attempt.piece():
            pass
    except TimeoutError:
        attempt.refused.append(f"{model.name} gave none within {seconds:g} s")
    except ModelError as error:
        attempt.refused.append(f"{type(error).__name__}: {error}")
    breaker.told(model.name, failed=bool(attempt.left))
    summary = attempt.summary
    if attempt.left:
        logger.warning("a summary by %s is not used: %s", model.name, "; ".join(attempt.refused))
        rest = [message for piece in attempt.left for message in piece]
        summary = await _extracted(rest, plan, frame, summary, topic)
    assert summary is not None
    return Written(
        summary=summary,
        refused=tuple(attempt.refused),
        failed=bool(attempt.left),
        usage=attempt.usage,
        model=model.name,
    )


async def _extracted(
    messages: Sequence[Message], plan: Plan, frame: Frame, previous: Summary | None, topic: str
) -> Summary:
    """In a thread: of a large window it takes seconds, in which others' turns go on."""
    return await asyncio.to_thread(
        extract, messages, tokens=plan.limit, count=frame.text, previous=previous, topic=topic
    )


def _is_cheaper(prefix: Prefix, plan: Plan, frame: Frame, model: Model, cached: float) -> bool:
    """Whether reading the whole conversation from the cache costs less than reading the span anew, and fits."""
    span = sum(frame.text(transcript([message], frame.text)) for message in plan.messages)
    needed = prefix.tokens + plan.limit + FRAMING
    window = model.window or ((frame.budget.tokens or 0) + frame.budget.reserve)
    return prefix.tokens * cached < span and (not window or needed <= window)


@dataclass(kw_only=True, slots=True)
class _Attempt:
    """One attempt of a model: the summary so far, and the pieces of the span that are left to be told of.

    `until` is when the model's time is up, on the event loop's clock.
    """

    plan: Plan
    frame: Frame
    model: Model
    topic: str
    until: float
    summary: Summary | None = None
    left: list[Sequence[Message]] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    usage: Usage = field(default_factory=lambda: Usage(input=0, output=0))

    async def begin(self) -> None:
        """Cut the span into pieces that the model takes."""
        plan, count = self.plan, self.frame.text
        room = (self.model.window or CAUTIOUS_WINDOW) * 4 // 5 - 2 * plan.limit - FRAMING
        self.left = chunks(plan.messages, window=max(room, FRAMING), count=count)
        self.summary = plan.previous
        if len(self.left) > MOST_PIECES:
            older = [message for piece in self.left[:-MOST_PIECES] for message in piece]
            self.left = self.left[-MOST_PIECES:]
            self.summary = await _extracted(older, plan, self.frame, self.summary, self.topic)

    async def within(self, prefix: Prefix) -> None:
        """Ask in the conversation itself, for all pieces at once."""
        form, plan = wire_format(self.model.target.format), self.plan
        language = language_of(plan.messages, plan.previous)
        asked = form.write([ask_within(plan.limit, topic=self.topic, language=language)], self.model.target)
        body = {**prefix.body, form.ITEMS: [*prefix.body[form.ITEMS], *asked.items]}
        if await self._takes(body, plan.messages, plan.previous):
            self.left = []

    async def piece(self) -> bool:
        """Ask for the next piece, building on the summary so far. Whether the answer was taken."""
        asked = ask(
            self.left[0],
            tokens=self.plan.limit,
            count=self.frame.text,
            previous=self.summary,
            topic=self.topic,
        )
        body = request_body(
            self.model.target, wire_format(self.model.target.format).write(asked, self.model.target)
        )
        if not await self._takes(body, self.left[0], self.summary):
            return False
        del self.left[0]
        return True

    async def _takes(
        self, body: Mapping[str, Any], messages: Sequence[Message], previous: Summary | None
    ) -> bool:
        async with asyncio.timeout_at(self.until):
            answer = await self.model.complete(body)
        if answer.usage is not None:
            self.usage = total(self.usage, answer.usage)
        count = self.frame.text
        verdict = await asyncio.to_thread(
            check,
            answer.text,
            messages,
            previous=previous,
            limit=self.plan.limit,
            replaces=count(transcript(messages, count)) + (count(previous.rendered) if previous else 0),
            count=count,
            by=self.model.name,
            finish=answer.finish,
        )
        if verdict.summary is None:
            self.refused.append(verdict.why)
            return False
        self.summary = verdict.summary
        return True
