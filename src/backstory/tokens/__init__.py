"""Token counts: exact where the tokenizer is public, an estimate with a stated margin where it is not."""

from backstory.tokens.text import Tokenizer, count_text, tokenizer

__all__ = ["Tokenizer", "count_text", "tokenizer"]
