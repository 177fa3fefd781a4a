"""A conversation of a hundred turns in a window of 8,000 tokens, asked about its first turn. No network, no key.

    python examples/long_session.py            # and how it was done, in full
    python examples/long_session.py --brief

What was said does not fit the window. Summaries stand for it, written without a model here; an offline stand-in answers
from what it is sent and nothing else, so that a right answer proves that the summary kept it. At the end `backstory
explain` says what the model saw, and what each summary covers.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import backstory
from backstory.models import ExtractiveModel

KEY = "cli:shop"
WINDOW = 8_000
TURNS = 100
COLOURS = (sys.stdout.isatty() and "NO_COLOR" not in os.environ) or "FORCE_COLOR" in os.environ

FIRST = (
    "Hello! My name is Xiao Zhang, and I keep the books of a tea shop in Hamburg. "
    "The invoice number of our supplier is TX-20417. Never order from Meyer & Sons again."
)
LAST = "What is my name?", "What is the invoice number of our supplier?"
TEAS = "jasmine", "pu'er", "longjing", "oolong", "sencha", "assam", "rooibos", "keemun", "matcha", "gunpowder"
PLACES = "the cellar", "the shop window", "the back room", "the shelf by the door", "the cool store"


def colour(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOURS else text


def small_talk(turn: int) -> str:
    """What the shop talks about all day: no turn is like another, and none matters much."""
    tea, place = TEAS[turn % len(TEAS)], PLACES[turn * 3 % len(PLACES)]
    return (
        f"Note {turn}: today we counted the {tea} in {place}, {turn * 7 % 90 + 3} boxes on the left and "
        f"{turn * 11 % 60 + 2} on the right. A customer liked how it smelled and talked about the weather, the harbour and "
        f"a journey by train that took all of last summer. Then it rained, so we swept {place}, made a pot of "
        f"{TEAS[(turn + 3) % len(TEAS)]} and moved the chairs inside. The kettle was slow, as it is on most days, and the "
        f"radio played until we closed."
    )


async def talk(root: Path) -> bool:
    """The hundred turns; whether the first one is still known."""
    told, largest = 0, 0
    async with backstory.open(
        root, model=ExtractiveModel(), window=WINDOW, compaction=backstory.Compaction(extract=True)
    ) as bs:
        for turn in range(1, TURNS + 1 - len(LAST)):
            text = FIRST if turn == 1 else small_talk(turn)
            reply = await bs.say(KEY, text)
            told += len(text) + len(reply.text)
            largest = max(largest, reply.usage.input)
            if turn in (1, 2, TURNS - len(LAST)):
                print(f"  {colour('1', f'turn {turn}:'):<10} {text[:96]}…", flush=True)
            elif turn == 3:
                print("  …", flush=True)
        print(
            f"  {told:,} characters were said; no request was longer than {largest:,} of {WINDOW:,} tokens\n"
        )
        answers = []
        for text in LAST:
            answers.append(str(await bs.say(KEY, text)))
            print(
                f"  {colour('1', 'you:'):<10} {text}\n  {colour('1', 'assistant:')} {answers[-1]}", flush=True
            )
    return "Xiao Zhang" in answers[0] and "TX-20417" in answers[1]


def explained(root: Path, brief: bool) -> int:
    """What `backstory explain` says; of it, in brief, what was left out and the summary in force."""
    for arguments, mark in (
        (["explain", KEY], "left out"),
        (["explain", KEY, "--compactions"], "compaction "),
    ):
        command = [sys.executable, "-m", "backstory", *arguments, "--workspace", str(root)]
        print(f"\n  {colour('2', '$ backstory ' + ' '.join(arguments))}", flush=True)
        done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, encoding="utf-8")
        if done.returncode:
            return done.returncode
        print(mark + done.stdout.rpartition(f"\n{mark}")[2] if brief else done.stdout)
    return 0


def play(brief: bool) -> int:
    root = Path(tempfile.mkdtemp(prefix="backstory-long-"))
    try:
        print(colour("1;36", f"\nA hundred turns in a window of {WINDOW:,} tokens"))
        known = asyncio.run(talk(root))
        if code := explained(root, brief):
            return code
    finally:
        shutil.rmtree(root)
    if not known:
        print("the first turn was forgotten", file=sys.stderr)
        return 1
    print(f"\n{colour('1;32', 'The first turn is still known')} after a hundred.")
    return 0


if __name__ == "__main__":
    sys.exit(play("--brief" in sys.argv[1:]))
