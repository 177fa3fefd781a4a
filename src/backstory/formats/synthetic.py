"""The words of a result that no tool gave, so that one read back from a plain list is known for what it is.

`backstory.legality.repair` writes these texts, the readers recognise them. A plain list has no field for it, so
the text itself must say it; no tool would answer with exactly one of these sentences.
"""

from __future__ import annotations

from collections.abc import Sequence

from backstory.messages import Part, Synthetic, Text

NOT_STARTED_TEXT = "[This call was interrupted before it started; it had no effect.]"
OUTCOME_UNKNOWN_TEXT = (
    "[This call was interrupted; its outcome is unknown: it may or may not have taken effect.]"
)

SO_FAR = "What it had told until then:"
"""After this line stands what a call had told of its work before it was interrupted."""

NO_ANSWER_TEXT = "[no answer]"
"""An assistant's words where a strict target asks for some and there are none."""

SYNTHETIC_TEXTS: dict[Synthetic, str] = {
    "not_started": NOT_STARTED_TEXT,
    "outcome_unknown": OUTCOME_UNKNOWN_TEXT,
}
_BY_TEXT: dict[str, Synthetic] = {text: kind for kind, text in SYNTHETIC_TEXTS.items()}


def synthetic_text(kind: Synthetic, so_far: str = "") -> str:
    """The words of a synthetic result, with what its call had told of its work."""
    return f"{SYNTHETIC_TEXTS[kind]}\n{SO_FAR}\n{so_far}" if so_far else SYNTHETIC_TEXTS[kind]


def synthetic_of(text: str) -> Synthetic | None:
    """Which synthetic result a result's whole text is; `None` for a real one's."""
    return _BY_TEXT.get(text.partition(f"\n{SO_FAR}\n")[0])


def synthetic_content(content: Sequence[Part]) -> Synthetic | None:
    """The same for a result's content: only a single text can be synthetic."""
    if len(content) == 1:
        (part,) = content
        if isinstance(part, Text):
            return synthetic_of(part.text)
    return None
