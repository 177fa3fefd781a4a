"""Finds the sentence of a request that fits a question best: shared words by how rare they are, the kind of question,
who said it, and how new it is. Where two fit alike, the newer one wins: values change.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Sequence

from backstory.compaction.words import is_chinese, is_question, terms
from backstory.models.extract_facts import Evidence, asked_attribute, asks_name, find_fact, find_name

_ENOUGH = 0.34
"""How much of a question's weight a sentence must hold to be an answer at all."""
_LONGEST = 300
_ROLES = {"user": 1.0, "tool": 1.0, "system": 0.9, "developer": 0.9, "assistant": 0.75}

_DATE = (
    r"\d{4}-\d\d|\d{1,2}:\d\d|\d{1,2}月|\d{1,2}[日号]|星期|周[一二三四五六日天]|今天|明天|昨天|上午|下午"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)[a-z]*\b"
    r"|\btoday\b|\btomorrow\b|\byesterday\b|\bnoon\b|\b\d{1,2} ?[ap]m\b|\b(?:19|20)\d\d\b"
)
# A kind of question, and what a sentence that answers it has.
_KINDS: tuple[tuple[re.Pattern[str], re.Pattern[str]], ...] = tuple(
    (re.compile(asked, re.IGNORECASE), re.compile(given, re.IGNORECASE))
    for asked, given in (
        (r"\bversions?\b|版本", r"\d+\.\d+"),
        (
            (
                r"\bhow (?:many|much|long|old|far|big|often)\b|多少|几[个次天年岁本人位]|多久|多大"
                r"|\bport\b|端口|\bbudget\b|预算"
            ),
            r"\d|[一二三四五六七八九十百千万]",
        ),
        (
            r"\bwhen\b|\bwhat (?:time|day|date|year)\b|什么时候|几点|哪天|哪一天|日期|时间|\bdeadline\b|截止",
            _DATE,
        ),
        (
            r"\bwhere\b|哪里|哪儿|\bwhich (?:city|country|place)\b|哪个城市",
            r"\b(?:in|at|on|from|near|to) [A-Z]|在|去|到|住|位于",
        ),
        (r"\bwho(?:se|m)?\b|是谁|谁", r"\b[A-Z][a-z]+\b|是|叫"),
        (r"\be-?mail\b|邮箱|邮件", r"\S@\S"),
        (r"\b(?:url|link|website)\b|网址|链接", r"https?://"),
        (r"\bwhy\b|为什么|原因", r"\b(?:because|since|due to|so that)\b|因为|由于|所以"),
    )
)
_KEY = re.compile(r"^\W*([\w .\-]{1,40}?)\"?\s*[=:：]\s*\S")
"""A line that gives a key its value: where the question asks for just that key, it is the answer."""
# What a question means by its words, in the words of files.
_MEANT: tuple[tuple[re.Pattern[str], frozenset[str]], ...] = (
    (
        re.compile(
            r"python\W*(?:version|版本)|(?:version|版本)\W*(?:of|的)?\W*python|哪个\W*python", re.IGNORECASE
        ),
        terms("requires-python"),
    ),
)


def answer(question: str, evidence: Sequence[Evidence]) -> str | None:
    """The answer to one question, from the evidence alone; `None` where nothing fits."""
    chinese = is_chinese(question)
    if asks_name(question):
        name = find_name(evidence)
        if name is not None:
            return f"你叫{name}。" if chinese else f"Your name is {name}."
        return None
    wanted = asked_attribute(question)
    if wanted is not None:
        fact = find_fact(evidence, wanted)
        if fact is not None:
            return (
                f"你的{fact.attribute}是{fact.value}。"
                if chinese
                else f"Your {fact.attribute} is {fact.value}."
            )
    found = best(question, evidence)
    return None if found is None else shown(found)


def shown(one: Evidence) -> str:
    """A sentence as an answer: as it stands, and where it stood, if that was a tool's result."""
    text = one.text if len(one.text) <= _LONGEST else f"{one.text[:_LONGEST]} …"
    return f"{text} ({one.source})" if one.source else text


def best(question: str, evidence: Sequence[Evidence]) -> Evidence | None:
    """The sentence that fits best, or `None`."""
    asked = terms(question)
    for pattern, more in _MEANT:
        if pattern.search(question):
            asked |= more
    if not asked or not evidence:
        return None
    held = [terms(one.text) for one in evidence]
    often = Counter(term for one in held for term in one & asked)
    weight = {term: math.log(1 + len(evidence) / (1 + often[term])) for term in asked}
    total = sum(weight.values()) or 1.0
    known = sum(weight[term] for term in asked if often[term]) or total
    given = [pattern for wanted, pattern in _KINDS if wanted.search(question)]
    newest = max(one.position for one in evidence) or 1
    found: tuple[float, int] | None = None
    for number, (one, words) in enumerate(zip(evidence, held, strict=True)):
        above = (terms(one.heading) & asked) - words if one.heading else frozenset()
        shared = sum(weight[term] for term in words & asked) + sum(weight[term] for term in above) / 2
        # Words that nobody ever said count half: the question may just be put in other words.
        share = shared / ((total + known) / 2)
        if share < _ENOUGH or _is_asking(one):
            continue
        score = share * _ROLES.get(one.role, 0.5)
        if given:
            score *= 1.4 if all(pattern.search(one.text) for pattern in given) else 0.7
        key = _KEY.match(one.text)
        if key and (named := terms(key[1])) and named <= asked:
            score *= 1.3
        score *= 1 - min(0.3, len(one.text) / 2_000)
        score *= 1 + 0.2 * one.position / newest
        if found is None or score >= found[0]:
            found = (score, number)
    return evidence[found[1]] if found else None


def _is_asking(one: Evidence) -> bool:
    """A question is no answer, whoever asked it; nor is our own "I do not know"."""
    if one.role == "tool":
        return False
    return is_question(one.text) or one.text.startswith(UNKNOWN)


UNKNOWN = ("I do not know", "我不知道")


def unknown(question: str) -> str:
    """What is said where nothing fits."""
    if is_chinese(question):
        return f"{UNKNOWN[1]}：这次请求里没有提到。"
    return f"{UNKNOWN[0]}: nothing in this request says so."
