"""What kind of value a sentence gives, to what, and for which part of the world: by which two sentences are compared.

"The budget for the trip is 2,000 €" and "we may now spend 2,500 €" are about one thing, though they share no word. A
small table of everyday concepts, the shapes of values, and what stands behind "for", "in", "on" say so. What the table
does not know is compared by the words themselves.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache

from backstory.compaction import closed
from backstory.compaction.signs import without_values
from backstory.compaction.words import stem, terms

_CONCEPTS: Mapping[str, str] = {
    "spend": "budget cost costs price spend spending limit cap ceiling maximum funds allowance afford pay quota fee"
    " expense expenses 预算 花费 花 费用 成本"
    " 价格 上限 限额 额度",
    "due": "deadline due date launch release ship deliver delivery finish done ready schedule scheduled cutoff"
    " go-live cutover 截止 期限"
    " 日期 上线 发布 交付 交货 完成 定在",
    "meet": "meeting appointment call review interview demo standup session visit check-up checkup slot 会议 开会"
    " 面试 评审 复查 预约 见面",
    "who": "handle handles duty owner own owns lead leads responsible charge assign"
    " assigned assignee contact reviewer approver approve approves manager"
    " maintainer on-call oncall escalate sign-off 负责 负责人 联系人 审批 批准 主管 经理 接手 值班",
    "where": "region location located hosted host hosting cluster zone office address lives datacenter deploy deployed"
    " server venue room"
    " city moved 地区 区域 地点 地址 位于 部署 机房 城市 办公室 房间 住 搬",
    "storage": "database db datastore storage store backend engine persistence 数据库 存储",
    "reply": "reply replies answer answers respond response responses message messages explanation tone 回答 回复 答复",
    "clock": "timestamp timestamps clock clocks time times timezone hour 时间 时区 时刻",
    "units": "units unit measurement measurements temperature distance 单位",
    "language": "language written write python java javascript typescript rust golang kotlin ruby english chinese"
    " french german spanish 语言 中文 英文 英语 用语",
    "link": "url endpoint api link base website webhook domain 网址 链接 接口 域名",
    "label": "call code name named called id identifier ticket nickname title label"
    " alias number reference key 代号 名字 名称 编号 叫 称呼",
    "style": "style format layout theme concise verbose detail bullet tables 风格 格式 语气 单位",
    "version": "version runtime release interpreter 版本",
    "branch": "branch commit tag revision 分支 提交",
    "time": "timeout interval delay wait retention period duration frequency every 超时 间隔 等待 周期 频率 保留",
    "size": "size batch count replicas workers instances seats people guests team headcount 数量 大小 人数 人 台 个",
    "port": "port listen listens 端口",
    "food": "eat diet vegetarian vegan allergy allergic food drink meal 吃 喝 素食 过敏 饮食",
}
_CONCEPTS_OF: dict[str, set[str]] = {}
for _concept, _words in _CONCEPTS.items():
    for _word in _words.split():
        _CONCEPTS_OF.setdefault(stem(_word) if _word.isascii() else _word, set()).add(_concept)
_HAN_CONCEPTS = {word: named for word, named in _CONCEPTS_OF.items() if not word.isascii()}

_TYPES: tuple[tuple[str, re.Pattern[str]], ...] = (
    *closed.CLASSES.items(),
    *(
        (name, re.compile(pattern, re.IGNORECASE))
        for name, pattern in (
            ("link", r"https?://"),
            ("mail", r"[\w.+-]+@[\w-]+\."),
            (
                "money",
                r"[$€£¥￥]\s?\d|\d\s?(?:usd|eur|gbp|cny|rmb|元|块|美元|欧元|万)|(?:dollars?|euros?|pounds?)$",
            ),
            ("clock", r"\d{1,2}:\d{2}|\d{1,2}\s?[ap]m\b|\d{1,2}点"),
            (
                "date",
                (
                    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}月|\b(?:jan|feb|mar|apr|jun|jul|aug|sep|oct|nov|dec)"
                    r"|\bmay\s+\d|\d\s+may\b|day$|[周星期礼拜][一二三四五六日天]|[今明后]天"
                ),
            ),
            ("share", r"\d\s?%"),
            (
                "span",
                r"\d\s?(?:ms|s|sec\w*|min\w*|h|hours?|days?|weeks?|months?|years?|秒|分钟|小时|天|周|个月|年)$",
            ),
            ("path", r"^(?:~|\.{0,2})/|\w/\w"),
            ("number", r"^[\d.,]+(?:\s?[kmgt]i?b)?$|^[一二三四五六七八九十百千万两]+$"),
            ("mark", r"\d"),
        )
    ),
)
_SCOPE = re.compile(
    r"\b(?:for|in|on|of|at|within)\s+(?:the\s+|our\s+|my\s+|its\s+"
    r"|all\s+)?([A-Za-z][\w-]*)(?:\s+([A-Za-z][\w-]*))?"
)
_ENVIRONMENTS = re.compile(
    r"\b(staging|production|prod|development|dev|test(?:ing)?|local|canary|sandbox|preview|frontend|front-end"
    r"|backend|back-end|mobile"
    r"|web|desktop|ios|android|internal|external|public|private|primary|secondary|backup|old|weekday|weekend"
    r"|morning|afternoon"
    r"|evening|adult|child|first|second|third)\b|测试|生产|预发|开发|前端|后端|移动|网页|内部|外部|主|备|上午"
    r"|下午|工作日|周末",
    re.IGNORECASE,
)
_NO_PLACE = frozenset(
    map(
        stem,
        [
            "below",
            "above",
            "under",
            "over",
            "least",
            "most",
            "once",
            "all",
            "any",
            "each",
            "every",
            "now",
            "least",
            "time",
        ],
    )
)
_ROOT = re.compile(r"(?!https?:)[a-z]{2,}[/_:-](?=.*\d)")
_SAME_PLACE = {
    "prod": "production",
    "dev": "development",
    "testing": "test",
    "front-end": "frontend",
    "back-end": "backend",
}


def concepts(text: str) -> frozenset[str]:
    """The everyday concepts that a text names."""
    found = [_CONCEPTS_OF[term] for term in terms(text) if term in _CONCEPTS_OF]
    found += [named for word, named in _HAN_CONCEPTS.items() if word in text]
    return frozenset().union(*found)


def types(values: frozenset[str]) -> frozenset[str]:
    """The kinds of values: money, a date, a link, …; of a bare word, ``word``."""
    return frozenset(map(_type, values))


@lru_cache(maxsize=4_096)
def _type(value: str) -> str:
    return next((name for name, shape in _TYPES if shape.search(value)), "word")


_GIVEN: Mapping[str, frozenset[str]] = {
    concept: frozenset(kinds.split())
    for concept, kinds in {
        "spend": "money number share",
        "due": "date clock span",
        "meet": "date clock word",
        "who": "word mail",
        "where": "word mark path",
        "storage": "word mark number version",
        "language": "word tongue version number",
        "reply": "tone tongue",
        "clock": "zone clock",
        "units": "units",
        "link": "link path word",
        "label": "mark word number",
        "style": "word",
        "version": "number mark",
        "branch": "path mark",
        "time": "span number",
        "size": "number word",
        "port": "number",
        "food": "word",
    }.items()
}


def given(concepts: Iterable[str]) -> frozenset[str]:
    """The kinds of values that concepts have."""
    return frozenset(kind for concept in concepts for kind in _GIVEN[concept])


def roots(values: frozenset[str]) -> frozenset[str]:
    """What identifiers of one family begin with: ``feature/`` of ``feature/login-2``."""
    return frozenset(found.group() for found in map(_ROOT.match, values) if found)


def scopes(text: str) -> frozenset[str]:
    """For which part of the world a sentence speaks, where it says so."""
    found = {_SAME_PLACE.get(word.lower(), word.lower()) for word in _ENVIRONMENTS.findall(text) if word}
    for match in _SCOPE.finditer(without_values(text)):
        for word in filter(None, match.groups()):
            named = stem(word)
            if named not in _CONCEPTS_OF and named not in _NO_PLACE and terms(word):
                found.add(named)
    return frozenset(found)


def environments(text: str) -> frozenset[str]:
    """The places of a kind of which there are several: staging and production are never one."""
    return frozenset(
        _SAME_PLACE.get(m.group().lower(), m.group().lower()) for m in _ENVIRONMENTS.finditer(text)
    )
