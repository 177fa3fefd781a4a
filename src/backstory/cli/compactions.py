"""The compactions of a conversation on a screen: one block each, for `backstory explain --compactions`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from backstory.agent.compactions import CompactionTold
from backstory.cli.screen import Screen, wrapped


def compactions_page(screen: Screen, told: Sequence[CompactionTold]) -> Iterator[str]:
    """All of them, oldest first."""
    if not told:
        yield "There was no compaction in this conversation."
    for number, one in enumerate(told, 1):
        if number > 1:
            yield ""
        yield from _block(screen, number, one)


def _block(screen: Screen, number: int, one: CompactionTold) -> Iterator[str]:
    yield screen.paint(f"compaction {number} · record {one.seq} · {one.at} · {one.state}", "bold")
    rows = [("for", one.why or "nothing said")]
    if one.spans:
        places = ", ".join(f"{first}–{last}" for first, last in one.spans)
        turns = f"turns {one.turns[0]} to {one.turns[-1]}" if one.turns else "no turn"
        rows.append(("covers", f"{one.messages} messages of {turns}, records {places}"))
    if one.on:
        rows.append(("builds on", f"the summary of record {one.on}"))
    rows.append(("tokens", f"{one.before:,} → {one.after:,} of history"))
    rows.append(("by", one.summary.by))
    rows += [("refused", why) for why in one.refused]
    if one.model:
        usage = {"input": 0, "cached": 0, "output": 0, **one.usage}
        cost = f"{usage['input']:,} in, {usage['cached']:,} of them from the cache, {usage['output']:,} out"
        rows.append(("cost", f"{cost} ({one.model})"))
    else:
        rows.append(("cost", "none: no model was asked"))
    for name, value in rows:
        yield from _hanging(screen, f"  {name:<10} ", value)
    for title, lines in (("text", one.summary.text.splitlines()), ("kept", one.summary.kept)):
        for line in lines:
            yield from _hanging(screen, f"  {title:<10} ", line)
            title = ""


def _hanging(screen: Screen, lead: str, text: str) -> Iterator[str]:
    for line in wrapped(text, screen.width - len(lead)):
        yield f"{lead}{line}".rstrip()
        lead = " " * len(lead)
