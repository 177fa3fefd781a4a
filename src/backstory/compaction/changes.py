"""Whether what is said later gives another value to what was said before: then the newest value wins.

Two sentences are of one thing where they share their subject and nothing sets them apart; the later one is a change
where both give it a value of one kind. A word of change ("moved", "改成") lowers what must be shared. Where another
word stands before the same noun ("the upload limit", "the download limit") they are two things, and both stay.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from backstory.compaction.closed import CLASSES
from backstory.compaction.signs import (
    CHANGE,
    CODE,
    LABEL,
    REFERS,
    TURN,
    VALUE,
    is_open_question,
    said_to_be,
    values,
    without_values,
)
from backstory.compaction.slots import concepts, environments, given, roots, scopes, types
from backstory.compaction.words import has_meaning, stem

SAME = 0.75
"""Share of two sentences' words from which on they are one sentence with other values."""
ALIKE = 0.5
"""From which on they are built alike."""
_LONGEST = 10
"""Words: a longer sentence tells of more than one thing, and is compared with none."""
_VAGUE = frozenset({"number", "mark", "path", "word"})
"""Kinds of values that many things have: alone they do not show that two sentences are about one."""
_WHEN = frozenset({"date", "clock"})
"""Kinds that are told together: "Monday at 3pm"."""
_WEAK_WORDS = (
    "want need take get got give given use using make go gone come try see put keep set tell think only also just "
    "really more less today new old current former previous last like good much many actually instead after before "
    "already soon maybe onto into over under until than move change switch start write cost called named"
)
_WEAK = frozenset(map(stem, _WEAK_WORDS.split()))
"""Words that do not tell which thing is meant."""
_WORD = re.compile(r"[A-Za-z][\w'’-]*|[^\s\w]")
_MEASURED = re.compile(
    r"(?<![\w.])[\d.,]*\d\s?%?\s?([a-z]{3,})(?: ([a-z]{3,}))?|[\d一二三四五六七八九十百千万两]\s?([\u3400-\u9fff])"
)
_HAN = re.compile(r"[\u3400-\u9fff]+")
_CLAUSE = "，"
_UNIT = re.compile(r"(?<=[\d一二三四五六七八九十百千万两])\s?[\u3400-\u9fff]{1,3}(?=[^\u3400-\u9fff\w]|$)")
"""What a number at the end of a clause counts."""
_BECOMING = frozenset("到成为改换调升降涨移搬迁由归")
"""Characters of verbs of change, as they stand before a value."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Claim:
    """A sentence as it is compared."""

    values: frozenset[str]
    complements: frozenset[str]
    """What a verb of being or becoming says of the subject, where it has no shape of a value's: "cream", "成都"."""
    about: frozenset[str]
    """Latin words that tell which thing is meant."""
    words: frozenset[str]
    """Those, and the words of complements."""
    size: int
    """How many words it has; two Chinese characters count as one."""
    han: str
    """Chinese clauses, their values taken out."""
    measured: frozenset[str]
    """Nouns that a number stands before."""
    before: Mapping[str, frozenset[str]]
    """The words before each noun."""
    concepts: frozenset[str]
    scopes: frozenset[str]
    places: frozenset[str]
    changes: bool
    turns: bool
    """It has a verb that says outright that something changed."""
    refers: bool


def claim(text: str, about: frozenset[str]) -> Claim | None:
    """`about` is what the sentence is about, its values left out (`signs.about`). `None` for what claims nothing of one
    thing: a question, a line of a program, a sentence of many words.
    """
    if is_open_question(text) or CODE.search(text):
        return None
    text = LABEL.sub("", text)
    complements = said_to_be(text)
    rest = about - frozenset(stem(word) for said in complements for word in said.split())
    latin = frozenset(word for word in rest if word.isascii() and word not in _WEAK)
    han = _chinese(text, complements)
    size = len(latin) + sum(map(has_meaning, han.replace(_CLAUSE, ""))) // 2
    held = values(text)
    if size > _LONGEST or not (held or complements):
        return None
    return Claim(
        words=about,
        values=held,
        complements=complements,
        about=latin,
        size=size,
        han=han,
        measured=frozenset(
            stem(word) for match in _MEASURED.finditer(text) for word in match.groups() if word
        ),
        before=_before(VALUE.sub(", ", text)),
        concepts=concepts(text),
        scopes=scopes(text),
        places=environments(text),
        changes=bool(CHANGE.search(text)),
        turns=bool(TURN.search(text)),
        refers=bool(REFERS.match(text)),
    )


def _chinese(text: str, complements: frozenset[str]) -> str:
    for said in complements:
        text = text.replace(said, _CLAUSE)
    return _CLAUSE.join(_HAN.findall(without_values(_UNIT.sub(_CLAUSE, text))))


def is_update(newer: Claim, older: Claim) -> bool:
    """Whether the later of two sentences gives another value to what the earlier one is about."""
    new, old = newer.values - older.values, older.values - newer.values
    kinds = types(new) & types(old)
    if not kinds and not (newer.complements and older.complements) and not roots(new) & roots(old):
        return False
    if set_apart(newer, older):
        return False
    shared, least = _shared(newer, older)
    near = shared > 0 and 2 * shared >= least
    if newer.changes:
        named = newer.concepts & older.concepts
        if roots(new) & roots(old) or (kinds & given(named) and (newer.turns or shared or newer.refers)):
            return True
        if kinds - _VAGUE and (near or newer.refers or (newer.turns and shared)):
            return True
        if kinds and near:
            return True
        if not (newer.complements - older.complements and older.complements):
            return False
        if newer.turns:
            return likeness(newer, older) >= ALIKE or "word" in given(named)
        # 现在是 names what holds the place now; "is now" may add a second quality
        return bool(newer.han) and shared == least > 0 and likeness(newer, older) >= ALIKE
    if kinds & CLASSES.keys() & given(newer.concepts & older.concepts):
        return True
    if not kinds or _many(new) or _many(old):
        return False
    if kinds == {"word"}:
        return False
    measured = newer.measured & older.measured
    shared -= len(measured & newer.about & older.about)
    return near and shared + bool(measured) >= 2 and shared >= 1


def likeness(newer: Claim, older: Claim) -> float:
    """How much of what two sentences say is the same, values left out, from 0 to 1."""
    shared, _ = _shared(newer, older)
    return min(1.0, shared / (max(newer.size, older.size) or 1))


def kinship(newer: Claim, older: Claim) -> int:
    """Words that two sentences share; those that are not a concept's own tell twice as much."""
    shared = newer.about & older.about
    return (
        2 * len(shared)
        - len([word for word in shared if concepts(word)])
        + sum(len(run) for run in _runs(newer.han, older.han))
    )


def set_apart(newer: Claim, older: Claim) -> bool:
    """Whether two sentences are of two things: other places, or another word before the same noun.

    Where what stands there is all that differs in value, and the later sentence tells of a change, it is what changed.
    """
    if newer.places and older.places and not newer.places & older.places:
        return True
    if newer.scopes and older.scopes and not newer.scopes & older.scopes and not newer.changes:
        return True
    if not newer.changes and _parallel(newer, older):
        return True
    keys = frozenset(_contrast(newer, older))
    if not keys:
        return False
    new = newer.values - older.values - keys
    old = older.values - newer.values - keys
    return not newer.changes or bool(types(new) & types(old))


def _parallel(newer: Claim, older: Claim) -> bool:
    """Whether two sentences are built alike and each has a word of its own: what they say holds of two things."""
    mine, theirs = newer.about - older.about, older.about - newer.about
    return bool(mine and theirs) and likeness(newer, older) >= ALIKE


def _many(values: frozenset[str]) -> bool:
    """Whether values are more than one; a day and its hour are one. Of two one is a key: "Chapter 4 has 31 pages"."""
    return len(values) > 1 and not types(values) <= _WHEN


def _shared(one: Claim, other: Claim) -> tuple[int, int]:
    """How many words two sentences share, values among them, and how many the shorter one has; two Chinese characters
    in a row count as one.
    """
    runs = sum(len(run) // 2 for run in _runs(one.han, other.han))
    shared = len(one.about & other.about) + len(one.values & other.values) + runs
    return shared, min(one.size, other.size)


def _runs(one: str, other: str) -> Iterator[str]:
    """The pieces of two characters and more that stand in both."""
    at = 0
    while at + 1 < len(one):
        stop = at
        while stop < len(one) and one[stop] != _CLAUSE and one[at : stop + 1] in other:
            stop += 1
        if stop - at >= 2 and any(map(has_meaning, one[at:stop])):
            yield one[at:stop]
        at = max(at + 1, stop)


def _before(text: str) -> dict[str, frozenset[str]]:
    found: dict[str, set[str]] = {}
    last = ""
    for word in _WORD.findall(text):
        named = stem(word) if word[0].isalpha() and has_meaning(word.lower()) else ""
        if named in _WEAK:
            named = ""
        if named and last:
            found.setdefault(named, set()).add(last)
        last = named
    return {noun: frozenset(words) for noun, words in found.items()}


def _contrast(newer: Claim, older: Claim) -> Iterator[str]:
    """The words that stand before what both share, each in one of the two alone."""
    for noun in newer.before.keys() & older.before.keys():
        mine, theirs = newer.before[noun], older.before[noun]
        if not (mine & older.words or theirs & newer.words or mine & theirs):
            yield from mine | theirs
    for run in _runs(newer.han, older.han):
        mine_, theirs_ = _leading(newer.han, run), _leading(older.han, run)
        if mine_ and theirs_ and mine_ not in older.han and theirs_ not in newer.han:
            yield mine_
            yield theirs_


def _leading(han: str, run: str) -> str:
    """The two characters before a piece, in its clause; none where they are no noun's."""
    found = han[: han.index(run)].rpartition(_CLAUSE)[2][-2:]
    return found if all(one not in _BECOMING and has_meaning(one) for one in found) else ""
