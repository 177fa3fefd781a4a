"""What survives a compaction without a model: the kit's canaries and updates, and side constraints of our own.

    python benchmarks/fidelity.py              # installs compaction-conformance-kit in an environment of its own
    python benchmarks/fidelity.py --no-kit     # side constraints alone, no network

- *kit*: compaction-conformance-kit's budget benchmark, five rounds, each compacting what the one before left, at 10, 20
  and 30 % of the session's characters. Survival is of its planted canaries; newest value is of its paraphrased
  updates, where the newest value is there and the stale one gone; pairs are two facts of a kind that must both stay.
- *side constraints*: fifteen of our own, said once early in a session of 100,000 tokens, in English and in Chinese;
  a fifth of the session is compacted at a time, five times, each building on the summary before, in 1,600 tokens.
- *changes*: values that change, and pairs that must stay two, of our own (`fidelity_changes.py`), none of the kit's.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
KIT = "compaction-conformance-kit==0.8.0"
TOKENS = 1_600
ROUNDS = 5

CONSTRAINTS = {
    "en": (
        "Never book a table after 21:30.",
        "Always write prices in Swiss francs.",
        "Do not contact Mr Lindqvist before he is back from leave.",
        "The spare key is with the concierge of building 7.",
        "My mother must not hear of the party.",
        "Only use trains that take bicycles.",
        "Our invoice number is INV-77120.",
        "Please keep every mail under 120 words.",
        "I am allergic to walnuts.",
        "No meeting on Wednesday mornings.",
        "The backup runs at 02:15 and must not be interrupted.",
        "Use the address orders@tea.example for all orders.",
        "The red folder must stay with Amara.",
        "At most four guests may sit at one table.",
        "From now on call the project Heron.",
    ),
    "zh": (
        "不要在晚上九点以后给我打电话。",
        "报价一律用人民币。",
        "在林经理回来之前不要联系供应商。",
        "备用钥匙放在7号楼的门房那里。",
        "千万不要让我妈妈知道聚会的事。",
        "只能坐可以带自行车的火车。",
        "我们的发票号是INV-77120。",
        "每封邮件必须控制在200字以内。",
        "我对核桃过敏。",
        "周三上午不能安排会议。",
        "备份在02:15开始，不得中断。",
        "所有订单都要发到orders@tea.example。",
        "红色文件夹必须由阿玛拉保管。",
        "一张桌子最多坐四位客人。",
        "以后请把这个项目叫做苍鹭。",
    ),
}
CHATTER = {
    "en": (
        "The {thing} in the {place} looked {how} when we walked by, and somebody had left a note about number {n}.",
        "We talked about the {thing} again; nobody had a strong opinion, so we went on to the {place}.",
        "There was {how} weather near the {place}, which made the {thing} hard to see for a while.",
        "I read a piece on {thing}s of the {place}: {how}, in {n} pages, and not much in it.",
    ),
    "zh": (
        "今天路过{place}的时候，看到{thing}有点{how}，旁边贴着第{n}号的通知。",
        "我们又聊到{thing}，大家没什么看法，就接着说{place}的事了。",
        "{place}那边天气{how}，有一阵子看不清{thing}。",
        "读了一篇讲{place}{thing}的文章，{how}，有{n}页，没什么内容。",
    ),
}
WORDS = {
    "en": (
        ["lamp", "bridge", "garden", "window", "boat"],
        ["harbour", "market", "library", "station"],
        ["dull", "quiet", "odd"],
    ),
    "zh": (
        ["路灯", "小桥", "花园", "窗户", "小船"],
        ["码头", "市场", "图书馆", "车站"],
        ["暗", "安静", "奇怪"],
    ),
}


def session(language: str, tokens: int, seed: int) -> list[tuple[str, str]]:
    """A session of so many tokens, as (role, text): constraints said once at its beginning, then chatter."""
    from backstory.tokens import count_text

    chance = Random(seed)
    things, places, hows = WORDS[language]
    told = list(CONSTRAINTS[language])
    chance.shuffle(told)
    said: list[tuple[str, str]] = []
    size = 0
    while size < tokens:
        lines = [
            chance.choice(CHATTER[language]).format(
                thing=chance.choice(things),
                place=chance.choice(places),
                how=chance.choice(hows),
                n=chance.randrange(9_000),
            )
            for _ in range(6)
        ]
        if told:
            lines.insert(chance.randrange(len(lines)), told.pop())
        text = " ".join(lines) if language == "en" else "".join(lines)
        answer = "Go on." if language == "en" else "好的，请继续。"
        said += [("user", text), ("assistant", answer)]
        size += count_text(text) + count_text(answer)
    return said


def survivors(language: str, tokens: int = 100_000, seed: int = 1) -> tuple[list[str], list[str]]:
    """The side constraints that are there word for word after five compactions, and those that are not."""
    from backstory.compaction.extract import extract
    from backstory.compaction.summary import Summary
    from backstory.messages import Message, assistant, user
    from backstory.tokens import count_text

    said = session(language, tokens, seed)
    messages: Sequence[Message] = [user(text) if role == "user" else assistant(text) for role, text in said]
    summary: Summary | None = None
    step = -(-len(messages) // ROUNDS)
    for start in range(0, len(messages), step):
        summary = extract(messages[start : start + step], tokens=TOKENS, count=count_text, previous=summary)
    text = summary.rendered if summary is not None else ""
    there = [rule for rule in CONSTRAINTS[language] if rule in text]
    return there, [rule for rule in CONSTRAINTS[language] if rule not in text]


def kit(python: str) -> list[dict[str, float]] | None:
    done = subprocess.run(
        [python, __file__, "--inside"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(ROOT / "src")},
    )
    if done.returncode:
        print(f"the kit could not be run: {done.stderr.strip().splitlines()[-1:]}", file=sys.stderr)
        return None
    found: list[dict[str, float]] = json.loads(done.stdout)
    return found


def inside() -> None:
    """In the kit's own environment: its benchmark over our extraction, as JSON."""
    from compaction_kit.benchmark import run_budget_benchmark  # type: ignore[import-not-found]
    from compaction_kit.compacted import CompactedContext  # type: ignore[import-not-found]

    from backstory.compaction.extract import extract
    from backstory.compaction.summary import Summary
    from backstory.messages import assistant, system, user

    class Extraction:
        name = "backstory"

        def compact(self, turns, round_num=1, budget_chars=None):  # type: ignore[no-untyped-def]
            previous, messages = None, []
            for turn in turns:
                if round_num > 1:
                    previous = Summary(text=turn.text, by="extract")
                else:
                    make = {"user": user, "system": system}.get(turn.role, assistant)
                    messages.append(make(turn.text))
            made = extract(messages, tokens=budget_chars or 10**9, count=len, previous=previous)
            return CompactedContext(text=made.rendered, compactor_name=self.name, round_num=round_num)

    found = []
    for entry in run_budget_benchmark({"backstory": Extraction})["entries"]:
        changes = entry["semantic"]["conflicts"]
        found.append(
            {
                "budget": entry["budget_fraction"],
                "compliant": entry["budget_compliant"],
                "survival": 100 * entry["randomized"]["overall_final_survival"],
                "newest": 100 * changes["resolved"] / changes["n"],
                "pairs": 100 * entry["semantic"]["distinct_pair_rate"],
            }
        )
    print(json.dumps(found))


def environment() -> str | None:
    """The Python of an environment that has the kit, made where there is none; `None` where that fails."""
    home = ROOT / ".venv-peers" / "compaction-kit"
    python = home / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", home], check=True)
    install = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", KIT, "tiktoken"]
    if subprocess.run(install, check=False, stderr=subprocess.DEVNULL).returncode:
        print(
            "compaction-conformance-kit cannot be installed here: its figures are left out", file=sys.stderr
        )
        return None
    return str(python)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--no-kit", dest="kit", action="store_false")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside:
        inside()
        return
    python = environment() if arguments.kit else None
    found = kit(python) if python else None
    if found:
        print(f"{'budget':>8} {'survival':>9} {'newest value':>13} {'pairs':>7}   (of 100)")
        for row in found:
            late = "" if row["compliant"] else "   over the budget"
            print(
                f"{row['budget']:8.0%} {row['survival']:9.1f} {row['newest']:13.1f} {row['pairs']:7.1f}{late}"
            )
    for language in CONSTRAINTS:
        there, gone = survivors(language)
        lost = f"; lost: {'; '.join(gone)}" if gone else ""
        count = f"{len(there)} of {len(there) + len(gone)}"
        print(f"side constraints after {ROUNDS} compactions of 100,000 tokens, {language}: {count}{lost}")
    sys.path.insert(0, str(ROOT))
    from benchmarks import fidelity_changes as changes

    changed = [change for change in changes.CHANGES if changes.holds(change)]
    stayed = [pair for pair in changes.PAIRS if changes.stays(pair)]
    print(f"changes of our own, newest there and stale gone: {len(changed)} of {len(changes.CHANGES)}")
    print(f"pairs of our own that stayed two: {len(stayed)} of {len(changes.PAIRS)}")


if __name__ == "__main__":
    main()
