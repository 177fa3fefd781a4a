"""The two byte-pair vocabularies that ship with the package: read, checked, never fetched.

This module knows where a vocabulary lies, what it must hash to and how text is split before merging. It
does not know how to count. Nothing here opens a socket: an offline machine counts from its first call.

A vocabulary is the file that OpenAI published for tiktoken, gzipped. Measured on one core (see
`benchmarks/tokenizers.py`): decompression 20 ms, hash 2 ms, parsing 60 ms for the 200,000 lines of
`o200k_base`; xz would make the wheel 0.8 MB smaller and the first count 60 ms slower.
"""

from __future__ import annotations

import binascii
import gzip
import hashlib
import zlib
from dataclasses import dataclass
from importlib import resources
from types import MappingProxyType
from typing import TYPE_CHECKING

from backstory.errors import ConfigurationError, VocabularyError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, kw_only=True, slots=True)
class EncodingSpec:
    """What defines an encoding besides its vocabulary: `sha256` of the vocabulary, and the split `pattern`."""

    name: str
    sha256: str
    pattern: str


# Hashes and patterns are those of tiktoken 0.14, `tiktoken_ext/openai_public.py` (MIT). They define the
# encodings: a changed character is another tokenizer.
_CONTRACTION = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?"
ENCODINGS: Mapping[str, EncodingSpec] = MappingProxyType(
    {
        "o200k_base": EncodingSpec(
            name="o200k_base",
            sha256="446a9538cb6c348e3516120d7c08b09f57c36495e2acfffe59a5bf8b0cfb1a2d",
            pattern="|".join(
                (
                    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
                    + _CONTRACTION,
                    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*"
                    + _CONTRACTION,
                    r"\p{N}{1,3}",
                    r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
                    r"\s*[\r\n]+",
                    r"\s+(?!\S)",
                    r"\s+",
                )
            ),
        ),
        "cl100k_base": EncodingSpec(
            name="cl100k_base",
            sha256="223921b76ee99bde995b7ff738513eef100fb51d18c93597a113bcffe865b2a7",
            pattern="|".join(
                (
                    r"'(?i:[sdmt]|ll|ve|re)",
                    r"[^\r\n\p{L}\p{N}]?+\p{L}++",
                    r"\p{N}{1,3}+",
                    r" ?[^\s\p{L}\p{N}]++[\r\n]*+",
                    r"\s++$",
                    r"\s*[\r\n]",
                    r"\s+(?!\S)",
                    r"\s",
                )
            ),
        ),
    }
)


def encoding_spec(name: str) -> EncodingSpec:
    """The definition of an encoding; `ConfigurationError` when it is not one of those that ship."""
    try:
        return ENCODINGS[name]
    except (KeyError, TypeError):
        known = ", ".join(ENCODINGS)
        raise ConfigurationError(
            f"unknown encoding {name!r}: the ones that count exactly are {known}"
        ) from None


def shipped_bytes(name: str) -> bytes:
    """The compressed vocabulary as it lies in the package; `VocabularyError` when it is not there."""
    file = resources.files("backstory.tokens").joinpath("vocab", f"{name}.tiktoken.gz")
    try:
        return file.read_bytes()
    except OSError as error:
        raise VocabularyError(
            f"the vocabulary of {name} is missing from the installed package ({error}): install backstory again"
        ) from error


def parse_vocabulary(packed: bytes, spec: EncodingSpec) -> dict[bytes, int]:
    """Token bytes to rank, from a gzipped vocabulary.

    `VocabularyError` when it cannot be unpacked or its SHA-256 is not the published one: a damaged
    vocabulary would count wrongly and say nothing.
    """
    try:
        plain = gzip.decompress(packed)
    except (OSError, EOFError, zlib.error) as error:
        raise VocabularyError(f"the vocabulary of {spec.name} cannot be unpacked: {error}") from error
    found = hashlib.sha256(plain).hexdigest()
    if found != spec.sha256:
        raise VocabularyError(
            f"the vocabulary of {spec.name} is damaged: its SHA-256 is {found}, published is {spec.sha256}"
        )
    # Lines are "base64 rank", and in both files the ranks run from 0 without a gap: the hash vouches for it,
    # so the ranks need no parsing.
    words = plain.split()
    return dict(zip(map(binascii.a2b_base64, words[::2]), range(len(words) // 2), strict=True))


def load_vocabulary(name: str) -> dict[bytes, int]:
    """Token bytes to rank for a shipped encoding: read, checked, parsed. About 85 ms for `o200k_base`."""
    spec = encoding_spec(name)
    return parse_vocabulary(shipped_bytes(name), spec)
