"""New names and ids for those that a target refuses: short, and the same for the same, wherever it stands."""

from __future__ import annotations

import hashlib
import re

from backstory.legality.values import good_id, good_name
from backstory.targets import Target

_LENGTHS = (24, 9)
"""Of made-up ids. Nine is what Mistral's templates ask for: `[a-zA-Z0-9]{9}`."""


def new_name(name: str, pattern: str | None, *, instead: str) -> str:
    """A name that matches the pattern. It ends in a digest of the old one, so that distinct names stay distinct."""
    if good_name(name, pattern):
        return name
    kept = re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:48]
    if not kept or not re.match(r"[A-Za-z_]", kept):
        kept = f"{instead}_{kept}".rstrip("_")
    return f"{kept}_{_digest(name)[:6]}" if name else kept


def new_id(call_id: str, target: Target, *, position: int, number: int, taken: set[str]) -> str:
    """An id that the target takes and that is not taken.

    It depends on the old id alone wherever that suffices, and on the place in the whole list where it does not
    (`position` of the message, `number` of the part), so that it is the same from whichever place replay begins.
    """
    if call_id and call_id not in taken:
        plain = re.sub(r"[^A-Za-z0-9_-]", "_", call_id)
        if good_id(plain, target) and plain not in taken:
            return plain
    seeds = [call_id] if call_id and call_id not in taken else []
    seeds += [f"{call_id}\n{position}\n{number}\n{turn}" for turn in range(8)]
    for seed in seeds:
        digest = _digest(seed)
        for candidate in _spellings(call_id, digest, target):
            if candidate not in taken and good_id(candidate, target):
                return candidate
    return f"call_{_digest(f'{call_id}{position}{number}')}"  # the target's pattern is one that nobody could meet


def _spellings(call_id: str, digest: str, target: Target) -> list[str]:
    limit = target.id_length or 64
    stem = re.sub(r"[^A-Za-z0-9_-]", "_", call_id)[: max(0, limit - 9)]
    tries = [f"{stem}_{digest[:8]}" if stem else f"call_{digest[:12]}"]
    return [*tries, *(digest[: min(length, limit)] for length in _LENGTHS)]


def _digest(text: str) -> str:
    return hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()
