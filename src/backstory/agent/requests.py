"""The requests of a session: what each one holds, which epoch it belongs to, and the records that say so.

Within an epoch the system block and the tools are frozen. An edit of the instructions, another list of tools, another
model opens a new epoch at once; what changed otherwise (memory, the skills index, history entries) waits for the next
one, and reaches the model as a note meanwhile (`pending_notes`).
"""

from __future__ import annotations

import dataclasses
import functools
import json
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.agent.written import written_again
from backstory.context import prefix
from backstory.context.budget import LOW_MARK, Budget
from backstory.context.builder import Built, build
from backstory.context.fit import Fitted
from backstory.context.ledger import Ledger
from backstory.context.request import Unproven
from backstory.context.sections import Passage, Section, in_order, render
from backstory.context.state import Claim, State
from backstory.errors import BudgetExceeded, StoreDamaged
from backstory.records import NewRecord, Record
from backstory.sessions.session import Session
from backstory.sessions.source import ViewSource, counted
from backstory.sessions.view import Cut, View
from backstory.targets import Target
from backstory.tokens import Counter
from backstory.tokens.messages import count_message

logger = logging.getLogger("backstory.agent")

WAIT = ("memory", "skills", "entries")
"""Sections whose change waits for the next epoch, and is told as a note until then.

All others are instructions, or an application's own: they bind from the moment they are edited.
"""


@dataclass(frozen=True, kw_only=True, slots=True)
class Frozen:
    """What an epoch froze: the system text, the sections it was made of, tools, model and settings."""

    number: int
    system: str
    sections: Mapping[str, str]  # name → digest
    texts: Mapping[str, str]  # name → text, of those that may change within an epoch
    tools: Sequence[Any]
    model: str
    settings: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True, slots=True)
class Request:
    """One request: the `body` to send, the `ledger` of it, and the records that go into the log with its answer."""

    body: dict[str, Any]
    ledger: Ledger
    fitted: Fitted
    records: tuple[NewRecord, ...]
    state: dict[str, Any]
    frozen: Frozen
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Shape:
    """What a request is made for: target, counter, budget, model and its settings, tools as they are declared.

    `readable`: one of the tools reads results of the log that are shown as previews.
    """

    target: Target
    counter: Counter
    budget: Budget
    model: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    tools: Sequence[Any] = ()
    max_turns: int | None = None
    max_messages: int | None = None
    factor: float = 1.0
    low_mark: float = LOW_MARK
    readable: bool = False


async def build_request(
    session: Session,
    shape: Shape,
    sections: Sequence[Section],
    *,
    passages: Sequence[Passage] = (),
    force: str = "",
    low: bool = False,
) -> Request:
    """The next request of a session. `force` opens a new epoch for that reason, `low` cuts to the low mark if it can.

    Raises what `backstory.fit` raises, and the store's errors. Nothing is written here but the blob of an epoch.
    """
    ordered = in_order(sections)
    frozen = await frozen_epoch(session)
    await session.load(shape.budget.tokens, _count(shape))
    source = ViewSource(session.view)
    reason = force or changed_at_once(frozen, ordered, shape)

    def make(
        used: Sequence[Section],
        state: Mapping[str, Any] | None,
        budget: Budget = shape.budget,
        claim: Claim | None = None,
    ) -> Built:
        return build(
            source,
            used,
            shape.target,
            shape.counter,
            budget,
            passages=passages,
            tools=shape.tools,
            state=state,
            max_turns=shape.max_turns,
            max_messages=shape.max_messages,
            factor=shape.factor,
            low_mark=shape.low_mark,
            claim=claim,
            governed=True,
            readable=shape.readable,
        )

    def fresh(state: Mapping[str, Any] | None) -> Built:
        if low and shape.budget.low is not None:
            try:
                return make(ordered, None, dataclasses.replace(shape.budget, tokens=shape.budget.low))
            except BudgetExceeded:  # the newest message alone is larger than the low mark
                return make(ordered, None)
        return make(ordered, _anew(state))

    built = None
    if frozen is not None and not reason and session.state is None:
        built = _extended(session.view.request, functools.partial(make, _as_frozen(frozen)))
    if built is None:
        state, lost = _state(session, shape, frozen)
        reason = reason or lost
        if frozen is None or reason:
            built = fresh(state)
        else:
            built = make(_as_frozen(frozen), state)
            reason = _opened(built.fitted, state)
            if reason and _waits(
                frozen, ordered, state
            ):  # the prefix changes in any case: the cheapest moment
                built = fresh(state)
    why = reason or ("first request" if frozen is None else "")
    if why or frozen is None:
        frozen = _freeze(built, ordered, shape, (frozen.number if frozen else 0) + 1)
    return await _request(session, shape, built, frozen, why)


def changed_at_once(frozen: Frozen | None, sections: Sequence[Section], shape: Shape) -> str:
    """Why a new epoch opens at once; an empty string where it need not."""
    if frozen is None:
        return ""
    fresh = {section.name: prefix.digest(section.rendered) for section in sections}
    names = [*fresh, *(name for name in frozen.sections if name not in fresh)]
    for name in names:
        if name not in WAIT and fresh.get(name) != frozen.sections.get(name):
            return f"{name} changed" if name in fresh and name in frozen.sections else f"{name} came or went"
    if sorted(map(prefix.digest, shape.tools)) != sorted(map(prefix.digest, frozen.tools)):
        return "the tools changed"
    if shape.model != frozen.model:
        return f"the model changed from {frozen.model or 'none'} to {shape.model or 'none'}"
    if dict(shape.settings) != dict(frozen.settings):
        return "the model's settings changed"
    return ""


def pending_notes(frozen: Frozen | None, sections: Sequence[Section]) -> dict[str, str]:
    """What changed since the epoch froze it and waits for the next: name → the lines that are new."""
    if frozen is None:
        return {}
    notes: dict[str, str] = {}
    for section in sections:
        before = frozen.texts.get(section.name, "")
        if section.name in WAIT and before != section.text:
            old = set(before.splitlines())
            new = [line for line in section.text.splitlines() if line.strip() and line not in old]
            notes[section.name] = "\n".join(new) or "(lines were removed)"
    return notes


# --- the epoch -------------------------------------------------------------------------------


async def frozen_epoch(session: Session) -> Frozen | None:
    """What the newest epoch of the log froze; read from its blob where this process did not freeze it itself.

    Where that is missing nothing agrees with it, so that the next request opens a new epoch.
    """
    data = session.view.epoch
    if not data:
        return None
    held = session.frozen
    if (
        isinstance(held, Frozen)
        and held.number == data["number"]
        and session.frozen_seq == session.view.epoch_seq
    ):
        return held
    try:
        frozen = await read_frozen(session, data)
    except StoreDamaged as error:
        logger.warning("session %r: what its epoch froze cannot be read: %s", str(session.id), error)
        return Frozen(
            number=data["number"],
            system="",
            sections={"epoch": "damaged"},
            texts={},
            tools=[],
            model=data["model"],
            settings={},
        )
    session.frozen, session.frozen_seq = frozen, session.view.epoch_seq
    return frozen


async def read_frozen(session: Session, data: Mapping[str, Any]) -> Frozen:
    """The content of an ``epoch`` record. Raises `StoreDamaged` where a blob is missing or is not what it was."""
    scope = session.id.scope
    kept = json.loads((await session.store.get_blob(scope, data["frozen"])).decode())
    try:
        return Frozen(
            number=data["number"],
            system=kept["system"],
            sections=kept["sections"],
            texts=kept["texts"],
            tools=kept["tools"],
            model=data["model"],
            settings=data["settings"],
        )
    except KeyError as error:
        raise StoreDamaged(f"the epoch {data.get('number')} of {session.id} lacks {error}") from error


def _freeze(built: Built, sections: Sequence[Section], shape: Shape, number: int) -> Frozen:
    return Frozen(
        number=number,
        system=built.system,
        sections={section.name: prefix.digest(section.rendered) for section in sections},
        texts={section.name: section.text for section in sections if section.name in WAIT},
        tools=list(shape.tools),
        model=shape.model,
        settings=dict(shape.settings),
    )


def _as_frozen(frozen: Frozen) -> list[Section]:
    return [Section(name="identity", text=frozen.system)] if frozen.system else []


def _opened(fitted: Fitted, state: Mapping[str, Any] | None) -> str:
    if state is None:
        return ""
    return fitted.ledger.why if fitted.ledger.epoch != state["epoch"] else ""


def _waits(frozen: Frozen, sections: Sequence[Section], state: Mapping[str, Any] | None) -> bool:
    """Whether anything waits for the next epoch: another system block, or late results."""
    return render(sections) != frozen.system or bool(state and state["sent"])


def _anew(state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The state for a new epoch: late results take the places of those that stood for them."""
    return {**state, "sent": []} if state is not None else None


# --- the state -------------------------------------------------------------------------------

_LARGE = ("items", "tokens")
"""Digests of what was sent: they can be computed again, and would make each request's record as long as its window."""


def _state(session: Session, shape: Shape, frozen: Frozen | None) -> tuple[dict[str, Any] | None, str]:
    """The state of the last request, as this process left it, or made again from the log and proven by its hash.

    `None` where what is replayed is no longer what was sent; then the reason in words, where there was a request.
    """
    last = session.view.request
    if frozen is None:
        return None, ""
    if not last:
        return None, "what was sent before was undone, or left behind"
    if session.state is None:
        session.state = _made_again(session.view, shape, frozen, last)
    return session.state, "" if session.state is not None else "what was sent before cannot be made again"


def _extended(last: Mapping[str, Any], make: Callable[..., Built]) -> Built | None:
    """The next request, where it begins with all that the last one sent: its own first items prove it by their digest.

    `None` where they do not, and where the log does not say how many they were (0.1 wrote none).
    """
    sent = last.get("sent")
    if sent is None:
        return None
    try:
        built = make(_with_items(last, (), (), 0), claim=Claim(sent[0], sent[1], last["prefix"]))
    except Unproven:
        return None
    return built if not _opened(built.fitted, last["state"]) else None


def _made_again(view: View, shape: Shape, frozen: Frozen, last: Mapping[str, Any]) -> dict[str, Any] | None:
    """What the last request sent, item by item, written again as it was."""
    before = State.from_json(_with_items(last, (), (), 0))
    if isinstance(before, str) or before.cut < view.start:
        return None
    draft = written_again(view, frozen.system, before, shape.target, shape.counter, low_mark=shape.low_mark)
    if prefix.digest(draft.items) != last["prefix"]:
        return None
    return _with_items(last, draft.items, draft.tokens, draft.head)


def _with_items(
    last: Mapping[str, Any], items: Sequence[str], tokens: Sequence[int], head: int
) -> dict[str, Any]:
    return {**last["state"], "items": list(items), "tokens": list(tokens), "head": head}


async def _request(session: Session, shape: Shape, built: Built, frozen: Frozen, why: str) -> Request:
    fitted = built.fitted
    state = {**fitted.state, "epoch": frozen.number}
    ledger = dataclasses.replace(fitted.ledger, epoch=frozen.number, why=why or "goes on")
    records: list[NewRecord] = []
    if why:
        records.append(await _epoch_record(session, frozen, why))
    cut = Cut(start=state["cut"], kept=tuple(state["kept"]) if state["kept"] else None)
    if cut != session.view.cut and (cut.kept is not None or cut.start > session.view.start):
        data = {"start": cut.start, "kept": state["kept"], "reason": why or "full"}
        records.append(NewRecord(kind="cut", data=data))
    lite = {key: value for key, value in state.items() if key not in _LARGE}
    kept = {
        "state": lite,
        "prefix": prefix.digest(state["items"]),
        "sent": [len(state["items"]), state["head"]],
        "ledger": _account(ledger, built),
    }
    records.append(NewRecord(kind="request", data=kept))
    return Request(
        body=fitted.body, ledger=ledger, fitted=fitted, records=tuple(records), state=state, frozen=frozen
    )


async def _epoch_record(session: Session, frozen: Frozen, why: str) -> NewRecord:
    kept = {
        "system": frozen.system,
        "sections": dict(frozen.sections),
        "texts": dict(frozen.texts),
        "tools": list(frozen.tools),
    }
    handle = await session.store.put_blob(session.id.scope, prefix.canonical(kept))
    return NewRecord(
        kind="epoch",
        data={
            "number": frozen.number,
            "why": why,
            "frozen": handle,
            "model": frozen.model,
            "settings": dict(frozen.settings),
        },
    )


def _account(ledger: Ledger, built: Built) -> dict[str, Any]:
    """The ledger as it is logged: without the tokens of each item, and with what gave way before."""
    account = dataclasses.replace(ledger, items=()).to_json()
    del account["items"]
    if built.shrunk:
        account["shrunk"] = {name: list(sizes) for name, sizes in built.shrunk.items()}
    if built.passages_left:
        account["passages_dropped"] = len(built.passages_left)
    if built.fitted.repairs:
        account["repairs"] = [dataclasses.asdict(repair) for repair in built.fitted.repairs]
    return account


def _count(shape: Shape) -> Any:
    def count(record: Record) -> int:
        return math.ceil(count_message(counted(record), shape.counter, shape.target.format) * shape.factor)

    return count
