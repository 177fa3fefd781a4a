"""Token counts: exact where the tokenizer is public, an estimate with a stated margin where it is not."""

from backstory.tokens.calibration import Calibration
from backstory.tokens.media import (
    audio_tokens,
    file_tokens,
    image_size,
    image_size_base64,
    image_tokens,
)
from backstory.tokens.models import Counter, counter_for
from backstory.tokens.text import Tokenizer, count_text, tokenizer
from backstory.tokens.tools import count_tools

__all__ = [
    "Calibration",
    "Counter",
    "Tokenizer",
    "audio_tokens",
    "count_text",
    "count_tools",
    "counter_for",
    "file_tokens",
    "image_size",
    "image_size_base64",
    "image_tokens",
    "tokenizer",
]
