"""The sentences that a summary may be made of: each with its kind, its weight, and what it gives values to.

A later sentence that gives another value to the same thing takes the earlier one's place: the newest value wins.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from backstory.compaction.changes import ALIKE, SAME, Claim, claim, is_update, kinship, likeness
from backstory.compaction.signs import (
    CHANGE,
    CODE,
    DECISION,
    LABEL,
    MUSING,
    NOTE,
    OPENING,
    OUTCOME,
    PROHIBITION,
    REFERS,
    RULE,
    STANDING,
    TASK,
    about,
    is_open_question,
    values,
)
from backstory.compaction.slots import roots
from backstory.compaction.summary import Kind, Summary
from backstory.compaction.words import heading_of, is_greeting, is_question, is_thanks, sentences, words_of
from backstory.legality.arguments import clean_text
from backstory.messages import Message, Part, Text, ToolCall, ToolResult, texts

LONGEST = 600
"""Characters of one sentence: of more, the beginning and the end."""
_LINES = 12
"""Lines of one tool result that are looked at as sentences: the telling ones."""
_BACK = 8
"""So many sentences back may lie what "it" refers to."""

_FENCED = re.compile(r"```.*?(?:```|\Z)", re.DOTALL)
_WEIGHTS: Mapping[str, float] = {"user": 1.5, "assistant": 0.5, "tool": 0.0, "before": 2.5}


@dataclass(frozen=True, kw_only=True, slots=True)
class Candidate:
    """`position` counts messages from the oldest, -1 for the summary before; `weight` is how much it matters."""

    text: str
    kind: Kind
    position: int
    role: str
    weight: float
    values: frozenset[str]
    about: frozenset[str]
    claim: Claim | None
    """`None` for what makes none: lines of tools and programs, and words without a value."""


def candidates(messages: Sequence[Message], previous: Summary | None = None) -> list[Candidate]:
    """All of them, oldest first; said again, once; superseded, not at all."""
    found: list[Candidate] = []
    if previous is not None:
        found += [_candidate(text, -1, "before", kind) for kind, text in previous.lines()]
    said = [
        index for index, message in enumerate(messages) if message.role == "user" and message.text.strip()
    ]
    for index, message in enumerate(messages):
        for role, text in _texts(message):
            one = _candidate(text, index, role)
            if said and index == said[-1] and role == "user":
                one = replace(one, weight=one.weight + 4, kind=_first(one.kind, "task"))
            elif said and index == said[0] and role == "user" and previous is None:
                one = replace(one, weight=one.weight + 1.5, kind=_first(one.kind, "goal"))
            if one.weight > 0:
                found.append(one)
    return _newest(found)


def _first(kind: Kind, other: Kind) -> Kind:
    return other if kind == "said" else kind


def _texts(message: Message) -> Iterator[tuple[str, str]]:
    """The sentences of a message, each with who says it."""
    role = message.role if message.role in ("user", "tool") else "assistant"
    for part in message.parts:
        if isinstance(part, Text):
            said = words_of(part.text)
            if role == "assistant":  # programs that it wrote are no facts, and long
                said = _FENCED.sub("\n", said)
            for sentence in sentences(said):
                if not (is_greeting(sentence) or is_thanks(sentence) or heading_of(sentence)):
                    yield role, _short(sentence)
        elif isinstance(part, ToolCall):
            yield "tool", _short(f"{part.name}({part.arguments.strip()})")
        elif isinstance(part, ToolResult):
            yield from (("tool", line) for line in _telling(part))
        elif label := _label(part):
            yield role, label


def _label(part: Part) -> str:
    kind = type(part).__name__.lower()
    return f"[{kind}]" if kind in ("image", "audio", "file") else ""


def _telling(result: ToolResult) -> list[str]:
    """The lines of a result that say how it went: failures and outcomes, else its first."""
    lines = [line.strip() for line in texts(result.content).splitlines() if line.strip()]
    telling = [line for line in lines if OUTCOME.search(line)] or lines[:2]
    named = f"{result.name}: " if result.name else ""
    return [_short(named + line) for line in telling[:_LINES]]


def _short(text: str) -> str:
    line = clean_text(" ".join(text.split()))
    if len(line) <= LONGEST:
        return line
    return f"{line[: LONGEST * 2 // 3]} … {line[-LONGEST // 3 :]}"


def _candidate(text: str, position: int, role: str, kind: Kind | None = None) -> Candidate:
    found, subject = values(text), about(text)
    change, users = bool(CHANGE.search(text)), role in ("user", "before")
    opening = users and bool(OPENING.match(text))
    musing = users and not opening and bool(MUSING.search(text))
    rule, standing = opening, opening
    if users and not musing:  # advice of the assistant's is no rule
        rule, standing = opening or bool(RULE.search(text)), opening or bool(STANDING.search(text))
    task = bool(TASK.search(text))
    decision, outcome = bool(DECISION.search(text)), bool(OUTCOME.search(text))
    weight = _WEIGHTS.get(role, 0.0) + 0.5 * min(len(found), 4)
    weight += 2.5 * rule + 1.5 * standing + 1.5 * change + 1.0 * task + 0.8 * decision + 0.8 * outcome
    if role != "user" and role != "before":
        weight *= 0.5  # what matters in these words, the user says or the log holds
    if is_open_question(text) or (is_question(text) and role == "user"):
        weight *= 0.3
    if len(subject) + len(found) < 2 or NOTE.match(text) or (role != "before" and CODE.search(text)):
        weight *= 0.3
    if musing:
        weight *= 0.5
    weight += 1.5 * bool(LABEL.match(text))
    if kind is None:
        kind = _kind(role, rule=rule, task=task, decided=change or decision or bool(found))
    return Candidate(
        text=text,
        kind=kind,
        position=position,
        role=role,
        weight=weight,
        values=found,
        about=subject,
        claim=None if role == "tool" else claim(text, subject),
    )


def _kind(role: str, *, rule: bool, task: bool, decided: bool) -> Kind:
    if role == "tool":
        return "state"
    if rule and role == "user":
        return "rule"
    if task:
        return "task"
    return "fact" if decided else "said"


# --- the newest value wins -------------------------------------------------------------------


def _newest(found: Sequence[Candidate]) -> list[Candidate]:
    """Without what was said again or superseded. Compared by the words that they share, so that it stays quick."""
    kept: dict[int, Candidate] = {}
    by_term: dict[str, list[int]] = {}
    exact: dict[str, int] = {}
    for number, one in enumerate(found):
        before = exact.get(one.text)
        if before is not None:
            held = kept.pop(before, one)
            one = replace(one, weight=max(one.weight, held.weight), kind=held.kind)
        exact[one.text] = number
        shared: dict[int, int] = {}
        for term in (
            *one.about,
            *one.values,
            *(f"#{concept}" for concept in (one.claim.concepts if one.claim else ())),
            *roots(one.values),
        ):
            places = by_term.setdefault(term, [])
            for place in places[-64:]:  # a word that is everywhere tells nothing
                shared[place] = shared.get(place, 0) + 1
            places.append(number)
        if REFERS.match(one.text):
            shared.update(dict.fromkeys(list(kept)[-_BACK:], 0))
        older = [kept[place] for place in sorted(shared) if place in kept]
        if any(
            repeats(one, kept[place])
            for place, words in shared.items()
            if place in kept and _most(one, words)
        ):
            continue
        gone = superseded(one, older)
        for place, words in shared.items():
            other = kept.get(place)
            if other is not None and (other in gone or (_most(other, words) and repeats(other, one))):
                del kept[place]
        kept[number] = one
    return [kept[number] for number in sorted(kept)]


def _most(one: Candidate, words: int) -> bool:
    """Whether so many words are nearly all that a sentence is about."""
    return words >= max(1, round(0.9 * len(one.about)))


def repeats(one: Candidate, other: Candidate) -> bool:
    """Whether a sentence says nothing that another does not say."""
    return (
        one.values <= other.values
        and bool(one.about)
        and _most(one, len(one.about & other.about))
        and one.weight <= other.weight
    )


def superseded(newer: Candidate, older: Sequence[Candidate]) -> list[Candidate]:
    """Which of the older sentences are out of date, since the newer one gives another value to what they are about.

    Those that share nearly all words with it; of the others the one that it is likest to: a sentence changes one thing.
    What the assistant says takes no value of the user's back, and what stood in one summary was compared before.
    """
    if newer.claim is None or newer.role == "before":
        return []
    gone: list[Candidate] = []
    nearest: tuple[int, int, Candidate] | None = None
    for one in older:
        if one.claim is None or (newer.role == "assistant" != one.role):
            continue
        if not is_update(newer.claim, one.claim):
            continue
        alike = likeness(newer.claim, one.claim)
        if one.role == "assistant" and alike < ALIKE:
            continue
        if alike < SAME and newer.kind != "rule" and PROHIBITION.match(one.text):
            continue  # "no meeting on a Wednesday" is not changed by a meeting that moves
        if alike >= SAME:
            gone.append(one)
        elif nearest is None or (kinship(newer.claim, one.claim), one.position) >= nearest[:2]:
            nearest = (kinship(newer.claim, one.claim), one.position, one)
    return gone or ([nearest[2]] if nearest is not None else [])
