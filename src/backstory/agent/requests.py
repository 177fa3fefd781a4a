"""The requests of a session: what each one holds, which epoch it belongs to, and the records that say so.

Within an epoch the system block and the tools are frozen. An edit of the instructions, another list of tools, another
model opens a new epoch at once; what changed otherwise (memory, the skills index, history entries) waits for the next
one, and reaches the model as a note meanwhile (`pending_notes`).
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.context import prefix
from backstory.context.budget import LOW_MARK, Budget
from backstory.context.builder import Built, build
from backstory.context.fit import Fitted, assemble
from backstory.context.ledger import Ledger
from backstory.context.sections import Passage, Section, in_order
from backstory.errors import StoreDamaged
from backstory.messages import system as system_message
from backstory.records import NewRecord, Record
from backstory.sessions.session import Session
from backstory.sessions.source import ViewSource, counted
from backstory.sessions.view import Cut, View
from backstory.targets import Target
from backstory.tokens import Counter
from backstory.tokens.messages import count_message

AT_ONCE = ("identity", "agents", "soul", "user", "tool_contract", "pinned_skills", "summary")
"""Sections whose change opens a new epoch at once: instructions bind from the moment they are edited."""


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
    """What a request is made for: target, counter, budget, model and its settings, tools as they are declared."""

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


async def build_request(
    session: Session,
    shape: Shape,
    sections: Sequence[Section],
    *,
    passages: Sequence[Passage] = (),
    force: str = "",
    budget: Budget | None = None,
) -> Request:
    """The next request of a session. `force` opens a new epoch for that reason, cut to the low mark.

    Raises what `backstory.fit` raises, and the store's errors. Nothing is written here.
    """
    given = budget or shape.budget
    ordered = in_order(sections)
    frozen = await frozen_epoch(session)
    await session.load(given.tokens, _count(shape))
    state = await _state(session, shape, frozen)
    reason = force or changed_at_once(frozen, ordered, shape)
    source = ViewSource(session.view)

    def make(used: Sequence[Section], budget: Budget, state: Mapping[str, Any] | None) -> Built:
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
        )

    low = dataclasses.replace(given, tokens=given.low) if force and given.tokens else given
    if frozen is None or reason:
        built = make(ordered, low, _anew(state))
        opened = ""
    else:
        built = make(_as_frozen(frozen), low, _with_stand_ins(state, session.view))
        opened = _opened(built.fitted, state)
        if opened:  # the prefix changes in any case: the cheapest moment for all that waited
            built = make(ordered, low, _anew(state))
    why = reason or opened or ("first request" if frozen is None else "")
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
        waits = name in ("memory", "skills", "entries")
        if not waits and fresh.get(name) != frozen.sections.get(name):
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
        before = frozen.texts.get(section.name)
        if before is not None and before != section.text:
            old = set(before.splitlines())
            new = [line for line in section.text.splitlines() if line.strip() and line not in old]
            notes[section.name] = "\n".join(new) or "(lines were removed)"
    return notes


# --- the epoch -------------------------------------------------------------------------------


async def frozen_epoch(session: Session) -> Frozen | None:
    """What the newest epoch of the log froze; read from its blobs where this process did not freeze it itself."""
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
    frozen = await read_frozen(session, data)
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
        texts={s.name: s.text for s in sections if s.name not in AT_ONCE},
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


def _anew(state: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """The state for a new epoch: late results take the places of those that stood for them."""
    return {**state, "sent": []} if state is not None else None


def _with_stand_ins(state: Mapping[str, Any] | None, view: View) -> Mapping[str, Any] | None:
    """The state with the calls whose logged stand-in the model has seen: a result that came since is told as a note."""
    records = view.live()
    if state is None or not any(record.data.get("late") for record in records):
        return state
    messages = [record.message for record in records]
    sent = {tuple(place) for place in state["sent"]}
    for index, message in enumerate(messages):
        for part in message.results:
            if part.synthetic and records[index].seq < state["length"]:
                sent |= _asked(records, index, part.call_id)
    return {**state, "sent": sorted(map(list, sent))}


def _asked(records: Sequence[Record], before: int, call_id: str) -> set[tuple[int, int]]:
    """The place (position, number) of the newest call of this id before a record."""
    for record in reversed(records[:before]):
        for number, call in enumerate(record.message.calls):
            if call.id == call_id:
                return {(record.seq, number)}
    return set()


# --- the state -------------------------------------------------------------------------------

_LARGE = ("items", "tokens")
"""Digests of what was sent: they can be computed again, and would make each request's record as long as its window."""


async def _state(session: Session, shape: Shape, frozen: Frozen | None) -> dict[str, Any] | None:
    """The state of the last request: as this process left it, or rebuilt from the log and proven by its hash."""
    if session.state is not None or frozen is None:
        return session.state
    last = session.view.request
    if not last:
        return None
    bare = {**last["state"], **{name: [] for name in _LARGE}}
    rebuilt = assemble(
        _framed(ViewSource(session.view, stop=last["state"]["length"]), frozen),
        shape.target,
        shape.counter,
        Budget(),
        tools=frozen.tools,
        state=bare,
        ready=False,
    )
    session.state = rebuilt.state if prefix.digest(rebuilt.state["items"]) == last["prefix"] else bare
    return session.state


def _framed(source: ViewSource, frozen: Frozen) -> ViewSource:
    source.system = [(-1, system_message(frozen.system))] if frozen.system else []
    return source


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
    kept = {"state": lite, "prefix": prefix.digest(state["items"]), "ledger": _account(ledger, built)}
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
    account = ledger.to_json()
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
        return count_message(counted(record), shape.counter, shape.target.format)

    return count
