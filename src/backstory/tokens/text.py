"""Exact token counts of text, offline, cached.

What it knows: two encodings, how to build their tokenizer from the vocabularies that ship with the package,
and how to count any text whatever. What it refuses to know: models, messages, what a provider adds to them.

Control words of a tokenizer (`<|endoftext|>`, `<|im_start|>`) are text like any other: no special token is
given to the tokenizer at all. A surrogate pair counts as the character it means, a lone surrogate as
U+FFFD, which is what tiktoken does and what a JSON encoder with replacement sends. No text raises.

A vocabulary is loaded at the first count, not with this module: whoever never counts never pays for it.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import tiktoken

from backstory.errors import InvalidInput
from backstory.tokens.cache import CountCache
from backstory.tokens.split import BLANKS, LONG_RUN, PIECE, long_blanks, pieces
from backstory.tokens.vocabulary import ENCODINGS, encoding_spec, load_vocabulary

DEFAULT_ENCODING = "o200k_base"


class Tokenizer:
    """One encoding, loaded at its first count (about 0.25 s); safe to share between threads.

    `calls` is how many texts were really tokenised: what a test looks at to see that nothing is counted
    twice. `vocabulary` supplies token bytes to rank, and is called at most once, at the first count.
    """

    def __init__(self, encoding: str, *, vocabulary: Callable[[], dict[bytes, int]] | None = None) -> None:
        self.encoding = encoding_spec(encoding).name
        self.calls = 0
        self._vocabulary = vocabulary if vocabulary is not None else lambda: load_vocabulary(encoding)
        self._lock = Lock()
        self._core: tiktoken.Encoding | None = None
        self._blanks: tiktoken.Encoding | None = None

    def count(self, text: str) -> int:
        """Tokens of a text, exactly; not cached. `VocabularyError` when the shipped vocabulary is damaged."""
        if not isinstance(text, str):
            raise InvalidInput(f"only text can be counted, not {type(text).__name__}")
        if not text:
            return 0
        core = self._core or self._load()
        with self._lock:
            self.calls += 1
        if len(text) < LONG_RUN:
            return len(core.encode_ordinary(text))
        return self._count_long(core, text)

    def _count_long(self, core: tiktoken.Encoding, text: str) -> int:
        total = done = 0
        for start, end in long_blanks(text):
            if end == len(text):
                if self.encoding == "cl100k_base":
                    break  # its pattern takes white space at the very end without backtracking
            else:
                end -= 1
            total += self._count_pieces(core, text[done:start])
            total += len(self._blank_encoding(core).encode_ordinary(text[start:end]))
            done = end
        return total + self._count_pieces(core, text[done:] if done else text)

    @staticmethod
    def _count_pieces(core: tiktoken.Encoding, text: str) -> int:
        if len(text) <= PIECE:
            return len(core.encode_ordinary(text))
        return sum(len(core.encode_ordinary(piece)) for piece in pieces(text))

    def _load(self) -> tiktoken.Encoding:
        with self._lock:
            if self._core is None:
                self._core = tiktoken.Encoding(
                    name=self.encoding,
                    pat_str=ENCODINGS[self.encoding].pattern,
                    mergeable_ranks=self._vocabulary(),
                    special_tokens={},
                )
            return self._core

    def _blank_encoding(self, core: tiktoken.Encoding) -> tiktoken.Encoding:
        """Merges a whole run of blanks, without a pattern.

        Merging blanks can only ever make tokens of the bytes that blanks have, so the few tokens made of
        these suffice, and the rest of the vocabulary need not be held a second time.
        """
        with self._lock:
            if self._blanks is None:
                alphabet = frozenset(BLANKS.encode())
                tokens = filter(alphabet.issuperset, core.token_byte_values())
                ranks = {token: core.encode_single_token(token) for token in tokens}
                self._blanks = tiktoken.Encoding(
                    name=f"{self.encoding} blanks",
                    pat_str=r"[\s\S]+",
                    mergeable_ranks=ranks,
                    special_tokens={},
                )
            return self._blanks


_tokenizers = {name: Tokenizer(name) for name in ENCODINGS}
_counts = CountCache()


def tokenizer(encoding: str = DEFAULT_ENCODING) -> Tokenizer:
    """The process-wide tokenizer of an encoding; `ConfigurationError` when it is none of those that ship."""
    try:
        return _tokenizers[encoding]
    except (KeyError, TypeError):
        return _tokenizers[encoding_spec(encoding).name]  # raises, and says which there are


def count_text(text: str, encoding: str = DEFAULT_ENCODING) -> int:
    """Tokens of a text in `o200k_base` or `cl100k_base`: exact, offline, and cached for the process.

    Raises `ConfigurationError` for another encoding, `InvalidInput` for what is no text, and
    `VocabularyError` when the installed package is damaged.
    """
    counter = tokenizer(encoding)
    if not text or not isinstance(text, str):
        return counter.count(text)
    return remembered(counter.encoding, text, counter.count)


def remembered(counter: str, text: str, count: Callable[[str], int]) -> int:
    """The count that `counter` (a stable name) gave this text before, or else what `count` gives now."""
    key = _counts.key(counter, text)
    known = _counts.get(key)
    if known is None:
        known = count(text)
        _counts.put(key, known)
    return known
