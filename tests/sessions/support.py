"""What the tests of sessions share: stores that count or fail, the independent judge, and the laws as functions."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import backstory
from backstory.context.prefix import canonical, without_markers
from backstory.models.scripted import ScriptedModel
from backstory.records import Record
from backstory.sessions.cuts import KNOWN_SUMMARIES
from backstory.sessions.view import View, fold
from backstory.stores import InMemoryStore, SessionId
from tests.context.judging import judge

S = SessionId(key="s")


class Killed(BaseException):
    """The process ends here: nothing of ours may catch it."""


class Wrapped:
    """A store in front of another one."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def close(self) -> None:
        """The store behind goes on."""


class Counting(Wrapped):
    """Counts the records that are read, and the batches that are appended."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.read_records = 0
        self.batches: list[list[str]] = []

    async def read(self, *arguments: Any, **options: Any) -> Any:
        found = await self.inner.read(*arguments, **options)
        self.read_records += len(found)
        return found

    async def append(self, session: Any, records: Any, **options: Any) -> Any:
        self.batches.append([record.kind for record in records])
        return await self.inner.append(session, records, **options)


DURABLE = ("append", "post", "take", "put_blob", "put_draft")


class Dying(Wrapped):
    """Dies at the `at`-th durable point: right before it, or, with `after`, right after it. Later calls die, too."""

    def __init__(self, inner: Any, at: int | None = None, *, after: bool = False) -> None:
        super().__init__(inner)
        self.at = at
        self.after = after
        self.points = 0
        self.dead = False

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.inner, name)
        if name in ("clock", "root"):
            return found

        async def call(*arguments: Any, **options: Any) -> Any:
            if self.dead:
                raise Killed
            if name in DURABLE:
                self.points += 1
                if self.points == self.at:
                    self.dead = True
                    if not self.after:
                        raise Killed
            value = await found(*arguments, **options)
            if self.dead:
                raise Killed
            return value

        return call


async def killed(work: Any) -> bool:
    """Await something that may be killed. What it left behind in the event loop dies with it."""
    before = asyncio.all_tasks()
    try:
        await work
    except Killed:
        for task in asyncio.all_tasks() - before - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)
        return True
    return False


async def expire(store: Any, session: SessionId = S) -> None:
    """As time would do it: whoever died no longer holds the session."""
    lease = await store.lease(session)
    if lease is not None:
        await store.release(lease)


async def records_of(store: Any, session: SessionId = S) -> list[Record]:
    found: list[Record] = await store.read(session)
    return found


def whole(records: Sequence[Record]) -> View:
    """The view of a log, with all of its messages loaded."""
    view = fold(records)
    view.load([record for record in records if record.seq < view.loaded])
    return view


async def view_of(store: Any, session: SessionId = S) -> View:
    return whole(await records_of(store, session))


def said(view: View) -> list[tuple[str, str]]:
    """What is live, as people would tell it: role and the first part's text (the runtime block is left out)."""
    return [(r.message.role, _text(r)) for r in view.live()]


def _text(record: Record) -> str:
    parts = record.message.parts
    return str(getattr(parts[0], "text", "")) if parts else ""


# --- the laws --------------------------------------------------------------------------------


def coverage(records: Sequence[Record]) -> dict[int, str]:
    """Law 5: each logged message, and what covers it: ``view``, ``undo``, ``summary``, ``cut``. Not asked of the view.

    An undo in force covers what it hides, whatever was cut; the active summary what is before its cut; a bare cut what
    is before it otherwise.
    """
    undos: dict[int, list[tuple[int, int]]] = {}
    kinds: dict[int, str] = {}
    cuts: list[tuple[int, int, tuple[int, int] | None, bool]] = []
    summaries: list[int] = []
    lifts: dict[int, int] = {}
    for record in records:
        data = record.data
        if record.kind == "undo" and "undoes" in data:
            spans, at = undos.pop(data["undoes"]), data["undoes"]
            blind = [c for c in cuts if c[0] in summaries and c[0] > at and spans and spans[0][0] < c[1]]
            cuts = [c for c in cuts if c not in blind]
        elif "lifts" in data:
            undos[record.seq] = []
            kinds[record.seq] = "summary"
            lifts[record.seq] = data["lifts"]
        elif record.kind == "undo":
            undos[record.seq] = [tuple(s) for s in data.get("spans", [[data.get("first"), data.get("last")]])]
            kinds[record.seq] = data["of"]
        elif record.kind in ("cut", "summary"):
            kept = data.get("kept")
            cuts.append((record.seq, data["start"], tuple(kept) if kept else None, bool(data.get("anew"))))
            if record.kind == "summary":
                summaries.append(record.seq)
                known = [c[0] for c in cuts if c[0] in summaries][-KNOWN_SUMMARIES:]
                cuts = [c for c in cuts if c[0] not in summaries or c[0] in known]
    standing = []
    for cut in cuts:
        seq, begin, _, anew = cut
        undone = [s for s, spans in undos.items() if s > seq and kinds[s] == "turn" and spans[0][0] < begin]
        lifted = [s for s, at in lifts.items() if s in undos and at <= seq < s]
        if anew:
            standing = [cut]
        elif not undone and not lifted:
            standing.append(cut)
    start, kept = standing[-1][1:3] if standing else (0, None)
    active = next((c for c in reversed(standing) if c[0] in summaries), (0, 0, None, False))
    since = next((r.data.get("since", 1) for r in records if r.seq == active[0]), 1)
    found: dict[int, str] = {}
    for record in records:
        if record.kind != "message":
            continue
        hidden = [s for s, spans in undos.items() if any(a <= record.seq <= b for a, b in spans)]
        assert len(hidden) <= 1, f"message {record.seq} is undone {len(hidden)} times"
        inside = record.seq >= start or (kept is not None and kept[0] <= record.seq < kept[1])
        told = since <= record.seq < active[1] and not (
            active[2] and active[2][0] <= record.seq < active[2][1]
        )
        found[record.seq] = "undo" if hidden else "view" if inside else "summary" if told else "cut"
    return found


def check_log(records: Sequence[Record], *, dense: bool = True) -> None:
    """Dense places; turns contiguous: between a turn's begin and its end nothing of another; nobody twice.

    Turns are numbered without gaps where `dense`; a fork leaves out what was undone.
    """
    assert [record.seq for record in records] == list(range(1, len(records) + 1))
    current = 0
    last = 0
    calls: dict[int, int] = {}
    ids: set[tuple[int, str]] = set()
    for record in records:
        if record.kind == "turn_started":
            assert current == 0, f"turn {record.turn} begins in turn {current}"
            again = record.turn == last and record.data.get("again")
            assert again or record.turn == last + 1 or (record.turn > last and not dense)
            current = last = record.turn
        elif record.kind == "turn_ended":
            assert record.turn == current
            current = 0
        elif record.kind == "message":
            assert record.turn == current, f"a message of turn {record.turn} in turn {current}"
            if record.message_id is not None:
                assert (record.turn, record.message_id) not in ids
                ids.add((record.turn, record.message_id))
        elif record.kind == "call_started":
            place = (record.data["message"], record.data["call"])
            message = records[place[0] - 1]
            assert message.turn == current
            assert len(message.message.calls) > place[1]
            calls[hash(place)] = calls.get(hash(place), 0) + 1
            assert calls[hash(place)] == 1, "a call was started twice"
    view = whole(records)
    covered = coverage(records)
    assert [r.seq for r in view.live()] == [seq for seq, by in covered.items() if by == "view"]


def legal(model: ScriptedModel) -> None:
    """Every request of a model passes the independent judge (where it is at hand) and our own rules."""
    check = judge()
    for body in model.requests:
        faults = check(body, model.target.format) if check is not None else []
        faults += [str(p) for p in backstory.check(body["messages"], target=model.target)]
        assert not faults, (faults, body)


def lines(body: dict[str, Any]) -> list[bytes]:
    """The canonical bytes of a request: tools first, then each item."""
    return [canonical(body.get("tools")), *(canonical(without_markers(item)) for item in body["messages"])]


def extends(later: dict[str, Any], earlier: dict[str, Any]) -> bool:
    before, after = lines(earlier), lines(later)
    return after[: len(before)] == before


def check_prefix(records: Iterable[Record], bodies: Sequence[dict[str, Any]]) -> None:
    """Law 4 over the requests that were answered: within an epoch each extends the one before."""
    epochs = [record.data["state"]["epoch"] for record in records if record.kind == "request"]
    assert len(epochs) == len(bodies)
    for number in range(1, len(bodies)):
        if epochs[number] == epochs[number - 1]:
            assert extends(bodies[number], bodies[number - 1]), (
                f"request {number} does not extend the one before"
            )
        else:
            assert epochs[number] > epochs[number - 1]


def memory(**options: Any) -> InMemoryStore:
    return InMemoryStore(**options)
