"""Signs by which a sentence is known to matter, English and Chinese: rules, decisions, changes, open tasks, values.

General words of each language and the shapes of values; nothing of any one conversation.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from backstory.compaction import closed
from backstory.compaction.words import is_question, terms

RULE = re.compile(
    r"\b(?:must|mustn't|shall|never|always|do not|don't|cannot|can't|may not|only|except|unless|without"
    r"|forbidden|prohibit\w*"
    r"|(?:not|isn't|aren't) (?:be )?(?:allowed|permitted|acceptable|ok(?:ay)?)|no (?:more|less|fewer|later"
    r"|earlier) than"
    r"|at (?:most|least)|up to|limit\w*|cap(?:ped|s)?|maximum|minimum|ceiling|budget|deadline|require\w*|mandatory"
    r"|off[- ]limits|prefer\w*|avoid|instead of|rather than|make sure|ensure|keep|stick to|from now on|going forward"
    r"|please (?:use|write|answer|reply|keep|call)|(?:i|we) (?:like|want|need|hate|dislike)|should(?:n't)?|allerg\w+"
    r"|confidential|approval|sign[- ]off|remember)\b"
    r"|必须|务必|不要|别再|不能|不得|不可|不许|不准|禁止|严禁|切勿|一定要|只能|只用|只要|总是|永远|始终|一律"
    r"|以后都|从现在起|从今以后"
    r"|最多|最少|至少|至多|不超过|不少于|不低于|上限|下限|限额|预算|截止|期限|要求|规定|偏好|喜欢|讨厌|希望"
    r"|避免|优先|保持|记住|请用|过敏|保密"
    r"|批准|应该|应当",
    re.IGNORECASE,
)
OPENING = re.compile(
    r"^\W*(?:please |and |so |also |but |remember: ?)*"
    r"(?:do not|don't|never|always|only|no(?! (?:problem|worries|thanks?|idea|way|need))(?= \w)|avoid|stop|use|keep"
    r"|at (?:most|least)|under no)\b"
    r"|^\W*(?:请|千万|务必)?(?:不要|别|不能|不得|禁止|严禁|只能|必须|一律|永远|总是)",
    re.IGNORECASE,
)
"""How a sentence begins that tells somebody what to do, or what not to."""
PROHIBITION = re.compile(r"^\W*(?:no|never|do not|don't|不要|别|不能|不得|禁止|严禁)(?![a-z])", re.IGNORECASE)
MUSING = re.compile(
    r"^\W*(?:and |but |so |also |well |okay |ok )*(?:I(?:'|’)?(?:ll|ve|d(?! (?:rather|like|prefer|love)))\b"
    r"|I (?:will|would(?! (?:rather|like|prefer|love))|can|could|think|guess|hope|might)\b|(?:it|this|that)\b"
    r"|I(?:'m|’m| am) (?:\w+ing|not sure|pretty|kinda|really|so|worried|excited|glad|happy|curious)\b)"
    r"|\b(?:wondering|(?:can|could|would) you|not sure)\b"
    r"|^\W*我(?:想|觉得|感觉|会|可以|可能|打算|在想)|能不能|可以帮我|你觉得",
    re.IGNORECASE,
)
"""What somebody is at, thinks, or asks for this once: a "keep" or "always" in it binds nobody."""
STANDING = re.compile(
    r"\b(?:from now on|going forward|in (?:the )?future|always|never|every time|whenever|as a rule|by default"
    r"|remember (?:that|to)"
    r"|don't (?:ever|forget)|do not (?:ever|forget)|please (?:always|never)|under no circumstances|at all times)\b"
    r"|从现在起|从今以后|以后(?:都|不|别|请)?|今后|每次|总是|永远|始终|一律|务必|记住|请记得|别忘了|绝对不"
    r"|再也不|不要再|别再",
    re.IGNORECASE,
)
DECISION = re.compile(
    r"\b(?:decid\w+|decision|agreed?|chose|chosen|choose|settled|go(?:ing)? with|we(?:'ll| will)|approved?"
    r"|confirm\w*|select\w*"
    r"|final(?:ly|ised|ized)?|picked|adopt\w*|assigned?|owner|responsible|root cause|because|fixed|resolved"
    r"|named?|called"
    r"|is|are|lives?|located|runs?|uses?|points?)\b"
    r"|决定|定为|定在|定了|选定|选择|选了|采用|同意|确认|统一|最终|负责|原因|因为|修好|解决|叫做?|名为|位于|使用|是",
    re.IGNORECASE,
)
_TURN = (
    r"\b(?:chang(?:e[ds]?|ing)|mov(?:e[ds]?|ing)|shift(?:ed|s|ing)?|switch(?:ed|es|ing)?|swap(?:ped|s)?"
    r"|renam(?:e[ds]?|ing)|transfer(?:red|s)?|updat(?:e[ds]?|ing)|upgrad(?:e[ds]?|ing)"
    r"|downgrad(?:e[ds]?|ing)|revis(?:e[ds]?|ing)|amend(?:ed|s)?|correct(?:ed|ion|s)?|rais(?:e[ds]?|ing)|lower(?:ed|s|ing)"
    r"|increas(?:e[ds]?|ing)|decreas(?:e[ds]?|ing)|reduc(?:e[ds]?|ing)|cut (?:to|down|from|the|our|my|it)"
    r"|(?:put|went|go(?:es|ing)?|gone|come|came|bring|brought) (?:\S+ ){0,3}?(?:up|down|forward|over) to"
    r"|doubl(?:ed|es)|halv(?:ed|es)|extend(?:ed|s|ing)|shorten(?:ed|s)?|postpon(?:e[ds]?|ing)|delay(?:ed|s)?|slip(?:ped|s)?"
    r"|defer(?:red|s)?"
    r"|push(?:ed|es|ing)? (?:\S+ ){0,3}?(?:back|out|to)|brought forward"
    r"|re-?(?:assign|bas|book|buil[dt]|direct|locat|order|plac|pric|rout|schedul|siz|target|wr[io]t|organi[sz])(?:e|ed|es|ing|s)?"
    r"|bump(?:ed|s|ing)?|supersed(?:e[ds]?|ing)|overrid(?:es?|ing|den)|took over|takes? over|taken over|takes? the lead"
    r"|hand(?:ed|s) (?:it )?(?:over|to)|retire[ds]?|migrat(?:e[ds]?|ing)|adjust(?:ed|s)?"
    r"|instead|no longer|not .{1,40} any ?more"
    r"|scrap|disregard|forget (?:that|what|about)|mistyped|typo|misspoke|my mistake|made a mistake|turns out|after all"
    r"|make (?:it|that)(?! (?:work|happen|easy|easier|better|clear|possible|so|to|back|through|up|harder))"
    r"|rather than|was wrong)\b"
    r"|改(?![变善革进])[\u3400-\u9fff]|迁[移到至往]|换成|换到|换为|换了|换[\u3400-\u9fff]{1,4}了|更正|纠正|更改|变更|不是.{1,20}而是|推迟|延误|延期|延到|延长|挪到|顺延"
    r"|调到|调成|调为|上调|下调|调整|提高到|涨到|涨了?租|降到|降低|降为|升到|升级|升[^学]{0,3}了|减到|加到|增加到|更新|更名|改名|变成|变为|移到|搬到|搬去|取代"
    r"|接手|作废|不用了|写错|说错|弄错|记错|提前到"
)
TURN = re.compile(_TURN, re.IGNORECASE)
"""Verbs that say outright that something changed."""
CHANGE = re.compile(
    rf"{_TURN}|\b(?:actually|not .{{1,40}} but|now|new|old|previous(?:ly)?|former(?:ly)?|set .{{1,40}} to|these days"
    r"|as of (?:today|now)|from now on|going forward|obsolete|deprecated|expired"
    r"|was .{1,40} (?:is|now)|only .{1,40} (?:can|could)|can only)\b"
    r"|其实|现在|从现在起|以后|旧的|新的|归|提前",
    re.IGNORECASE,
)
"""Those, and words by which a change may be told."""
TASK = re.compile(
    r"\b(?:to-?do|next (?:step|up|we|i)?|remain\w*|still (?:need|have|to|open|missing)|pending|in progress"
    r"|blocked|follow[- ]up|left to"
    r"|unfinished|not (?:yet )?(?:done|finished|started)|need(?:s|ed)? to|have to|plan(?:s|ned)? to|goal|aim"
    r"|objective|milestone"
    r"|deliver\w*|ship|finish|complete|open (?:question|issue|task)s?|waiting (?:for|on)|remind me)\b"
    r"|待办|还没|尚未|未完成|没做完|下一步|接下来|剩下|还需要|还要|需要|进行中|卡住|阻塞|目标|计划|打算|要做"
    r"|等待|跟进|提醒我",
    re.IGNORECASE,
)
LABEL = re.compile(
    r"^\W{0,4}(?:[A-Z][A-Z -]{2,30}|(?i:important|note|nb|rule|requirement|decision|preference|reminder"
    r"|warning|attention)"
    r"|重要|注意|要求|规则|决定|提醒|警告|备注)\s?[:：!！]"
)
"""A sentence that its writer has labelled."""
NOTE = re.compile(r"^[A-Z][a-z]+ing\b")
"""A note of what somebody is at, rather than of what holds."""
REFERS = re.compile(r"^(?:it|this|that|they|make it|make that)\b|^(?:它|这个|那个|这)", re.IGNORECASE)
"""A sentence whose subject was named in one before."""
OUTCOME = re.compile(
    r"\b(?:error|exception|fail\w*|traceback|fatal|denied|refused|timeout|timed out|passed|exit code|created"
    r"|deleted|written|saved"
    r"|installed|deployed|merged|booked|cancelled|canceled|paid|refunded|sent)\b"
    r"|错误|异常|失败|超时|拒绝|通过|已创建|已删除|已保存|已安装|已部署|已合并|已预订|已取消|已支付|已退款|已发送",
    re.IGNORECASE,
)

CODE = re.compile(
    r"[{};]\s*$|^\s*(?://|<[a-z!/]|[}\])])|</|/>|\s[=!]==?\s|=>|^\s*(?:def|function|const|var|async def) \w"
    r"|^\s*(?:import|from) [\w.]+(?: import .*)?$|^\s*[\w.]+\s*=.*[)\]]$|^\s*[\w.]+\([^)]*\)$|\\[a-z]+\{|\\[(\[]"
)
"""A line of a program, a formula or markup, rather than a sentence."""

_DATE = (
    r"\d{4}-\d{1,2}-\d{1,2}|\d{1,2}:\d{2}(?::\d{2})?(?:\s?[ap]m)?|\d{1,2}\s?[ap]m\b"
    r"|(?:\d{1,2}(?:st|nd|rd|th)?\s+)?\b(?:january|february|march|april|may(?=\s+\d)|june|july|august|september"
    r"|october|november|december|jan|feb|mar|apr|jun|jul|aug|sept?|oct|nov|dec)\b\.?"
    r"(?:\s+\d{1,2}(?:st|nd|rd|th)?\b)?(?:,?\s+\d{4}\b)?"
    r"|\b(?:mon|tues|wednes|thurs|fri|satur|sun)day\b|\b(?:today|tomorrow|tonight)\b"
    r"|(?:\d{4}年)?\d{1,2}月(?:\d{1,2}[日号])?|(?:下?周|星期|礼拜)[一二三四五六日天]|[今明后]天"
)
_UNITS = r"%|[kmgt]i?b|[km]|ms|s|h|min|px|usd|eur|元|块|万|千|百|亿|个|天|年|人|次|台|小时|分钟|岁|公里|公斤"
_NUMBER = rf"[$€£¥￥]?(?<![\w.])\d[\d,]*(?:\.\d+)*(?:\s?(?i:{_UNITS})(?![A-Za-z]))?"
_CODE = (
    r"https?://[^\s)\]>\"'，。]+|[\w.+-]+@[\w-]+(?:\.[\w-]+)+|(?:~|\.{1,2})?/\w[\w./-]*"
    r"|[A-Za-z_]\w*(?:[./:@\\]\w[\w-]*)+"
    r"|[A-Za-z]+_\w+|[A-Za-z]+(?:-\w+)*-\w*\d[\w-]*|\b(?=[A-Za-z]*\d)(?=\d*[A-Za-z])[A-Za-z\d]{3,}\b"
    r"|\b[a-z]+[A-Z]\w*|(?<=[\u3400-\u9fff])[A-Za-z][\w.+#-]+|`[^`\n]{1,80}`|#\d+"
)
_QUOTED = r"\"[^\"\n]{2,60}\"|“[^”\n]{1,40}”|「[^」\n]{1,40}」"
_COUNT = (
    r"\b(?:(?:one|two|three|four|five|six|seven|eight|nine|ten|eleven|twelve|thirteen|fifteen|twenty|thirty"
    r"|forty|fifty|sixty"
    r"|seventy|eighty|ninety|hundred|thousand|million|billion)[ -]?)+(?:dollars?|euros?|pounds?|percent|days?"
    r"|hours?|minutes?"
    r"|weeks?|months?|years?)?\b|[一二三四五六七八九十百千万两]+(?=[元块天个人年月周小时点岁楼层号次节])"
)
VALUE = re.compile(rf"{_CODE}|(?i:{_DATE})|{_NUMBER}|(?i:{_COUNT})|(?i:{closed.PATTERN})|{_QUOTED}", re.ASCII)
_CAPITAL = r"(?!I\b)[A-Z][A-Za-z'’-]*"
_NAME = re.compile(
    rf"(?<=[a-z0-9,;(] ){_CAPITAL}(?: {_CAPITAL})*"
    r"|(?:(?<=: )|(?<=[.!?] )|^)(?!I\b)[A-Z][a-z'’-]+(?: (?!I\b)[A-Z][a-z'’-]+)+"
)
"""What is written with a capital where no sentence begins, and two such words where one does."""
_EDGES = " \t\"'“”「」`.,;:!?()[]，。；：！？、"


def values(text: str) -> frozenset[str]:
    """What must survive to the letter, in lower case: numbers, dates, identifiers, paths, addresses, quotes,"
    " names."""
    rest = VALUE.sub(",", text)
    found = {_plain(match.group()) for match in (*VALUE.finditer(text), *_NAME.finditer(rest))}
    return frozenset(word for word in found if word)


def _plain(word: str) -> str:
    return re.sub(r"(?<=\d),(?=\d)", "", word.strip(_EDGES).lower())


def holds(text: str, wanted: Iterable[str]) -> bool:
    """Whether a text, in lower case, has every value. (A number inside a longer one is another number.)"""
    plain = re.sub(r"(?<=\d),(?=\d)", "", text)
    return all(_has(plain, value) for value in wanted)


def _has(text: str, value: str) -> bool:
    at = text.find(value)
    while at >= 0:
        before, after = text[at - 1 : at], text[at + len(value) : at + len(value) + 1]
        inside = (value[0].isdigit() and before.isdigit()) or (value[-1].isdigit() and after.isdigit())
        if not inside:
            return True
        at = text.find(value, at + 1)
    return False


_COMPLEMENT = re.compile(
    r"(?i:\b(?:is|are|was|will be|be|becomes?|called|named|to)|'s|’s) (?:an? |the )?([a-z][a-z-]+(?: [a-z-]+)?)"
    r"(?=[.,;!?]|$)"
    r"|(?:[换改变调移搬]?(?:成|为|到|去|由)了?|是|叫|在|用的?是?|换|归)([\u3400-\u9fff]{1,8}?)(?=负责|吧|了|[\W]|$)"
)


def said_to_be(text: str) -> frozenset[str]:
    """What a sentence says that its subject is or became, where that is a word or two at the end of a clause."""
    return frozenset(word.lower() for match in _COMPLEMENT.finditer(text) for word in match.groups() if word)


def without_values(text: str) -> str:
    return _NAME.sub(" ", VALUE.sub(" ", text))


def about(text: str) -> frozenset[str]:
    """What a sentence is about, its values left out: equal for two sentences that give one thing different values."""
    return terms(without_values(text))


def is_open_question(text: str) -> bool:
    return is_question(text) and text.rstrip().endswith(("?", "？"))
