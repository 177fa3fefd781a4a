"""How large a picture is, read from the first bytes of its file: PNG, JPEG, GIF, WebP and BMP.

It decodes no pixels, and of base64 only what it needs: for all but JPEG that is the first 32 bytes.
"""

from __future__ import annotations

import binascii
from typing import Final

#: Of base64, so many characters are decoded before the next larger attempt: a JPEG may carry a preview, an
#: EXIF block and a colour profile of 64 kB a piece before it says how large it is.
_WINDOWS: Final = (64, 4_096, 131_072, 2_097_152)
_FROM_URL_SAFE: Final = str.maketrans("-_", "+/", " \t\r\n")


def image_size(data: bytes) -> tuple[int, int] | None:
    """Width and height in pixels, or `None` where the bytes are no such picture or end too early."""
    size = None
    if data.startswith(b"\x89PNG\r\n\x1a\n") and data[12:16] == b"IHDR" and len(data) >= 24:
        size = _big(data[16:20]), _big(data[20:24])
    elif data.startswith((b"GIF87a", b"GIF89a")) and len(data) >= 10:
        size = _little(data[6:8]), _little(data[8:10])
    elif data.startswith(b"\xff\xd8"):
        size = _jpeg(data)
    elif data.startswith(b"RIFF") and data[8:12] == b"WEBP":
        size = _webp(data)
    elif data.startswith(b"BM"):
        size = _bmp(data)
    return size if size is not None and min(size) > 0 else None


def image_size_base64(data: str) -> tuple[int, int] | None:
    """The same for base64, plain or as a `data:` URL; `None` also where it is no base64."""
    start = data.find(",") + 1 if data[:5].lower() == "data:" else 0
    for window in (*_WINDOWS, len(data)):
        head = data[start : start + window].translate(_FROM_URL_SAFE).rstrip("=")
        head = head[: len(head) // 4 * 4] if window < len(data) - start else head + "=" * (-len(head) % 4)
        try:
            decoded = binascii.a2b_base64(head)
        except ValueError:  # binascii.Error is one, and so is text that is not ASCII
            return None
        size = image_size(decoded)
        if size is not None or window >= len(data) - start or not decoded.startswith(b"\xff\xd8"):
            return size
    return None


def _big(data: bytes) -> int:
    return int.from_bytes(data, "big")


def _little(data: bytes) -> int:
    return int.from_bytes(data, "little")


def _jpeg(data: bytes) -> tuple[int, int] | None:
    """ITU-T T.81, annex B: segments follow each other until one starts a frame (SOF) and gives its size."""
    at = 2
    while at + 9 <= len(data):
        if data[at] != 0xFF:
            return None
        marker = data[at + 1]
        if marker == 0xFF:  # fill byte
            at += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:  # stands alone
            at += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return _big(data[at + 7 : at + 9]), _big(data[at + 5 : at + 7])
        elif marker in (0xD9, 0xDA):  # the picture ends, or its pixels begin, without a frame
            return None
        else:
            at += 2 + _big(data[at + 2 : at + 4])
    return None


def _webp(data: bytes) -> tuple[int, int] | None:
    """RFC 9649: three kinds of first chunk, each with its own place for the size."""
    if len(data) < 30:
        return None
    match data[12:16]:
        case b"VP8X":
            return 1 + _little(data[24:27]), 1 + _little(data[27:30])
        case b"VP8L":
            bits = _little(data[21:25])
            return 1 + (bits & 0x3FFF), 1 + (bits >> 14 & 0x3FFF)
        case b"VP8 ":
            return _little(data[26:28]) & 0x3FFF, _little(data[28:30]) & 0x3FFF
    return None


def _bmp(data: bytes) -> tuple[int, int] | None:
    """The height is negative where the rows run from the top; the oldest header has 16-bit sizes."""
    if len(data) < 26:
        return None
    if _little(data[14:18]) == 12:
        return _little(data[18:20]), _little(data[20:22])
    return abs(int.from_bytes(data[18:22], "little", signed=True)), abs(
        int.from_bytes(data[22:26], "little", signed=True)
    )
