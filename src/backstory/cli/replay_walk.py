"""A replay told to people, call by call: a row for what was sent, and below it, in words, what happened and why."""

from __future__ import annotations

from collections import Counter as Tally
from collections.abc import Iterator, Sequence

from backstory.cli.chart import bar, legend
from backstory.cli.options import Limits
from backstory.cli.prices import Priced
from backstory.cli.screen import Screen, columns, one_line, padded, wrapped
from backstory.context.history import History
from backstory.context.replay import Call, Walk
from backstory.messages import Message, Refusal, Text

_WORDS = {
    "cut": "yellow",
    "healed": "green",
    "preview": "cyan",
    "prefix": "yellow",
    "lost": "red",
    "failed": "red",
}
_MARKS = {"cut": "✂", "healed": "✚", "preview": "≡", "prefix": "↺", "lost": "!", "failed": "✗"}

_REASONS = {
    "call.arguments": "they were no JSON object, which servers refuse",
    "call.id": "its server would refuse the id",
    "call.id_twice": "an id stands for one call",
    "content.empty": "servers refuse a message without content",
    "json.strict": "such as a lone surrogate, or NaN",
    "order.alternation": "strict servers want user and assistant to take turns",
    "order.user_after_tool": "strict servers want the assistant between a tool's result and the user",
    "order.user_first": "strict servers want the user to begin",
    "result.duplicate": "a call has one answer",
    "result.misplaced": "a result stands right after its call",
    "result.missing": "a call without a result is refused; it says that the outcome is unknown",
    "result.orphan": "a result without its call is refused",
    "system.late": "this server takes the system's words at the head alone",
    "system.one": "this server takes one system message",
}
"""Why, for those who do not know what APIs refuse; by the rule's name."""


def header(
    screen: Screen,
    name: str,
    source: str,
    history: History,
    walk: Walk,
    limits: Limits,
    priced: Priced,
) -> Iterator[str]:
    turns = max((call.turn for call in walk.calls), default=0)
    counter, target = limits.counter, limits.target.name
    yield (
        screen.paint(name, "bold")
        + f": {len(history)} messages, {turns} turns, {len(walk.calls)} model calls"
    )
    exact = "exact" if counter.exact else f"estimated, ±{counter.margin:.0%}"
    form = source if source == target else f"{source} for {target}"
    budget = limits.budget.tokens
    room = "no budget" if budget is None else f"budget {budget:,} tokens of input"
    if walk.strategy == "full":
        room = "all sent, whatever the budget"
    yield f"{form} · {room} · counted in {counter.name} ({exact})"
    yield prices_line(priced)
    yield legend(screen)


def prices_line(priced: Priced) -> str:
    price = priced.price
    parts = [f"input ${price.input:g}", f"from cache ${price.cached:g}", f"output ${price.output:g}"]
    if price.written is not None:
        parts.insert(1, f"into cache ${price.written:g}")
    of = f" ({priced.model}, list price of {priced.as_of})" if priced.model else ""
    return f"per million tokens: {', '.join(parts)}{of}"


def rows(screen: Screen, walk: Walk, budget: int | None, *, brief: bool = False) -> Iterator[str]:
    """Every call, under its turn's words; with `brief` just those at which something happened."""
    full = budget if budget is not None and walk.strategy != "full" else walk.largest
    width = 14 if screen.width < 100 else 24
    turn = 0
    before: Call | None = None
    hidden = 0
    for call in walk.calls:
        events = list(_events(call, before))
        quiet = brief and not events and call.turn == turn
        if quiet:
            hidden += 1
        else:
            yield from _hidden(screen, hidden)
            hidden = 0
        if call.turn != turn:
            turn = call.turn
            yield ""
            yield _turn(screen, call)
            if turn == 1:
                yield _titles(screen, width)
        if not quiet:
            yield _row(screen, call, full, width)
            for kind, what in events:
                yield from _event(screen, kind, what)
        before = call
    yield from _hidden(screen, hidden)
    for skipped in walk.skipped:
        yield screen.paint(f"      message {skipped.at} is no answer to a request ({skipped.why})", "dim")


def _hidden(screen: Screen, count: int) -> Iterator[str]:
    if count:
        what = "call" if count == 1 else "calls"
        yield screen.paint(f"      … {count} more {what}, each extending the one before", "dim")


def _turn(screen: Screen, call: Call) -> str:
    words = " ".join(message.text for message in call.asked if message.role == "user")
    title = f"turn {call.turn}  "
    said = one_line(words, screen.width - len(title))
    return screen.paint(title, "bold", "cyan") + screen.paint(said, "bold")


def _titles(screen: Screen, width: int) -> str:
    head = f"{'call':>5}  {'messages':<10}{'tokens':>8} {'':<{width}} {'cached':>6}  the model answered"
    return screen.paint(head, "dim")


def _row(screen: Screen, call: Call, full: int, width: int) -> str:
    sent = _spans(call.sent)
    share = f"{call.cached / call.input:.0%}" if call.input else "-"
    drawn = bar(screen, call.cached, call.fresh, full=full, width=width)
    left = f"{call.number:>5}  {padded(sent, 10)}{call.input:>8,} "
    right = f" {share:>6}  "
    room = screen.width - columns(left) - width - columns(right)
    return left + drawn + right + screen.paint(one_line(_answer(call.answer), room), "dim")


def _spans(spans: Sequence[tuple[int, int]]) -> str:
    """Positions that were sent, as `4-17` or `4, 9-17`."""
    return (
        ", ".join(str(start) if stop == start + 1 else f"{start}-{stop - 1}" for start, stop in spans) or "-"
    )


def _answer(answer: Sequence[Message]) -> str:
    if not answer:
        return "(is asked now)"
    names = Tally(call.name for message in answer for call in message.calls)
    words = " ".join(
        part.text for message in answer for part in message.parts if isinstance(part, Text | Refusal)
    )
    calls = ", ".join(name if count == 1 else f"{name} ×{count}" for name, count in names.items())
    return f"calls {calls}" if calls else f"“{words}”" if words.strip() else "(nothing)"


def _events(call: Call, before: Call | None) -> Iterator[tuple[str, str]]:
    """What happened at a call, each as (kind, words)."""
    if call.error is not None:
        yield "failed", f"nothing can be sent: {call.error}"
        return
    if call.cut:
        yield "cut", _cut(call)
    elif call.opened:
        yield "prefix", f"the prefix changed: {call.ledger.why}"
    for condensed in call.ledger.condensed:
        if before is None or condensed not in before.ledger.condensed:
            size = f"{condensed.before:,} tokens are too many, {condensed.after:,} are sent, from both ends"
            yield "preview", f"message {condensed.index}, a tool's result: {size}"
    for repair in call.repairs:
        why = _REASONS.get(repair.rule, repair.rule)
        yield "healed", f"message {repair.index}: {repair.what}: {why}"
    made_up = {repair.index for repair in call.repairs if repair.rule == "result.missing"}
    for loss in call.losses:
        if loss.kind != "error_flag" or loss.index not in made_up:  # that one is ours, and says so in words
            yield "lost", f"message {loss.index}: {loss.what}"


def _cut(call: Call) -> str:
    ledger = call.ledger
    asked = sum(line.asked for line in ledger.lines)
    gone = _spans([(span.start, span.stop) for span in ledger.dropped])
    inside = any(span.reason == "cut_in_turn" for span in ledger.dropped)
    where = "whole steps; the question of this turn stays" if inside else "whole turns"
    full = "a limit of turns or messages is reached"
    if ledger.budget is not None and asked > ledger.budget:
        full = f"{asked:,} tokens, and {ledger.budget:,} is all"
    return (
        f"{full}: messages {gone} are left out ({where}), which leaves {ledger.total:,} tokens; "
        "the next calls extend this one again"
    )


def _event(screen: Screen, kind: str, what: str) -> Iterator[str]:
    mark = _MARKS[kind] if screen.unicode else "*"
    first, *rest = wrapped(what, screen.width - 18)
    yield f"       {screen.paint(f'{mark} {kind:<8}', _WORDS[kind], 'bold')} {first}"
    for line in rest:
        yield f"{'':17} {line}"
