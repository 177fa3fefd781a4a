"""What a summary is: a text under headings, in the conversation's language, that rolls forward.

The headings are what DESIGN asks for. The same lines are written by the extraction and asked of a model, so that either
can build on what the other wrote.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from backstory.compaction.words import heading_of

Kind = Literal["goal", "rule", "fact", "task", "state", "said"]
"""Of a line: what is wanted · how it must be done · what holds or was decided · what is left to do · what tools did and
files are · what else was said."""
KINDS: tuple[Kind, ...] = get_args(Kind)

HEADINGS: Mapping[str, Mapping[Kind, str]] = {
    "en": {
        "goal": "Goal",
        "rule": "Rules",
        "fact": "Facts",
        "task": "To do",
        "state": "Tools",
        "said": "Other",
    },
    "zh": {
        "goal": "目标",
        "rule": "要求",
        "fact": "事实",
        "task": "待办",
        "state": "工具",
        "said": "其他",
    },
}
KEPT = {"en": "Kept word for word", "zh": "原文保留"}
WHOSE = {"en": "“I” is the user", "zh": "“我”是用户"}
"""Said above a summary that is shown: its sentences are often the user's own."""
SPEAKER = {"en": "Assistant: ", "zh": "助手："}
"""Stands before a sentence in which the assistant speaks of itself."""
_KIND_OF: dict[str, Kind] = {
    heading.lower(): kind for headings in HEADINGS.values() for kind, heading in headings.items()
}


def heads(heading: str) -> bool:
    """Whether a heading is one of a summary's own."""
    return heading.lower() in _KIND_OF or heading in KEPT.values()


def language_of_summary(text: str) -> str:
    """``zh`` or ``en``: what the headings of a summary are in."""
    return (
        "zh" if any(f"## {heading}" in text for heading in (*HEADINGS["zh"].values(), KEPT["zh"])) else "en"
    )


@dataclass(frozen=True, kw_only=True, slots=True)
class Summary:
    """`text` is what the model reads. `kept` are facts that it lacked, which the check appended word for word.

    `by` is who wrote it: ``extract``, or a model's name.
    """

    text: str
    kept: tuple[str, ...] = ()
    by: str = ""

    @property
    def rendered(self) -> str:
        """Text and kept facts, as the system block shows them."""
        if not self.kept:
            return self.text
        heading = KEPT[language_of_summary(self.text)]
        lines = "\n".join(f"- {fact}" for fact in self.kept)
        return f"{self.text}\n\n## {heading}\n{lines}".strip()

    def lines(self) -> Iterator[tuple[Kind, str]]:
        """Every line that says something, with its kind; kept facts are rules, since nobody else holds them."""
        yield from lines_of(self.text)
        for fact in self.kept:
            yield "rule", fact

    def to_json(self) -> dict[str, Any]:
        return {"text": self.text, "kept": list(self.kept), "by": self.by}

    @staticmethod
    def from_json(value: Mapping[str, Any]) -> Summary:
        """Raises `KeyError` for what is none."""
        return Summary(text=value["text"], kept=tuple(value["kept"]), by=value["by"])


def lines_of(text: str) -> Iterator[tuple[Kind, str]]:
    """The lines of a summary's text, each with the kind of the heading that it stands under."""
    kind: Kind = "fact"
    for line in text.splitlines():
        heading = heading_of(line)
        if heading:
            kind = _KIND_OF.get(heading.lower(), "rule" if heading in KEPT.values() else "fact")
        elif said := line.strip().removeprefix("- ").removeprefix("* ").strip():
            yield kind, said


def written(lines: Iterable[tuple[Kind, str]], language: str) -> str:
    """Lines under the headings of their kinds, in the order of `KINDS`; of one kind, in the order given."""
    found: dict[Kind, list[str]] = {}
    for kind, text in lines:
        found.setdefault(kind, []).append(f"- {text}")
    headings = HEADINGS[language]
    return "\n\n".join("\n".join([f"## {headings[kind]}", *found[kind]]) for kind in KINDS if kind in found)
