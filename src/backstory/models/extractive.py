"""A stand-in for a model where there is none: no key, no network, and honest about being no LLM.

It answers with the sentence of its request that fits the question best, in English and Chinese, and calls a tool where
the message plainly asks for one. It uses nothing but the request, so that a right answer proves that the context
was right. The same request always gets the same answer.
"""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Mapping, Sequence
from typing import Any

from backstory.compaction.summary import SPEAKER, WHOSE, heads
from backstory.compaction.words import (
    heading_of,
    is_chinese,
    is_greeting,
    is_question,
    is_thanks,
    sentences,
    words_of,
)
from backstory.legality.steps import pair
from backstory.messages import Message, ToolCall, assistant, texts
from backstory.models import extract_calls as wishes
from backstory.models.base import Answer, Event, Usage, answered, replayed
from backstory.models.extract_calls import Ask
from backstory.models.extract_facts import Evidence
from backstory.models.extract_search import UNKNOWN, answer, unknown
from backstory.models.judge import judge
from backstory.models.request import Request, Tool, body_tokens
from backstory.models.scripted import in_wire_form
from backstory.targets import Target
from backstory.tokens import counter_for
from backstory.tokens.messages import count_messages

NAME = "extractive-no-llm"
_SPOKEN = re.compile(rf"\W*(?:{'|'.join(who.strip() for who in SPEAKER.values())})")
_HONEST = "An offline stand-in, no LLM: I answer with sentences of the context that I was sent."
_TRIES = 2
_LINES = 6
_LAST = re.compile(
    r"\b(?:what did i (?:just )?(?:say|ask|write)(?: last)?|my (?:last|previous) (?:message|question))\b"
    r"|我刚才?(?:说|问)了?什么|我?上一[句条]",
    re.IGNORECASE,
)
_FIRST = re.compile(
    r"\b(?:what did i (?:say|ask|write) first|my first (?:message|question))\b|我(?:最先|第一[句条])",
    re.IGNORECASE,
)
_WHO = re.compile(r"\b(?:who|what) are you\b|\byour name\b|你是谁|你叫什么|你是什么", re.IGNORECASE)
_TOOLS = re.compile(r"\b(?:what|which) tools\b|(?:什么|哪些)工具", re.IGNORECASE)
_TWO = re.compile(
    r",?\s+and\s+(?=(?:what|which|who|when|where|how|why|do|does|is|my)\b)|[，,](?=.*(?:什么|谁|哪|多少|几))",
    re.IGNORECASE,
)


class ExtractiveModel:
    """See the module. It takes the bodies of any target, and refuses those that the target would refuse.

    `max_output` is not a limit that it needs; a budget reserves it.
    """

    def __init__(
        self,
        *,
        target: Target | str = "openai_chat",
        window: int | None = 32_000,
        max_output: int | None = 1_000,
        name: str = NAME,
        **settings: Any,
    ) -> None:
        self.name = name
        self.target = Target.of(target)
        self.window = window
        self.max_output = max_output
        self.settings: dict[str, Any] = dict(settings)
        if self.target.format == "anthropic":
            self.settings.setdefault("max_tokens", max_output or 1_000)
        self._counter = counter_for(None, self.target.format)

    def __repr__(self) -> str:
        return f"ExtractiveModel({self.name!r}, target={self.target.name!r})"

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        """The answer, whole. See `Model`."""
        whole = {**self.settings, **body}
        request = judge(whole, self.target)
        said = respond(request, sequential=_sequential(whole, self.target), tools=_tools(whole, request))
        wire = in_wire_form([said], self.target)
        used = Usage(
            input=body_tokens(whole, self.target, self._counter),
            output=sum(count_messages(wire, self._counter, self.target.format)),
        )
        return answered(wire, "stop", usage=used, model=self.name)

    async def aclose(self) -> None:
        """Nothing is kept open."""

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """The answer in pieces. See `Model`."""
        async for event in replayed(await self.complete(body)):
            yield event


def _sequential(body: Mapping[str, Any], target: Target) -> bool:
    return body.get("parallel_tool_calls") is False or not target.parallel_calls


def _tools(body: Mapping[str, Any], request: Request) -> tuple[Tool, ...]:
    choice = body.get("tool_choice")
    none = choice == "none" or (isinstance(choice, Mapping) and choice.get("type") == "none")
    return () if none else request.tools


def respond(request: Request, *, sequential: bool, tools: Sequence[Tool]) -> Message:
    """What the stand-in says to a request: tool calls that are still to be made, or an answer."""
    messages = request.messages
    last = max((n for n, message in enumerate(messages) if message.role == "user"), default=-1)
    words = _asked_words(messages, last)
    turn = messages[last + 1 :]
    wanted = wishes.asked(words, tools)
    if not wanted and is_question(words):
        wanted = _unread(words, messages, last, tools)
    open_ = [ask for ask in wanted if not _is_done(ask, turn)]
    if open_:
        if sequential or wishes.one_by_one(words):
            open_ = open_[:1]
        number = sum(len(message.calls) for message in messages)
        calls = [
            ToolCall(id=f"call_{number + n}", name=ask.tool, arguments=ask.text)
            for n, ask in enumerate(open_, start=1)
        ]
        return assistant("", *calls)
    return assistant(_itself(words, tools) or _answer(words, messages, last, had_tools=bool(wanted)))


def _itself(words: str, tools: Sequence[Tool]) -> str:
    """What it says of itself: the truth."""
    chinese = is_chinese(words)
    if _TOOLS.search(words):
        names = ", ".join(tool.name for tool in tools)
        return names or ("没有工具。" if chinese else "None in this request.")
    if _WHO.search(words) and is_question(words):
        return "我是离线的替身，不是大模型：只从收到的上下文里找句子。" if chinese else _HONEST
    return ""


def _asked_words(messages: Sequence[Message], last: int) -> str:
    """The user's words: all user messages in a row at the end, such as one that steers."""
    if last < 0:
        return ""
    first = last
    while first > 0 and messages[first - 1].role == "user":
        first -= 1
    return "\n".join(words_of(texts(message.parts)) for message in messages[first : last + 1]).strip()


def _unread(words: str, messages: Sequence[Message], last: int, tools: Sequence[Tool]) -> list[Ask]:
    """A question about a file that nobody has read in this request asks for reading it."""
    known = "\n".join(call.arguments for message in messages[:last] for call in message.calls)
    paths = [path for path in wishes.paths_in(words) if path not in known]
    return [ask for path in paths for ask in wishes.reads(path, tools)]


def _is_done(ask: Ask, turn: Sequence[Message]) -> bool:
    """Whether a call was made in this turn and answered. One that never started is made again, and so is one that only
    reads, where its outcome is unknown; at most twice.
    """
    pairing = pair(turn)
    tries = 0
    for place, call in pairing.calls.items():
        if not ask.is_made_by(call.name, call.arguments):
            continue
        tries += 1
        result = pairing.results.get(pairing.answer[place]) if place in pairing.answer else None
        again = result is not None and (
            result.synthetic == "not_started"
            or (result.synthetic == "outcome_unknown" and ask.kind in _HARMLESS)
        )
        if not again:
            return True
    return tries >= _TRIES


_HARMLESS = ("read", "list", "search")


def _answer(words: str, messages: Sequence[Message], last: int, *, had_tools: bool) -> str:
    chinese = is_chinese(words)
    results = _results(messages[last + 1 :])
    evidence = _evidence(messages, last)
    asked = [part for part in _questions(wishes.rest(words) if had_tools else words) if part]
    if asked:
        before = [
            text for text in (words_of(texts(m.parts)) for m in messages[:last] if m.role == "user") if text
        ]
        found = [_recalled(part, before) or answer(part, evidence) for part in asked]
        if any(found) or not results:
            lines = [text or unknown(part) for text, part in zip(found, asked, strict=True)]
            return "\n".join(dict.fromkeys(lines))
    if results:
        return "\n\n".join(_preview(name, text, chinese) for name, text in results)
    return _acknowledged(words, chinese)


def _recalled(question: str, before: Sequence[str]) -> str | None:
    """What the user said last, or first: no words are shared with that."""
    if not before:
        return None
    if _FIRST.search(question):
        return before[0]
    return before[-1] if _LAST.search(question) else None


def _questions(words: str) -> list[str]:
    """The questions in a message; two that are joined by "and" are two."""
    found: list[str] = []
    for sentence in sentences(words):
        if is_question(sentence):
            parts = _TWO.split(sentence)
            found += [part.strip() for part in parts if part.strip()]
    questions = [part for part in found if is_question(part)]
    return questions or found


def _evidence(messages: Sequence[Message], last: int) -> list[Evidence]:
    """Every sentence of the request, but for the words that are to be answered; blocks beside them count."""
    found: list[Evidence] = []
    names = {call.id: (call.name, call.arguments) for message in messages for call in message.calls}
    for position, message in enumerate(messages):
        source = ""
        text = texts(message.parts)
        if message.results:
            source = _source(names.get(message.results[0].call_id, ("", "")))
            text = "\n".join(texts(part.content) for part in message.results if not part.synthetic)
        elif position == last:
            text = text.replace(words_of(text), "")
        heading, told = "", False  # whether a summary tells what the user said
        for sentence in sentences(text):
            head = heading_of(sentence)
            if head:
                heading = head
                told = any(words in head for words in WHOSE.values()) or (told and heads(head))
            elif not _says_nothing(sentence, message.role):
                found.append(
                    Evidence(
                        text=sentence,
                        position=position,
                        role="user" if told and not _SPOKEN.match(sentence) else message.role,
                        source=source,
                        heading=heading,
                    )
                )
    return found


def _says_nothing(sentence: str, role: str) -> bool:
    """Tags, our own "I do not know", and the user's wishes."""
    if sentence.startswith(UNKNOWN) or re.fullmatch(r"</?\w+>", sentence):
        return True
    return role == "user" and wishes.is_wish(sentence)


def _source(call: tuple[str, str]) -> str:
    paths = wishes.paths_in(call[1])
    return paths[0] if paths else call[0]


def _results(turn: Sequence[Message]) -> list[tuple[str, str]]:
    names = {call.id: (call.name, call.arguments) for message in turn for call in message.calls}
    found: dict[str, tuple[str, str]] = {}
    for number, message in enumerate(turn):
        for result in message.results:
            known = names.get(result.call_id, (result.name or "tool", ""))
            found[f"{known}" if known[1] else str(number)] = (_source(known), texts(result.content))
    return list(found.values())


def _preview(source: str, text: str, chinese: bool) -> str:
    lines = [line.rstrip() for line in text.splitlines() if line.strip()]
    if not lines:
        return f"{source}：没有内容。" if chinese else f"{source}: nothing."
    more = len(lines) - _LINES
    tail = [] if more <= 0 else [f"（还有 {more} 行）" if chinese else f"({more} more lines)"]
    return "\n".join([f"{source}:", *(line[:200] for line in lines[:_LINES]), *tail])


def _acknowledged(words: str, chinese: bool) -> str:
    if not words:
        return "I have nothing to answer."
    if is_greeting(words):
        return "你好！" if chinese else "Hello!"
    if is_thanks(words):
        return "不客气。" if chinese else "You are welcome."
    return "好的，记下了。" if chinese else "Noted."
