"""Words of a text, English and Chinese, for the stand-in that finds sentences: terms, clauses, what a text is.

No dictionary and no model: stems by suffix, Chinese by neighbouring characters, and a small table of words that mean
the same in both languages.
"""

from __future__ import annotations

import re

_HAN = re.compile(r"[\u3400-\u9fff]")
_WORD = re.compile(r"[a-z0-9]+(?:[._\-'’/][a-z0-9]+)*|[\u3400-\u9fff]+", re.ASCII | re.IGNORECASE)
_PART = re.compile(r"[a-z0-9]+", re.IGNORECASE)

# Words that say nothing of what a sentence is about; question words among them.
_STOP_WORDS = (
    "a an the this that these those it its is are was were be been am do does did done has have had will "
    "would can could should shall may might must of to in on at by for from with about as into and or but "
    "so if then than too very i me my mine you your yours we us our he she his her him they them their "
    "there here what which who whom whose when where why how tell say said please know remember remind "
    "again still not no yes just now s t m re ve ll d let give show"
)
_STOP = frozenset(_STOP_WORDS.split())
# Chinese of the same kind; taken out before characters are paired, longest first.
_STOP_HAN = re.compile(
    r"什么时候|为什么|是什么|有没有|是不是|能不能|可不可以|告诉我|还记得|记不记得|请问|什么|怎么样|怎么|怎样|如何|哪里|哪儿|哪个"
    r"|哪些|哪一|多少|几个|是谁|谁的|谁|哪|几|吗|呢|吧|啊|呀|了|的|地|得|是|在|有|和|与|跟|我们|你们|我|你|您|他|她|它|这|那|就|都|也|还|很|请|曾经|之前"
)
# Chinese words and the English ones that mean the same: where a text has the one, it counts as having the other.
_GLOSS = {
    "版本": "version",
    "端口": "port",
    "项目": "project",
    "预算": "budget",
    "截止": "deadline",
    "名字": "name",
    "姓名": "name",
    "数据库": "database",
    "城市": "city",
    "邮箱": "email",
    "语言": "language",
    "密码": "password",
    "文件": "file",
    "需要": "require",
    "要求": "require",
    "依赖": "dependency",
    "许可": "license",
    "作者": "author",
    "描述": "description",
    "喜欢": "like",
    "公司": "company",
    "生日": "birthday",
    "颜色": "color",
    "猫": "cat",
    "狗": "dog",
}
# Words that stand for others where somebody asks.
_SAME = {
    "need": "require",
    "colour": "color",
    "favourite": "favorite",
    "mail": "email",
    "e-mail": "email",
    "licence": "license",
    "called": "name",
    "due": "deadline",
    "job": "work",
    "db": "database",
    "prefer": "like",
    "love": "like",
    "favorite": "like",
}
_SUFFIXES = ("ations", "ation", "ings", "ing", "ies", "ers", "ed", "er", "es", "ly", "s")


def is_chinese(text: str) -> bool:
    """Whether a person who wrote this reads Chinese."""
    return bool(_HAN.search(text))


def stem(word: str) -> str:
    """A word without its ending; what two forms of it have in common, as a rule."""
    word = word.lower().removesuffix("'s").removesuffix("’s")
    if word in _SAME:
        return stem(_SAME[word])
    if len(word) > 4 and word.isalpha():
        for suffix in _SUFFIXES:
            if (
                word.endswith(suffix)
                and len(word) - len(suffix) >= 3
                and not word.endswith(("ss", "us", "is"))
            ):
                word = word[: -len(suffix)] + ("y" if suffix == "ies" else "")
                break
        if len(word) > 4 and word.endswith("e"):
            word = word[:-1]
        if len(word) > 4 and word[-1] == word[-2] and word[-1] not in "aeiouls":
            word = word[:-1]
    return stem(_SAME[word]) if word in _SAME else word


def has_meaning(word: str) -> bool:
    """Whether a word in lower case, or one Chinese character, says what a sentence is about."""
    return word not in _STOP and not _STOP_HAN.fullmatch(word)


def terms(text: str) -> frozenset[str]:
    """What a text is about: stems, parts of names such as `requires-python`, pairs of Chinese characters."""
    found: set[str] = set()
    for match in _WORD.finditer(text):
        word = match.group().lower()
        if _HAN.match(word):
            found |= _han_terms(word)
            continue
        parts = _PART.findall(word)
        for part in {word, *parts}:
            if part not in _STOP and (len(part) > 1 or part.isdigit()):
                found.add(stem(part))
    return frozenset(found)


def _han_terms(run: str) -> set[str]:
    found = {stem(english) for chinese, english in _GLOSS.items() if chinese in run}
    for piece in _STOP_HAN.split(run):
        if piece:
            found |= {piece} if len(piece) == 1 else {piece[i : i + 2] for i in range(len(piece) - 1)}
    return found


_SENTENCE_END = re.compile(r"(?<=[.!?])[\"')\]]*\s+|(?<=[。！？；])|(?<=[?!])(?=[\u3400-\u9fff])|\n+")


def sentences(text: str) -> list[str]:
    """Sentences and lines. A point inside a number or a file's name ends none."""
    return [piece.strip() for piece in _SENTENCE_END.split(text) if piece and piece.strip()]


_QUESTION = re.compile(
    r"[?？]\s*$"
    r"|^\s*(?:and |so |but |ok(?:ay)?,? |please |now,? )*(?:what|who|whom|whose|which|when|where|why|how|do|does|did"
    r"|is|are|was|were|can|could|will|would|tell me|remind me|do you)\b"
    r"|(?:什么|谁|哪|多少|几个|几点|怎么|怎样|为什么|如何|是否|有没有|是不是)|[吗呢]\s*[?？。]?\s*$",
    re.IGNORECASE,
)


def is_question(text: str) -> bool:
    return bool(_QUESTION.search(text))


_BLOCK = re.compile(r"<(runtime|retrieved|system)>.*?(?:</\1>|\Z)", re.DOTALL)


def words_of(text: str) -> str:
    """What the user said, without the blocks that a context adds to a message."""
    return _BLOCK.sub("\n", text).strip()


_GREETING = re.compile(
    r"^\W*(?:hi|hello|hey|good (?:morning|evening|afternoon)|你好|您好|嗨|早上好|晚上好)\W*$", re.I
)
_THANKS = re.compile(r"^\W*(?:thanks?(?: you)?|thx|cheers|谢谢|多谢|感谢)(?![a-z]).{0,12}$", re.IGNORECASE)


def is_greeting(text: str) -> bool:
    return bool(_GREETING.match(text))


def is_thanks(text: str) -> bool:
    return bool(_THANKS.match(text))


_HEADING = re.compile(r"^\s*(?:#{1,6}\s+(?P<hashes>.+?)\s*#*|\[{1,2}(?P<table>[\w.\- \"]+)\]{1,2})\s*$")


def heading_of(line: str) -> str:
    """The words of a line that heads others: Markdown's `## Name`, a table of TOML or INI; else nothing."""
    found = _HEADING.match(line)
    return "" if found is None else found["hashes"] or found["table"]
