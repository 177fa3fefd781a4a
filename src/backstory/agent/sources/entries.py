"""The section ``entries``: what happened lately, one line an event, from memory/history.jsonl and from the session.

The file may be of any length: only its end is read. A line is a JSON object with the event's ``text`` (or ``content``)
and when it was (``at`` or ``timestamp``); the scope's own file, and nobody else's.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

from backstory.agent.sources.base import Immediate, SourceContext
from backstory.agent.sources.files import WorkspaceFiles, own_path
from backstory.context.sections import Section

HISTORY_FILE = "memory/history.jsonl"
LAST = 20
"""Entries: about a thousand tokens."""
TAIL = 65_536
"""Bytes that are read from the end: room for `LAST` lines of a few thousand."""
LONGEST = 400
"""Characters of one entry."""


class EntriesSource(Immediate):
    """The `last` entries. `files` is `None` where there is no workspace: then only the session's own are told."""

    name = "entries"

    def __init__(self, files: WorkspaceFiles | None = None, *, last: int = LAST, tail: int = TAIL) -> None:
        self.files = files
        self.last = last
        self.tail = tail

    async def section(self, context: SourceContext) -> Section | None:
        found = self._from_file(context)
        known = {text for _, text in found}
        found += [("", text) for entry in context.entries if (text := _one_line(entry)) not in known and text]
        lines = [f"- [{at}] {text}" if at else f"- {text}" for at, text in found[-self.last :]]
        if not lines:
            return None
        return Section(name=self.name, text="\n".join(lines), title="Recent history", optional=True)

    def _from_file(self, context: SourceContext) -> list[tuple[str, str]]:
        if self.files is None:
            return []
        path = own_path(context.scope, HISTORY_FILE)
        found = self.files.read(path, self.tail, scope=context.scope, tail=True)
        if found is None:
            return []
        if found.problem:
            context.note(f"{HISTORY_FILE} {found.problem}")
        lines = found.text.split("\n")
        entries = list(_entries(lines))
        damaged = sum(1 for line in lines[:-1] if line.strip()) - len(entries) + bool(_entry(lines[-1]))
        if damaged > 0:
            context.note(f"{HISTORY_FILE}: {damaged} of its last lines cannot be read and are passed over")
        return entries


def _entries(lines: list[str]) -> Iterator[tuple[str, str]]:
    for line in lines:
        entry = _entry(line)
        if entry is not None:
            yield entry


def _entry(line: str) -> tuple[str, str] | None:
    """When and what; `None` for a line that is no entry, such as one whose writing was cut short."""
    try:
        value = json.loads(line)
    except (ValueError, RecursionError):
        return None
    if isinstance(value, str):
        value = {"text": value}
    if not isinstance(value, dict):
        return None
    text = value.get("text", value.get("content"))
    at = value.get("at", value.get("timestamp", ""))
    if not isinstance(text, str) or not text.strip():
        return None
    return (_one_line(at) if isinstance(at, str) else ""), _one_line(text)


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST else f"{line[:LONGEST].rstrip()}…"
