"""The tool `notes`: Markdown files with front matter that a model keeps for itself, and people can read and edit.

One note is one file below the folder, by its name. Front matter is YAML between two lines of ``---``, as static site
generators have it (https://jekyllrb.com/docs/front-matter/): `title`, `tags`, `created`, `updated`, and whatever people
add, which is kept. A note is replaced whole (`Workspace.write_file`), so a reader never sees half of one.
"""

from __future__ import annotations

import json
import re
import threading
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from typing import Annotated, Any, Literal

from backstory.agent.toolbox.decoding import SAMPLE, encoding_of, lines_of
from backstory.agent.toolbox.workspace import Location, Workspace, printable
from backstory.agent.tools import AnyTool, tool
from backstory.errors import ToolError
from backstory.legality.arguments import clean_text
from backstory.stores.names import file_stem

FOLDER = "memory/notes"
MAX_NOTE = 100_000
"""Characters. A longer one is no note."""

_SCALARS = (str, int, float, date)
"""YAML may hold anything, nested a thousandfold by a few aliases: only plain values are shown."""

_MAX_HITS = 50
_FENCE = re.compile(r"---[ \t]*\r?\n(.*?)^---[ \t]*(?:\r?\n|\Z)", re.DOTALL | re.MULTILINE)


@dataclass(frozen=True, kw_only=True, slots=True)
class Note:
    """A note: its front matter and its text."""

    name: str
    head: dict[str, Any] = field(default_factory=dict)
    text: str = ""

    @property
    def title(self) -> str:
        title = self.head.get("title")
        return str(title) if title and isinstance(title, _SCALARS) else self.name

    @property
    def tags(self) -> list[str]:
        tags = self.head.get("tags") or []
        listed = tags if isinstance(tags, list) else [tags]
        return [str(tag) for tag in listed if isinstance(tag, _SCALARS)]


def notes(
    workspace: Location, *, folder: str = FOLDER, now: Callable[[], datetime] = lambda: datetime.now(UTC)
) -> AnyTool:
    """The tool that keeps notes below `folder` of this workspace. Give each scope a folder of its own."""
    shelf = _Shelf(Workspace.of(workspace), folder.strip("/"), now)

    def notes(
        action: Literal["write", "append", "read", "list", "search"],
        name: Annotated[str | None, "Of the note, such as: project plan."] = None,
        text: Annotated[str | None, "Markdown, to write or append."] = None,
        tags: Annotated[list[str] | None, "To write with, or to list by."] = None,
        query: Annotated[str | None, "Words to search for."] = None,
    ) -> str:
        """Keep notes across conversations: write (replaces), append, read, list (newest first), search."""
        match action:
            case "list":
                return shelf.listed(tags or [])
            case "search":
                return shelf.found(_given(query, "query", action))
            case "read":
                return shelf.shown(_given(name, "name", action))
            case "write" | "append":
                given = _given(name, "name", action), _given(text, "text", action)
                return shelf.written(*given, tags, append=action == "append")

    return tool(notes)


def _given(value: str | None, what: str, action: str) -> str:
    if value is None or not value.strip():
        raise ToolError(f"to {action}, give {what}")
    return value


class _Shelf:
    """The notes of one folder."""

    def __init__(self, space: Workspace, folder: str, now: Callable[[], datetime]) -> None:
        self.space = space
        self.folder = folder
        self.now = now
        self.lock = threading.Lock()  # tools run in threads; between processes the last writer wins

    def path(self, name: str) -> str:
        """The file of a note: of that very name or title where people made one, else as we name files."""
        ours = f"{self.folder}/{file_stem(_slug(name))}.md"
        if not self._is_there(ours):
            wanted = name.strip().casefold()
            for note in self._all():
                if wanted in (note.name.casefold(), note.title.casefold()):
                    return f"{self.folder}/{note.name}.md"
        return ours

    def written(self, name: str, text: str, tags: list[str] | None, *, append: bool) -> str:
        with self.lock:
            return self._written(name, clean_text(text).replace("\0", ""), tags, append)

    def _written(self, name: str, text: str, tags: list[str] | None, append: bool) -> str:
        path = self.path(name)
        old = self.load(path)
        if append and old is not None:
            text = f"{old.text.rstrip()}\n\n{text}"
        if len(text) > MAX_NOTE:
            raise ToolError(f"the note has {len(text):,} characters; {MAX_NOTE:,} at most, so split it")
        stamp = self.now().isoformat(timespec="seconds")
        head = {
            "title": clean_text(name.strip()),
            "created": stamp,
            **(old.head if old else {}),
            "updated": stamp,
        }
        if tags is not None:
            head["tags"] = [clean_text(tag) for tag in tags]
        self.space.write_file(path, _dump(head, text).encode())
        done = "Replaced" if old and not append else "Appended to" if old else "Wrote"
        return f"{done} the note {name.strip()!r} ({path})."

    def shown(self, name: str) -> str:
        note = self.load(self.path(name))
        if note is None:
            known = [note.title for note in self.all()][:20]
            raise ToolError(f"there is no note {name!r}; there are: {', '.join(known) or 'none'}")
        return f"{_heading(note)}\n\n{note.text}"

    def listed(self, tags: list[str]) -> str:
        wanted = {tag.casefold() for tag in tags}
        lines = [
            f"- {_heading(note)}" for note in self.all() if wanted <= {tag.casefold() for tag in note.tags}
        ]
        return "\n".join(lines) or "[There are no notes" + (" with these tags.]" if wanted else ".]")

    def found(self, query: str) -> str:
        """Notes that hold every word, anywhere; with the first line that holds one."""
        words = query.casefold().split()
        lines = []
        for note in self.all():
            whole = f"{note.name}\n{note.title}\n{' '.join(note.tags)}\n{note.text}".casefold()
            if all(word in whole for word in words):
                hit = next(
                    (line for line in note.text.splitlines() if any(w in line.casefold() for w in words)), ""
                )
                lines.append(f"- {_heading(note)}" + (f": {hit.strip()[:200]}" if hit else ""))
        more = f"\n[Only the first {_MAX_HITS}.]" if len(lines) > _MAX_HITS else ""
        return "\n".join(lines[:_MAX_HITS]) + more or f"[No note holds {query!r}.]"

    def all(self) -> list[Note]:
        """Every note that can be read, last updated first."""
        return sorted(
            self._all(), key=lambda note: (_when(note.head.get("updated")), note.name), reverse=True
        )

    def _all(self) -> Iterator[Note]:
        try:
            entries = self.space.entries(self.folder)
        except ToolError:  # nothing was written yet
            return
        for entry in entries:
            if entry.kind == "file" and entry.path.endswith(".md"):
                with suppress(ToolError):  # it can still be read with read_file
                    if (note := self.load(entry.path)) is not None:
                        yield note

    def load(self, path: str) -> Note | None:
        """A note, or `None` where there is none. Raises `ToolError` for one that is too long or no text."""
        name = path.rpartition("/")[2].removesuffix(".md")
        try:
            with self.space.open_file(path) as file:
                encoding = encoding_of(file.read(SAMPLE))
                if encoding is None:
                    raise ToolError(f"the note {printable(name)!r} is no text")
                file.seek(0)
                text = ""
                for line in lines_of(file, encoding):
                    text += line
                    if len(text) > 4 * MAX_NOTE:
                        raise ToolError(f"the note {printable(name)!r} is too long; read it with read_file")
        except ToolError:
            if self._is_there(path):
                raise
            return None
        return parse_note(name, text)

    def _is_there(self, path: str) -> bool:
        try:
            self.space.look(path)
        except ToolError:
            return False
        return True


def parse_note(name: str, text: str) -> Note:
    """Front matter and text. What is no YAML mapping is text: an edit by hand never makes a note unreadable."""
    import yaml

    found = _FENCE.match(text)
    if found is not None:
        try:
            head = yaml.safe_load(found[1])
        except (yaml.YAMLError, ValueError, RecursionError):
            head = None
        if isinstance(head, dict):
            return Note(name=name, head=head, text=text[found.end() :].lstrip("\r\n"))
    return Note(name=name, text=text)


_BREAKS = re.compile("[\x85\u2028\u2029]")


def _dump(head: dict[str, Any], text: str) -> str:
    import yaml

    # YAML takes these for line breaks, and PyYAML writes them as they are: only escaped do they come back.
    breaks = _BREAKS.search(json.dumps(head, ensure_ascii=False, default=str)) is not None
    front = yaml.safe_dump(head, allow_unicode=not breaks, sort_keys=False, width=10_000)
    return f"---\n{front}---\n\n{text.rstrip()}\n"


def _heading(note: Note) -> str:
    when = _when(note.head.get("updated"))[:10]
    tags = f" [{', '.join(note.tags)}]" if note.tags else ""
    return f"{printable(note.title)}{tags}{f' ({when})' if when else ''}"


def _when(value: Any) -> str:
    """A time as YAML gave it: a date, a time, or text; all sort together."""
    return value.isoformat() if isinstance(value, date) else str(value or "")


def _slug(name: str) -> str:
    """Small letters and hyphens: names that a person would take for the same are the same note."""
    plain = unicodedata.normalize("NFC", clean_text(name)).casefold()
    slug = re.sub(r"[^\w.]+", "-", plain).strip("-._")
    if not slug:
        raise ToolError(f"{name!r} is no name for a note; use letters")
    return slug
