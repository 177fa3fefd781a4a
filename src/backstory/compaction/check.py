"""Whether what a model wrote may stand for what was said: refused, or mended by facts that it lacks.

A summary that lost a number is worse than a longer one: what matters and is missing is appended word for word.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from backstory.compaction.candidates import Candidate, candidates
from backstory.compaction.signs import holds
from backstory.compaction.summary import KEPT, Summary
from backstory.compaction.words import terms
from backstory.messages import Message

_MATTERS = 3.0
"""Weight of a candidate from which on it must survive: a rule, or a decision with a value, in the user's words."""
_COVERED = 0.6
"""Share of a sentence's terms that a summary must have, where the sentence has no value to look for."""
OVER = 1.25
"""Of its limit, what a summary may take all the same. Models are asked for words and miss a length by a fifth: one that
is refused for that was paid for, and the next is no shorter. It still has to be shorter than what it replaces."""

_CALL = re.compile(
    r"^\s*(?:```(?:json)?\s*)?\{\s*\"(?:name|tool|tool_calls|function|arguments)\"|<(?:tool_call|function_call|invoke)\b|^\s*\[TOOL_CALLS\]",
    re.IGNORECASE,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Verdict:
    """`summary` is what may be used, with what was missing appended; `None` where it was refused, and `why` says so.

    `missing` are the sentences that were appended, `left_out` those that matter and for which there was no room.
    """

    accepted: bool
    why: str = ""
    summary: Summary | None = None
    missing: tuple[str, ...] = ()
    left_out: tuple[str, ...] = ()


def check(
    text: str,
    messages: Sequence[Message],
    *,
    previous: Summary | None = None,
    limit: int,
    replaces: int,
    count: Callable[[str], int],
    by: str = "",
    finish: str = "stop",
    keep: Sequence[str] = (),
) -> Verdict:
    """Judge a model's summary of `messages` (and of the `previous` summary) that was to take `limit` tokens at most.

    A little more is taken (`OVER`). `replaces` are the tokens of what it stands for. `finish` is why the model stopped
    (`backstory.models.base.Finish`). `keep` are texts that must survive word for word. Raises nothing.
    """
    said = text.strip()
    size = count(said)
    if why := _refused(said, finish, size, limit, replaces):
        return Verdict(accepted=False, why=why)
    most = limit if size <= limit else int(OVER * limit)
    room = min(most, replaces - 1) - size - count(f"\n\n## {KEPT['en']}\n")
    lower, words = said.lower(), terms(said)
    missing: list[str] = []
    left_out: list[str] = []
    wanted = [line for line in (" ".join(one.split()) for one in keep) if line and line.lower() not in lower]
    for line in dict.fromkeys([*wanted, *(one.text for one in _missing(messages, previous, lower, words))]):
        takes = count(f"- {line}\n")
        if takes <= room:
            missing.append(line)
            room -= takes
        else:
            left_out.append(line)
    return Verdict(
        accepted=True,
        summary=Summary(text=said, kept=tuple(missing), by=by),
        missing=tuple(missing),
        left_out=tuple(left_out),
    )


def _refused(text: str, finish: str, tokens: int, limit: int, replaces: int) -> str:
    if finish == "tool_calls" or _CALL.search(text):
        return "it is a tool call"
    if finish in ("length", "pause"):
        return "it was cut off"
    if finish in ("refusal", "content_filter"):
        return "the model refused"
    if not terms(text):
        return "it is empty"
    if text.count("```") % 2:
        return "it was cut off inside a block"
    if tokens >= replaces:
        return f"it is as long as what it replaces ({tokens:,} tokens for {replaces:,})"
    if tokens > OVER * limit:
        return f"it is too long ({tokens:,} tokens, and {limit:,} were asked for)"
    return ""


def _missing(
    messages: Sequence[Message], previous: Summary | None, text: str, words: frozenset[str]
) -> list[Candidate]:
    """What matters and is not in the text, what matters most first."""
    found = [one for one in candidates(messages, previous) if _must(one) and not _survives(one, text, words)]
    return sorted(found, key=lambda one: (-one.weight, one.position))


def _must(one: Candidate) -> bool:
    return one.role in ("user", "before") and one.weight >= _MATTERS and one.kind != "said"


def _survives(one: Candidate, text: str, words: frozenset[str]) -> bool:
    if one.values:
        return holds(text, one.values)
    return bool(one.about) and len(one.about & words) >= _COVERED * len(one.about)
