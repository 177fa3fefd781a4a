"""The sentences that a summary may be made of: each with its kind, its weight, and what it gives values to.

A later sentence that gives another value to the same thing takes the earlier one's place: the newest value wins.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from backstory.compaction.closed import CLASSES
from backstory.compaction.signs import (
    CHANGE,
    DECISION,
    LABEL,
    NOTE,
    OUTCOME,
    REFERS,
    RULE,
    STANDING,
    TASK,
    about,
    is_open_question,
    values,
)
from backstory.compaction.slots import concepts, environments, given, roots, scopes, types
from backstory.compaction.summary import Kind, Summary
from backstory.compaction.words import is_greeting, is_question, is_thanks, sentences, words_of
from backstory.legality.arguments import clean_text
from backstory.messages import Message, Part, Text, ToolCall, ToolResult, texts

LONGEST = 600
"""Characters of one sentence: of more, the beginning and the end."""
_LINES = 12
"""Lines of one tool result that are looked at as sentences: the telling ones."""
_BACK = 8
"""So many sentences back may lie what "it" refers to."""
_SAME = 0.75
_NEAR = 0.5

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
    concepts: frozenset[str]
    scopes: frozenset[str]
    places: frozenset[str]
    changes: bool = False


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
            for sentence in sentences(words_of(part.text)):
                if not is_greeting(sentence) and not is_thanks(sentence):
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
    rule, task, change = bool(RULE.search(text)), bool(TASK.search(text)), bool(CHANGE.search(text))
    decision, outcome = bool(DECISION.search(text)), bool(OUTCOME.search(text))
    weight = _WEIGHTS.get(role, 0.0) + 0.5 * min(len(found), 4)
    weight += (
        2.5 * rule
        + 1.5 * bool(STANDING.search(text))
        + 1.5 * change
        + 1.0 * task
        + 0.8 * decision
        + 0.8 * outcome
    )
    if role != "user" and role != "before":
        weight *= 0.5  # what matters in these words, the user says or the log holds
    if is_open_question(text) or (is_question(text) and role == "user"):
        weight *= 0.3
    if len(subject) + len(found) < 2 or NOTE.match(text):
        weight *= 0.3
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
        concepts=concepts(text),
        scopes=scopes(text),
        places=environments(text),
        changes=change,
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
            *(f"#{concept}" for concept in one.concepts),
            *roots(one.values),
        ):
            places = by_term.setdefault(term, [])
            for place in places[-64:]:  # a word that is everywhere tells nothing
                shared[place] = shared.get(place, 0) + 1
            places.append(number)
        if REFERS.match(one.text):
            shared.update(dict.fromkeys(list(kept)[-_BACK:], 0))
        older = [kept[place] for place in sorted(shared) if place in kept]
        if any(repeats(one, other) for other in older):
            continue
        gone = superseded(one, older)
        for place in shared:
            other = kept.get(place)
            if other is not None and (other in gone or repeats(other, one)):
                del kept[place]
        kept[number] = one
    return [kept[number] for number in sorted(kept)]


def repeats(one: Candidate, other: Candidate) -> bool:
    """Whether a sentence says nothing that another does not say."""
    return (
        one.values <= other.values
        and bool(one.about)
        and len(one.about & other.about) >= max(1, round(0.9 * len(one.about)))
        and one.weight <= other.weight
    )


def superseded(newer: Candidate, older: Sequence[Candidate]) -> list[Candidate]:
    """Which of the older sentences are out of date, since the newer one gives another value to what they are about.

    Those that share nearly all words with it; and of those that it may be a change of, the one that it is likest to: a
    sentence changes one thing.
    """
    found = [one for one in older if _gives_another(newer, one)]
    gone = [one for one in found if _likeness(newer, one) >= _SAME]
    changed = [one for one in found if one not in gone and _may_change(newer, one)]
    if changed and not gone:
        gone = [max(changed, key=lambda one: (_kinship(newer, one), one.position))]
    return gone


def _gives_another(newer: Candidate, older: Candidate) -> bool:
    if (
        newer.role in ("tool", "before") or older.role == "tool"
    ):  # what stood in one summary was compared before
        return False
    if not older.values or newer.values >= older.values:
        return False
    if newer.role == "assistant" and older.role != "assistant" and not newer.changes:
        return False
    return bool(newer.values) and not _elsewhere(newer, older)


def _likeness(one: Candidate, other: Candidate) -> float:
    return len(one.about & other.about) / (len(one.about | other.about) or 1)


def _kinship(newer: Candidate, older: Candidate) -> int:
    """Words that two sentences share; those that are not the concept's own tell twice as much."""
    shared = newer.about & older.about
    return 2 * len(shared) - len([word for word in shared if concepts(word)])


def _may_change(newer: Candidate, older: Candidate) -> bool:
    """Whether a sentence may tell of a change of what another says: the values are of a kind, the subject is one.

    Without a word of change only what is of a closed class (a tone, a language) takes another's place.
    """
    new, old = newer.values - older.values, older.values - newer.values
    kinds = types(new) & types(old)
    named = newer.concepts & older.concepts
    if not newer.changes:
        return bool(kinds & CLASSES.keys() & given(named))
    shared = len(newer.about & older.about)
    if roots(new) & roots(old) or kinds & given(named):
        return True
    telling = kinds - {"word", "number", "mark", "path"}
    return (bool(telling) and (shared >= 1 or bool(REFERS.match(newer.text)))) or (
        bool(kinds - {"word"}) and shared >= 2 and shared >= _NEAR * len(newer.about)
    )


def _elsewhere(one: Candidate, other: Candidate) -> bool:
    if one.places and other.places and not one.places & other.places:
        return True
    return bool(one.scopes and other.scopes and not one.scopes & other.scopes and not one.changes)
