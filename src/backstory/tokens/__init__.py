"""Token counts: exact where the tokenizer is public, an estimate with a stated margin where it is not."""

from backstory.tokens.models import Counter, counter_for
from backstory.tokens.text import Tokenizer, count_text, tokenizer

__all__ = ["Counter", "Tokenizer", "count_text", "counter_for", "tokenizer"]
