"""What compaction costs the user who waits for an answer, while the request is under the hard mark.

    python benchmarks/waiting.py                   # a budget of 16,384 tokens

The same conversation twice in one process, turn by turn in alternation, over the in-memory store with a model that
answers at once: once with compaction off, once with a summariser that takes 20 seconds, so that it is still at work
when the measuring ends. CPU time of a turn, from the user's message to the end of the turn; a turn that waited for the
summariser would take 20 seconds, and the script says so. Each turn's figure is the least of several lives. The turn
that passes the soft mark looks up what is to be told; its figure stands apart.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from typing import Any

import backstory
from backstory.models.scripted import Play, ScriptedModel
from backstory.stores.in_memory import InMemoryStore
from backstory.upkeep.summarise import Compaction

WORDS = (
    "the",
    "boxes",
    "stand",
    "in",
    "a",
    "row",
    "by",
    "the",
    "harbour",
    "and",
    "nobody",
    "has",
    "counted",
    "them",
)


def opened(budget: int, compaction: Compaction | bool) -> backstory.Backstory:
    model = ScriptedModel(lambda body: "Noted, and written down in the list of the day.", legal=False)
    return backstory.open(InMemoryStore(), model=model, budget=budget, runtime=False, compaction=compaction)


async def life(budget: int, seed: int) -> list[tuple[float, float, float, bool]]:
    """For each turn under the hard mark: share of the budget, CPU seconds off and on, whether one is being prepared."""

    def slow(body: dict[str, Any]) -> Play:
        return Play(step="## Facts\n- They count boxes.", delay=20.0)

    off = opened(budget, False)
    on = opened(budget, Compaction(model=ScriptedModel(slow, name="slow", legal=False)))
    chance = random.Random(seed)
    found = []
    async with off, on:
        for number in range(10_000):
            text = f"{number}: " + " ".join(chance.choices(WORDS, k=120))
            spent = {}
            for bs in (off, on) if number % 2 else (on, off):
                wall, cpu = time.perf_counter(), time.process_time()
                await bs.say("s", text)
                spent[bs] = time.process_time() - cpu
                if time.perf_counter() - wall > 15:
                    sys.exit("a turn waited for the summariser")
            ledger = on.sessions.peek(backstory.stores.SessionId(key="s"))[0].view.request["ledger"]
            share = ledger["total"] / budget
            if share >= 0.88:
                return found
            compactor = on.compactor
            assert compactor is not None
            found.append((share, spent[off], spent[on], compactor.busy))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--budget", type=int, default=16_384, help="tokens of input")
    parser.add_argument("--lives", type=int, default=9, help="repetitions, of which each turn's least counts")
    args = parser.parse_args()
    lives = [asyncio.run(life(args.budget, 1)) for _ in range(args.lives)]
    turns = [
        (one[0][0], min(turn[1] for turn in one), min(turn[2] for turn in one), one[0][3])
        for one in zip(*lives, strict=True)
    ]
    first = next(n for n, turn in enumerate(turns) if turn[3])
    before, after = turns[5:first], turns[first + 1 :]
    for name, some in (("below the soft mark", before), ("while it is written", after)):
        ratio = sum(turn[2] for turn in some) / sum(turn[1] for turn in some)
        print(f"{name:<22} {len(some):>4} turns: on to off {ratio:.3f}")
    share, off, on, _ = turns[first]
    print(f"passing the soft mark  ({share:.0%}): {off * 1e3:.2f} ms off, {on * 1e3:.2f} ms on")


if __name__ == "__main__":
    main()
