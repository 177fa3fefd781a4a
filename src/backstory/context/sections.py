"""The sources of context: the parts of the system prompt in their order, passages that were looked up, runtime facts.

A section is text with a name. What is most stable stands first, so that a change spoils as little of the provider's
cache as can be. Where the system is too big, its optional sections give way, the last one first; the others never do.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from backstory.errors import ConfigurationError

Count = Callable[[str], int]

SYSTEM_ORDER = (
    "identity",
    "agents",  # AGENTS.md
    "soul",  # SOUL.md
    "user",  # USER.md
    "tool_contract",
    "memory",  # MEMORY.md
    "pinned_skills",
    "skills",  # an index of the others
    "pinned",  # instructions and facts that the user pinned
    "entries",  # recent history entries
    "summary",
)
"""DESIGN's order of the system block, most stable first. A section of another name stands before ``entries``."""

OPTIONAL = ("skills", "entries", "memory")
"""The sections that may shrink, in the order in which they give way; memory only above its cap."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Section:
    """Text for the system block. `title` is put above it as a heading where there is one.

    `optional` sections may be shortened or left out. `least` is how many tokens of it stay in any case.
    """

    name: str
    text: str
    title: str = ""
    optional: bool = False
    least: int = 0

    @property
    def rendered(self) -> str:
        body = self.text.strip()
        return f"## {self.title}\n\n{body}" if self.title else body


@dataclass(frozen=True, kw_only=True, slots=True)
class Passage:
    """Text that was looked up for this message: its relevance (`score`, higher is better), where and when it is from.

    `at` orders passages of equal score, newest first: any text that sorts by time, such as ISO 8601.
    """

    text: str
    score: float = 0.0
    source: str = ""
    at: str = ""

    @property
    def rendered(self) -> str:
        said = ", ".join(filter(None, (self.source, self.at)))
        return f"[{said}]\n{self.text.strip()}" if said else self.text.strip()


def in_order(sections: Iterable[Section]) -> list[Section]:
    """Sections with any text, in `SYSTEM_ORDER`. Raises `ConfigurationError` for a name that stands twice."""
    given = [section for section in sections if section.text.strip()]
    names = [section.name for section in given]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise ConfigurationError(f"two sections are named {twice!r}: give one of them another name")
    own = SYSTEM_ORDER.index("entries") - 0.5
    place = {name: float(number) for number, name in enumerate(SYSTEM_ORDER)}
    return sorted(given, key=lambda section: place.get(section.name, own))


def render(sections: Sequence[Section]) -> str:
    """The system block: the sections one below the other."""
    return "\n\n".join(section.rendered for section in sections)


def shrink(
    sections: Sequence[Section], tokens: int, count: Count
) -> tuple[list[Section], dict[str, tuple[int, int]]]:
    """Sections of at most `tokens` tokens where that can be had, and what gave way: name → tokens before and after.

    Optional sections lose their last lines, the skills index first, then history entries (oldest lines first: they
    are written newest last), then memory above its cap, then the caller's own. What remains may still be too much.
    """
    kept = list(sections)
    gone: dict[str, tuple[int, int]] = {}
    over = count(render(kept)) - tokens
    for name in _giving_way(kept):
        if over <= 0:
            break
        number = next(i for i, section in enumerate(kept) if section.name == name)
        section = kept[number]
        before = count(section.rendered)
        short = _shortened(section, max(section.least, before - over), count)
        kept[number] = short
        gone[name] = (before, count(short.rendered) if short.text else 0)
        over = count(render([s for s in kept if s.text])) - tokens
    return [section for section in kept if section.text], gone


def _giving_way(sections: Sequence[Section]) -> list[str]:
    optional = [section.name for section in sections if section.optional]
    known = [name for name in OPTIONAL if name in optional]
    return known + [name for name in optional if name not in OPTIONAL]


def _shortened(section: Section, tokens: int, count: Count) -> Section:
    """The section in at most `tokens` tokens, by whole lines: entries keep their newest, the rest their first."""
    lines = section.text.strip().split("\n")
    newest = section.name == "entries"
    kept: list[str] = []
    room = tokens - (count(f"## {section.title}\n\n") if section.title else 0)
    for line in reversed(lines) if newest else lines:
        room -= count(line) + 1
        if room < 0:
            break
        kept.append(line)
    return dataclasses.replace(section, text="\n".join(reversed(kept) if newest else kept))


def choose_passages(
    passages: Sequence[Passage], tokens: int, count: Count
) -> tuple[list[Passage], list[Passage]]:
    """The passages that fit, best first, and those that do not; equal scores go to the newer.

    One that is too long is passed over, and a shorter, less relevant one may still fit.
    """
    ranked = sorted(passages, key=lambda passage: passage.at, reverse=True)
    ranked.sort(key=lambda passage: passage.score, reverse=True)
    kept, left = [], []
    for passage in ranked:
        size = count(passage.rendered) + 2
        if size <= tokens:
            tokens -= size
            kept.append(passage)
        else:
            left.append(passage)
    return kept, left


def runtime_block(facts: Mapping[str, str]) -> str:
    """What holds at this moment (time, channel, tool status), for the end of the user's message."""
    rows = "\n".join(f"{name}: {value}" for name, value in facts.items() if value)
    return f"<runtime>\n{rows}\n</runtime>" if rows else ""


def retrieved_block(passages: Sequence[Passage]) -> str:
    """Passages as they stand after the user's words."""
    return "<retrieved>\n" + "\n\n".join(p.rendered for p in passages) + "\n</retrieved>" if passages else ""
