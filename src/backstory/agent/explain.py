"""Any past request of a session, explained from its log: what was sent, what was left out and why, and what that means.

    explanation = await explain(store, SessionId(key="telegram:12345"), call=7)

It reads the log and the epoch's blob, and writes nothing. The request is rebuilt (`backstory.agent.rebuilt`), proven by
the digest that its record holds, and judged by the table of symptoms (`backstory.agent.diagnosis`).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.agent.diagnosis import Finding, diagnose
from backstory.agent.rebuilt import Rebuilt, epoch_of, rebuild, requests_of
from backstory.agent.requests import Frozen, read_frozen
from backstory.agent.symptoms import FILES, Case, preview, told
from backstory.errors import InvalidInput, SessionError, SessionNotFound, StoreDamaged
from backstory.records import Record
from backstory.sessions.operations import pages
from backstory.sessions.session import Session
from backstory.stores.base import Store
from backstory.stores.large_parts import with_large_parts
from backstory.stores.values import SessionId
from backstory.targets import Target
from backstory.tokens import Counter


@dataclass(frozen=True, kw_only=True, slots=True)
class SentMessage:
    """One message of a request: role, tokens, what it says in a line, and the tools that it calls or answers."""

    role: str
    tokens: int
    said: str
    calls: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Explanation:
    """One request. `call` counts the requests of the session from 1, `calls` is how many there are.

    `ledger` and `usage` are as they were logged, `sections` are the parts of the system block with their tokens, `sent`
    the messages in order, `left_out` in words what was not sent. `proven`: `body` is what was sent, to the byte.
    """

    session: SessionId
    call: int
    calls: int
    turn: int
    at: str
    model: str
    why: str
    ledger: Mapping[str, Any]
    usage: Mapping[str, int]
    sections: tuple[tuple[str, int], ...]
    sent: tuple[SentMessage, ...]
    left_out: tuple[str, ...]
    findings: tuple[Finding, ...]
    proven: bool
    doubt: str
    body: Mapping[str, Any] = field(repr=False)
    system: tuple[tuple[str, str], ...] = field(repr=False)

    @property
    def roles(self) -> tuple[str, ...]:
        """The sequence of roles, as the model saw it."""
        return tuple(message.role for message in self.sent)

    def to_json(self) -> dict[str, Any]:
        """JSON values."""
        value = dataclasses.asdict(self)
        value["session"], value["scope"] = self.session.key, self.session.scope
        value["sections"] = [{"section": name, "tokens": tokens} for name, tokens in self.sections]
        del value["system"]
        return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """What changed from one request to another. `shared` messages at the beginning are the same."""

    one: int
    other: int
    shared: int
    gone: tuple[SentMessage, ...]
    new: tuple[SentMessage, ...]
    sections: tuple[str, ...]
    tools: tuple[str, ...]
    settings: tuple[str, ...]


async def explain(
    store: Store, id: SessionId, call: int | None = None, *, target: Target | None = None
) -> Explanation:
    """The request number `call` of a session; the newest where nothing is said, -2 the one before it.

    Raises `SessionNotFound`, `SessionError` where no request was made yet, and `InvalidInput` for a number too many.
    """
    log = await _log(store, id)
    return await _explained(store, id, log, call, target)


async def difference(
    store: Store, id: SessionId, one: int, other: int, *, target: Target | None = None
) -> Difference:
    """What changed from request `one` to request `other`. Raises as `explain`."""
    log = await _log(store, id)
    a = await _explained(store, id, log, one, target)
    b = await _explained(store, id, log, other, target)
    shared = 0
    for old, new in zip(a.sent, b.sent, strict=False):
        if old != new or (old.role in ("system", "developer") and a.system != b.system):
            break
        shared += 1
    head = max(shared, sum(m.role in ("system", "developer") for m in b.sent[:1]))
    return Difference(
        one=a.call,
        other=b.call,
        shared=shared,
        gone=a.sent[max(shared, sum(m.role in ("system", "developer") for m in a.sent[:1])) :],
        new=b.sent[head:],
        sections=tuple(_sections(dict(a.system), dict(b.system))),
        tools=tuple(_changes(_tools(a.body), _tools(b.body))),
        settings=tuple(_changes(_settings(a.body), _settings(b.body))),
    )


async def _log(store: Store, id: SessionId) -> list[Record]:
    records = [record async for page in pages(with_large_parts(store), id) for record in page]
    if not records:
        raise SessionNotFound(f"there is no session {str(id)!r}")
    if not requests_of(records):
        raise SessionError(f"session {str(id)!r} has no request yet that was answered")
    return records


async def _explained(
    store: Store, id: SessionId, log: Sequence[Record], call: int | None, target: Target | None
) -> Explanation:
    requests = requests_of(log)
    count = len(requests)
    number = count if call is None else call + 1 + count if call < 0 else call
    if not 1 <= number <= count:
        raise InvalidInput(f"session {str(id)!r} has requests 1 to {count}, not {call}")
    request = requests[number - 1]
    before = requests[number - 2] if number > 1 else None
    after = requests[number].seq if number < count else log[-1].seq + 1
    epoch = epoch_of(log, request)
    if epoch is None:
        raise StoreDamaged(f"request {number} of {str(id)!r} has no epoch in the log")
    frozen = await read_frozen(Session(store, id), epoch.data)
    rebuilt = rebuild(log, request, frozen, target)
    others = (await store.sessions(id.scope, limit=2)).sessions
    case = Case(
        records=[record for record in log if record.seq < after],
        request=request,
        before=before,
        rebuilt=rebuilt,
        others=sum(info.session != id for info in others),
    )
    counter = Counter(name=str(case.ledger["counter"]))
    return Explanation(
        session=id,
        call=number,
        calls=count,
        turn=request.turn,
        at=request.at,
        model=frozen.model,
        why=told(str(case.ledger["why"]), case.since),
        ledger=case.ledger,
        usage=case.usage,
        sections=tuple((FILES.get(name, name), counter.count(text)) for name, text in rebuilt.sections),
        sent=tuple(_sent(rebuilt)),
        left_out=tuple(_left_out(case, frozen)),
        findings=diagnose(case),
        proven=rebuilt.proven,
        doubt=rebuilt.doubt,
        body=rebuilt.body,
        system=rebuilt.sections,
    )


def _sent(rebuilt: Rebuilt) -> list[SentMessage]:
    names = {call.id: call.name for sent in rebuilt.sent for call in sent.message.calls}
    return [
        SentMessage(
            role=sent.message.role,
            tokens=sent.tokens,
            said=preview(sent.message),
            calls=tuple(call.name for call in sent.message.calls),
            answers=tuple(part.name or names.get(part.call_id, "?") for part in sent.message.results),
        )
        for sent in rebuilt.sent
    ]


def _left_out(case: Case, frozen: Frozen) -> list[str]:
    """What the log holds and the request does not, and why."""
    view = case.rebuilt.view
    said = [r for r in case.records if r.kind == "message" and r.seq < case.state["length"]]
    hidden = [r for r in said if view.is_hidden(r.seq)]
    gone = [r for r in said if r not in hidden and not view.replayed(r.seq)]
    lines = []
    if gone:
        told = [r for r in gone if view.coverage(r.seq)[0] == "summary"]
        if told:
            by = view.summary["summary"]["by"]
            turns = sorted({r.turn for r in told})
            lines.append(f"{len(told)} messages of {_turns(turns)}: a summary stands for them (by {by})")
        gone = [r for r in gone if r not in told]
    if gone:
        turns = sorted({r.turn for r in gone})
        cuts = [r for r in case.records if r.kind == "cut" and r.seq <= case.request.seq]
        why = str(cuts[-1].data.get("reason", "full")) if cuts else "full"
        reason = {"new": "/new", "compact": "/compact"}.get(why, "the window was full")
        lines.append(f"{len(gone)} messages of {_turns(turns)}: before the cut ({reason})")
    if hidden:
        lines.append(f"{len(hidden)} messages of {_turns(sorted({r.turn for r in hidden}))}: undone")
    for each in case.ledger["condensed"]:
        name = next((r for r in said if r.seq == each["index"]), None)
        who = (
            next((p.name for p in name.message.results if p.name), "a tool") if name is not None else "a tool"
        )
        lines.append(f"most of a result of {who}: {each['before']:,} → {each['after']:,} tokens, a preview")
    for name_, (before, after) in (case.ledger.get("shrunk") or {}).items():
        lines.append(f"a part of {FILES.get(name_, name_)}: {before:,} → {after:,} tokens")
    if case.ledger.get("passages_dropped"):
        lines.append(f"{case.ledger['passages_dropped']} passages that were found: no room")
    return lines


def _turns(turns: Sequence[int]) -> str:
    if len(turns) == 1:
        return f"turn {turns[0]}" if turns[0] else "an import"
    return f"turns {turns[0]} to {turns[-1]}"


def _sections(one: Mapping[str, str], other: Mapping[str, str]) -> list[str]:
    lines = []
    for name in dict.fromkeys([*one, *other]):
        old, new = one.get(name, "").splitlines(), other.get(name, "").splitlines()
        if old != new:
            lines += [f"{FILES.get(name, name)}:"]
            lines += [f"- {line}" for line in old if line.strip() and line not in new]
            lines += [f"+ {line}" for line in new if line.strip() and line not in old]
    return lines


def _tools(body: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for tool in body.get("tools") or ():
        inner = tool.get("function", tool) if isinstance(tool, Mapping) else {}
        for each in inner.get("functionDeclarations", [inner]):
            found[str(each.get("name", each.get("type", "?")))] = each
    return found


def _settings(body: Mapping[str, Any]) -> dict[str, Any]:
    apart = ("messages", "input", "contents", "system", "instructions", "systemInstruction", "tools")
    return {name: value for name, value in body.items() if name not in apart}


def _changes(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[str]:
    gone = [f"- {name}" for name in one if name not in other]
    new = [f"+ {name}" for name in other if name not in one]
    return [*gone, *new, *(f"~ {name}" for name in one if name in other and one[name] != other[name])]
