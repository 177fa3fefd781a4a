"""Counting text: equal to the reference on any text, offline, loaded once, never twice."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st

from backstory.errors import BackstoryError, ConfigurationError, InvalidInput, VocabularyError
from backstory.tokens.split import BLANKS, long_blanks, pieces
from backstory.tokens.text import Tokenizer, count_text, remembered, tokenizer
from backstory.tokens.vocabulary import (
    ENCODINGS,
    encoding_spec,
    load_vocabulary,
    parse_vocabulary,
    shipped_bytes,
)

ENCODING_NAMES = sorted(ENCODINGS)
each_encoding = pytest.mark.parametrize("encoding", ENCODING_NAMES)

#: White space of every kind, both scripts, marks, digits, punctuation, control words, lone surrogates.
fragments = st.sampled_from(
    [
        " ", "  ", "\t", "\n", "\r\n", "\u3000", "\xa0", "\x1c", "\u2028", "a", "A", "word", " Word", "'s", "'LL",
        "12", "7", "!", "/", "...", "(", "中", "文字", "。", "，", "é", "e\u0301", "\u0301", "😀", "ʰ", "ſ", "İ",
        "<|endoftext|>", "<|im_start|>", "\ud83d", "\ude00", "\x00", "{\"a\": 1}", "ab\n\n", "\n/", "!\n",
    ]
)  # fmt: skip
texts = st.one_of(
    st.text(max_size=200),
    st.text(alphabet=st.characters(codec=None, categories=None), max_size=60),
    st.lists(fragments, max_size=60).map("".join),
)


@pytest.fixture(scope="module")
def reference() -> dict[str, tiktoken.Encoding]:
    """tiktoken put together as its own documentation does, with its special tokens among the vocabulary."""
    return {
        name: tiktoken.Encoding(
            name=name,
            pat_str=spec.pattern,
            mergeable_ranks=load_vocabulary(name),
            special_tokens={"<|endoftext|>": 300_000, "<|endofprompt|>": 300_001},
        )
        for name, spec in ENCODINGS.items()
    }


@pytest.mark.parametrize(
    ("text", "o200k", "cl100k"),
    [
        ("", 0, 0),
        ("hello world", 2, 2),
        ("Hello, world!", 4, 4),
        ("tiktoken is great!", 6, 6),
        ("antidisestablishmentarianism", 6, 6),
        ("2 + 2 = 4", 7, 7),
        ("お誕生日おめでとう", 8, 9),
        ("<|endoftext|>", 7, 7),
        ("\ud800", 1, 1),
        ("\U0001f600", 1, 2),
        ("\ud83d\ude00", 1, 2),
    ],
)
def test_known_counts(text: str, o200k: int, cl100k: int) -> None:
    # The words are the examples of OpenAI's cookbook, "How to count tokens with tiktoken".
    assert (count_text(text, "o200k_base"), count_text(text, "cl100k_base")) == (o200k, cl100k)


@each_encoding
@given(text=texts)
def test_any_text_counts_as_the_reference_counts_it(
    reference: dict[str, tiktoken.Encoding], encoding: str, text: str
) -> None:
    expected = len(reference[encoding].encode_ordinary(text))
    assert count_text(text, encoding) == expected
    assert count_text(text, encoding) == expected  # from the cache
    assert tokenizer(encoding).count(text) == expected


@each_encoding
@given(first=texts, second=texts)
def test_joining_two_texts_adds_their_counts_but_for_the_seam(encoding: str, first: str, second: str) -> None:
    whole = count_text(first + second, encoding)
    apart = count_text(first, encoding) + count_text(second, encoding)
    # At the seam a few tokens merge, or are merged otherwise; far from it nothing changes.
    assert abs(whole - apart) <= 16 + 0.25 * apart


@each_encoding
@given(text=texts)
def test_a_text_has_at_most_one_token_a_byte(encoding: str, text: str) -> None:
    assert count_text(text, encoding) <= len(text.encode("utf-8", "surrogatepass"))


@each_encoding
@given(
    text=st.lists(fragments, min_size=1, max_size=200).map("".join),
    size=st.integers(1, 40),
    reach=st.integers(1, 40),
)
def test_pieces_count_as_the_whole(encoding: str, text: str, size: int, reach: int) -> None:
    parts = list(pieces(text, size=size, reach=reach))
    assert "".join(parts) == text
    assert sum(count_text(part, encoding) for part in parts) == count_text(text, encoding)


@given(
    before=st.sampled_from(["", "a", "\n", "!\n", "x \n", "中"]),
    blanks=st.text(alphabet=BLANKS, min_size=1, max_size=40),
    after=st.sampled_from(["", "a", "1", "!", "\n", "\r\n", "/", "\x1c"]),
    more=st.text(alphabet=" \n\tab", max_size=30),
    at_least=st.integers(1, 12),
)
def test_long_blanks_are_found_wherever_they_lie(
    before: str, blanks: str, after: str, more: str, at_least: int
) -> None:
    text = before + blanks + after + more
    expected = []
    start: int | None = None
    for position, character in enumerate([*text, "end"]):
        blank = character in BLANKS
        if blank and start is None:
            start = position
        elif not blank and start is not None:
            if position - start >= at_least and character not in ("\r", "\n"):
                expected.append((start, position))
            start = None
    assert list(long_blanks(text, at_least=at_least)) == expected


@each_encoding
@pytest.mark.parametrize("blank", [" ", "\t", "\u3000", " \t"])
@pytest.mark.parametrize("before", ["", "a", "! \n"])
@pytest.mark.parametrize("after", ["", "word", "7", "?", "\n", "\n\n a"])
def test_a_run_of_blanks_too_long_for_the_pattern_still_counts_exactly(
    reference: dict[str, tiktoken.Encoding], encoding: str, blank: str, before: str, after: str
) -> None:
    text = before + blank * (140_000 // len(blank)) + after
    assert tokenizer(encoding).count(text) == len(reference[encoding].encode_ordinary(text))


@each_encoding
@pytest.mark.parametrize(
    "text", [" " * 1_200_000 + "x", "ab " * 500_000, "好" * 1_100_000], ids=["blanks", "words", "han"]
)
def test_megabytes_neither_raise_nor_stall(encoding: str, text: str) -> None:
    assert 0 < Tokenizer.count(tokenizer(encoding), text) <= len(text.encode())


def test_a_text_is_tokenised_once() -> None:
    counter = tokenizer("o200k_base")
    before = counter.calls
    text = "counted once, and looked up from then on: 0f5be1"
    assert len({count_text(text) for _ in range(20)}) == 1
    assert counter.calls == before + 1
    assert count_text("") == 0
    assert counter.calls == before + 1


def test_a_huge_text_is_tokenised_once_and_not_held() -> None:
    counter = tokenizer("o200k_base")
    before = counter.calls
    for _ in range(3):
        count_text("far too long to be kept " * 10_000)
    assert counter.calls == before + 1


def test_what_counters_remember_is_theirs_alone() -> None:
    assert remembered("one", "the same text", lambda _: 1) == 1
    assert remembered("two", "the same text", lambda _: 2) == 2
    assert remembered("one", "the same text", lambda _: 3) == 1


def test_the_vocabulary_is_loaded_once_by_many_threads() -> None:
    loads = []
    barrier = threading.Barrier(8)

    def vocabulary() -> dict[bytes, int]:
        loads.append(1)
        return {bytes([byte]): byte for byte in range(256)}

    counter = Tokenizer("o200k_base", vocabulary=vocabulary)

    def count(number: int) -> int:
        barrier.wait()
        return counter.count("x" * (number + 1))

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(count, range(8))) == list(range(1, 9))
    assert len(loads) == 1
    assert counter.calls == 8


def test_counting_opens_no_socket() -> None:
    program = """
import sys
import backstory.tokens
import socket
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
assert backstory.tokens.count_text("hello world") == 2
assert backstory.tokens.count_text("hello world", "cl100k_base") == 2
assert "requests" not in sys.modules
"""
    subprocess.run(
        [sys.executable, "-c", program], check=True, env={**os.environ, "TIKTOKEN_CACHE_DIR": "/nonexistent"}
    )


def test_counting_here_opens_no_socket(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the network was asked")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)
    assert Tokenizer("cl100k_base").count("hello world") == 2


@pytest.mark.parametrize("encoding", ["", "p50k_base", "O200K_BASE", "../o200k_base", None, ["o200k_base"]])
def test_an_unknown_encoding_is_a_typed_error(encoding: str) -> None:
    with pytest.raises(ConfigurationError, match="o200k_base, cl100k_base"):
        count_text("text", encoding)


@pytest.mark.parametrize("value", [None, 1, b"bytes", ["text"]])
def test_what_is_no_text_is_a_typed_error(value: str) -> None:
    with pytest.raises(InvalidInput, match=type(value).__name__):
        count_text(value)


@each_encoding
def test_the_shipped_vocabulary_is_the_published_one(encoding: str) -> None:
    ranks = load_vocabulary(encoding)
    assert sorted(ranks.values()) == list(range(len(ranks)))
    assert len(ranks) == {"o200k_base": 199_998, "cl100k_base": 100_256}[encoding]
    assert all(bytes([byte]) in ranks for byte in range(256))


@each_encoding
@given(at=st.integers(0, 10**9), bit=st.integers(0, 7))
def test_a_damaged_vocabulary_never_counts(encoding: str, at: int, bit: int) -> None:
    packed = bytearray(shipped_bytes(encoding))
    index = 10 + at % (len(packed) - 10)  # the gzip header's fields have no say in what is unpacked
    packed[index] ^= 1 << bit
    with pytest.raises(VocabularyError, match=encoding):
        parse_vocabulary(bytes(packed), encoding_spec(encoding))


@pytest.mark.parametrize("packed", [b"", b"IQ== 0", b"\x1f\x8b"])
def test_what_is_no_vocabulary_is_a_typed_error(packed: bytes) -> None:
    with pytest.raises(VocabularyError):
        parse_vocabulary(packed, encoding_spec("o200k_base"))


def test_a_truncated_vocabulary_is_a_typed_error() -> None:
    with pytest.raises(VocabularyError):
        parse_vocabulary(shipped_bytes("o200k_base")[:-100_000], encoding_spec("o200k_base"))


def test_a_missing_vocabulary_is_a_typed_error() -> None:
    with pytest.raises(BackstoryError, match="install backstory again"):
        shipped_bytes("p50k_base")
