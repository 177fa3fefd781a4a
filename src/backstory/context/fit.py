"""`fit`: a list of messages, as it comes, becomes the request that fits a budget and that the model's API accepts.

Pure and without set-up: plain dicts in, plain dicts out. Everything that it decides is in the result: what was
dropped and why (`ledger`), what was mended (`repairs`), what the format cannot carry (`losses`), and what the next
call needs so that its request extends this one (`state`).
"""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.context.budget import LOW_MARK, Budget
from backstory.context.fitting import Fitting
from backstory.context.history import History, Source, message_before
from backstory.context.ledger import Ledger
from backstory.context.markers import mark
from backstory.context.request import Request
from backstory.context.state import Claim
from backstory.context.window import Limits
from backstory.errors import ConfigurationError, NothingToSend
from backstory.formats.base import Loss
from backstory.formats.request import request_body
from backstory.legality.bench import Repair
from backstory.legality.rules import is_ready
from backstory.messages import Message, Origin
from backstory.targets import Target
from backstory.tokens import Calibration, Counter, counter_for


@dataclass(frozen=True, kw_only=True, slots=True)
class Fitted:
    """One request, ready to be sent.

    `body` is its fields in the target's format: ``messages``, or ``system`` and ``messages``, or ``input``, or
    ``contents``; with ``tools``, and for Anthropic with cache markers. `messages` is the list alone, without
    markers; what was not changed is the very object that came in. `state` is plain JSON, for the next call.
    """

    messages: list[dict[str, Any]]
    body: dict[str, Any]
    ledger: Ledger
    state: dict[str, Any]
    repairs: tuple[Repair, ...] = ()
    losses: tuple[Loss, ...] = ()


def fit(
    messages: Any,
    *,
    budget: int | None = None,
    window: int | None = None,
    reserve: int | None = None,
    target: Target | str = "openai_chat",
    source: str | None = None,
    system: Any = None,
    tools: Sequence[Any] | None = None,
    state: Any = None,
    max_turns: int | None = None,
    max_messages: int | None = None,
    model: str | None = None,
    encoding: str | None = None,
    calibration: Calibration | None = None,
    origin: Origin | None = None,
    not_started: Collection[str] = (),
    ready: bool = True,
) -> Fitted:
    """The newest messages that fit, as whole steps, legal for the target; where all fits and is legal, all as it is.

    `budget` is tokens of all input: system, tools, media and messages. Or give `window` (input and output together)
    and `reserve`, what is kept of it for the output (a fifth, unless said otherwise). Without either nothing is cut.
    `max_turns` and `max_messages` bind as well; the tightest holds.

    `target` is a preset's name or a `Target`. `source` is the format of `messages`: told from their shape, and
    ``openai_chat`` where that says nothing. `system` is the value of the source request's own system field, where its
    format has one. Leading system and developer messages are the system, and are never cut.

    Without `state` the whole budget is filled. With the `state` of the request before, replay begins where that began,
    until the budget is full; then it is cut to half of it, so that the provider's cache can serve what is repeated.
    A state that does not match the list opens a new epoch, and `ledger.why` says why.

    Tokens are counted for `model` (or in `encoding`), else as the target's format suggests; `calibration` corrects
    estimates. `origin` says who made opaque items such as signatures. `not_started` are ids of open calls that are
    known not to have been started: their made-up results then say so. With ``ready=False`` the list may end with the
    assistant.

    Raises `InvalidInput` for what is no list of messages, `ConfigurationError` for settings that make no sense,
    `NothingToSend` where the model is not the one to speak next, and `BudgetExceeded`, with the ledger, where system,
    tools, the turn's user message and the newest step do not fit; big results of that step are shown as previews first.
    """
    goal = Target.of(target)
    counter = _counter(model, encoding, goal)
    limit = Budget.of(budget=budget, window=window, reserve=reserve, margin=counter.margin)
    history = History(messages, source, system=system, origin=origin)
    return assemble(
        history,
        goal,
        counter,
        limit,
        tools=tools,
        state=state,
        max_turns=max_turns,
        max_messages=max_messages,
        factor=calibration.factor if calibration is not None else 1.0,
        not_started=not_started,
        ready=ready,
    )


def _counter(model: str | None, encoding: str | None, target: Target) -> Counter:
    if encoding is None:
        return counter_for(model, target.format)
    if model is not None:
        raise ConfigurationError("give model or encoding, not both")
    return Counter(name=encoding)


def assemble(
    history: Source,
    target: Target,
    counter: Counter,
    budget: Budget,
    *,
    tools: Sequence[Any] | None = None,
    state: Any = None,
    max_turns: int | None = None,
    max_messages: int | None = None,
    factor: float = 1.0,
    not_started: Collection[str] = (),
    ready: bool = True,
    low_mark: float = LOW_MARK,
    loose: int | None = None,
    claim: Claim | None = None,
    governed: bool = False,
    readable: bool = False,
) -> Fitted:
    """What `fit` does, over any source of messages.

    `low_mark` is the share of the budget that a cut leaves, `factor` the calibration of the counts, `loose` the
    position of a message that bears passages for this once. `claim` stands for the items of `state`, where it has
    none; then `Unproven` is raised where the new request does not begin with them. `governed` and `readable`: see
    `Fitting`.
    """
    if not 0 < factor < math.inf:
        raise ConfigurationError(f"factor must be a number above 0, not {factor!r}")
    request = Request(target, counter, budget, history, loose=loose, claim=claim)
    known = request.take(state)
    request.order_tools(tools)
    fitting = Fitting(
        history,
        target,
        counter,
        Limits(tokens=budget.tokens, messages=max_messages, turns=max_turns),
        tools=request.tool_tokens,
        factor=factor,
        low_mark=low_mark,
        not_started=[not_started] if isinstance(not_started, str) else list(not_started),
        governed=governed,
        readable=readable,
    )
    draft = request.decide(fitting, known)
    if ready:
        _check_ready(history, draft.window.messages, target)
    body = request_body(target, draft.written, request.tools)
    ledger, after = request.account(fitting, draft)
    positions = draft.window.positions
    return Fitted(
        messages=draft.written.items,
        body=mark(body, target, replayed=request.replayed(ledger)),
        ledger=ledger,
        state=after.to_json(),
        repairs=draft.window.mended.repairs,
        losses=tuple(
            Loss(index=positions[loss.index], kind=loss.kind, what=loss.what) for loss in draft.written.losses
        ),
    )


def _check_ready(history: Source, messages: Sequence[Message], target: Target) -> None:
    if message_before(history, len(history)) is None:
        raise NothingToSend("there is no message to answer: the list is empty, or holds the system's alone")
    if not is_ready(messages, target):
        raise NothingToSend(
            "the list ends with the assistant's complete answer: add the next user message, or pass ready=False"
        )
