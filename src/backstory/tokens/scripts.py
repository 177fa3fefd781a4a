"""What a text is written in: how many characters of each kind it has.

These counts, and the exact count in `o200k_base`, are what an estimate for another tokenizer is made of (see
`models`). A kind is a group of characters that tokenizers were seen to treat alike; which groups are worth
telling apart was found by fitting (`benchmarks/tokenizers.py --fit`).
"""

from __future__ import annotations

import re
import string
from typing import Final

_WIDE: Final = {
    "han": "\u2e80-\u2fdf\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "wide_punctuation": "\u3000-\u303f\ufe30-\ufe4f\uff00-\uff65\uffe0-\uffee",
    "kana": "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "hangul": "\u1100-\u11ff\u3130-\u318f\uac00-\ud7af",
    "cyrillic": "\u0400-\u052f",
    "greek": "\u0370-\u03ff\u1f00-\u1fff",
    "hebrew": "\u0590-\u05ff\u0530-\u058f\u10a0-\u10ff",  # and Armenian, Georgian
    "arabic": "\u0600-\u08ff",
    "indic": "\u0900-\u0dff",
    "thai": "\u0e00-\u109f\u1780-\u17ff",  # and Lao, Tibetan, Burmese, Khmer
    "latin_marked": "\xc0-\u024f\u0300-\u036f\u1e00-\u1eff",
}
_RUNS: Final = tuple((kind, re.compile(f"[{characters}]+")) for kind, characters in _WIDE.items())
_ASCII: Final = (
    ("letter", string.ascii_letters.encode()),
    ("upper", string.ascii_uppercase.encode()),
    ("digit", string.digits.encode()),
    ("punctuation", string.punctuation.encode()),
    ("newline", b"\n"),
)

#: The kinds, in the order of `kinds`. `upper` is counted under `letter` too, and `han_rare` under `han`: what
#: GB 2312 lacks, which is above all every character that only traditional Chinese has. `symbol` is what is left.
KINDS: Final = (*(kind for kind, _ in _ASCII), *_WIDE, "symbol", "han_rare")


def kinds(text: str) -> tuple[int, ...]:
    """Characters of each of `KINDS` in the text; blanks and control characters are of none."""
    plain = text.encode("ascii", "ignore")
    counts = [len(plain) - len(plain.translate(None, characters)) for _, characters in _ASCII]
    left = len(text) - len(plain)
    for _, runs in _RUNS:
        if not left:
            counts.append(0)
            continue
        found = sum(map(len, runs.findall(text)))
        counts.append(found)
        left -= found
    counts.append(left)
    counts.append(_rare(text) if counts[len(_ASCII)] else 0)
    return tuple(counts)


def _rare(text: str) -> int:
    han = "".join(_RUNS[0][1].findall(text))
    return len(han) - len(han.encode("gb2312", "ignore")) // 2
