"""A summary written: by a model where there is one that works, else by extraction, which always holds the place.

A model's words are used only when they are whole and pass the check (`compaction.check`). What goes wrong is told in
the summary's record, and nothing is lost by it: the log keeps everything.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from dataclasses import dataclass, field

from backstory.compaction.ask import ask, chunks, transcript
from backstory.compaction.check import check
from backstory.compaction.extract import extract
from backstory.compaction.policy import Policy
from backstory.compaction.summary import Summary
from backstory.errors import ConfigurationError, ModelError
from backstory.formats import wire_format
from backstory.formats.request import request_body
from backstory.messages import Message
from backstory.models.base import Answer, Model, Usage
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
    gets a prepared summary with its next request. Raises `ConfigurationError` for numbers that are not above 0.
    """

    policy: Policy = field(default_factory=Policy)
    model: Model | None = None
    extract: bool = False
    timeout: float = 60.0
    failures: int = 3
    rest: float = 300.0
    cache_ttl: float = 300.0

    def __post_init__(self) -> None:
        for name in ("timeout", "failures", "rest", "cache_ttl"):
            if not getattr(self, name) > 0:
                raise ConfigurationError(
                    f"compaction: {name} must be above 0, and is {getattr(self, name)!r}"
                )


@dataclass(frozen=True, kw_only=True, slots=True)
class Written:
    """A summary with how it came about: why a model's was refused, what the model billed, and its name."""

    summary: Summary
    refused: tuple[str, ...] = ()
    usage: Usage = field(default_factory=lambda: Usage(input=0, output=0))
    model: str = ""

    @property
    def failed(self) -> bool:
        """Whether a model was asked in vain, so that the text was extracted."""
        return bool(self.refused)


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


async def summarise(
    plan: Plan, frame: Frame, model: Model | None, *, seconds: float, breaker: Breaker, topic: str = ""
) -> Written:
    """The summary of a plan. Its text is empty where there is no room for any.

    Raises nothing but what is no fault of a model's: a failed, slow, or lying one is told of in `refused`.
    """
    count = frame.text
    if model is None or breaker.is_open(model.name):
        made = extract(plan.messages, tokens=plan.limit, count=count, previous=plan.previous, topic=topic)
        return Written(summary=made)
    room = (model.window or CAUTIOUS_WINDOW) * 4 // 5 - 2 * plan.limit - FRAMING
    pieces = chunks(plan.messages, window=max(room, FRAMING), count=count)
    summary = plan.previous
    if len(pieces) > MOST_PIECES:
        older = [message for piece in pieces[:-MOST_PIECES] for message in piece]
        summary = extract(older, tokens=plan.limit, count=count, previous=summary, topic=topic)
        pieces = pieces[-MOST_PIECES:]
    usage = Usage(input=0, output=0)
    refused: list[str] = []
    left = list(pieces)
    try:
        async with asyncio.timeout(seconds):
            while left:
                answer = await _asked(left[0], plan, frame, model, summary, topic)
                if answer.usage is not None:
                    usage = total(usage, answer.usage)
                verdict = check(
                    answer.text,
                    left[0],
                    previous=summary,
                    limit=plan.limit,
                    replaces=count(transcript(left[0], count)) + (count(summary.rendered) if summary else 0),
                    count=count,
                    by=model.name,
                    finish=answer.finish,
                )
                if verdict.summary is None:
                    refused.append(verdict.why)
                    break
                summary = verdict.summary
                del left[0]
    except TimeoutError:
        refused.append(f"{model.name} gave none within {seconds:g} s")
    except ModelError as error:
        refused.append(f"{type(error).__name__}: {error}")
    breaker.told(model.name, failed=bool(refused))
    if left:
        logger.warning("a summary by %s is not used: %s", model.name, "; ".join(refused))
        rest = [message for piece in left for message in piece]
        summary = extract(rest, tokens=plan.limit, count=count, previous=summary, topic=topic)
    assert summary is not None
    return Written(summary=summary, refused=tuple(refused), usage=usage, model=model.name)


async def _asked(
    messages: Sequence[Message],
    plan: Plan,
    frame: Frame,
    model: Model,
    previous: Summary | None,
    topic: str,
) -> Answer:
    asked = ask(messages, tokens=plan.limit, count=frame.text, previous=previous, topic=topic)
    written = wire_format(model.target.format).write(asked, model.target)
    return await model.complete(request_body(model.target, written))
