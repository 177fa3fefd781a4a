"""Estimates of tokenizers that cannot ship: fitted factors over what can be counted exactly.

An estimate is a sum: so much for each `o200k_base` token, so much for each character of a kind (`scripts`).
The factors were fitted to real tokenizers and judged on text held out from the fit; command, texts and
errors stand in docs/measurements.md. The truths were, of each model's own tokenizer:

- `claude-3` (Claude 3 to Opus 4.6) and `claude-4.7` (Opus 4.7 and all later): a reconstruction from recorded
  answers of Anthropic's `count_tokens`;
- `qwen-3` (Qwen 1 to 3), `qwen-3.5` (Qwen 3.5 and 3.6), `deepseek` (V3 and V4, one vocabulary), `llama-3`,
  `mistral` (Tekken): the published vocabularies;
- `gemini`: the Gemma 3 vocabulary, which Google's own SDK uses to count for Gemini 2 and 2.5 locally;
- `other`: all of these but Claude's at once, for models whose tokenizer is not known.

`margin` is relative: 95 of 100 held-out requests of 2,000 tokens or more (Chinese, English, code, JSON, hex
and base64) were that near. One short message can be off by twice as much; text in other languages too.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from backstory.tokens.scripts import KINDS, kinds
from backstory.tokens.text import count_text

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What the factors multiply: exact tokens outside and inside Chinese text (by its share of the characters),
#: then characters of each kind.
FEATURES: Final = ("tokens", "han_tokens", *KINDS)
_HAN: Final = KINDS.index("han")


def features(text: str) -> tuple[float, ...]:
    """The numbers that `FEATURES` names, for a text that is not empty."""
    exact = count_text(text, "o200k_base")
    counts = kinds(text)
    chinese = counts[_HAN] / len(text)
    return (exact * (1 - chinese), exact * chinese, *counts)


@dataclass(frozen=True, kw_only=True, slots=True)
class Estimate:
    """One tokenizer, estimated: `factors` in the order of `FEATURES`, `margin` relative (0.1 is 10 %)."""

    margin: float
    factors: tuple[float, ...]

    def tokens(self, text: str) -> int:
        """Tokens, estimated; at least 1 for a text that is not empty. Not cached."""
        if not text:
            return 0
        total = sum(factor * value for factor, value in zip(self.factors, features(text), strict=True))
        return max(1, round(total))


# One column an estimate: its margin, then what one of each feature counts for.
_TABLE: Final = """
                     claude-3 claude-4.7     qwen-3   qwen-3.5   deepseek     gemini    llama-3    mistral      other
margin                   0.10       0.10       0.05       0.05       0.05       0.08       0.05       0.05       0.25
tokens                  0.972      0.835      0.953      0.898      0.957      0.840      0.999      0.892      0.946
han_tokens              0.526      0.442      0.619      0.507      0.534      0.668      0.964      0.626      0.627
letter                  0.021      0.164      0.015      0.030      0.015      0.048      0.007      0.029      0.018
upper                   0.253      0.425     -0.013     -0.013      0.036     -0.065      0.041      0.098      0.017
digit                   0.023      0.142      0.535      0.546      0.039      0.594      0.005      0.579      0.297
punctuation             0.150      0.322     -0.025      0.092      0.051      0.171     -0.034      0.067      0.047
newline                 0.450      0.481      0.222      0.326      0.085      0.624      0.000      0.067      0.209
han                     0.712      0.762      0.113      0.108      0.124      0.108      0.056      0.419      0.137
wide_punctuation        0.493      0.579      0.173      0.379      0.204      0.441      0.183      0.308      0.276
kana                    0.158      0.252     -0.026     -0.191      0.019     -0.156     -0.009      0.030     -0.091
hangul                  0.564      0.651      0.114      0.007      0.181      0.079      0.051      0.109      0.066
cyrillic                0.128      0.180      0.109      0.035      0.072      0.024      0.029      0.065      0.043
greek_to_arabic         0.388      0.453      0.138      0.061      0.119      0.095      0.112      0.058      0.081
brahmic                 0.525      0.592      0.336     -0.034      0.107     -0.018      0.126      0.140      0.060
latin_marked            1.039      1.173      0.135     -0.040      0.657     -0.015      0.039      0.133      0.099
symbol                 -0.071      0.317      0.216      0.203      0.114      0.338      0.111      0.223      0.208
han_rare               -0.074      0.015      0.008     -0.017      0.130     -0.146     -0.129      0.108      0.013
"""


def _read(table: str) -> dict[str, Estimate]:
    names, *rows = (line.split() for line in table.strip().splitlines())
    values = {row[0]: [float(value) for value in row[1:]] for row in rows}
    return {
        name: Estimate(
            margin=values["margin"][column],
            factors=tuple(values[feature][column] for feature in FEATURES),
        )
        for column, name in enumerate(names)
    }


ESTIMATES: Final[Mapping[str, Estimate]] = MappingProxyType(_read(_TABLE))
