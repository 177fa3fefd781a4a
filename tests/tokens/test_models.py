"""Which model counts how, and what an estimate promises."""

from __future__ import annotations

import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.errors import ConfigurationError, InvalidInput
from backstory.tokens import Counter, count_text, counter_for, tokenizer
from backstory.tokens.estimates import ESTIMATES, FEATURES, features
from backstory.tokens.scripts import KINDS, kinds
from backstory.tokens.vocabulary import ENCODINGS

any_text = st.text(alphabet=st.characters(codec=None, categories=None), max_size=120)


@pytest.mark.parametrize(
    ("model", "name"),
    [
        ("gpt-4o", "o200k_base"),
        ("gpt-4o-mini-2024-07-18", "o200k_base"),
        ("openai/gpt-4.1-mini", "o200k_base"),
        ("GPT-5-nano", "o200k_base"),
        ("gpt-5.2", "o200k_base"),
        ("gpt-oss:20b", "o200k_base"),
        ("chatgpt-4o-latest", "o200k_base"),
        ("o1", "o200k_base"),
        ("o3-mini", "o200k_base"),
        ("o4-mini-2025-04-16", "o200k_base"),
        ("ft:gpt-4o-mini:acme::b1", "o200k_base"),
        ("gpt-4", "cl100k_base"),
        ("gpt-4-turbo-preview", "cl100k_base"),
        ("gpt-3.5-turbo", "cl100k_base"),
        ("gpt-35-turbo", "cl100k_base"),
        ("text-embedding-3-small", "cl100k_base"),
        ("claude-3-5-sonnet-20241022", "claude-3"),
        ("us.anthropic.claude-3-7-sonnet-20250219-v1:0", "claude-3"),
        ("claude-sonnet-4@20250514", "claude-3"),
        ("claude-opus-4-20250514", "claude-3"),
        ("anthropic/claude-sonnet-4.5", "claude-3"),
        ("claude-opus-4-6", "claude-3"),
        ("claude-opus-4-7", "claude-4.7"),
        ("claude-sonnet-5", "claude-4.7"),
        ("claude", "claude-4.7"),
        ("gemini-2.5-pro", "gemini"),
        ("models/gemini-3-flash", "gemini"),
        ("gemma3:27b", "gemini"),
        ("Qwen/Qwen2.5-72B-Instruct", "qwen-3"),
        ("qwen3:8b", "qwen-3"),
        ("qwen-plus", "qwen-3"),
        ("Qwen/Qwen3.5-27B", "qwen-3.5"),
        ("deepseek-chat", "deepseek"),
        ("deepseek-ai/DeepSeek-R1", "deepseek"),
        ("deepseek-r1-distill-llama-70b", "llama-3"),
        ("deepseek-r1-distill-qwen-32b", "qwen-3"),
        ("llama3.1:8b", "llama-3"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama-3"),
        ("mistral-large-latest", "mistral"),
        ("devstral-small", "mistral"),
        ("kimi-k2", "other"),
        ("glm-4.6", "other"),
        ("grok-4", "other"),
        ("llama-2-7b", "other"),
        ("gpt-6", "other"),
        ("gpt2", "other"),
        ("o1x", "other"),
        ("text-davinci-003", "other"),
        ("my own model", "other"),
        ("/", "other"),
    ],
)
def test_models_count_as_their_makers_say(model: str, name: str) -> None:
    assert counter_for(model).name == name


@pytest.mark.parametrize(
    ("model", "format", "name"),
    [
        (None, None, "o200k_base"),
        ("", "", "o200k_base"),
        (None, "openai_chat", "o200k_base"),
        (None, "openai_responses", "o200k_base"),
        (None, "anthropic", "claude-4.7"),
        (None, "gemini", "gemini"),
        (None, "no such format", "o200k_base"),
        ("unheard-of", "openai_chat", "other"),
        ("unheard-of", "anthropic", "claude-4.7"),
        ("gpt-4o", "anthropic", "o200k_base"),
    ],
)
def test_a_format_counts_where_no_model_says_more(model: str | None, format: str | None, name: str) -> None:
    assert counter_for(model, format).name == name


@given(model=st.text(max_size=40), format=st.text(max_size=20))
def test_no_name_raises(model: str, format: str) -> None:
    assert counter_for(model, format).count("text") >= 1


@pytest.mark.parametrize("encoding", sorted(ENCODINGS))
def test_an_exact_counter_is_the_count_of_text(encoding: str) -> None:
    counter = Counter(name=encoding)
    assert (counter.exact, counter.margin, counter.encoding) == (True, 0.0, encoding)
    assert counter.count("Tokens, 你好") == count_text("Tokens, 你好", encoding)


@pytest.mark.parametrize("name", sorted(ESTIMATES))
class TestEstimates:
    def test_it_says_that_it_is_one(self, name: str) -> None:
        counter = Counter(name=name)
        assert not counter.exact
        assert counter.encoding == "o200k_base"
        assert 0 < counter.margin <= 0.25
        assert len(ESTIMATES[name].factors) == len(FEATURES)

    @given(text=any_text)
    def test_any_text_has_at_least_one_token_and_at_most_two_a_byte(self, name: str, text: str) -> None:
        count = Counter(name=name).count(text)
        assert count == Counter(name=name).count(text)
        assert bool(count) == bool(text)
        assert count <= max(1, 2 * len(text.encode("utf-8", "surrogatepass")))

    @pytest.mark.parametrize(
        "text", ["7", "word ", "Word ", "WORD", "字", "。", "!", "\n", "é", "ж", "ש", "あ", "한", "ก", "☃"]
    )
    def test_text_of_one_kind_counts_in_proportion(self, name: str, text: str) -> None:
        # no kind of text may come out at next to nothing: that would let any amount of it into a request
        count = Counter(name=name).count(text * 3_000)
        assert count >= 0.3 * count_text(text * 3_000)

    def test_a_text_is_tokenised_once(self, name: str) -> None:
        text = f"estimated once, and looked up from then on by {name}"
        before = tokenizer().calls
        counts = {Counter(name=name).count(text) for _ in range(10)}
        assert len(counts) == 1
        assert tokenizer().calls == before + 1

    def test_the_frozen_counter_is_a_value(self, name: str) -> None:
        assert Counter(name=name) == Counter(name=name)
        assert len({Counter(name=name), Counter(name=name)}) == 1
        with pytest.raises(dataclasses.FrozenInstanceError):
            Counter(name=name).name = "another"  # type: ignore[misc]

    def test_what_is_no_text_is_a_typed_error(self, name: str) -> None:
        with pytest.raises(InvalidInput):
            Counter(name=name).count(None)  # type: ignore[arg-type]


def test_an_unknown_counter_is_a_typed_error() -> None:
    with pytest.raises(ConfigurationError, match="claude-3"):
        Counter(name="claude-9")


def test_kinds_of_characters() -> None:
    found = dict(zip(KINDS, kinds("aB1!\n 简體。あ한жλאعकกé☃"), strict=True))
    assert found == {
        "letter": 2, "upper": 1, "digit": 1, "punctuation": 1, "newline": 1, "han": 2, "wide_punctuation": 1,
        "kana": 1, "hangul": 1, "cyrillic": 1, "greek": 1, "hebrew": 1, "arabic": 1, "indic": 1, "thai": 1,
        "latin_marked": 1, "symbol": 1,
        "han_rare": 1,
    }  # fmt: skip


@given(text=any_text)
def test_every_character_beyond_ascii_is_of_one_kind(text: str) -> None:
    found = dict(zip(KINDS, kinds(text), strict=True))
    beyond = sum(
        count
        for kind, count in found.items()
        if kind not in ("letter", "upper", "digit", "punctuation", "newline", "han_rare")
    )
    assert beyond == sum(character > "\x7f" for character in text)
    assert found["han_rare"] <= found["han"]
    assert all(count >= 0 for count in found.values())


@given(text=any_text.filter(bool))
def test_features_part_the_exact_count(text: str) -> None:
    outside, inside, *_ = features(text)
    assert outside + inside == pytest.approx(count_text(text))
    assert min(outside, inside) >= 0
