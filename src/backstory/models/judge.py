"""What a provider would say to a request: the rules of its target, whose turn it is, and a few fields of the body.

The rules are `backstory.legality`'s; here are only the words. It reads a body as a server does: it knows nothing of
how the body came about.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any

from backstory.errors import ModelRefused
from backstory.formats import wire_format
from backstory.legality.rules import Problem, problems
from backstory.messages import Message
from backstory.models.request import Request, read_request
from backstory.targets import Target

# What the API itself answers, by format and rule, as users report it: WIRE error reports and the providers' documents
# (https://community.openai.com, https://docs.anthropic.com/en/api/errors, https://ai.google.dev/gemini-api/docs/troubleshooting).
_WORDS: dict[tuple[str, str], str] = {
    ("openai_chat", "result.missing"): (
        "An assistant message with 'tool_calls' must be followed by tool messages responding to each 'tool_call_id'."
    ),
    ("openai_chat", "result.orphan"): (
        "Invalid parameter: messages with role 'tool' must be a response to a preceeding message with 'tool_calls'."
    ),
    ("openai_chat", "order.alternation"): (
        "After the optional system message, conversation roles must alternate user/assistant/user/assistant/..."
    ),
    ("openai_responses", "result.missing"): "No tool output found for function call.",
    ("openai_responses", "result.orphan"): "No tool call found for function call output.",
    ("openai_responses", "reasoning.dangling"): (
        "Item of type 'reasoning' was provided without its required following item."
    ),
    ("anthropic", "result.missing"): (
        "`tool_use` ids were found without `tool_result` blocks immediately after."
        " Each `tool_use` block must have a corresponding `tool_result` block in the next message."
    ),
    ("anthropic", "result.orphan"): (
        "unexpected `tool_use_id` found in `tool_result` blocks."
        " Each `tool_result` block must have a corresponding `tool_use` block in the previous message."
    ),
    ("anthropic", "call.id_twice"): "`tool_use` ids must be unique",
    ("anthropic", "content.empty"): "all messages must have non-empty content",
    ("anthropic", "content.blank_text"): "text content blocks must contain non-whitespace text",
    ("anthropic", "cache.breakpoints"): "A maximum of 4 blocks with cache_control may be provided.",
    ("gemini", "result.missing"): (
        "Please ensure that the number of function response parts is equal to the number of function call parts"
        " of the function call turn."
    ),
    ("gemini", "result.orphan"): (
        "Please ensure that function response turn comes immediately after a function call turn."
    ),
}
_MAX_TOKENS = "max_tokens"


def judge(body: Mapping[str, Any], target: Target) -> Request:
    """The request, read; `ModelRefused` with the provider's kind of words where the API would refuse it."""
    try:
        json.dumps(body, ensure_ascii=False, allow_nan=False).encode("utf-8")
    except (TypeError, ValueError, RecursionError) as error:
        raise refused(f"the body is not strict JSON ({error})") from error
    if target.format == "anthropic" and not isinstance(body.get(_MAX_TOKENS), int):
        raise refused(f"{_MAX_TOKENS}: Field required")
    request = read_request(body, target)
    problem = next(problems(request.messages, target), None)
    if problem is not None:
        raise refused(_sentence(problem, target))
    _speaks_next(request.messages, target)
    _tools(request, target)
    return request


def refused(what: str) -> ModelRefused:
    return ModelRefused(f"400 invalid_request_error: {what}")


def _sentence(problem: Problem, target: Target) -> str:
    words = _WORDS.get((target.format, problem.rule))
    place = f"{problem.rule} at message {problem.index} as read: {problem.what}"
    return f"{words} [{place}]" if words else place


def _speaks_next(messages: tuple[Message, ...], target: Target) -> None:
    last = messages[-1].role
    if last == "assistant":
        raise refused(
            f"the {wire_format(target.format).ITEMS} end with the assistant's own message: the conversation must"
            " end with a user message or a tool's result"
        )
    if all(message.role in ("system", "developer") for message in messages):
        raise refused("at least one message that is not the system's is required")


def _tools(request: Request, target: Target) -> None:
    seen: set[str] = set()
    for tool in request.tools:
        if tool.name in seen:
            raise refused(f"tools: Tool names must be unique ({tool.name!r} stands twice)")
        if not re.fullmatch(target.name_pattern, tool.name):
            raise refused(f"tools: the name {tool.name!r} does not match {target.name_pattern!r}")
        seen.add(tool.name)
