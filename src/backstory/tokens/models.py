"""Which model counts how: from a model's name to a `Counter`.

It knows names and nothing else about models: no windows, no prices.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from backstory.errors import ConfigurationError
from backstory.tokens.estimates import ESTIMATES
from backstory.tokens.text import DEFAULT_ENCODING, count_text, remembered
from backstory.tokens.vocabulary import ENCODINGS

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class Counter:
    """Counts the tokens of text for one tokenizer: exactly where it ships, else by an estimate.

    `name` is an encoding (`o200k_base`) or an estimate (`claude-4.7`): a stable key to keep counts under.
    """

    name: str

    def __post_init__(self) -> None:
        if self.name not in ENCODINGS and self.name not in ESTIMATES:
            known = ", ".join((*ENCODINGS, *ESTIMATES))
            raise ConfigurationError(f"nothing counts as {self.name!r}; there are {known}")

    @property
    def exact(self) -> bool:
        """Whether counts of text are the tokenizer's own."""
        return self.name in ENCODINGS

    @property
    def encoding(self) -> str:
        """The encoding that is counted in, or that the estimate is built on."""
        return self.name if self.exact else DEFAULT_ENCODING

    @property
    def margin(self) -> float:
        """How far off a request's count may be, relative (0.1 is 10 %): 0.0 where exact. See `estimates`."""
        return 0.0 if self.exact else ESTIMATES[self.name].margin

    def count(self, text: str) -> int:
        """Tokens of a text: 0 for none, else at least 1. Cached; `InvalidInput` for what is no text."""
        if self.exact or not text or not isinstance(text, str):
            return count_text(text, self.encoding)
        return remembered(self.name, text, ESTIMATES[self.name].tokens)


# First match wins. The OpenAI names are those of tiktoken 0.14, `tiktoken/model.py`; a model that is not in
# that list (o200k_base or not?) is left to `other`. Matched against the last part of the name, in lower case.
_NAMES: Final = tuple(
    (re.compile(pattern), counter)
    for pattern, counter in (
        (r"distill.*llama", "llama-3"),
        (r"distill.*qwen", "qwen-3"),
        (
            r"^(ft:)?(gpt-4o|gpt-4\.1|gpt-4\.5|gpt-5|chatgpt-4o|(o1|o3|o4-mini)(?![^-:])|codex-mini)",
            "o200k_base",
        ),
        (r"^gpt-oss", "o200k_base"),
        (r"^(ft:)?(gpt-4|gpt-3\.5|gpt-35|davinci-002|babbage-002)(?![.\d])", "cl100k_base"),
        (r"^text-embedding-(ada-002|3-)", "cl100k_base"),
        (r"qwen-?3\.[5-9]", "qwen-3.5"),
        (r"qwen|qwq|qvq|tongyi", "qwen-3"),
        (r"deepseek", "deepseek"),
        (r"gemini|gemma-?[3-9]", "gemini"),
        (r"llama-?3|llama3", "llama-3"),
        (r"mistral-(large|medium|small|nemo)|ministral|magistral|codestral|devstral|pixtral", "mistral"),
    )
)
_CLAUDE: Final = re.compile(r"claude")
_CLAUDE_VERSION: Final = re.compile(r"(?<![\d.])(\d{1,2})(?:[-.](\d{1,2}))?(?!\d)")
_CLAUDE_NEW: Final = (4, 7)

_BY_FORMAT: Final[Mapping[str, str]] = {
    "openai_chat": DEFAULT_ENCODING,
    "openai_responses": DEFAULT_ENCODING,
    "anthropic": "claude-4.7",
    "gemini": "gemini",
}


def counter_for(model: str | None = None, format: str | None = None) -> Counter:
    """The counter of a model; where no model is named, that of a wire format; where neither is, `o200k_base`.

    Prefixes of gateways (`openai/gpt-4o`, `us.anthropic.claude-…`, `models/gemini-…`) are passed over. A model
    that nobody knows gets the estimate `other` with its wide margin, or, in the formats of Anthropic and
    Gemini, that provider's own. No name raises.
    """
    if model:
        # gateways put a path before the name; a fine-tuned one is "ft:base:organisation::id"
        name = model.lower().rsplit("/", 1)[-1]
        if _CLAUDE.search(name):
            return Counter(name=_claude(name))
        for pattern, counter in _NAMES:
            if pattern.search(name):
                return Counter(name=counter)
        own = _BY_FORMAT.get(format or "", "other")
        return Counter(name="other" if own in ENCODINGS else own)
    return Counter(name=_BY_FORMAT.get(format or "", DEFAULT_ENCODING))


def _claude(name: str) -> str:
    """Old or new vocabulary: the new one, with more tokens for the same text, came with Opus 4.7."""
    found = _CLAUDE_VERSION.search(name, name.index("claude"))
    if found is None:
        return "claude-4.7"
    version = (int(found[1]), int(found[2] or 0))
    return "claude-4.7" if version >= _CLAUDE_NEW else "claude-3"
