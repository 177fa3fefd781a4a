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
and base64) were that near. One short message can be off by twice as much. Other languages mostly keep to it too;
the worst are German for Claude (20 % too little) and for Qwen 3 and Llama 3 (11 %), where `Calibration` has to help.
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
tokens                  0.976      0.840      0.945      0.882      0.948      0.836      0.984      0.886      0.938
han_tokens              0.527      0.443      0.618      0.504      0.533      0.667      0.960      0.624      0.625
letter                  0.020      0.163      0.016      0.034      0.017      0.048      0.010      0.031      0.019
upper                   0.251      0.421     -0.009     -0.004      0.041     -0.063      0.050      0.102      0.022
digit                   0.019      0.138      0.542      0.561      0.047      0.597      0.017      0.584      0.304
punctuation             0.148      0.319     -0.021      0.099      0.055      0.172     -0.028      0.070      0.051
newline                 0.445      0.476      0.240      0.340      0.094      0.626      0.000      0.071      0.217
han                     0.711      0.761      0.113      0.111      0.125      0.109      0.060      0.420      0.139
wide_punctuation        0.489      0.575      0.184      0.391      0.211      0.443      0.189      0.312      0.282
kana                    0.156      0.249     -0.022     -0.181      0.024     -0.153      0.000      0.034     -0.086
hangul                  0.561      0.647      0.118      0.019      0.187      0.082      0.063      0.113      0.072
cyrillic                0.127      0.179      0.111      0.040      0.075      0.025      0.035      0.067      0.046
greek                   0.376      0.441      0.574      0.056      0.131      0.083      0.024      0.064      0.089
hebrew                  0.358      0.431     -0.011      0.171      0.138      0.150      0.699      0.111      0.129
arabic                  0.420      0.477      0.091      0.032      0.105      0.083      0.092      0.032      0.058
indic                   0.466      0.533      0.660      0.176      0.300     -0.019      0.193      0.123      0.144
thai                    0.595      0.660      0.189     -0.111      0.014     -0.013      0.086      0.166      0.007
latin_marked            1.036      1.170      0.140     -0.028      0.663     -0.012      0.051      0.138      0.105
symbol                 -0.074      0.314      0.227      0.214      0.121      0.341      0.115      0.228      0.214
han_rare               -0.075      0.013      0.008     -0.011      0.133     -0.144     -0.120      0.110      0.016
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
