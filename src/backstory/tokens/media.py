"""What pictures, sound and documents cost: by size, detail, duration and pages, never by their base64.

Each provider publishes a rule for pictures; the rules stand here with their documents. For sound and documents they
publish rates, and length has to be guessed from bytes; the guesses are stated beside the constants. Nothing
here raises: what cannot be read counts as a typical one.
"""

from __future__ import annotations

import binascii
import math
import re
from typing import Final

from backstory.tokens.models import counter_for
from backstory.tokens.pictures import image_size, image_size_base64

__all__ = ["audio_tokens", "file_tokens", "image_size", "image_size_base64", "image_tokens"]

#: A picture whose size is not known (an URL, a file id, another file type) counts as a full-HD screenshot.
UNKNOWN_SIZE: Final = (1920, 1080)

# OpenAI, https://platform.openai.com/docs/guides/images-vision, "Calculating costs". Tiles: fit into 2,048 x
# 2,048, then bring the short side down to 768; so much for the picture, so much for each 512-pixel tile.
# `gpt-4o-mini` is billed at the higher figures, which its window does not feel.
_TILES: Final = (
    (re.compile(r"4o-mini"), (2833, 5667)),
    (re.compile(r"gpt-5"), (70, 140)),
    (re.compile(r"(^|/)o[13](-|$)"), (75, 150)),
    (re.compile(r"computer-use"), (65, 129)),
    (re.compile(r""), (85, 170)),
)
# The same page. Patches of 32 pixels: how many at most (with detail "original" in brackets), and what one counts for.
# What it says of 5.2 and later is not complete; 1.2 is what users measured for 5.2.
_PATCHES: Final = (
    (re.compile(r"gpt-4\.1-mini|gpt-5(\.\d)?-mini"), (1536, 1536, 1.62)),
    (re.compile(r"gpt-4\.1-nano|gpt-5(\.\d)?-nano"), (1536, 1536, 2.46)),
    (re.compile(r"o4-mini"), (1536, 1536, 1.72)),
    (re.compile(r"gpt-5\.[23]"), (1536, 1536, 1.2)),
    (re.compile(r"gpt-5\.\d"), (2500, 10_000, 1.2)),
)
# Anthropic, https://platform.claude.com/docs/en/build-with-claude/vision: one token for each 28 x 28 pixels
# (which its older pages round to "width * height / 750"), after shrinking to a long edge and a number of tokens.
_CLAUDE_OLD: Final = (1568, 1568)
_CLAUDE_NEW: Final = (2576, 4784)  # Opus 4.7 and later
# Gemini, https://ai.google.dev/gemini-api/docs/image-understanding and .../media-resolution: up to 2.5, 258 for a
# small picture or for each tile; from 3 on, a ceiling by resolution, whatever the size.
_GEMINI_TILE: Final = 258
_GEMINI_3: Final = {"low": 280, "medium": 560, "high": 1120, "ultra_high": 2240}
_GEMINI_TILED: Final = re.compile(r"gemini-(1|2)|gemma")


def image_tokens(
    *,
    width: int | None,
    height: int | None,
    detail: str | None = None,
    provider: str = "openai",
    model: str | None = None,
) -> int:
    """Tokens of one picture of `width` x `height` pixels, as `provider` counts them for `model`.

    `detail` is OpenAI's (`low`, `high`, `auto`, `original`) or Gemini's resolution. Without a model, OpenAI's
    rule is that of GPT-4o, Anthropic's that of its newest models, Gemini's that of 2.5. A provider without a
    rule here counts as OpenAI. `UNKNOWN_SIZE` stands for a size that is `None` or not positive.
    """
    if width is None or height is None or width <= 0 or height <= 0:
        width, height = UNKNOWN_SIZE
    name = (model or "").lower()
    if provider == "anthropic":
        limits = _CLAUDE_OLD if counter_for(model, "anthropic").name == "claude-3" else _CLAUDE_NEW
        return _claude(width, height, *limits)
    if provider == "gemini":
        if name and not _GEMINI_TILED.search(name):
            return _GEMINI_3.get(
                (detail or "high").lower().removeprefix("media_resolution_"), _GEMINI_3["high"]
            )
        return _gemini_tiles(width, height) * _GEMINI_TILE
    for pattern, (patches, original, factor) in _PATCHES:
        if pattern.search(name):
            if detail == "low":
                width, height = _fit(width, height, 512)
            most = original if detail == "original" else patches
            return math.ceil(_patches(width, height, most) * factor)
    base, tile = next(rule for pattern, rule in _TILES if pattern.search(name))
    return base if detail == "low" else base + tile * _tiles(width, height)


def _fit(width: float, height: float, edge: int) -> tuple[int, int]:
    """Shrunk, never enlarged, until the long side is `edge`."""
    scale = min(1.0, edge / max(width, height))
    return max(1, round(width * scale)), max(1, round(height * scale))


def _tiles(width: int, height: int) -> int:
    width, height = _fit(width, height, 2048)
    scale = min(1.0, 768 / min(width, height))
    return math.ceil(round(width * scale) / 512) * math.ceil(round(height * scale) / 512)


def _patches(width: int, height: int, most: int) -> int:
    across, down = math.ceil(width / 32), math.ceil(height / 32)
    if across * down <= most:
        return across * down
    # shrink until the area is that of `most` patches, then until one side is a whole number of them
    scale = math.sqrt(most * 32 * 32 / (width * height))
    wide, high = width * scale / 32, height * scale / 32
    scale *= min(max(1, math.floor(wide)) / wide, max(1, math.floor(high)) / high)
    return min(most, math.ceil(round(width * scale / 32, 6)) * math.ceil(round(height * scale / 32, 6)))


def _claude(width: int, height: int, edge: int, most: int) -> int:
    def cost(scale: float) -> int:
        return math.ceil(max(1, round(width * scale)) / 28) * math.ceil(max(1, round(height * scale)) / 28)

    high = min(1.0, edge / max(width, height))
    if cost(high) <= most:
        return cost(high)
    low = 0.0
    for _ in range(32):  # the largest size that costs no more than `most`
        middle = (low + high) / 2
        low, high = (middle, high) if cost(middle) <= most else (low, middle)
    return min(most, cost(low))


def _gemini_tiles(width: int, height: int) -> int:
    if width <= 384 and height <= 384:
        return 1
    unit = min(768, max(256, math.floor(min(width, height) / 1.5)))
    return math.ceil(width / unit) * math.ceil(height / unit)


# OpenAI, https://platform.openai.com/docs/guides/realtime-costs: a token for each 100 ms of what a user says. Gemini,
# https://ai.google.dev/gemini-api/docs/audio: 32 tokens a second. Anthropic takes no sound.
_AUDIO_A_SECOND: Final = {"openai": 10, "gemini": 32}
#: Bytes a second, on the low side, so that a guessed duration is rather too long: speech at 32 kbit/s in Opus, 64 in
#: MP3 and AAC; PCM and WAV of 16 bits at 16 kHz, unless the WAV's own header says more.
_BYTES_A_SECOND: Final = (
    (re.compile(r"wav|pcm|l16"), 32_000),
    (re.compile(r"flac|aiff"), 16_000),
    (re.compile(r"mp3|mpeg|mpga|aac|m4a|mp4"), 8_000),
    (re.compile(r""), 4_000),
)
#: Seconds of a recording that is not at hand.
UNKNOWN_SECONDS: Final = 60


def audio_tokens(data: str | None, media_type: str | None = None, *, provider: str | None = None) -> int:
    """Tokens of a recording in base64, by its duration as far as its bytes tell; without a provider, the dearest."""
    rate = _AUDIO_A_SECOND.get(provider or "", max(_AUDIO_A_SECOND.values()))
    return max(1, math.ceil(_seconds(data, (media_type or "").lower()) * rate))


def _seconds(data: str | None, media_type: str) -> float:
    if not data:
        return UNKNOWN_SECONDS
    length = _decoded_length(data)
    head = _decode(data[:128])
    if head.startswith(b"RIFF") and head[8:12] == b"WAVE" and head[12:16] == b"fmt ":
        declared = int.from_bytes(head[28:32], "little")
        if declared > 0:
            return length / declared
    return length / next(rate for pattern, rate in _BYTES_A_SECOND if pattern.search(media_type))


#: A page of a PDF is read as text and as a picture. Anthropic says 1,500 to 3,000 for the text, and the picture
#: (https://platform.claude.com/docs/en/build-with-claude/pdf-support); Gemini 560 at most (its page on media
#: resolution); OpenAI gives no figure (https://platform.openai.com/docs/guides/pdf-files): 1,000 and 765 are assumed.
_PAGE: Final = {"openai": 1_765, "anthropic": 3_750, "gemini": 560}
#: Bytes of a PDF's page, where the pages cannot be counted; text alone, without pictures, takes about so much.
_PAGE_BYTES: Final = 30_000
#: Pages of a document that is not at hand.
UNKNOWN_PAGES: Final = 10
#: Bytes a token: plain text (3 is right for Chinese in UTF-8, 4 or more for English), and packed office documents.
_TEXT_BYTES: Final = 3
_OFFICE_BYTES: Final = 10
_PAGES: Final = re.compile(rb"/Type\s*/Page(?![A-Za-z])")
_COUNTS: Final = re.compile(rb"/Count\s+(\d{1,6})")
_TEXTUAL: Final = re.compile(r"^text/|json|xml|yaml|csv|javascript|markdown")


def file_tokens(data: str | None, media_type: str | None = None, *, provider: str | None = None) -> int:
    """Tokens of a document in base64: a PDF by its pages, text by its bytes. Without a provider, the dearest."""
    page = _PAGE.get(provider or "", max(_PAGE.values()))
    if not data:
        return UNKNOWN_PAGES * page
    kind = (media_type or "").lower()
    length = _decoded_length(data)
    if "pdf" in kind or _decode(data[:128]).startswith(b"%PDF"):
        return _pdf_pages(data, length) * page
    return max(1, math.ceil(length / (_TEXT_BYTES if _TEXTUAL.search(kind) else _OFFICE_BYTES)))


def _pdf_pages(data: str, length: int) -> int:
    content = _decode(data)
    pages = len(_PAGES.findall(content))
    if not pages:  # the page objects are packed; the tree of pages may say how many there are
        pages = max((int(count) for count in _COUNTS.findall(content)), default=0)
    return pages or max(1, math.ceil(length / _PAGE_BYTES))


def _payload(data: str) -> int:
    return data.find(",") + 1 if data[:5].lower() == "data:" else 0


def _decoded_length(data: str) -> int:
    return (len(data) - _payload(data)) * 3 // 4


def _decode(data: str) -> bytes:
    text = data[_payload(data) :].translate(str.maketrans("-_", "+/"))
    try:
        return binascii.a2b_base64(text[: len(text) // 4 * 4])
    except ValueError:
        return b""
