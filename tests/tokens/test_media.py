"""Pictures by size, sound by duration, documents by pages; and no input raises."""

from __future__ import annotations

import base64
import struct
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.tokens import audio_tokens, file_tokens, image_size, image_size_base64, image_tokens

sizes = st.integers(1, 16_000)


def png(width: int, height: int) -> bytes:
    header = struct.pack(">II5B", width, height, 8, 2, 0, 0, 0)
    return (
        b"\x89PNG\r\n\x1a\n"
        + struct.pack(">I", 13)
        + b"IHDR"
        + header
        + struct.pack(">I", zlib.crc32(b"IHDR" + header))
    )


def gif(width: int, height: int) -> bytes:
    return b"GIF89a" + struct.pack("<HH3B", width, height, 0, 0, 0)


def jpeg(width: int, height: int, *, before: int = 0, frame: int = 0xC0) -> bytes:
    """`before` bytes of EXIF and profile, in segments, stand before the frame."""
    head = b"\xff\xd8"
    while before > 0:
        length = min(before, 60_000)
        head += (
            b"\xff\xe1" + struct.pack(">H", length + 2) + b"\xff\xc0" * (length // 2) + b"\0" * (length % 2)
        )
        before -= length
    return head + b"\xff\xff" + bytes([frame]) + struct.pack(">HBHHB", 17, 8, height, width, 3) + bytes(9)


def webp(width: int, height: int, kind: str) -> bytes:
    if kind == "extended":
        chunk = (
            b"VP8X"
            + struct.pack("<I", 10)
            + bytes(4)
            + (width - 1).to_bytes(3, "little")
            + (height - 1).to_bytes(3, "little")
        )
    elif kind == "lossless":
        chunk = (
            b"VP8L"
            + struct.pack("<I", 9)
            + b"\x2f"
            + ((width - 1) | (height - 1) << 14).to_bytes(4, "little")
            + bytes(8)
        )
    else:
        chunk = b"VP8 " + struct.pack("<I", 10) + b"\0\0\0\x9d\x01\x2a" + struct.pack("<HH", width, height)
    return b"RIFF" + struct.pack("<I", 4 + len(chunk)) + b"WEBP" + chunk


def bmp(width: int, height: int, *, old: bool = False) -> bytes:
    head = b"BM" + bytes(12)
    return head + (
        struct.pack("<IHH", 12, width, height) + bytes(4)
        if old
        else struct.pack("<Iii", 40, width, height) + bytes(8)
    )


PICTURES = {
    "png": png,
    "gif": gif,
    "jpeg": jpeg,
    "progressive jpeg": lambda width, height: jpeg(width, height, frame=0xC2),
    "jpeg with a preview": lambda width, height: jpeg(width, height, before=200_001),
    "webp": lambda width, height: webp(width, height, "lossy"),
    "webp, lossless": lambda width, height: webp(width, height, "lossless"),
    "webp, extended": lambda width, height: webp(width, height, "extended"),
    "bmp": bmp,
    "bmp, rows from the top": lambda width, height: bmp(width, -height),
    "bmp, old": lambda width, height: bmp(width, height, old=True),
}


class TestSize:
    @pytest.mark.parametrize("kind", PICTURES)
    @given(width=sizes, height=sizes)
    def test_the_header_tells_the_size(self, kind: str, width: int, height: int) -> None:
        data = PICTURES[kind](width, height) + b"pixels" * 20
        encoded = base64.b64encode(data).decode()
        assert image_size(data) == (width, height)
        assert image_size_base64(encoded) == (width, height)
        assert image_size_base64(f"data:image/x;base64,{encoded}") == (width, height)

    @pytest.mark.parametrize("kind", PICTURES)
    def test_line_breaks_and_missing_padding_do_no_harm(self, kind: str) -> None:
        data = PICTURES[kind](640, 480)
        assert image_size_base64(base64.encodebytes(data).decode()) == (640, 480)
        assert image_size_base64(base64.urlsafe_b64encode(data).decode().rstrip("=")) == (640, 480)

    @pytest.mark.parametrize("kind", PICTURES)
    def test_a_file_that_ends_too_early_has_no_size(self, kind: str) -> None:
        data = PICTURES[kind](640, 480)
        for length in range(min(len(data), 40)):
            assert image_size(data[:length]) in (None, (640, 480))
        assert image_size(data[:9]) is None

    def test_only_the_head_of_a_large_file_is_decoded(self) -> None:
        # what is no base64 any more would raise if it were looked at
        assert image_size_base64(
            base64.b64encode(png(8, 9)).decode().rstrip("=") + "A" * 100 + "é" * 1_000_000
        ) == (8, 9)

    @given(data=st.binary(max_size=200))
    def test_no_bytes_raise(self, data: bytes) -> None:
        for head in (b"", b"\xff\xd8", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"BM", b"RIFF\0\0\0\0WEBPVP8X"):
            size = image_size(head + data)
            assert size is None or min(size) > 0
            assert image_size_base64(base64.b64encode(head + data).decode()) == size

    @given(data=st.text(max_size=100))
    def test_no_text_raises(self, data: str) -> None:
        image_size_base64(data)

    def test_zero_is_no_size(self) -> None:
        assert image_size(png(0, 10)) is None


class TestPictures:
    @pytest.mark.parametrize(
        ("width", "height", "detail", "model", "tokens"),
        [
            # the examples of OpenAI's own page
            (1024, 1024, "high", "gpt-4o", 765),
            (2048, 4096, "high", "gpt-4o", 1105),
            (4096, 8192, "low", "gpt-4o", 85),
            (1024, 1024, None, "gpt-4.1-mini", 1659),  # 1024 patches x 1.62
            (1800, 2400, None, "o4-mini", 2498),  # 1452 patches x 1.72
            # small pictures are not enlarged
            (150, 150, "auto", "gpt-4o", 255),
            (1024, 1024, "high", "gpt-5", 630),
            (1024, 1024, "high", "o3", 675),
            (1024, 1024, "low", "gpt-4o-mini", 2833),
            (1024, 1024, "high", None, 765),
            (1, 1, "low", "gpt-4.1-nano", 3),
            (16_000, 16_000, "original", "gpt-5.4", 12_000),
        ],
    )
    def test_openai(
        self, width: int, height: int, detail: str | None, model: str | None, tokens: int
    ) -> None:
        assert image_tokens(width=width, height=height, detail=detail, model=model) == tokens

    @pytest.mark.parametrize(
        ("width", "height", "model", "tokens"),
        [
            (200, 200, "claude-sonnet-4-5", 64),
            (1000, 1000, "claude-sonnet-4-5", 1296),
            (1092, 1092, "claude-3-5-sonnet-20241022", 1521),
            (1092, 1092, None, 1521),
            (1920, 1080, "claude-opus-4-8", 2691),
        ],
    )
    def test_anthropic(self, width: int, height: int, model: str | None, tokens: int) -> None:
        assert image_tokens(width=width, height=height, provider="anthropic", model=model) == tokens

    @given(width=sizes, height=sizes)
    def test_anthropic_shrinks_what_is_larger_than_its_models_see(self, width: int, height: int) -> None:
        old = image_tokens(width=width, height=height, provider="anthropic", model="claude-opus-4-6")
        new = image_tokens(width=width, height=height, provider="anthropic", model="claude-opus-4-7")
        assert 1 <= old <= 1568
        assert old <= new <= 4784
        if min(width, height) >= 1568 and max(width, height) < 1.25 * min(width, height):  # no edge binds
            assert old >= 0.9 * 1568

    @pytest.mark.parametrize(
        ("width", "height", "detail", "model", "tokens"),
        [
            (384, 384, None, "gemini-2.0-flash", 258),
            (960, 540, None, "gemini-2.5-pro", 1548),
            (768, 768, None, None, 1032),
            (960, 540, None, "gemini-3-pro-preview", 1120),
            (960, 540, "MEDIA_RESOLUTION_LOW", "gemini-3-flash", 280),
            (960, 540, "medium", "gemini-3-flash", 560),
            (960, 540, "whatever", "gemini-3-flash", 1120),
        ],
    )
    def test_gemini(
        self, width: int, height: int, detail: str | None, model: str | None, tokens: int
    ) -> None:
        assert (
            image_tokens(width=width, height=height, detail=detail, provider="gemini", model=model) == tokens
        )

    @pytest.mark.parametrize(
        ("provider", "tokens"), [("openai", 1105), ("anthropic", 2691), ("gemini", 1548), ("another", 1105)]
    )
    @pytest.mark.parametrize("size", [(None, None), (None, 5), (0, 5), (5, -1)])
    def test_an_unknown_size_counts_as_a_screenshot(
        self, size: tuple[int | None, int | None], provider: str, tokens: int
    ) -> None:
        assert image_tokens(width=size[0], height=size[1], provider=provider) == tokens

    @given(
        width=st.integers(-5, 10**9),
        height=st.integers(-5, 10**9),
        detail=st.none() | st.text(max_size=8),
        provider=st.sampled_from(["openai", "anthropic", "gemini"]) | st.text(max_size=5),
        model=st.none()
        | st.sampled_from(["gpt-4o", "gpt-5-mini", "gpt-5.4", "o3", "claude-3", "gemini-3"])
        | st.text(max_size=9),
    )
    def test_every_picture_costs_something_and_none_raises(
        self, width: int, height: int, detail: str | None, provider: str, model: str | None
    ) -> None:
        # a strip of 10^9 x 1 pixels is the one case without a ceiling: Gemini 2 tiles whatever comes
        assert image_tokens(width=width, height=height, detail=detail, provider=provider, model=model) >= 1

    @given(width=sizes, height=sizes, model=st.sampled_from(["gpt-4o", "gpt-4.1-mini", "o4-mini", "gpt-5"]))
    def test_low_detail_never_costs_more(self, width: int, height: int, model: str) -> None:
        low = image_tokens(width=width, height=height, detail="low", model=model)
        assert low <= image_tokens(width=width, height=height, detail="high", model=model)

    def test_the_base64_of_a_picture_does_not_count(self) -> None:
        small, large = png(640, 480), png(640, 480) + bytes(3_000_000)
        assert image_size_base64(base64.b64encode(small).decode()) == image_size_base64(
            base64.b64encode(large).decode()
        )


def encoded(data: bytes) -> str:
    return base64.b64encode(data).decode()


class TestSound:
    def test_a_wav_says_how_long_it_is(self) -> None:
        head = (
            b"RIFF"
            + bytes(4)
            + b"WAVEfmt "
            + struct.pack("<IHHIIHH", 16, 1, 1, 24_000, 48_000, 2, 16)
            + b"data"
            + bytes(4)
        )
        data = encoded(head + bytes(480_000))
        assert audio_tokens(data, "audio/wav", provider="openai") == pytest.approx(100, abs=1)
        assert audio_tokens(data, "audio/wav", provider="gemini") == pytest.approx(320, abs=1)
        assert audio_tokens(data) == audio_tokens(data, "audio/wav", provider="gemini")

    @pytest.mark.parametrize("media_type", ["audio/wav", "audio/flac", "audio/mpeg", "audio/ogg", "", None])
    def test_longer_sound_costs_more(self, media_type: str | None) -> None:
        short, long = (audio_tokens(encoded(bytes(size)), media_type) for size in (100_000, 1_000_000))
        assert 1 <= short < long

    def test_sound_that_is_not_at_hand_counts_as_a_minute(self) -> None:
        assert audio_tokens(None, provider="gemini") == 1920

    @given(
        data=st.text(max_size=100),
        media_type=st.none() | st.text(max_size=10),
        provider=st.none() | st.text(max_size=5),
    )
    def test_nothing_raises(self, data: str, media_type: str | None, provider: str | None) -> None:
        assert audio_tokens(data, media_type, provider=provider) >= 1
        assert file_tokens(data, media_type, provider=provider) >= 1


class TestDocuments:
    def test_a_pdf_counts_by_its_pages(self) -> None:
        pages = b"".join(b"%d 0 obj << /Type /Page /Parent 1 0 R >> endobj\n" % number for number in range(7))
        data = encoded(b"%PDF-1.7\n1 0 obj << /Type /Pages /Count 7 >> endobj\n" + pages)
        one = file_tokens(
            encoded(b"%PDF-1.7\n1 0 obj << /Type /Page >> endobj"), "application/pdf", provider="gemini"
        )
        assert file_tokens(data, "application/pdf", provider="gemini") == 7 * one
        assert file_tokens(f"data:application/pdf;base64,{data}", provider="gemini") == 7 * one

    def test_packed_pages_are_counted_by_their_tree(self) -> None:
        data = encoded(b"%PDF-1.7\n<< /Type /Pages /Count 12 >> << /Count 5 >>")
        assert file_tokens(data, provider="gemini") == 12 * 560

    def test_a_pdf_that_tells_nothing_is_judged_by_its_bytes(self) -> None:
        assert file_tokens(encoded(b"%PDF-1.7" + bytes(300_000)), provider="gemini") == 11 * 560

    def test_text_is_judged_by_its_bytes(self) -> None:
        assert file_tokens(encoded(bytes(3_000)), "text/plain") == 1_000
        assert file_tokens(encoded(bytes(3_000)), "application/vnd.ms-word") == 300

    def test_a_document_that_is_not_at_hand_counts_as_ten_pages(self) -> None:
        assert file_tokens(None, provider="gemini") == 5_600
        assert file_tokens(None) == max(
            file_tokens(None, provider=provider) for provider in ("openai", "anthropic", "gemini")
        )
