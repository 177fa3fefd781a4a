"""What tool declarations cost.

How a provider writes tools into the prompt is not published. OpenAI's models see them as a TypeScript namespace,
which takes fewer tokens than the JSON (https://community.openai.com/t/266573 has the rendering); Anthropic
says that names, descriptions and schemas are counted, and a prompt of its own on top
(https://platform.claude.com/docs/en/agents-and-tools/tool-use/overview, "Pricing"). So this counts the compact JSON
of each declaration and a little around it: rather too much for OpenAI, near enough for the others, and `Calibration`
learns the rest from what is billed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from backstory.tokens.models import Counter

#: Around all tools: the namespace, its heading, a line before and after.
AROUND_ALL: Final = 12
#: Around each: keyword, brackets, separators.
AROUND_EACH: Final = 8
#: Anthropic's own prompt for the use of tools: 346 tokens with Claude 4 and `tool_choice` auto or none (313 with any
#: or a named one); its page on tool use, "Pricing".
ANTHROPIC_PROMPT: Final = 346
#: How far off a count may be, relative: a schema of many small properties is written a third shorter than its JSON.
MARGIN: Final = 0.35


#: How the server is to treat the tool, not what the model reads of it.
_WIRE_ONLY: Final = frozenset({"cache_control", "strict", "defer_loading"})


def count_tools(tools: Sequence[Mapping[str, Any]] | None, counter: Counter) -> int:
    """Tokens of the declarations in `tools`, in any provider's form; 0 for none.

    Never raises, whatever is in the list: what JSON cannot write, circular or deep beyond end, counts by the
    strings and numbers in it.
    """
    if not tools:
        return 0
    declared: Sequence[object] = [tools] if isinstance(tools, Mapping | str) else list(tools)
    prompt = ANTHROPIC_PROMPT if counter.name.startswith("claude") else 0
    return prompt + AROUND_ALL + sum(AROUND_EACH + counter.count(_written(tool)) for tool in declared)


def _written(tool: object) -> str:
    """The declaration in compact JSON, without the wrapper that only the wire needs."""
    if isinstance(tool, Mapping):
        function = tool.get("function")
        told = function if isinstance(function, Mapping) else tool
        tool = {key: value for key, value in told.items() if key not in _WIRE_ONLY}
    try:
        return json.dumps(tool, ensure_ascii=False, separators=(",", ":"), default=_plain, skipkeys=True)
    except (ValueError, RecursionError):
        return " ".join(_leaves(tool))


def _plain(value: object) -> object:
    """A stand-in for what JSON has no form for."""
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, set | frozenset) else type(value).__name__


def _leaves(value: object) -> Iterator[str]:
    """Keys, strings and numbers, each container once, without recursion."""
    seen: set[int] = set()
    waiting = [value]
    while waiting:
        value = waiting.pop()
        if isinstance(value, Mapping | list | tuple | set | frozenset):
            if id(value) not in seen:
                seen.add(id(value))
                waiting.extend(value)
                waiting.extend(value.values() if isinstance(value, Mapping) else ())
        elif isinstance(value, str | int | float | None):
            yield str(value)
