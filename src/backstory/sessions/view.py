"""The fold of a log: what a session is at this moment. Pure: records in, state out.

The log is the truth; this is what follows from it: which messages are live, where replay begins, which turn is open,
which client messages are known, what the last request was. Cuts, undos and summaries change the view and nothing else.

A view is folded from the newest snapshot on, so that opening a session costs the window and not the session. What a
snapshot holds is small and can be computed again; the live messages are not in it, and are loaded as needed (`loaded`
says from where on they are here).
"""

from __future__ import annotations

import bisect
import dataclasses
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.errors import StoreDamaged
from backstory.records import Record
from backstory.sessions.cuts import KNOWN_CUTS as KNOWN_CUTS
from backstory.sessions.cuts import covered_by, cut_of, in_force, with_cut, without_blind
from backstory.sessions.spans import Cut as Cut
from backstory.sessions.spans import Known as Known
from backstory.sessions.spans import OpenTurn as OpenTurn
from backstory.sessions.spans import Span as Span
from backstory.sessions.spans import Undo as Undo
from backstory.sessions.spans import (
    cut_from_json,
    cut_to_json,
    spans_from_json,
    spans_to_json,
    turn_from_json,
    turn_to_json,
    undo_from_json,
    undo_to_json,
)

KNOWN_MESSAGES = 256
"""So many of the newest client message ids are recognised without reading back."""

SNAPSHOT_EVERY = 128
"""Records between two snapshots: what a cold open folds at most. No more than a window of a few thousand tokens holds,
so that a cold open reads little that its first request does not need."""

NO_CUT = Cut()


@dataclass(kw_only=True, slots=True)
class View:
    """What a session is. Only `apply` changes it.

    `head` is the place of the last record that was folded. `messages` are the records of kind ``message`` from `loaded`
    on, in order, those that an undo hides included; `live` leaves these out. `cut` is the cut in force, of `cuts`;
    `summary` is what the active summary's record says, whose place is `active` (0: there is none), of `summaries`.
    `pins` hold what is pinned by value: texts, and messages with their place. `turns` is how many turns were begun,
    `request` what the last request decided (see `agent.requests`; empty where what it sent is no longer what is
    replayed), `epoch` what the newest epoch froze, `told` what the model was told of changes that wait for the next one
    (section → digest). `children` are forks of this session.
    """

    head: int = 0
    loaded: int = 1
    messages: list[Record] = field(default_factory=list)
    cuts: tuple[Cut, ...] = (NO_CUT,)
    cut: Cut = NO_CUT
    summaries: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by place
    active: int = 0
    pins: dict[int, Mapping[str, Any]] = field(default_factory=dict)  # by place
    hidden: dict[int, Undo] = field(default_factory=dict)  # by the place of the undo
    turns: int = 0
    turn: OpenTurn | None = None
    spans: dict[int, Span] = field(default_factory=dict)  # of the newest turns, by number
    known: dict[str, Known] = field(default_factory=dict)
    request: Mapping[str, Any] = field(default_factory=dict)
    request_seq: int = 0
    epoch: Mapping[str, Any] = field(default_factory=dict)
    epoch_seq: int = 0
    told: dict[str, str] = field(default_factory=dict)
    variables: dict[str, Any] = field(default_factory=dict)
    meta: dict[str, Any] = field(default_factory=dict)
    parent: Mapping[str, Any] | None = None
    children: tuple[str, ...] = ()
    entries: list[str] = field(default_factory=list)
    snapshot: int = 0  # place of the newest snapshot

    @property
    def start(self) -> int:
        """The first place that is replayed."""
        cut = self.cut
        return max(1, cut.kept[0] if cut.kept else cut.start)

    @property
    def summary(self) -> Mapping[str, Any]:
        """What the active summary's record says; empty where there is none."""
        return self.summaries.get(self.active, {})

    @property
    def summary_cut(self) -> Cut | None:
        """The cut that the active summary owns."""
        return (
            next((cut for cut in reversed(self.cuts) if cut.seq == self.active), None)
            if self.active
            else None
        )

    def coverage(self, seq: int) -> tuple[str, int]:
        """What covers a message of this log: ``view``, or a record that stands for its absence. See `covered_by`."""
        return covered_by(seq, cut=self.cut, active=self.summary_cut, hidden=self.hidden)

    @property
    def snapshot_due(self) -> bool:
        """Whether the next batch should begin with a snapshot: after every cut, and every `SNAPSHOT_EVERY` records."""
        return self.head - self.snapshot >= SNAPSHOT_EVERY or self.cuts[-1].seq > self.snapshot

    def replayed(self, seq: int) -> bool:
        """Whether a message at this place is in the view: not before the cut, and not undone."""
        cut = self.cut
        inside = seq >= cut.start or (cut.kept is not None and cut.kept[0] <= seq < cut.kept[1])
        return inside and not self.is_hidden(seq)

    def live(self) -> list[Record]:
        """The messages that are in the view and loaded, in order."""
        first = bisect.bisect_left(self.messages, self.start, key=lambda record: record.seq)
        return [record for record in self.messages[first:] if self.replayed(record.seq)]

    def of_turn(self, number: int) -> list[Record]:
        """The loaded messages of one turn that are not undone, in order."""
        span = self.spans.get(number)
        first = span.first if span is not None else 0
        found: list[Record] = []
        for record in reversed(self.messages):  # it is the newest turn that is asked for at every step
            if record.seq < first:
                break
            if record.turn == number and not self.is_hidden(record.seq):
                found.append(record)
        return found[::-1]

    def is_hidden(self, seq: int) -> bool:
        return bool(self.hidden) and any(seq in undo for undo in self.hidden.values())

    def load(self, older: Sequence[Record]) -> None:
        """Take in older records, which end right before `loaded` (records of other kinds than messages count too)."""
        if older:
            self.messages[:0] = [record for record in older if record.kind == "message"]
            self.loaded = older[0].first

    # --- folding -------------------------------------------------------------------------

    def apply(self, record: Record) -> None:
        """Fold one more record, the next in order. Raises `StoreDamaged` for one that is out of order."""
        if record.first <= self.head:  # damaged lines may leave gaps; going back would fold something twice
            raise StoreDamaged(f"record {record.seq} comes after record {self.head}")
        self.head = record.seq
        span = self.spans.get(record.turn)
        if span is not None:
            self.spans[record.turn] = Span(span.first, record.seq)
        fold = _FOLDS.get(record.kind)
        if fold is not None:
            fold(self, record)

    def to_json(self) -> dict[str, Any]:
        """The state as a snapshot holds it. See `from_json`."""
        return {
            "cuts": list(map(cut_to_json, self.cuts)),
            **({"pins": [[seq, dict(pin)] for seq, pin in self.pins.items()]} if self.pins else {}),
            **({"summaries": [[s, dict(d)] for s, d in self.summaries.items()]} if self.summaries else {}),
            "hidden": [[seq, *undo_to_json(undo)] for seq, undo in self.hidden.items()],
            "turns": self.turns,
            "turn": turn_to_json(self.turn),
            "spans": spans_to_json(self.spans),
            "known": [[key, known.turn, known.seq, known.digest] for key, known in self.known.items()],
            "request": dict(self.request),
            "request_seq": self.request_seq,
            "epoch": dict(self.epoch),
            "epoch_seq": self.epoch_seq,
            "told": dict(self.told),
            "variables": dict(self.variables),
            "meta": dict(self.meta),
            "parent": dict(self.parent) if self.parent else None,
            "children": list(self.children),
            "entries": list(self.entries),
            "before": self.snapshot,
        }

    @staticmethod
    def from_snapshot(record: Record, state: Mapping[str, Any] | None = None) -> View:
        """The view as it was right before a snapshot, with no messages loaded. Raises `StoreDamaged`.

        `state` is another place where the state stands than the record's own data.
        """
        data = record.data if state is None else state
        try:
            view = View(
                head=record.seq,
                loaded=record.seq + 1,
                cuts=tuple(map(cut_from_json, data["cuts"])),
                summaries={seq: dict(said) for seq, said in data.get("summaries", ())},
                pins={seq: dict(pin) for seq, pin in data.get("pins", ())},
                hidden={seq: undo_from_json(undo) for seq, *undo in data["hidden"]},
                turns=data["turns"],
                turn=turn_from_json(data["turn"]),
                spans=spans_from_json(data["spans"]),
                known={
                    key: Known(turn=turn, seq=seq, digest=digest) for key, turn, seq, digest in data["known"]
                },
                request=data["request"],
                request_seq=data["request_seq"],
                epoch=data["epoch"],
                epoch_seq=data["epoch_seq"],
                told=dict(data["told"]),
                variables=dict(data["variables"]),
                meta=dict(data["meta"]),
                parent=data["parent"],
                children=tuple(data["children"]),
                entries=list(data["entries"]),
                snapshot=record.seq,
            )
        except (KeyError, TypeError, ValueError) as error:
            raise StoreDamaged(f"the snapshot at {record.seq} cannot be read ({error!r})") from error
        view.cut, view.active = in_force(view.cuts, view.hidden)
        return view


def fold(records: Iterable[Record], view: View | None = None) -> View:
    """The view of a log, or of its records from a snapshot on; or `view` with the records that follow it.

    Snapshots on the way are not needed, and not trusted.
    """
    for record in records:
        if view is None:
            if record.kind == "snapshot":
                view = View.from_snapshot(record)
                continue
            view = View(loaded=record.first)
        view.apply(record)
    return view or View()


# --- one function a kind of record -----------------------------------------------------------


def _message(view: View, record: Record) -> None:
    view.messages.append(record)
    view.told.update(record.data.get("told", {}))
    if record.message_id is not None:
        view.known[record.message_id] = Known(
            turn=record.turn, seq=record.seq, digest=str(record.data.get("digest", ""))
        )
        while len(view.known) > KNOWN_MESSAGES:
            del view.known[next(iter(view.known))]


def _turn_started(view: View, record: Record) -> None:
    view.turns = max(view.turns, record.turn)
    again = view.spans.get(record.turn)
    view.turn = OpenTurn(
        number=record.turn,
        seq=again.first if again else record.seq,
        message_id=record.data.get("id"),
        digest=record.data.get("digest", ""),
    )
    view.spans[record.turn] = Span(again.first if again else record.seq, record.seq)
    while len(view.spans) > KNOWN_MESSAGES:
        del view.spans[next(iter(view.spans))]


def _call_started(view: View, record: Record) -> None:
    if view.turn is not None:
        view.turn = view.turn.starting((int(record.data["message"]), int(record.data["call"])))


def _turn_ended(view: View, record: Record) -> None:
    if view.turn is not None and view.turn.number == record.turn:
        view.turn = None


def _cut(view: View, record: Record) -> None:
    stands = record.kind == "summary"
    cut = cut_of(record.data, record.seq, stands=stands)
    view.cuts = with_cut(view.cuts, cut)
    if stands:
        known = {c.seq for c in view.cuts if c.stands}
        view.summaries = {s: data for s, data in view.summaries.items() if s in known} | {
            record.seq: record.data
        }
    view.cut, view.active = in_force(view.cuts, view.hidden)
    if cut.anew:
        view.pins = {}
    if cut.anew or stands:
        view.request = {}  # what is sent next begins with another system block
    if view.loaded < view.start:
        first = bisect.bisect_left(view.messages, view.start, key=lambda message: message.seq)
        del view.messages[:first]
        view.loaded = view.start


def _undo(view: View, record: Record) -> None:
    redone = record.data.get("undoes")
    lifts = int(record.data.get("lifts", 0))
    if redone is not None:
        taken_back = view.hidden.pop(redone, None)
        if taken_back is not None:
            view.cuts = without_blind(view.cuts, redone, taken_back)
            view.summaries = {c.seq: view.summaries[c.seq] for c in view.cuts if c.stands}
        first = 0
    else:
        given = record.data.get("spans") or ([] if lifts else [[record.data["first"], record.data["last"]]])
        undo = Undo(spans=tuple(Span(*span) for span in given), of=record.data.get("of", "turn"), lifts=lifts)
        view.hidden[record.seq] = undo
        first = undo.first if given else 0
    if view.turn is not None and view.is_hidden(view.turn.seq):
        view.turn = None
    view.cut, view.active = in_force(view.cuts, view.hidden)
    if first < view.request.get("state", {}).get("length", 0):
        view.request = {}  # what was sent is no longer what the view shows: the next request begins anew
        view.told = {}


def _request(view: View, record: Record) -> None:
    view.request = record.data
    view.request_seq = record.seq


def _epoch(view: View, record: Record) -> None:
    view.epoch = record.data
    view.epoch_seq = record.seq
    view.told = {}


def _pin(view: View, record: Record) -> None:
    view.pins[record.seq] = record.data


def _unpin(view: View, record: Record) -> None:
    view.pins.pop(record.data["pin"], None)


def _variable(view: View, record: Record) -> None:
    if record.data.get("value") is None:
        view.variables.pop(record.data["name"], None)
    else:
        view.variables[record.data["name"]] = record.data["value"]


def _meta(view: View, record: Record) -> None:
    view.meta.update(record.data)


def _fork(view: View, record: Record) -> None:
    if "parent" in record.data:
        view.parent = record.data
    child = record.data.get("child")
    if child is not None:
        view.children = tuple(dict.fromkeys((*view.children, child)))
    gone = record.data.get("without")
    if gone is not None:
        view.children = tuple(key for key in view.children if key != gone)


def _history_entry(view: View, record: Record) -> None:
    view.entries = [*view.entries, record.data["text"]][-32:]


def _archived(view: View, record: Record) -> None:
    """What is archived was folded when it was: its state stands in its record. (One without is a bare tombstone.)"""
    state = record.data.get("state")
    if state is None:
        return
    folded = View.from_snapshot(record, state)
    folded.snapshot = state["before"]
    for each in dataclasses.fields(View):
        setattr(view, each.name, getattr(folded, each.name))


def _snapshot(view: View, record: Record) -> None:
    view.snapshot = record.seq


_FOLDS = {
    "message": _message,
    "turn_started": _turn_started,
    "call_started": _call_started,
    "turn_ended": _turn_ended,
    "cut": _cut,
    "summary": _cut,
    "undo": _undo,
    "request": _request,
    "epoch": _epoch,
    "pin": _pin,
    "unpin": _unpin,
    "variable": _variable,
    "meta": _meta,
    "fork": _fork,
    "history_entry": _history_entry,
    "archived": _archived,
    "snapshot": _snapshot,
}
