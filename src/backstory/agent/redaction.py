"""Secrets taken out of a text: by what they look like, by the name that they stand under, and by value.

Better a word too many than a key too few: what stands where a secret would is replaced, whatever it is. All else stays,
byte for byte. JSON is read as JSON, also within strings of JSON (the arguments of a tool call), and stays JSON.
Every pattern runs in linear time, since texts come from anywhere. No I/O here.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from hashlib import blake2b

REDACTED = "[redacted]"

SHORTEST = 8
"""Characters of a value that is looked for everywhere: a shorter one is found where it means nothing."""

_LONGEST_NAME = 200
_DEEPEST = 8
"""JSON within strings of JSON. Each level doubles the backslashes, so nobody comes near it."""

_KEYS = r"(?:api|app|access|account|client|secret|private|signing|encryption|master|subscription)[ _-]?key"
_WORDS = r"secret|pass(?:word|wd|phrase|code)|token|credentials?|connection[ _-]?string"
_ENVIRONMENT = re.compile(rf".*(?:{_KEYS}|{_WORDS})(?:_?\d+)?", re.IGNORECASE | re.DOTALL)
_FIELD = re.compile(
    rf"(?:.*(?:{_KEYS}|{_WORDS})|(?:.*[^a-z])?(?:pwd|auth|authorization|cookie))(?:_?\d+)?",
    re.IGNORECASE | re.DOTALL,
)
"""The names of JSON fields whose values are secret."""

_SHAPES = re.compile(
    r"""
      (?<![A-Za-z0-9])(?:
        sk-[A-Za-z0-9_-]{12,}                            # OpenAI, Anthropic, OpenRouter, DeepSeek
      | [prs]k_(?:live|test)_[A-Za-z0-9]{8,}             # Stripe
      | AIza[A-Za-z0-9_-]{30,}                           # Google
      | gh[opsur]_[A-Za-z0-9]{20,} | github_pat_\w{20,}  # GitHub
      | glpat-[A-Za-z0-9_-]{16,}                         # GitLab
      | xox[abeoprs]-[A-Za-z0-9-]{8,}                    # Slack
      | A[KS]IA[A-Z0-9]{16}(?![A-Za-z0-9])               # AWS
      | (?:hf|gsk|npm|r8)_[A-Za-z0-9]{20,}               # Hugging Face, Groq, npm, Replicate
      | eyJ[A-Za-z0-9_-]{8,}\.eyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*  # a JSON Web Token
      )
    | -----BEGIN[ ][A-Z ]{0,30}PRIVATE[ ]KEY-----(?:(?!-----END)[\s\S])*
    """,
    re.VERBOSE,
)
_SCHEME = re.compile(r"\b(bearer|basic)(\s+)([A-Za-z0-9._~+/=-]{8,})", re.IGNORECASE)
_HEADER = re.compile(
    r"\b((?:proxy-)?authorization|(?:set-)?cookie)(\s*:\s*)[^\s\"'][^\r\n\"']*", re.IGNORECASE
)
_LOGIN = re.compile(r"(://[^\s/:@\"']{0,100}):[^\s/@\"']{1,200}@")
_NAMED = re.compile(
    rf"""
    (?:{_KEYS}|{_WORDS}|\b(?:pwd|auth|authorization|cookie))(?:_?\d{{1,3}})?
    (?:\\*["'])?\s{{0,20}}[:=]{{1,3}}>?\s{{0,20}}
    (?:\\*(?P<quote>["'])|(?P<bare>[^\s"']+))
    """,
    re.IGNORECASE | re.VERBOSE,
)
_MARKS = (
    "sk-", "k_live_", "k_test_", "AIza", "gho_", "ghp_", "ghs_", "ghu_", "ghr_", "github_pat_", "glpat-", "xox", "AKIA",
    "ASIA", "hf_", "gsk_", "npm_", "r8_", "eyJ", "PRIVATE KEY",
)  # fmt: skip
_ROOTS = ("key", "secret", "pass", "token", "credential", "connection", "pwd", "auth", "cookie")
"""One of these stands in whatever `_SHAPES`, or `_HEADER` and `_NAMED`, find: a quick look saves most of the time."""

_SHORT, _REMEMBERED = 200, 20_000
"""Characters, and texts."""
_QUOTED = 4_000
"""Characters after which a quote that was never closed was none."""

_LITERAL = re.compile(r'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_COLON = re.compile(r"\s*:\s*")
_NUMBER = re.compile(r"-?\d[\d.eE+-]*")


class Redactor:
    """Takes out what looks like a secret or is named like one, and the values of `secrets` wherever they stand."""

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        known = {value for value in secrets if len(value) >= SHORTEST}
        known |= {json.dumps(value)[1:-1] for value in known}  # for broken JSON, which is read as plain text
        self._known = sorted(known, key=lambda value: (-len(value), value))
        self._clean: set[bytes] = (
            set()
        )  # digests of long texts without secrets: a history comes again and again

    def redact(self, text: str) -> str:
        """The text without secrets; JSON stays JSON."""
        return self._redact(text, _DEEPEST)

    def _redact(self, text: str, depth: int) -> str:
        if depth and text.lstrip()[:1] in ("{", "[", '"') and _is_json(text):
            return self._json(text, depth - 1)
        return self._plain(text)

    def _json(self, text: str, depth: int) -> str:
        """Only strings are looked at, and numbers that have a secret's name; what is between them stays as it is."""
        pieces: list[str] = []
        done = 0
        named = False  # the string before was the name of a secret, and its value follows
        for found in _LITERAL.finditer(text):
            literal = found[0]
            colon = _COLON.match(text, found.end())
            value = json.loads(literal) if "\\" in literal else literal[1:-1]
            if named and colon is None and value:
                fresh = REDACTED
            else:
                fresh = self._redact(value, depth)
            if fresh != value:
                pieces += (text[done : found.start()], json.dumps(fresh, ensure_ascii=literal.isascii()))
                done = found.end()
            named = False
            if colon is not None and len(value) <= _LONGEST_NAME and _FIELD.fullmatch(value):
                after = text[colon.end() : colon.end() + 1]
                number = _NUMBER.match(text, colon.end())
                named = after == '"'
                if number is not None and len(number[0]) >= SHORTEST:
                    pieces += (text[done : number.start()], f'"{REDACTED}"')
                    done = number.end()
        return "".join(pieces) + text[done:]

    def _plain(self, text: str) -> str:
        if len(text) < _SHORT:
            return self._searched(text)
        digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        if digest in self._clean:
            return text
        fresh = self._searched(text)
        if fresh == text:
            if len(self._clean) >= _REMEMBERED:
                self._clean.clear()
            self._clean.add(digest)
        return fresh

    def _searched(self, text: str) -> str:
        for secret in self._known:
            if secret in text:
                text = text.replace(secret, REDACTED)
        if any(mark in text for mark in _MARKS):
            text = _SHAPES.sub(REDACTED, text)
        lower = text.lower()
        if "bearer" in lower or "basic" in lower:
            text = _SCHEME.sub(rf"\1\2{REDACTED}", text)
        if "://" in text:
            text = _LOGIN.sub(rf"\1:{REDACTED}@", text)
        if not any(root in lower for root in _ROOTS):
            return text
        return _named(_HEADER.sub(rf"\1\2{REDACTED}", text))


def secrets_of(environment: Mapping[str, str]) -> list[str]:
    """The values of environment variables whose names say that they are secret."""
    return [value for name, value in environment.items() if value and _ENVIRONMENT.fullmatch(name)]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except (ValueError, RecursionError):
        return False
    return True


def _named(text: str) -> str:
    """Replace what stands after the name of a secret: a quoted string up to its end, or else one word."""
    pieces: list[str] = []
    done = 0
    while (found := _NAMED.search(text, done)) is not None:
        if found["bare"] is not None:
            start, end = found.span("bare")
        else:
            start, end = found.end(), _end_of_string(text, found.end(), found["quote"])
        pieces += (text[done:start], REDACTED if end > start else "")
        done = end
    return "".join(pieces) + text[done:]


def _end_of_string(text: str, start: int, mark: str) -> int:
    """Where a quoted value ends: at a quote that is not escaped, else with its line."""
    opened = start - 1
    while opened > 0 and text[opened - 1] == "\\":
        opened -= 1
    slashes = start - 1 - opened
    at = text.find(mark, start, start + _QUOTED)
    while at >= 0:
        before = 0
        while at - before > start and text[at - before - 1] == "\\":
            before += 1
        if before <= slashes or (not slashes and before % 2 == 0):
            return at - min(before, slashes)
        at = text.find(mark, at + 1, start + _QUOTED)
    line = text.find("\n", start)
    return line if line >= 0 else len(text)
