"""Secrets taken out of a text: by what they look like, by the name that they stand under, and by value.

Better a word too many than a key too few: what stands where a secret would is replaced, whatever it is. All else stays,
character for character, and JSON stays JSON, also JSON that is a string within JSON (the arguments of a tool call).
Every pattern runs in linear time, since texts come from anywhere. No I/O here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping

REDACTED = "[redacted]"

SHORTEST = 6
"""Characters of a value that is looked for everywhere: shorter ones would be found in every second word."""

_NAMES = (
    r"(?:api|app|access|account|secret|private|signing|encryption|master|subscription)[ _-]?key"
    r"|secret|pass(?:word|wd|phrase)|pwd|token|credentials?|connection[ _-]?string|x-api-key|auth"
)
_NAME = re.compile(_NAMES, re.IGNORECASE)

_SHAPES = re.compile(
    r"""
      (?<![A-Za-z0-9])(?:
        sk-[A-Za-z0-9_-]{12,}                            # OpenAI, Anthropic, OpenRouter, DeepSeek
      | (?:pk|rk|sk)_(?:live|test)_[A-Za-z0-9]{8,}       # Stripe
      | AIza[A-Za-z0-9_-]{30,}                           # Google
      | gh[opsur]_[A-Za-z0-9]{20,} | github_pat_\w{20,}  # GitHub
      | glpat-[A-Za-z0-9_-]{16,}                         # GitLab
      | xox[abeoprs]-[A-Za-z0-9-]{8,}                    # Slack
      | (?:AKIA|ASIA)[A-Z0-9]{16}(?![A-Za-z0-9])         # AWS
      | (?:hf|gsk|npm|r8)_[A-Za-z0-9]{20,}               # Hugging Face, Groq, npm, Replicate
      | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*  # a JSON Web Token
      )
    | -----BEGIN[ ][A-Z ]{0,30}PRIVATE[ ]KEY-----(?:(?!-----END)[\s\S])*
    """,
    re.VERBOSE,
)
_SCHEME = re.compile(r"\b(bearer|basic)(\s+)([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_HEADER = re.compile(
    r"""\b((?:proxy-)?authorization|(?:set-)?cookie)(\\*["'])?(\s*[:=]\s*)(?!\\*["'])[^"'\\\r\n]+""",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)([^\s/:@\"'\\]{0,100}):([^\s/@\"'\\]{1,200})@")
_NAMED = re.compile(
    rf"""
    (?:{_NAMES}|(?:proxy-)?authorization|(?:set-)?cookie)(?:[_-]?\d{{1,3}})?
    (?P<close>\\*["'])?\s{{0,20}}(?:=>|:=|[:=])\s{{0,20}}
    (?:(?P<quote>\\*["'])|(?P<bare>[^\s"'\\]+))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_JSON_SCALAR = re.compile(r"(?:true|false|null|[{\[]|-?\d)")
_NUMBER = re.compile(r"-?\d[\d.eE+-]*")


def redact(text: str, secrets: Iterable[str] = ()) -> str:
    """The text with `REDACTED` in place of secrets. `secrets` are known values; see `spellings`."""
    for secret in secrets:
        if secret in text:
            text = text.replace(secret, REDACTED)
    text = _SHAPES.sub(REDACTED, text)
    text = _SCHEME.sub(rf"\1\2{REDACTED}", text)
    text = _HEADER.sub(_header, text)
    text = _LOGIN.sub(rf"\1:{REDACTED}@", text)
    return _named(text)


def spellings(values: Iterable[str]) -> tuple[str, ...]:
    """Known secrets as they may stand in a text: as they are, and inside JSON strings, longest first.

    Values shorter than `SHORTEST` are left out.
    """
    found: set[str] = set()
    for value in values:
        level = {value}
        for _ in range(3):  # as it is, in JSON, in JSON within JSON
            found |= {spelling for spelling in level if len(value) >= SHORTEST}
            level = {json.dumps(one, ensure_ascii=escaped)[1:-1] for one in level for escaped in (True, False)}
    return tuple(sorted(found, key=lambda spelling: (-len(spelling), spelling)))


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """The values of environment variables whose names say that they are secret."""
    return [value for name, value in environment.items() if _NAME.search(name) and value]


def _header(found: re.Match[str]) -> str:
    return f"{found[1]}{found[2] or ''}{found[3]}{REDACTED}"


def _named(text: str) -> str:
    """Replace what stands after the name of a secret: a quoted string up to its end, or else one word."""
    pieces: list[str] = []
    done = 0
    while (found := _NAMED.search(text, done)) is not None:
        quote = found["quote"]
        if quote is not None:
            start, end = found.end(), _end_of_string(text, found.end(), quote)
            instead = REDACTED if end > start else ""
        else:
            start, end = found.span("bare")
            instead = _instead(found["bare"], found["close"] or "")
            if instead == found["bare"]:
                end = start + 1  # no secret: look on right behind
                instead = text[start:end]
            elif found["close"] and _NUMBER.match(found["bare"]):
                end = start + len(_NUMBER.match(found["bare"])[0])  # type: ignore[index]
        pieces += (text[done:start], instead)
        done = end
    return "".join(pieces) + text[done:]


def _instead(bare: str, close: str) -> str:
    """For an unquoted value. After a quoted name it is a value of JSON: a number is replaced by a string."""
    if not close:
        return REDACTED
    if _NUMBER.match(bare):
        return f"{close}{REDACTED}{close}"
    return bare if _JSON_SCALAR.match(bare) else REDACTED


def _end_of_string(text: str, start: int, quote: str) -> int:
    r"""Where a string ends that was opened by `quote`, such as ``"``, or ``\"`` inside another string.

    At depth k each quote of the string itself has ``2**k - 1`` backslashes before it; one that is part of its text has
    an odd number of times ``2**k`` more.
    """
    slashes, mark = len(quote) - 1, quote[-1]
    at = text.find(mark, start)
    while at >= 0:
        run = at
        while run > start and text[run - 1] == "\\":
            run -= 1
        before = at - run
        if before < slashes:
            return at - before  # the string around it ends here
        if (before - slashes) % (slashes + 1) == 0 and (before - slashes) // (slashes + 1) % 2 == 0:
            return at - slashes
        at = text.find(mark, at + 1)
    return len(text)
