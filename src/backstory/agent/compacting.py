"""COMPACT and SAVE: what a conversation asks of the compactor, in the compactor's words."""

from __future__ import annotations

import dataclasses
import math

from backstory.agent.active import Turn
from backstory.agent.requests import Frozen, Request, Shape, frozen_epoch
from backstory.agent.written import written_again
from backstory.context import prefix
from backstory.context.markers import mark
from backstory.context.state import State
from backstory.formats import wire_format
from backstory.formats.request import request_body
from backstory.models.base import Model
from backstory.sessions.session import Session
from backstory.tokens import count_tools
from backstory.tokens.messages import PRIMING, count_message
from backstory.upkeep.compactor import Compactor
from backstory.upkeep.spans import Frame
from backstory.upkeep.summarise import Prefix

COMPACTED = "a summary was put into force"
"""Why a request opens an epoch right after a compaction."""


def frame_of(shape: Shape, frozen: Frozen | None) -> Frame:
    """What a compaction needs to know of a session's requests: their shape, and what the newest epoch froze.

    The tools as well: `read_result` is among them only from when there is something to read.
    """
    return Frame(
        target=shape.target,
        counter=shape.counter,
        budget=shape.budget,
        system=frozen.system if frozen is not None else "",
        tools=frozen.tools if frozen is not None else shape.tools,
        factor=shape.factor,
        max_turns=shape.max_turns,
        max_messages=shape.max_messages,
    )


async def session_frame(session: Session, shape: Shape) -> Frame:
    """The same between turns."""
    return frame_of(shape, await frozen_epoch(session))


def why_now(compactor: Compactor, session: Session, request: Request) -> str:
    """Why a summary should go into force before a request that was made; it has to be made anew then."""
    kinds = {record.kind for record in request.records}
    ledger = request.ledger
    return compactor.due(session, ledger.total, ledger.budget, opens="epoch" in kinds, cuts="cut" in kinds)


async def sent_again(session: Session, shape: Shape, model: Model | None) -> Prefix | None:
    """What the provider has in its cache of a session between turns, made again from the log, the last answer included.

    `None` where that was another model's, or cannot be made as it was.
    """
    view, frozen = session.view, await frozen_epoch(session)
    last = view.request
    if model is None or frozen is None or not last or not last.get("sent") or frozen.model != model.name:
        return None
    before = State.from_json({**last["state"], "items": [], "tokens": [], "head": 0})
    if isinstance(before, str) or before.cut < view.start or before.loose is not None:
        return None
    await session.load(shape.budget.tokens, frame_of(shape, frozen).record)
    longer = dataclasses.replace(before, length=view.head + 1)
    draft = written_again(view, frozen.system, longer, shape.target, shape.counter, low_mark=shape.low_mark)
    count, _ = last["sent"]
    if prefix.digest(draft.items[:count]) != last["prefix"]:
        return None
    tools = prefix.same_order(before.tools, frozen.tools)
    body = mark(request_body(shape.target, draft.written, tools), shape.target, replayed=count)
    tokens = math.ceil(count_tools(tools, shape.counter) * before.factor) + sum(draft.window.tokens) + PRIMING
    return Prefix(body=body, tokens=tokens)


async def after_answer(compactor: Compactor, turn: Turn, shape: Shape, model: Model | None) -> None:
    """Have a summary prepared where the turn that ended has passed the soft mark. The session is held."""
    if not turn.requests or turn.answer is None or turn.session.view.turn is not None:
        return
    last, view = turn.requests[-1], turn.session.view
    answer = [record.message for record in view.of_turn(turn.number) if record.seq > view.request_seq]
    used = last.ledger.total + sum(
        count_message(message, shape.counter, shape.target.format) for message in answer
    )
    if not compactor.is_soft(turn.session, model, used, shape.budget.tokens):
        return
    form = wire_format(shape.target.format)
    said = form.write(answer, shape.target).items
    sent = {**last.body, form.ITEMS: [*last.body[form.ITEMS], *said]}
    await compactor.after_turn(turn.session, frame_of(shape, last.frozen), model, used, sent=sent)
