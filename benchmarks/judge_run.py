"""How many illegal requests the independent judge finds: random histories × all four targets, by `fit` or `repair`.

    python benchmarks/judge_run.py --examples 100000 --seed 1 --judge ../shared/judge/judge.py
    python benchmarks/judge_run.py --through fit --examples 100000 --seed 1

Prints the number of examples and of faults, and stops at the first few with what is needed to get them back. An
example is one random history in one format, repaired for one target; it is legal by `backstory.check`, by the
judge, and stays as it is when it is repaired once more. Through `fit` it has a random budget as well (or none) and
random limits of turns and messages: what comes out is legal and within them, or a typed error whose ledger adds up.
"""

from __future__ import annotations

import argparse
import importlib.util
import sys
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

import backstory  # noqa: E402
from tests.generators import FORMATS, history  # noqa: E402

Judge = Callable[..., list[str]]


def load_judge(path: Path) -> Judge:
    """The judge's own `judge` function; it lies outside the repository."""
    spec = importlib.util.spec_from_file_location("judge", path)
    if spec is None or spec.loader is None:
        raise SystemExit(f"no judge at {path}: say where it is with --judge")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Judge = module.judge
    return found


def faults_of(seed: str, source: str, target: str, judge: Judge) -> list[str]:
    """What is wrong with the repair of one example."""
    items = history(Random(seed), source)
    repaired = backstory.repair(items, source=source, target=target)
    if not items:
        return []
    faults = [f"judge: {fault}" for fault in judge(repaired.body, target, ready=False)]
    problems = backstory.check(repaired.messages, source=target, target=target)
    faults += [f"check: {problem}" for problem in problems]
    again = backstory.repair(repaired.messages, source=target, target=target)
    if len(again.messages) != len(repaired.messages) or any(
        a is not b for a, b in zip(again.messages, repaired.messages, strict=True)
    ):
        faults.append(f"not idempotent: {again.repairs} {again.losses}")
    return faults


def faults_of_fit(seed: str, source: str, target: str, judge: Judge) -> list[str]:
    """What is wrong with one example that is fitted."""
    rng = Random(seed)
    items = history(rng, source)
    budget = rng.choice((None, rng.randrange(20, 200), rng.randrange(100, 1_500)))
    limits = {
        "max_turns": rng.choice((None, None, None, 1, 2)),
        "max_messages": rng.choice((None, None, 1, 4)),
    }
    try:
        fitted = backstory.fit(
            items, source=source, target=target, budget=budget, encoding="o200k_base", ready=False, **limits
        )
    except backstory.errors.BudgetExceeded as error:
        total = sum(line.used for line in error.ledger.lines)
        honest = total == error.ledger.total == error.needed > error.budget == budget
        return [] if honest else [f"the ledger of {error} does not add up"]
    faults = (
        [f"judge: {fault}" for fault in judge(fitted.body, target, ready=False)] if fitted.messages else []
    )
    problems = backstory.check(fitted.messages, source=target, target=target)
    faults += [f"check: {problem}" for problem in problems]
    total = sum(line.used for line in fitted.ledger.lines)
    if total != fitted.ledger.total or (budget is not None and total > budget):
        faults.append(f"{total} tokens, {fitted.ledger.total} by the ledger, of {budget}")
    return faults


THROUGH = {"repair": faults_of, "fit": faults_of_fit}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--examples", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--judge", type=Path, default=ROOT.parent / "shared" / "judge" / "judge.py")
    parser.add_argument("--through", choices=sorted(THROUGH), default="repair")
    parser.add_argument("--show", type=int, default=5, help="stop after so many guilty examples")
    options = parser.parse_args()
    judge = load_judge(options.judge)
    guilty = repaired = 0
    start = time.process_time()
    for number in range(options.examples):
        source, target = FORMATS[number % 4], FORMATS[number // 4 % 4]
        seed = f"{options.seed}:{number}"
        faults: list[str] = []
        try:
            faults = THROUGH[options.through](seed, source, target, judge)
        except backstory.errors.InvalidMessage:
            continue  # an item that no reader takes: both say so
        except Exception as error:  # any other is a finding, whatever it is
            faults = [f"{type(error).__name__}: {error}"]
        repaired += 1
        if faults:
            guilty += 1
            print(f"history(Random({seed!r}), {source!r}) for {target}:", *faults, sep="\n    ")
            if guilty >= options.show:
                break
    seconds = time.process_time() - start
    print(
        f"{repaired} examples through {options.through} (seed {options.seed}), {guilty} guilty, {seconds:.0f} s of CPU"
    )
    return int(guilty > 0)


if __name__ == "__main__":
    sys.exit(main())
