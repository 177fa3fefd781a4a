"""Standing instructions: what a user says once and means from then on. Recognised, and offered to be pinned."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from backstory.compaction.signs import RULE, STANDING, is_open_question
from backstory.compaction.words import sentences, words_of
from backstory.messages import Message, Text

_LONGEST = 400
"""Characters: what is longer is a text that somebody pasted."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Standing:
    """An instruction in the user's words. `index` is the message's in the list that was given."""

    text: str
    index: int


def standing(messages: Sequence[Message]) -> list[Standing]:
    """The standing instructions of the user's messages, in order; said twice, the later one."""
    found: dict[str, Standing] = {}
    for index, message in enumerate(messages):
        if message.role != "user":
            continue
        for part in message.parts:
            if isinstance(part, Text):
                for sentence in sentences(words_of(part.text)):
                    if _is_standing(sentence):
                        found.pop(sentence, None)
                        found[sentence] = Standing(text=sentence, index=index)
    return list(found.values())


def _is_standing(sentence: str) -> bool:
    return (
        len(sentence) <= _LONGEST
        and bool(STANDING.search(sentence))
        and bool(RULE.search(sentence))
        and not is_open_question(sentence)
    )
