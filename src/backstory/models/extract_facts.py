"""Facts that people state about themselves: "my name is X", "我的预算是 500", and the questions that ask for them.

The newest statement wins. A fact is found by its attribute ("name", "dog's name", "favourite colour"), so that "my
dog's name is Rex" is no answer to "what is my name?".
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from backstory.compaction.words import stem, terms

_NAME = frozenset({"name"})
_CJK_STOP = r"[^,，。.!！?？;；、\s\n]"
_LATIN_NAME = r"[A-Z][\w'’-]*(?: (?:de|von|van|la|bin|[A-Z])[\w'’.-]*){0,3}"


@dataclass(frozen=True, kw_only=True, slots=True)
class Evidence:
    """One sentence of the request.

    `position` counts from the oldest; `role` is whose message it stood in; `heading` is what stands above it.
    """

    text: str
    position: int
    role: str
    source: str = ""
    heading: str = ""


@dataclass(frozen=True, kw_only=True, slots=True)
class Fact:
    """What somebody said of themselves: the words for the attribute, as they stood and as terms, and the value."""

    attribute: str
    terms: frozenset[str]
    value: str
    position: int


# A name, said in so many ways. The user's own words; what stands about the user in a memory or a summary below.
_NAMES = tuple(
    re.compile(pattern)
    for pattern in (
        (
            r"(?i:\bmy (?:full |first |new |real )?name(?: is|'s|’s| =|:)(?: now)?) ?[\"“']?"
            r"([^\s,.;!?\"”，。！？]+(?: [A-Z][\w'’-]+){0,3})"
        ),
        rf"(?i:\b(?:call me|i am called|i'm called|people call me|i go by)) [\"“']?({_LATIN_NAME})",
        rf"\bI(?: am|'m|’m) ({_LATIN_NAME})(?=\s*(?:[,.!;，。！]|$| and | from ))",
        r"我(?:现在)?(?:的名字(?:现在)?(?:是|叫)|叫做?|名叫|改名叫做?)\s*[“\"]?(?!什么|啥|你)([^,，。.!！?？;；、\s”\"]{1,20})",
        r"(?:请|就|可以)?叫我\s*(?!什么|啥|做|去|来)([^,，。.!！?？;；、\s就]{1,12})",
        r"我是([\u4e00-\u9fff]{2,3})(?=\s*[,，。！!;；]|\s*$)(?<![人员师家的生])",
    )
)
_NAMES_TOLD = tuple(
    re.compile(pattern)
    for pattern in (
        (
            r"(?i:\buser(?:'s|’s)? (?:full )?name(?: is|:)|\buser is (?:called|named)) ?[\"“']?"
            rf"({_LATIN_NAME}|[\u4e00-\u9fff]{{1,6}})"
        ),
        (
            r"^\s*[-*]?\s*(?:\*\*)?(?:[Nn]ame|姓名|名字|称呼)(?:\*\*)?\s*[:：]\s*(?:\*\*)?\s*"
            r"([^\s,，。;；]+(?: [A-Z][\w'’-]+){0,3})"
        ),
        r"用户(?:的名字是|名叫|叫做?|姓名是|姓名[:：])\s*([^,，。.!！?？;；、\s]{1,20})",
    )
)
_ASKS_NAME = re.compile(
    r"\bmy (?:full |first |real )?name\b|\bwho am i\b|\bhow am i called\b|\bwhat (?:do|should) you call me\b"
    r"|我(?:的名字|叫(?:什么|啥)|是谁|姓什么|姓名)|怎么称呼我",
    re.IGNORECASE,
)

_ATTRIBUTE = re.compile(
    r"\bmy ((?:[\w'’-]+ ){0,4}?[\w'’-]+?)(?: is| are| was|'s|’s| =|:)(?: now| actually| called)* (.{1,80}?)"
    r"(?=[.!?;，。！？\n](?:\s|$)|,? (?:and|but) (?:my|i|we)\b|$)",
    re.IGNORECASE,
)
_ATTRIBUTE_HAN = re.compile(
    r"我的?([\u4e00-\u9fffA-Za-z0-9_ ]{1,12}?)(?:现在|已经)?(?:是|为|叫|改成了?|变成了?|[:：=])\s*"
    rf"(?!什么|谁|哪|多少|几|啥)({_CJK_STOP}(?:[^,，。!！?？;；\n]{{0,40}}))"
)
_ASKED = re.compile(
    r"\bwhat(?:'s|’s| is| are| was| were)? (?:the )?(?:(?P<of>[\w'’ -]{1,40}?) of my (?P<whose>[\w'’ -]{1,40})"
    r"|my (?P<mine>[\w'’ -]{1,60}))|\bwh(?:at|ich|o|en|ere)(?:'s|’s| is| are| was)? my (?P<which>[\w'’ -]{1,60})"
    r"|\bmy (?P<last>[\w'’ -]{1,40})\?",
    re.IGNORECASE,
)
_ASKED_HAN = re.compile(
    r"我的?([\u4e00-\u9fffA-Za-z0-9_ ]{1,12}?)(?:现在)?(?:是|叫|为)?(?:什么|谁|哪|多少|几|啥)"
)
_FILLER = frozenset({"new", "current", "actual", "again", "now", "old"})


def asks_name(question: str) -> bool:
    """Whether somebody asks for their own name, and not for that of their dog."""
    if not _ASKS_NAME.search(question):
        return False
    wanted = asked_attribute(question)
    return wanted is None or wanted <= _NAME


def find_name(evidence: Sequence[Evidence]) -> str | None:
    """The user's name as it was said last."""
    found: tuple[int, str] | None = None
    for one in evidence:
        patterns = _NAMES if one.role == "user" else _NAMES_TOLD
        for pattern in patterns:
            for match in pattern.finditer(one.text):
                name = match.group(1).strip(" \"'“”*-").rstrip("吧啦哦啊呀了")
                if name and (found is None or one.position >= found[0]):
                    found = (one.position, name)
    return found[1] if found else None


def asked_attribute(question: str) -> frozenset[str] | None:
    """The terms of what is asked for of the user's own: "what is my dog's name" → dog, name."""
    match = _ASKED.search(question)
    if match:
        words = " ".join(filter(None, match.groups()))
        found = _attribute_terms(words)
        return found or None
    match = _ASKED_HAN.search(question)
    return (_attribute_terms(match.group(1).rstrip("叫是为")) or None) if match else None


def find_fact(evidence: Sequence[Evidence], wanted: frozenset[str]) -> Fact | None:
    """The fact with that attribute that was said last."""
    found: Fact | None = None
    for one in evidence:
        if one.role != "user":
            continue
        for pattern in (_ATTRIBUTE, _ATTRIBUTE_HAN):
            for match in pattern.finditer(one.text):
                attribute, value = match.group(1).strip(), match.group(2).strip(" \"'“”。.,，")
                held = _attribute_terms(attribute)
                if held == wanted and value and (found is None or one.position >= found.position):
                    found = Fact(attribute=attribute, terms=held, value=value, position=one.position)
    return found


def _attribute_terms(words: str) -> frozenset[str]:
    return frozenset(term for term in terms(words) if term not in {stem(word) for word in _FILLER})
