"""What a summariser is asked, and in which pieces where the span is longer than its window."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence

from backstory.compaction.extract import language_of
from backstory.compaction.summary import HEADINGS, KINDS, Summary
from backstory.context.preview import preview
from backstory.legality.arguments import clean_text
from backstory.legality.steps import cut_points
from backstory.messages import Message, Text, ToolCall, ToolResult, system, texts, user

_RESULT = 300
"""Tokens of a tool's result that a summariser gets to see: its head and its end."""

_ASK = {
    "en": (
        "Write it in English, under these headings, leaving out those with nothing to say:\n{headings}\n"
        'One line for each item, beginning with "- ". Keep every name, number, date, path, identifier and rule '
        "to the letter. Where a value changed, write the newest one alone. Say what is still to be done, and what was "
        "asked last. Add nothing of your own, call no tool, answer nobody. At most {words} words."
    ),
    "zh": (
        "请用中文，按以下标题写，没有内容的标题省略：\n{headings}\n"
        "每项一行，以“- ”开头。人名、数字、日期、路径、标识符和规则必须原样保留。"
        "数值有变化时只写最新的。写明还有什么没做完，以及最后的要求。"
        "不要添加自己的内容，不要调用工具，不要回答任何人。最多 {words} 字。"
    ),
}
_BELOW = {
    "en": (
        "You keep the memory of a conversation. Below is a part of it that will no longer be shown; your summary "
        "stands for it."
    ),
    "zh": "你负责保存一段对话的记忆。下面这一部分以后不再显示，由你的摘要代替。",
}
_ABOVE = {
    "en": (
        "This is no part of the conversation, and is not to be answered: the older part of it will soon no longer be "
        "shown. Write the summary that will stand for it."
    ),
    "zh": "这不是对话的一部分，不需要回答：对话较早的部分很快将不再显示。请写出代替它的摘要。",
}
_BEFORE = {"en": "Summary so far, to be carried on:", "zh": "到目前为止的摘要，请在此基础上续写："}
_TOPIC = {"en": "Above all, keep what concerns: {topic}", "zh": "尤其保留与此有关的内容：{topic}"}
_NOW = {"en": "The part to summarise:", "zh": "需要摘要的部分："}
_WHO = {
    "en": {
        "user": "User",
        "assistant": "Assistant",
        "tool": "Tool",
        "system": "System",
        "developer": "System",
    },
    "zh": {"user": "用户", "assistant": "助手", "tool": "工具", "system": "系统", "developer": "系统"},
}


def ask(
    messages: Sequence[Message],
    *,
    tokens: int,
    count: Callable[[str], int],
    previous: Summary | None = None,
    topic: str = "",
    language: str = "",
) -> list[Message]:
    """The request to a summariser: instructions as the system's words, and the conversation as text in the user's.

    As text, so that a model that has tools or another format can read it, and answers nobody in it. `tokens` is the
    summary's limit.
    """
    spoken = language or language_of(messages, previous)
    told = [_BELOW[spoken], *_told(tokens, topic, spoken)]
    given = []
    if previous is not None and previous.rendered.strip():
        given += [_BEFORE[spoken], previous.rendered]
    given += [_NOW[spoken], transcript(messages, count, spoken)]
    return [system("\n\n".join(told)), user("\n\n".join(given))]


def ask_within(tokens: int, *, topic: str = "", language: str = "en") -> Message:
    """The same as the user's next message in the conversation itself, whose beginning the provider has in its cache.

    The summary so far stands in the system block of that conversation.
    """
    return user("\n\n".join([_ABOVE[language], *_told(tokens, topic, language)]))


def _told(tokens: int, topic: str, language: str) -> list[str]:
    """What a summary is to be."""
    headings = "\n".join(f"## {HEADINGS[language][kind]}" for kind in KINDS)
    words = max(40, int(tokens * (0.6 if language == "en" else 0.8)))
    told = [_ASK[language].format(headings=headings, words=words)]
    if topic.strip():
        told.append(_TOPIC[language].format(topic=clean_text(" ".join(topic.split()))[:500]))
    return told


def transcript(messages: Sequence[Message], count: Callable[[str], int], language: str = "en") -> str:
    """Messages as text, one after the other, long results as previews."""
    lines = []
    for message in messages:
        who = _WHO[language].get(message.role, message.role)
        lines += [f"[{who}] {line}" for line in _parts(message, count)]
    return clean_text("\n".join(lines))


def _parts(message: Message, count: Callable[[str], int]) -> list[str]:
    found = []
    for part in message.parts:
        if isinstance(part, Text):
            found.append(part.text)
        elif isinstance(part, ToolCall):
            found.append(f"→ {part.name}({preview(part.arguments, _RESULT, count)})")
        elif isinstance(part, ToolResult):
            found.append(f"{part.name or ''} ← {preview(texts(part.content), _RESULT, count)}".strip())
        elif type(part).__name__ in ("Image", "Audio", "File"):
            found.append(f"[{type(part).__name__.lower()}]")
    return [line for line in found if line.strip()]


def chunks(
    messages: Sequence[Message], *, window: int, count: Callable[[str], int]
) -> list[Sequence[Message]]:
    """The messages in pieces of at most `window` tokens of transcript, whole steps each; a longer step is one alone.

    Summarised one after the other, each builds on the summary before.
    """
    starts = [cut.index for cut in cut_points(messages)]
    edges = sorted({0, *starts, len(messages)})
    pieces: list[Sequence[Message]] = []
    begin, held = 0, 0
    for start, stop in itertools.pairwise(edges):
        size = count(transcript(messages[start:stop], count))
        if held and held + size > window:
            pieces.append(messages[begin:start])
            begin, held = start, 0
        held += size
    if begin < len(messages):
        pieces.append(messages[begin:])
    return pieces
