"""A summary without a model: the sentences that matter most, word for word, as many as there is room for.

It holds the place where no model is at hand, or the model failed. The same input gives the same summary.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from backstory.compaction.candidates import Candidate, candidates
from backstory.compaction.summary import HEADINGS, KEPT, SPEAKER, Kind, Summary, written
from backstory.compaction.words import is_chinese, terms
from backstory.messages import Message

BY = "extract"
_LINE = 3
"""Tokens that a line takes besides its words: its mark and its end."""
_TOPIC = 3.0
"""Weight of what somebody asked to be kept."""
_ITSELF = re.compile(r"\bI\b|\b[Mm]y\b|\bme\b|我")


def extract(
    messages: Sequence[Message],
    *,
    tokens: int,
    count: Callable[[str], int],
    previous: Summary | None = None,
    keep: Sequence[str] = (),
    topic: str = "",
) -> Summary:
    """The summary of messages in at most `tokens` tokens, building on the `previous` one.

    `keep` are texts that stay word for word, as far as there is room for them; sentences about `topic` are favoured.
    Without room for anything the text is empty.
    """
    found = candidates(messages, previous)
    wanted = terms(topic)
    if wanted:
        found = [replace(one, weight=one.weight + _TOPIC * _share(one, wanted)) for one in found]
    language = language_of(messages, previous)
    found = [
        replace(one, text=SPEAKER[language] + one.text)
        if one.role == "assistant" and _ITSELF.search(one.text)
        else one
        for one in found
    ]
    headings = {kind: count(f"## {heading}\n\n") for kind, heading in HEADINGS[language].items()}
    room = tokens - (count(f"## {KEPT[language]}\n\n") if keep else 0)
    kept = []
    for text in dict.fromkeys(line for line in map(_line, keep) if line):
        if (size := count(text) + _LINE) <= room:
            kept.append(text)
            room -= size
    chosen = _chosen([one for one in found if one.text not in kept], room, headings, count)
    while True:
        made = Summary(
            text=written(((one.kind, one.text) for one in chosen), language), kept=tuple(kept), by=BY
        )
        if count(made.rendered) <= tokens:
            return made
        if chosen:  # tokens of lines do not add up to the letter
            chosen.remove(min(chosen, key=lambda one: one.weight))
        elif kept:
            kept.pop()
        else:
            return Summary(text="", by=BY)


def _line(text: str) -> str:
    return " ".join(text.split())


def _share(one: Candidate, wanted: frozenset[str]) -> float:
    return len(wanted & terms(one.text)) / len(wanted)


def language_of(messages: Sequence[Message], previous: Summary | None = None) -> str:
    """``zh`` or ``en``: what most of the user's messages are in; where there are none, what went before is in."""
    said = [
        is_chinese(message.text) for message in messages if message.role == "user" and message.text.strip()
    ]
    if said:
        return "zh" if 2 * sum(said) > len(said) else "en"
    return "zh" if previous is not None and is_chinese(previous.text) else "en"


def _chosen(
    found: Sequence[Candidate], room: int, headings: Mapping[Kind, int], count: Callable[[str], int]
) -> list[Candidate]:
    """What weighs most for its length, newer before older where equal; in the order in which it was said."""
    sizes = [count(one.text) + _LINE for one in found]
    ranked = sorted(
        range(len(found)), key=lambda n: (-found[n].weight / math.sqrt(sizes[n]), -found[n].position)
    )
    taken: set[int] = set()
    opened: set[Kind] = set()
    for number in ranked:
        kind = found[number].kind
        size = sizes[number] + (headings[kind] if kind not in opened else 0)
        if size <= room:
            taken.add(number)
            opened.add(kind)
            room -= size
    return [found[number] for number in sorted(taken)]
