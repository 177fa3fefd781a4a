"""The law, as a table: what each target refuses, how it is mended, and who says so.

`RULES` is the one place where legality is decided. A rule says for which targets it holds and finds every
breach in a list of messages; `backstory.legality.repair` mends breaches and is judged by the same table.
The sources beside the rules are the providers' documents; where they are silent, users' error reports.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from backstory.legality import find
from backstory.legality.find import Breach, View
from backstory.messages import Message, Opaque
from backstory.targets import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Problem:
    """A breach: which rule, at which position of the list, what is wrong, and how it is mended."""

    rule: str
    index: int
    what: str
    mend: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Rule:
    """`alone`: it looks at each message by itself, whatever stands beside it."""

    name: str
    holds: Callable[[Target], bool]
    find: Callable[[View], Iterable[Breach]]
    mend: str
    source: str
    alone: bool = False


def problems(messages: Sequence[Message], target: Target) -> Iterator[Problem]:
    """Every breach of the target's rules, rule by rule.

    A message never changes. So one in which the rules that look at it alone found nothing keeps a note of that, and a
    session's next request looks at what is new.
    """
    view = View(messages, target)
    new = [index for index, message in enumerate(messages) if target not in message._passed]
    part = view if len(new) == len(messages) else View([messages[index] for index in new], target)
    broken: set[int] = set()
    for rule in rules_for(target):
        if not rule.alone:
            found: Iterable[Breach] = rule.find(view)
        elif new:
            found = [(new[index], what) for index, what in rule.find(part)]
            broken.update(index for index, _ in found)
        else:
            continue
        for index, what in found:
            yield Problem(rule=rule.name, index=index, what=what, mend=rule.mend)
    for index in new:
        if index not in broken:
            messages[index]._passed.append(target)


@functools.lru_cache(maxsize=64)
def rules_for(target: Target) -> tuple[Rule, ...]:
    """The rules that hold for a target."""
    return tuple(rule for rule in RULES if rule.holds(target))


def _always(_: Target) -> bool:
    return True


def _is(*formats: str) -> Callable[[Target], bool]:
    return lambda target: target.format in formats


_CHAT_DOC = "https://platform.openai.com/docs/api-reference/chat/create"
_RESPONSES_DOC = "https://platform.openai.com/docs/api-reference/responses/create"
_REASONING_DOC = "https://platform.openai.com/docs/guides/reasoning"
_ANTHROPIC_DOC = "https://docs.anthropic.com/en/api/messages"
_ANTHROPIC_TOOLS = "https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use"
_CACHE_DOC = "https://docs.anthropic.com/en/docs/build-with-claude/prompt-caching"
_GEMINI_DOC = "https://ai.google.dev/gemini-api/docs/function-calling"
_TEMPLATES = "https://huggingface.co/docs/transformers/chat_templating: templates raise on other orders"

# fmt: off
RULES: tuple[Rule, ...] = (
    Rule(name="json.strict", alone=True, holds=_always, find=find.not_strict,
         mend="replace what JSON cannot hold", source="RFC 8259, sections 6 and 8.1"),
    Rule(name="message.shape", alone=True, holds=_always, find=find.shape,
         mend="write it anew as the API has it", source=f"{_CHAT_DOC}; {_ANTHROPIC_DOC}; {_GEMINI_DOC}"),
    Rule(name="message.part", alone=True, holds=_always, find=find.misplaced_parts,
         mend="leave the part out; a result becomes a message of its own", source=f"{_CHAT_DOC}; {_ANTHROPIC_DOC}"),
    Rule(name="message.name", alone=True, holds=lambda t: t.speaker_pattern is not None, find=find.speaker,
         mend="rename the speaker, distinct speakers distinctly", source=f"{_CHAT_DOC}#messages: name"),
    Rule(name="item.id_twice", holds=_is("openai_responses"), find=find.item_ids,
         mend="leave out the later one's id", source="'Duplicate item found with id …'"),
    Rule(name="system.developer", alone=True, holds=lambda t: not t.developer, find=find.unknown_developer,
         mend="send it as a system message", source=_TEMPLATES),
    Rule(name="system.late", holds=lambda t: not t.system_anywhere, find=find.late_system,
         mend="send it as a marked user text at its place", source=f"{_ANTHROPIC_DOC}; {_TEMPLATES}"),
    Rule(name="system.one", holds=lambda t: t.one_system, find=find.two_systems,
         mend="merge the leading system messages", source=_TEMPLATES),
    Rule(name="content.empty", holds=_always, find=find.empty,
         mend="drop it at the end of the list, else say in its place that it was empty",
         source=f"{_CHAT_DOC}; {_ANTHROPIC_DOC}"),
    Rule(name="content.blank_text", alone=True, holds=_always, find=find.blank_text,
         mend="drop the blank part", source=f"{_ANTHROPIC_DOC}: text content blocks must be non-empty"),
    Rule(name="content.trailing_space", holds=_is("anthropic"), find=find.trailing_space,
         mend="strip it", source="'final assistant content cannot end with trailing whitespace'"),
    Rule(name="order.nothing_said", holds=_always, find=find.nothing_said,
         mend="put a user mark there", source=f"{_ANTHROPIC_DOC}; {_GEMINI_DOC}; {_RESPONSES_DOC}: at least one"),
    Rule(name="order.user_first", holds=lambda t: t.user_first, find=find.not_user_first,
         mend="put a user mark before it", source=f"{_ANTHROPIC_DOC}; {_GEMINI_DOC}; {_TEMPLATES}"),
    Rule(name="order.alternation", holds=lambda t: t.alternates, find=find.same_role,
         mend="merge the neighbours", source=_TEMPLATES),
    Rule(name="order.user_after_tool", holds=lambda t: not t.user_after_tool, find=find.user_after_tool,
         mend="put an assistant mark between them",
         source="Mistral's chat templates: 'After the optional system message, conversation roles must alternate'"),
    Rule(name="call.arguments", alone=True, holds=lambda t: t.object_arguments, find=find.arguments,
         mend="mend the JSON, or keep the text as one field of an object", source=f"{_ANTHROPIC_DOC}; {_GEMINI_DOC}"),
    Rule(name="call.kind", alone=True, holds=_always, find=find.kind,
         mend="send it as a function call with its input as one field", source=f"{_CHAT_DOC}; {_ANTHROPIC_DOC}"),
    Rule(name="call.name", alone=True, holds=_always, find=find.call_name,
         mend="rename it, the same name always the same way", source=f"{_CHAT_DOC}; {_ANTHROPIC_DOC}; {_GEMINI_DOC}"),
    Rule(name="call.id", alone=True, holds=_always, find=find.call_id,
         mend="give it another id, call and result together", source=f"{_CHAT_DOC}; {_ANTHROPIC_DOC}"),
    Rule(name="call.id_twice", holds=_always, find=find.id_twice,
         mend="give the later one another id, call and result together",
         source=f"{_ANTHROPIC_DOC}: tool_use ids must be unique; {_RESPONSES_DOC}"),
    Rule(name="call.parallel", holds=lambda t: not t.parallel_calls, find=find.parallel,
         mend="make a step of each call",
         source="https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md"),
    Rule(name="result.id", holds=_always, find=find.mismatched_id,
         mend="give the result its call's id", source=_CHAT_DOC),
    Rule(name="result.name", holds=_is("gemini"), find=find.mismatched_name,
         mend="give the result its call's name", source=_GEMINI_DOC),
    Rule(name="result.kind", holds=_is("openai_responses"), find=find.mismatched_kind,
         mend="send it as an output of its call's kind", source=_RESPONSES_DOC),
    Rule(name="result.orphan", holds=_always, find=find.orphans,
         mend="drop the orphan alone", source=f"{_CHAT_DOC}; {_RESPONSES_DOC}; {_ANTHROPIC_TOOLS}; {_GEMINI_DOC}"),
    Rule(name="result.duplicate", holds=_always, find=find.duplicates,
         mend="keep one: the real one before the synthetic one, then the first", source=_ANTHROPIC_TOOLS),
    Rule(name="result.missing", holds=_always, find=find.unanswered,
         mend="put in a result that says whether the call was started", source=f"{_CHAT_DOC}; {_ANTHROPIC_TOOLS}"),
    Rule(name="result.misplaced", holds=lambda t: t.format != "openai_responses", find=find.misplaced,
         mend="move it to its call", source=f"{_ANTHROPIC_TOOLS}: tool results come first in the next user message"),
    Rule(name="result.order", holds=lambda t: t.ordered_results, find=find.disordered,
         mend="put the results in the order of their calls", source=f"{_GEMINI_DOC}; {_TEMPLATES}"),
    Rule(name="reasoning.dangling", holds=_is("openai_responses"), find=find.dangling,
         mend="leave it out, and the ids that refer to it", source=_REASONING_DOC),
    Rule(name="cache.breakpoints", holds=_is("anthropic"), find=find.breakpoints,
         mend="drop the oldest markers", source=f"{_CACHE_DOC}: up to 4 breakpoints"),
)
# fmt: on


def is_ready(messages: Sequence[Message], target: Target) -> bool:
    """Whether the model is the one to speak next: the list ends with the user's words or a tool's results.

    Or with a response that its own server has not finished: a server tool's call that was paused
    (https://docs.anthropic.com/en/api/handling-stop-reasons: ``pause_turn``), a server's own item (Responses).
    """
    if not messages:
        return False
    last = messages[-1]
    if last.role != "assistant":
        return last.role in ("user", "tool")
    if target.format not in ("anthropic", "openai_responses") or not last.parts:
        return False
    part = last.parts[-1]
    if not isinstance(part, Opaque):
        return False
    if target.format == "openai_responses":  # an item of its own, not a part of a message that we do not know
        return last.native is not None and last.native.value.get("type") == part.kind
    return part.kind == "server_tool_use" or part.kind.endswith("_tool_result")
