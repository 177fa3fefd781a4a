"""What everybody says: turns of four messages, English and Chinese mixed, no text twice. Standard library alone.

The user's 60 tokens, a call, its result of 400, an answer of 120.
"""

from __future__ import annotations

import json
import random

Row = tuple[str, str, str, str]
"""What is said in one turn: the user's words, the call's arguments, its result, the answer."""

WINDOW = 44
"""Messages that are about 8,000 tokens of this talk: for those who count messages and not tokens."""
BUDGET = 8_000

SENTENCE = """
    the stock of jasmine tea in northern warehouse was counted again this morning please check order numbers
    and delivery dates before noon 库存 盘点 结果 已经 更新 请 核对 订单 编号 与 发货 日期 茶叶 仓库
"""
WORDS = SENTENCE.split()


def rows(count: int, seed: int = 1) -> list[Row]:
    """What is said in so many turns."""
    chance = random.Random(seed)

    def text(tokens: int) -> str:
        return " ".join(f"{chance.choice(WORDS)}{chance.randrange(1000)}" for _ in range(tokens // 3))

    return [(text(60), json.dumps({"q": text(10)}), text(400), text(120)) for _ in range(count)]
