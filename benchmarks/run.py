"""What `make bench` measures, as plain tables: one section a name, all of them unless some are named.

    python benchmarks/run.py                 # all
    python benchmarks/run.py length second   # these
    make bench ARGS="length"

All times are CPU time of this process, the least of several runs, so that a busy machine does not matter much.
"""

from __future__ import annotations

import argparse
import functools
import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
SHARED = ROOT.parent / "shared"

import backstory  # noqa: E402
from backstory.context.budget import Budget  # noqa: E402
from backstory.context.fit import assemble  # noqa: E402
from backstory.context.history import History  # noqa: E402
from backstory.targets import Target  # noqa: E402
from backstory.tokens import Counter  # noqa: E402

Message = dict[str, Any]


def conversation(messages: int, *, name: str = "") -> list[Message]:
    """An agent's conversation, four messages a turn, of which one is a tool's result; no two texts alike.

    The newest turns are the same whatever the length, so that what is sent is the same.
    """
    found: list[Message] = [{"role": "system", "content": "You run a tea shop, and answer briefly."}]
    turns = messages // 4
    for number in range(turns, 0, -1):
        call = {"name": "lookup_stock", "arguments": json.dumps({"item": f"{name}tea {number}"})}
        found += [
            {"role": "user", "content": f"{name}Question {number}: how many boxes of tea {number} are left?"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"{name}call_{number}", "type": "function", "function": call}],
            },
            {
                "role": "tool",
                "tool_call_id": f"{name}call_{number}",
                "content": json.dumps({"item": number, "shelves": [number * k % 97 for k in range(60)]}),
            },
            {
                "role": "assistant",
                "content": f"{name}There are {number * 7 % 50} boxes of tea {number}. " * 3,
            },
        ]
    return found[:-1]


def least(work: Callable[[], Any], *, times: int = 7) -> float:
    """CPU seconds of one run: the least of several."""
    found = []
    for _ in range(times):
        start = time.process_time()
        work()
        found.append(time.process_time() - start)
    return min(found)


def once(work: Callable[[], Any]) -> float:
    start = time.process_time()
    work()
    return time.process_time() - start


def table(head: list[str], rows: list[list[str]]) -> None:
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    for row in [head, *rows]:
        print(
            "  "
            + row[0].ljust(widths[0])
            + "".join(f"  {c.rjust(w)}" for c, w in zip(row[1:], widths[1:], strict=True))
        )


def ms(seconds: float) -> str:
    return f"{seconds * 1000:,.2f}"


# --- sections ------------------------------------------------------------------------------


def length() -> None:
    """One fit to 8,000 tokens, by the length of the list; then LangChain's trim_messages on the same list."""
    backstory.fit(conversation(200), budget=8_000)  # the tokenizer is loaded, the tail counted
    rows, warm = [], {}
    for count in (1_000, 10_000, 50_000):
        given = conversation(count)
        warm[count] = least(functools.partial(backstory.fit, given, budget=8_000), times=25)
        fitted = backstory.fit(given, budget=8_000)
        rows.append([f"{count:,}", ms(warm[count]), str(len(fitted.messages)), f"{fitted.ledger.total:,}"])
    table(["messages", "CPU ms", "sent", "tokens"], rows)
    print(f"  largest / smallest: {max(warm.values()) / min(warm.values()):.2f} (bound: 1.3)\n")
    cold = once(lambda: backstory.fit(conversation(10_000, name="cold "), budget=8_000))
    print(f"  10,000 messages, first fit of all, every text new: {ms(cold)} ms")
    trim(warm[10_000])


def trim(ours: float) -> None:
    """LangChain's `trim_messages` to the same budget, as its documentation has it, counted by the same tokenizer."""
    try:
        from langchain_core.messages import BaseMessage, convert_to_messages, trim_messages
    except ImportError:
        print("  langchain-core is not installed: it comes with the extra `bench`")
        return
    counter = Counter(name="o200k_base")
    from backstory.tokens.text import tokenizer

    def size(message: BaseMessage, count: Callable[[str], int]) -> int:
        calls = json.dumps(getattr(message, "tool_calls", None) or "")
        return 4 + count(str(message.content)) + count(calls)

    def exact(messages: list[BaseMessage]) -> int:
        return sum(size(message, tokenizer("o200k_base").count) for message in messages)

    def cached(messages: list[BaseMessage]) -> int:
        return sum(size(message, counter.count) for message in messages)

    given = convert_to_messages(conversation(10_000))
    rows = [["backstory.fit", ms(ours), "1"]]
    for name, counted in (
        ("trim_messages, exact counter", exact),
        ("trim_messages, exact and cached", cached),
    ):
        work = functools.partial(
            trim_messages, given, max_tokens=8_000, strategy="last", token_counter=counted,
            start_on="human", include_system=True,
        )  # fmt: skip
        work()
        theirs = least(work, times=2)
        rows.append([name, ms(theirs), f"{theirs / ours:,.0f}"])
    table(["10,000 messages to 8,000 tokens", "CPU ms", "times ours"], rows)


def second() -> None:
    """A second fit, with the state of the first and two new messages, by the size of the window."""
    given = conversation(4_000)
    rows = []
    for budget in (1_000, 2_000, 4_000, 8_000, 16_000, 32_000):
        first = backstory.fit(given[:-2], budget=budget)
        work = functools.partial(backstory.fit, given, budget=budget + 1_000, state=first.state)
        stateful = least(work, times=15)
        fresh = least(functools.partial(backstory.fit, given, budget=budget), times=15)
        sent = len(work().messages)
        rows.append([f"{budget:,}", str(sent), ms(stateful), f"{stateful / sent * 1e6:.1f}", ms(fresh)])
    table(["budget", "messages sent", "second fit ms", "µs a message", "without state ms"], rows)


def prefix() -> None:
    """Forty recorded agent runs as one session, budget 16,000: what lies in the prefix of the request before."""
    path = SHARED / "data" / "tau_airline_dev.jsonl"
    if not path.is_file():
        print("  the recorded runs are not beside this clone (../shared/data/tau_airline_dev.jsonl)")
        return
    runs = [json.loads(line)["messages"] for line in path.read_text(encoding="utf-8").splitlines()]
    whole = [runs[0][0], *(message for run in runs[:40] for message in run[1:])]
    rows = []
    for name, budget, mark in (
        ("stepped", 16_000, 0.5),
        ("sliding by a turn", 16_000, 1.0),
        ("full", None, 0.5),
    ):
        state, sent, shared, epochs, requests = None, 0, 0, 1, 0
        start = time.process_time()
        for index, message in enumerate(whole):
            if message["role"] != "assistant":
                continue
            fitted = assemble(
                History(whole[:index], "openai_chat"), Target.of("openai_chat"), Counter(name="o200k_base"),
                Budget(tokens=budget), state=state, low_mark=mark,
            )  # fmt: skip
            state, epochs, requests = fitted.state, fitted.ledger.epoch, requests + 1
            sent, shared = sent + fitted.ledger.total, shared + fitted.ledger.shared
        cost = (sent - shared * 0.9) * 2.5 / 1_000_000
        each = (time.process_time() - start) / requests
        rows.append(
            [name, str(requests), str(epochs), f"{sent:,}", f"{shared / sent:.2%}", f"${cost:.2f}", ms(each)]
        )
    table(["window", "requests", "epochs", "input tokens", "in the prefix", "cost", "CPU ms each"], rows)
    print("  at $2.50 a million tokens of input, a tenth of it for those that the cache serves")


def imports() -> None:
    """CPU time of importing, as a ratio to a few modules of the standard library; whole interpreters."""
    rows = {}
    for name, code in (
        ("sqlite3, json, asyncio", "import sqlite3, json, asyncio"),
        ("backstory", "import backstory"),
    ):
        rows[name] = min(_interpreter(code) for _ in range(9))
    base = rows["sqlite3, json, asyncio"]
    table(
        ["import", "CPU ms", "ratio"], [[name, ms(used), f"{used / base:.2f}"] for name, used in rows.items()]
    )
    print("  bound: 3")


def _interpreter(code: str) -> float:
    timed = f"import time\n{code}\nprint(time.process_time())"
    out = subprocess.run([sys.executable, "-c", timed], check=True, capture_output=True, text=True)
    return float(out.stdout)


def turns() -> None:
    """A durable turn and a cold request of ours against a raw floor, and against nanobot's sessions."""
    _script("turns.py")


def stores() -> None:
    """What a durable turn costs in our stores, beside raw floors that make the same commits."""
    _script("stores.py")


def against() -> None:
    """Ours beside what people use, each in an environment of its own."""
    _script("against.py")


def fidelity() -> None:
    """What survives a compaction without a model."""
    _script("fidelity.py")


def _script(name: str) -> None:
    sys.stdout.flush()
    subprocess.run([sys.executable, str(ROOT / "benchmarks" / name)], check=False)


SECTIONS: dict[str, Callable[[], None]] = {
    "length": length,
    "second": second,
    "prefix": prefix,
    "imports": imports,
    "turns": turns,
    "stores": stores,
    "against": against,
    "fidelity": fidelity,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}")
    chosen = parser.parse_args().sections or list(SECTIONS)
    unknown = [name for name in chosen if name not in SECTIONS]
    if unknown:
        parser.error(f"no section {', '.join(unknown)}; there are {', '.join(SECTIONS)}")
    for name in chosen:
        print(f"{name}: {(SECTIONS[name].__doc__ or '').strip()}")
        SECTIONS[name]()
        print()
    return 0


if __name__ == "__main__":
    sys.exit(main())
