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

NO_ANSWER_TEXT = "[no answer]"
"""An assistant's words where a strict target asks for some and there are none."""

SYNTHETIC_TEXTS: dict[Synthetic, str] = {
    "not_started": NOT_STARTED_TEXT,
    "outcome_unknown": OUTCOME_UNKNOWN_TEXT,
}
_BY_TEXT: dict[str, Synthetic] = {text: kind for kind, text in SYNTHETIC_TEXTS.items()}


def synthetic_of(text: str) -> Synthetic | None:
    """Which synthetic result a result's whole text is; `None` for a real one's."""
    return _BY_TEXT.get(text)


def synthetic_content(content: Sequence[Part]) -> Synthetic | None:
    """The same for a result's content: only a single text can be synthetic."""
    if len(content) == 1:
        (part,) = content
        if isinstance(part, Text):
            return _BY_TEXT.get(part.text)
    return None
