"""Skills, and the section ``skills``: an index of those that are not pinned, one line each.

A skill is a folder ``skills/NAME`` with a SKILL.md: front matter (name, description, pinned), then what to know and do
(https://agentskills.io/specification). Those of the workspace serve every scope; a scope's own come beside them, and
take their place where they have the same name.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass
from typing import Any

from backstory.agent.sources.base import Immediate, SourceContext
from backstory.agent.sources.files import FileText, WorkspaceFiles, own_path
from backstory.agent.toolbox.notes import parse_note
from backstory.context.sections import Section
from backstory.stores.values import DEFAULT_SCOPE

SKILLS = "skills"
SKILL_FILE = "SKILL.md"
LOAD_SKILL = "load_skill"
"""The tool that loads one; see `backstory.agent.sources.load_skill`."""

SKILL_LIMIT = 65_536
"""Bytes of one SKILL.md."""
MOST = 200
"""Skills in a scope: each costs a look at its file in every turn."""
_DESCRIPTION = 300
"""Characters in the index."""
_PARSED = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Skill:
    """One skill. `path` is its file's, from the workspace's root; `problem` is what is wrong with it, in words."""

    name: str
    description: str
    text: str
    path: str
    pinned: bool = False
    problem: str = ""


class SkillFolder:
    """The skills of a workspace, read where they changed."""

    def __init__(self, files: WorkspaceFiles, *, limit: int = SKILL_LIMIT) -> None:
        self.files = files
        self.limit = limit
        self._parsed: OrderedDict[str, tuple[FileText, Skill]] = OrderedDict()

    def skills(self, scope: str) -> list[Skill]:
        """The skills of a scope by name, at most `MOST`."""
        found: dict[str, Skill] = {}
        for owner in dict.fromkeys((DEFAULT_SCOPE, scope)):
            folder = own_path(owner, SKILLS)
            for name in self.files.folders(folder):
                skill = self._skill(f"{folder}/{name}/{SKILL_FILE}", name, owner)
                if skill is not None:
                    found[skill.name] = skill
        return [found[name] for name in sorted(found)][:MOST]

    def _skill(self, path: str, name: str, owner: str) -> Skill | None:
        text = self.files.read(path, self.limit, scope=owner)
        if text is None:
            self._parsed.pop(path, None)
            return None
        known = self._parsed.get(path)
        if known is None or known[0] is not text:
            known = self._parsed[path] = (text, _parse(text, name, path))
        self._parsed.move_to_end(path)
        while len(self._parsed) > _PARSED:
            self._parsed.popitem(last=False)
        return known[1]


class SkillsSource(Immediate):
    """The index: what the model may load, and what for."""

    name = "skills"

    def __init__(self, folder: SkillFolder) -> None:
        self.folder = folder

    async def section(self, context: SourceContext) -> Section | None:
        skills = self.folder.skills(context.scope)
        for skill in skills:
            if skill.problem:
                context.note(f"{skill.path} {skill.problem}")
        lines = [
            f"- {skill.name}: {skill.description}" for skill in skills if not skill.pinned and skill.text
        ]
        if not lines:
            return None
        text = "\n".join([_how(context), *lines])
        return Section(name=self.name, text=text, title="Skills", optional=True)


def _how(context: SourceContext) -> str:
    if LOAD_SKILL in context.tool_names:
        return f"Where one of these fits the task, load it with {LOAD_SKILL}(name=…) before you begin:"
    return f"Where one of these fits the task, read {SKILLS}/NAME/{SKILL_FILE} before you begin:"


def _parse(found: FileText, folder: str, path: str) -> Skill:
    read = parse_note(folder, found.text)
    problem = found.problem
    if not read.head and found.text.startswith("---\n"):
        problem = (
            problem or "has front matter that is no YAML; its folder's name and first line stand in for it"
        )
    text = read.text.strip()
    if found.cut and text:
        text += f"\n[{path} is longer than {len(found.text.encode()):,} bytes; the rest is left out.]"
    return Skill(
        name=_line(read.head.get("name"), 64) or folder,
        description=_line(read.head.get("description"), _DESCRIPTION) or _first_line(read.text),
        text=text,
        path=path,
        # `always` is how nanobot's skills say it.
        pinned=read.head.get("pinned", read.head.get("always")) is True,
        problem=problem,
    )


def _line(value: Any, limit: int) -> str:
    """A field as one line; empty for what is no text, such as YAML's idea of ``no``."""
    if not isinstance(value, str):
        return ""
    line = " ".join(value.split())
    return line if len(line) <= limit else f"{line[:limit].rstrip()}…"


def _first_line(body: str) -> str:
    lines = (line.strip("#- \t") for line in body.splitlines())
    return _line(next(filter(None, lines), ""), _DESCRIPTION)
