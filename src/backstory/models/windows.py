"""Windows and longest answers of models that are known by name, in tokens.

Only of hosted models, whose window is the provider's: on a server of one's own it is what that server was started with.
Dated: a model that is not here has no window until somebody says it.
"""

from __future__ import annotations

import re
from typing import NamedTuple


class Size(NamedTuple):
    """`window` is input and output together; `max_output` the most that is written."""

    window: int | None = None
    max_output: int | None = None


# The first that matches. Sources: https://platform.openai.com/docs/models, https://docs.anthropic.com/en/docs/about-claude/models,
# https://api-docs.deepseek.com/quick_start/pricing, https://ai.google.dev/gemini-api/docs/models.
_SIZES: tuple[tuple[str, Size], ...] = (
    (r"gpt-5.*-chat", Size(128_000, 16_384)),
    (r"gpt-5", Size(400_000, 128_000)),
    (r"gpt-4\.1", Size(1_047_576, 32_768)),
    (r"(chatgpt-)?gpt-4o|chatgpt-4o", Size(128_000, 16_384)),
    (r"gpt-4-turbo|gpt-4-(1106|0125)", Size(128_000, 4_096)),
    (r"gpt-4(-0\d+)?$", Size(8_192, 8_192)),
    (r"gpt-3\.5-turbo", Size(16_385, 4_096)),
    (r"o1-(mini|preview)", Size(128_000, 32_768)),
    (r"(o1|o3|o4-mini)(?![^-])|o[134]-", Size(200_000, 100_000)),
    (r"claude-3-(opus|sonnet|haiku)", Size(200_000, 4_096)),
    (r"claude-3-5", Size(200_000, 8_192)),
    (r"claude-opus-4(-1)?(-\d{8})?$", Size(200_000, 32_000)),
    (r"claude", Size(200_000, 64_000)),
    (r"deepseek-(chat|reasoner)", Size(128_000, 8_192)),
    (r"gemini-(2\.5|[3-9])", Size(1_048_576, 65_536)),
    (r"gemini-(1\.5|2\.0)", Size(1_048_576, 8_192)),
)
_COMPILED = tuple((re.compile(pattern), size) for pattern, size in _SIZES)


def size_of(model: str) -> Size:
    """The size of a hosted model by its name; `Size(None, None)` where nobody knows."""
    name = model.lower().rsplit("/", 1)[-1].removeprefix("ft:")
    for pattern, size in _COMPILED:
        if pattern.match(name):
            return size
    return Size()
