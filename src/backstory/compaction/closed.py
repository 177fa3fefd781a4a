"""Words of closed classes that are values by themselves: a tone, units, a time zone, a language, a priority.

Of each class one holds at a time for one thing, so that a later one takes an earlier one's place.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_CLASSES: Mapping[str, str] = {
    "tone": "terse|brief|briefly|concise|concisely|short|succinct|detailed|verbose|lengthy|thorough|formal|formally"
    "|informal|casual"
    "|cheerful|playful|humorous|witty|warm|upbeat|sober|professional|academic|conversational|matter-of-fact|enthusiastic"
    "|friendly|serious|neutral|polite|blunt|简短|简洁|详细|正式|随意|活泼|严肃|轻松|礼貌",
    "units": "metric|imperial|celsius|fahrenheit|公制|英制|摄氏|华氏",
    "zone": r"utc|gmt|cet|est|pst|cst|(?:pacific|eastern|central|mountain|local) time|北京时间|当地时间|东八区",
    "tongue": "english|chinese|mandarin|french|german|spanish|italian|portuguese|japanese|korean|russian|arabic|中文"
    "|英文|英语|法语|德语"
    "|日语|韩语|俄语|西班牙语",
    "priority": "urgent|low priority|high priority|medium priority|紧急|高优先级|低优先级",
}
PATTERN = "|".join(
    rf"\b(?:{'|'.join(word for word in words.split('|') if word.isascii())})\b"
    rf"|{'|'.join(word for word in words.split('|') if not word.isascii())}"
    for words in _CLASSES.values()
)
CLASSES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"^(?:{words})$", re.IGNORECASE) for name, words in _CLASSES.items()
}
