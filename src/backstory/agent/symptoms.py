"""Tests for what can be wrong with a request: each gives the cause in words with its figures, or nothing. Pure.

Each looks at one request as it was logged and rebuilt. The table that they belong to is `backstory.agent.diagnosis`.
"""

from __future__ import annotations

import json
import re
from collections import Counter as Tally
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from backstory.agent.rebuilt import Rebuilt
from backstory.messages import Message, texts
from backstory.records import Record

FULL = 0.9
LARGE = 0.4
FILES = {"agents": "AGENTS.md", "soul": "SOUL.md", "user": "USER.md", "memory": "memory/MEMORY.md"}
"""Which file a section is read from."""

CACHE_LEAST = 1024
"""Tokens from which on providers cache a prefix: https://platform.openai.com/docs/guides/prompt-caching."""


_BLOCKS = re.compile(r"\s*<(runtime|retrieved)>\n.*?\n</\1>\s*(?=<runtime>|\Z)", re.DOTALL)
"""What stands after the user's words, in whatever way the format joined it to them."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Case:
    """One request with what is around it. `records` is the log up to the answer and its turn's end.

    `request` is the record, `before` the one of the request before. `others` are how many other sessions there are.
    """

    records: Sequence[Record]
    request: Record
    before: Record | None
    rebuilt: Rebuilt
    others: int = 0

    @property
    def ledger(self) -> Mapping[str, Any]:
        ledger: Mapping[str, Any] = self.request.data["ledger"]
        return ledger

    @property
    def state(self) -> Mapping[str, Any]:
        state: Mapping[str, Any] = self.request.data["state"]
        return state

    @property
    def usage(self) -> Mapping[str, int]:
        usage: Mapping[str, int] = self.request.data.get("usage", {})
        return usage

    @property
    def total(self) -> int:
        return int(self.ledger["total"])

    @property
    def budget(self) -> int | None:
        budget: int | None = self.ledger["budget"]
        return budget

    def used(self, section: str) -> int:
        return sum(line["used"] for line in self.ledger["lines"] if line["section"] == section)

    @property
    def earlier(self) -> list[Record]:
        """Messages of earlier turns."""
        return [r for r in self.records if r.kind == "message" and r.turn < self.request.turn]

    @property
    def since(self) -> list[Record]:
        """What was logged between the request before and this one."""
        after = self.before.seq if self.before is not None else 0
        return [r for r in self.records if after < r.seq < self.request.seq]


# --- tests -------------------------------------------------------------------------------------


def no_history(case: Case) -> str:
    if case.used("history") or not case.earlier:
        return ""
    turns = len({record.turn for record in case.earlier})
    knows = f"turn {case.request.turn} knows nothing of the {turns} before it: no history was sent"
    cuts = [r for r in case.records if r.kind == "cut" and r.seq <= case.request.seq]
    if all(case.rebuilt.view.is_hidden(record.seq) for record in case.earlier):
        return f"{knows}, since they were undone"
    if cuts and cuts[-1].data.get("reason") == "new":
        return f"{knows}, since /new began anew"
    if cuts:
        return f"{knows}: the window has no room for it beside system, tools and message"
    return knows


def first_turn(case: Case) -> str:
    if case.request.turn > 1 or case.earlier or not case.others:
        return ""
    others = "another conversation" if case.others == 1 else f"{case.others} other conversations"
    return (
        f"this is the first turn under this key, and there is {others} here: is the key the same each time?"
    )


def window_full(case: Case) -> str:
    if not case.budget or case.total < FULL * case.budget:
        return ""
    left = " and earlier messages are left out" if case.ledger["dropped"] else ""
    return f"answers repeat or forget: the window is {case.total / case.budget:.0%} full{left}"


def left_out(case: Case) -> str:
    spans = case.ledger["dropped"]
    gone = [
        r for r in case.records if r.kind == "message" and any(s["start"] <= r.seq < s["stop"] for s in spans)
    ]
    start = case.rebuilt.view.cut.start
    gone += [r for r in case.records if r.kind == "message" and r.seq < start and r not in gone]
    kept = case.rebuilt.view.cut.kept
    gone = [
        r
        for r in gone
        if not (kept and kept[0] <= r.seq < kept[1]) and not case.rebuilt.view.is_hidden(r.seq)
    ]
    if not gone or not case.used("history"):
        return ""
    last = max(record.turn for record in gone)
    if case.rebuilt.view.active:
        return f"what was said up to turn {last} is told by a summary, in {len(gone)} messages' place"
    return f"what was said up to turn {last} is not sent: {len(gone)} messages lie before the cut at record {start}"


def cut_in_turn(case: Case) -> str:
    spans = [s for s in case.ledger["dropped"] if s["reason"] == "cut_in_turn"]
    if not spans and case.rebuilt.view.cut.kept is None:
        return ""
    return f"turn {case.request.turn} alone is too big for the window: its older steps are left out"


def cache_missed(case: Case) -> str:
    why = str(case.ledger["why"])
    if case.before is None or why == "goes on":
        return ""
    return f"the cache was missed: {told(why, case.since)}"


def volatile(case: Case) -> str:
    epochs = [r for r in case.records if r.kind == "epoch" and r.seq <= case.request.seq][-4:]
    whys = Tally(
        str(r.data["why"]) for r in epochs if str(r.data["why"]).endswith((" changed", "came or went"))
    )
    if not whys:
        return ""
    why, times = whys.most_common(1)[0]
    recent = [r for r in case.records if r.kind == "request" and r.seq <= case.request.seq][-6:]
    if times < 3 or len(recent) > 2 * times:
        return ""
    return f"{told(why, ())} again and again: {times} of the last {len(recent)} requests opened a new epoch for it"


def not_cached(case: Case) -> str:
    usage, shared = case.usage, int(case.ledger["shared"])
    if not usage or shared < CACHE_LEAST or usage.get("cached", 0):
        return ""
    if not any(r.data.get("usage", {}).get("cached") for r in case.records if r.kind == "request"):
        return ""  # a server without a cache, or one that does not tell
    return f"the provider served nothing from its cache, though {shared:,} tokens stood unchanged"


def big_result(case: Case) -> str:
    names = {call.id: call.name for sent in case.rebuilt.sent for call in sent.message.calls}
    results = [
        (sent.tokens, names.get(sent.message.results[0].call_id, "a tool"))
        for sent in case.rebuilt.sent
        if sent.message.results
    ]
    if not results or not case.total:
        return ""
    tokens, name = max(results)
    if tokens < LARGE * case.total:
        return ""
    return f"a tool result takes {tokens / case.total:.0%} of the request: {tokens:,} tokens from {name}"


def condensed(case: Case) -> str:
    found = case.ledger["condensed"]
    if not found:
        return ""
    before, after = sum(c["before"] for c in found), sum(c["after"] for c in found)
    return f"the model saw a preview of {_count(len(found), 'tool result')}: {after:,} of {before:,} tokens"


def system_big(case: Case) -> str:
    if not case.budget or case.used("system") < LARGE * case.budget:
        return ""
    size, name = (
        max((len(text), name) for name, text in case.rebuilt.sections) if case.rebuilt.sections else (0, "")
    )
    most = f", most of it {FILES.get(name, name)}" if size else ""
    return f"the system block takes {case.used('system') / case.budget:.0%} of the window{most}"


def shrunk(case: Case) -> str:
    shrunk = case.ledger.get("shrunk") or {}
    names = ", ".join(f"{FILES.get(n, n)} {before:,} → {after:,}" for n, (before, after) in shrunk.items())
    return f"sections were shortened to make room: {names} tokens" if names else ""


def tools_big(case: Case) -> str:
    of = case.budget or case.total
    if not of or case.used("tools") < 0.3 * of:
        return ""
    return f"the declarations of tools take {case.used('tools'):,} tokens, {case.used('tools') / of:.0%} of the window"


def passages(case: Case) -> str:
    count = case.ledger.get("passages_dropped", 0)
    return f"{_count(count, 'passage')} found for the message did not fit" if count else ""


def closed(case: Case) -> str:
    marked = [
        r.seq for r in case.records if r.kind == "message" and any(p.synthetic for p in r.message.results)
    ]
    live = {record.seq for record in case.rebuilt.view.live()}
    kinds = Tally(
        part.synthetic
        for record in case.records
        if record.seq in live and record.seq in marked
        for part in record.message.results
        if part.synthetic
    )
    if not kinds:
        return ""
    words = {"not_started": "never started", "outcome_unknown": "outcome unknown"}
    told_ = ", ".join(f"{count} {words.get(str(kind), str(kind))}" for kind, count in sorted(kinds.items()))
    total = sum(kinds.values())
    return f"{_count(total, 'call')} {'was' if total == 1 else 'were'} closed by recovery ({told_})"


def healed(case: Case) -> str:
    repairs = case.ledger.get("repairs") or []
    rules = Tally(str(repair["rule"]) for repair in repairs)
    names = ", ".join(f"{rule} ×{count}" if count > 1 else rule for rule, count in rules.items())
    return f"the history was healed for its target: {names}" if names else ""


def unanswered(case: Case) -> str:
    marks = [
        r for r in case.records if r.kind == "message" and r.data.get("mark") and r.turn < case.request.turn
    ]
    marks = [r for r in marks if not case.rebuilt.view.is_hidden(r.seq) and case.rebuilt.view.replayed(r.seq)]
    if not marks:
        return ""
    told_ = ", ".join(f"turn {r.turn} ({r.data['mark']})" for r in marks[-4:])
    return f"earlier turns ended without an answer: {told_}"


def ended(reason: str) -> Callable[[Case], str]:
    said = {
        "length": "the answer was cut off: the model reached the most that it may write",
        "limit": "the turn ended at a limit of the loop: too many steps, the same call again, or no time left",
        "empty": "the model said nothing, twice",
        "failed": "the turn failed: the model's server gave no answer",
    }[reason]

    def test(case: Case) -> str:
        after = [r for r in case.records if r.seq > case.request.seq]
        for record in after:
            if record.kind == "request":
                return ""
            if record.kind == "turn_ended" and record.turn == case.request.turn:
                return said if record.data["reason"] == reason else ""
        return ""

    return test


def loop(case: Case) -> str:
    calls = Tally(
        (call.name, _same(call.arguments))
        for record in case.records
        if record.kind == "message" and record.turn == case.request.turn
        for call in record.message.calls
    )
    if not calls:
        return ""
    (name, _), times = calls.most_common(1)[0]
    return f"the model asked for {name} {times} times with the same arguments in turn {case.request.turn}" * (
        times > 2
    )


def miscounted(case: Case) -> str:
    billed = case.usage.get("input", 0)
    allowed = max(0.2, 1.5 * float(case.ledger["margin"]))
    if not billed or not case.total or abs(billed - case.total) < max(200, allowed * billed):
        return ""
    return f"the provider billed {billed:,} tokens of input where we counted {case.total:,}"


def unproven(case: Case) -> str:
    return f"this request is not shown to the byte: {case.rebuilt.doubt}" if not case.rebuilt.proven else ""


# --- words -------------------------------------------------------------------------------------


def told(why: str, since: Sequence[Record]) -> str:
    """Why an epoch opened, as people call things; `since` is what was logged since the request before."""
    if any(r.kind == "cut" and r.data.get("reason") == "new" for r in since):
        return "/new began anew"
    if any(r.kind == "cut" and r.data.get("reason") == "compact" for r in since):
        return "/compact cut the history"
    if any(r.kind == "summary" for r in since):
        return "a summary took the place of older messages"
    if any(r.kind == "undo" and r.data.get("of") == "summary" for r in since):
        return "a compaction was undone"
    undos = [r for r in since if r.kind == "undo" and r.data.get("of") in ("turn", "undo")]
    if undos:
        return "an undo was taken back" if undos[-1].data["of"] == "undo" else "turns were undone"
    for name, file in FILES.items():
        if why.startswith(f"{name} "):
            return f"{file} {why[len(name) + 1 :]} in the middle of the conversation"
    return why


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _same(arguments: str) -> str:
    try:
        return json.dumps(json.loads(arguments), sort_keys=True)
    except ValueError:
        return arguments


def preview(message: Message, limit: int = 200) -> str:
    """What a message says, in a line, as people see it: its text and its calls, else the kinds of its parts."""
    said = texts([part for part in message.parts if part not in message.calls])
    if message.role == "user":
        said = _BLOCKS.sub("", said)
    calls = " ".join(f"{call.name}({call.arguments})" for call in message.calls)
    whole = " ".join(f"{said} {calls}".split())
    return whole[:limit] if whole else ", ".join(type(part).__name__.lower() for part in message.parts)
