"""What a long life costs: 2,000 turns with tools and Chinese chat, ours against a sliding window and full history.

    python benchmarks/cost.py                       # windows of 16K and 128K; a quarter of an hour
    python benchmarks/cost.py --turns 400 --windows 16000

The life is made of recorded agent runs joined (../shared/data, airline) and of Chinese chat, in alternation, repeated
under other numbers until there are turns enough. Ours goes through sessions: governed requests, compaction prepared in
the background and put into force at the hard mark, its summaries written by the session's own model, for which a
stand-in extracts: in the conversation that it has in its cache where that is cheaper, and billed for all it reads and
writes. A compaction leaves less here than by default (--target 0.5), and summaries are shorter (--summary 0.1). The
others are reckoned from the same counts:

- *sliding*: as many of the newest whole turns as fit the same budget, refilled at each call, so that its start moves;
- *full*: everything, whether or not any window takes it.

The provider's cache serves what stands unchanged at the beginning of a request since the one before. Prices are list
prices (src/backstory/cli/prices.toml, which can be edited, or --prices FILE); a price for cache writes is paid for all
input that is not read from the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncGenerator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import backstory
from backstory import Compaction
from backstory.agent.sources.base import as_source
from backstory.cli.prices import Prices
from backstory.compaction.extract import extract
from backstory.compaction.policy import Policy
from backstory.context.replay import Price
from backstory.formats.request import read_all
from backstory.messages import assistant, user
from backstory.models.base import Answer, Event, Usage
from backstory.stores import SessionId
from backstory.targets import Target
from backstory.tokens import count_text, count_tools, counter_for
from backstory.tokens.messages import PRIMING, count_message

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
MODELS = ("gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro")
COUNTER = counter_for("gpt-5", "openai_chat")
Item = dict[str, Any]


@dataclass(frozen=True)
class Turn:
    """What is said in one turn: the user's words, and every item that answers them, results included."""

    user: str
    items: list[Item]


def runs() -> tuple[str, list[Turn], list[Turn]]:
    """The airline's instructions, its turns, and turns of Chinese chat."""
    system, turns = "", []
    for line in (DATA / "tau_airline_dev.jsonl").read_text(encoding="utf-8").splitlines():
        first, *rest = json.loads(line)["messages"]
        system = first["content"]
        for item in rest:
            if item["role"] == "user":
                turns.append(Turn(item["content"] or "…", []))
            elif turns:
                turns[-1].items.append(item)
    chats = json.loads((DATA / "memory_bank_cn.json").read_text(encoding="utf-8"))
    chinese = [
        Turn(pair["query"], [{"role": "assistant", "content": pair["response"]}])
        for person in chats.values()
        for pairs in person["history"].values()
        for pair in pairs
    ]
    return system, [turn for turn in turns if whole(turn)], chinese


def whole(turn: Turn) -> bool:
    """Whether a recorded turn ends with an answer, every call answered."""
    asked = {call["id"] for item in turn.items for call in item.get("tool_calls") or ()}
    given = {item.get("tool_call_id") for item in turn.items if item["role"] == "tool"}
    last = turn.items[-1] if turn.items else {}
    return (
        asked == given
        and last.get("role") == "assistant"
        and not last.get("tool_calls")
        and bool(last["content"])
    )


def life(count: int) -> tuple[str, list[Turn]]:
    """So many turns; where the recordings are used up, they come again under another number."""
    system, airline, chinese = runs()
    found: list[Turn] = []
    again = 0
    while len(found) < count:
        again += 1
        for number, turn in enumerate(airline):
            found.append(Turn(f"{turn.user} (case {again}-{number})", turn.items))
            if number % 2:
                other = chinese[(number // 2) % len(chinese)]
                found.append(Turn(f"{other.user}（{again}-{number}）", other.items))
    return system, found[:count]


def tools_of(turns: list[Turn]) -> list[Item]:
    names = {
        call["function"]["name"]: json.loads(call["function"]["arguments"])
        for turn in turns
        for item in turn.items
        for call in item.get("tool_calls") or ()
    }
    return [
        {
            "type": "function",
            "function": {
                "name": name,
                "description": f"{name.replace('_', ' ')} of the airline's system.",
                "parameters": {
                    "type": "object",
                    "properties": {key: {"type": "string"} for key in arguments},
                },
            },
        }
        for name, arguments in sorted(names.items())
    ]


@dataclass
class Bill:
    """Tokens of a life, and the cumulative cost of each turn by the name of a price."""

    fresh: int = 0
    cached: int = 0
    output: int = 0
    summaries: tuple[int, int, int] = (0, 0, 0)
    costs: dict[str, list[float]] = field(default_factory=dict)

    def add(self, prices: Mapping[str, Price], *, fresh: int, cached: int, output: int) -> None:
        self.fresh += fresh
        self.cached += cached
        self.output += output
        for name, price in prices.items():
            line = self.costs.setdefault(name, [0.0])
            line[-1] += price.of(fresh=fresh, cached=cached, output=output)

    def turn_ends(self) -> None:
        for line in self.costs.values():
            line.append(line[-1])

    @property
    def share(self) -> float:
        """Of the conversation's input, what the cache serves; the summariser's is billed, and told apart."""
        read, held, _ = self.summaries
        return (self.cached - held) / max(1, self.cached + self.fresh - read - held)


class Summariser:
    """Extracts what it is given to read, in about as many tokens as it may write; bills as a provider would."""

    def __init__(self, tokens: int, window: int) -> None:
        self.name = "gpt-5"
        self.target = Target.of("openai_chat")
        self.window = window
        self.max_output: int | None = None
        self.settings: dict[str, Any] = {}
        self.sent: list[str] = []
        self.used: list[Usage] = []
        self._tokens = tokens

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        yield await self.complete(body)

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        items = [json.dumps(item, ensure_ascii=False, sort_keys=True) for item in body["messages"]]
        common = 0
        for ours, theirs in zip(items, self.sent, strict=False):
            if ours != theirs:
                break
            common += 1
        read, _ = read_all(body["messages"], "openai_chat")
        sizes = [count_message(message, COUNTER, "openai_chat") for message in read]
        made = extract(read[1:-1] or [user(read[-1].text)], tokens=self._tokens, count=count_text)
        usage = Usage(input=sum(sizes), output=count_text(made.text), cached=sum(sizes[:common]))
        self.used.append(usage)
        return Answer(messages=(assistant(made.text),), usage=usage, model=self.name)


def served(before: Mapping[str, Any] | None, body: Mapping[str, Any], shared: int, tools: int) -> int:
    """Tokens that the provider's cache serves: what our ledger says, and where the system block is another one, what it
    has in common with the one before from its beginning on, since these caches go by tokens and not by messages."""
    if before is None or shared > tools:
        return shared
    old, new = before["messages"][0].get("content"), body["messages"][0].get("content")
    if before.get("tools") != body.get("tools") or not isinstance(old, str) or not isinstance(new, str):
        return shared
    common = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    return max(shared, tools + count_text(new[:common]))


async def ours(
    system: str, turns: list[Turn], window: int, prices: Mapping[str, Price], policy: Policy
) -> tuple[Bill, int]:
    """The life through a session; and how many compactions there were."""
    tools = tools_of(turns)
    bill = Bill()
    budget = window - window // 5
    declared = count_tools(tools, COUNTER)
    before: Mapping[str, Any] | None = None
    summariser = Summariser(int(budget * policy.summary * 0.8), window)

    async def nothing(**_: Any) -> str:
        return ""

    made = [
        backstory.Tool(
            name=tool["function"]["name"],
            run=nothing,
            description=tool["function"]["description"],
            parameters=tool["function"]["parameters"],
        )
        for tool in tools
    ]
    async with backstory.open(
        "memory:",
        target="openai_chat",
        window=window,
        tools=made,
        runtime=False,
        sources=[as_source("identity", lambda _: system)],
        model=summariser,
        compaction=Compaction(policy=policy),
    ) as bs:
        for turn in turns:
            results = [item for item in turn.items if item["role"] == "tool"]
            async with bs.turn("life", turn.user) as live:
                for item in turn.items:
                    if item["role"] != "assistant":
                        continue
                    request = await live.request()
                    shared = served(before, request.body, request.ledger.shared, declared)
                    cached, before = min(shared, request.ledger.total), request.body
                    (message,), _ = read_all([item], "openai_chat")
                    output = count_message(message, COUNTER, "openai_chat")
                    bill.add(prices, fresh=request.ledger.total - cached, cached=cached, output=output)
                    summariser.sent = [
                        json.dumps(one, ensure_ascii=False, sort_keys=True)
                        for one in request.body["messages"]
                    ]
                    await live.record(item)
                    for call in live.open_calls:
                        result = next(r for r in results if r["tool_call_id"] == call.id)
                        results.remove(result)  # ids come again within a turn
                        await live.result(call, result["content"])
            if bs.compactor is not None:
                await bs.compactor.settled(SessionId(key="life"))
            for usage in summariser.used:
                bill.add(prices, fresh=usage.input - usage.cached, cached=usage.cached, output=usage.output)
                read, held, written = bill.summaries
                bill.summaries = (
                    read + usage.input - usage.cached,
                    held + usage.cached,
                    written + usage.output,
                )
            summariser.used.clear()
            bill.turn_ends()
        records = await bs.store.read(SessionId(key="life"))
    return bill, sum(record.kind == "summary" for record in records)


def reckoned(system: str, turns: list[Turn], budget: int | None, prices: Mapping[str, Price]) -> Bill:
    """A life under a window of whole turns that slides, or with `None` under none."""
    bill = Bill()
    fixed = count_text(system) + 4 + count_tools(tools_of(turns), COUNTER) + PRIMING
    sizes: list[int] = []
    held, first, before = (
        0,
        0,
        (0, 0),
    )  # tokens of the turns that are sent, the first of them, and the request before
    for number, turn in enumerate(turns):
        current = count_message(user(turn.user), COUNTER, "openai_chat")
        for item in turn.items:
            (message,), _ = read_all([item], "openai_chat")
            size = count_message(message, COUNTER, "openai_chat")
            if item["role"] == "assistant":
                while budget is not None and first < number and fixed + held + current > budget:
                    held -= sizes[first]
                    first += 1
                total = fixed + held + current
                cached = before[1] if before[0] == first and before[1] else min(fixed, before[1])
                bill.add(prices, fresh=total - cached, cached=cached, output=size)
                before = (first, total)
            current += size
        sizes.append(current)
        held += current
        bill.turn_ends()
    return bill


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--windows", type=int, nargs="+", default=[16_000, 128_000])
    parser.add_argument("--prices", default=None, help="a file shaped as prices.toml")
    parser.add_argument("--target", type=float, default=0.3, help="what a compaction leaves (0.3)")
    parser.add_argument("--summary", type=float, default=0.05, help="what a summary may take (0.05)")
    arguments = parser.parse_args()
    policy = Policy(target=arguments.target, summary=arguments.summary)
    if not DATA.is_dir():
        raise SystemExit(f"the recordings are not at hand: {DATA}")
    table = Prices(arguments.prices)
    prices = {model: found.price for model in MODELS if (found := table.of(model, "")) is not None}
    system, turns = life(arguments.turns)
    full = reckoned(system, turns, None, prices)
    for window in arguments.windows:
        budget = window - window // 5
        mine, compactions = await ours(system, turns, window, prices, policy)
        sliding = reckoned(system, turns, budget, prices)
        fresh, held, written = mine.summaries
        told = f"window {window:,}, reserve {window // 5:,}, budget {budget:,}; {len(turns):,} turns"
        each = written // max(1, compactions)
        print(f"{told}, {compactions} compactions to {policy.target:.0%}, {each:,} tokens a summary")
        print(f"the summariser read {fresh:,} tokens anew and {held:,} from the cache")
        print(
            f"{'':>10} {'input':>14} {'from cache':>11} {'output':>10}  "
            + "  ".join(f"{m:>18}" for m in prices)
        )
        for name, bill in (("ours", mine), ("sliding", sliding), ("full", full)):
            costs = "  ".join(f"{bill.costs[m][-1]:17.2f}$" for m in prices)
            print(f"{name:>10} {bill.fresh + bill.cached:14,} {bill.share:11.1%} {bill.output:10,}  {costs}")
        for name, other in (("sliding", sliding), ("full", full)):
            ratios = "  ".join(f"{mine.costs[m][-1] / other.costs[m][-1]:18.3f}" for m in prices)
            print(f"{'ours/' + name:>48}  {ratios}")
        prefixes = {
            m: [a / b for a, b in zip(mine.costs[m][1:], full.costs[m][1:], strict=True)] for m in prices
        }
        worst = "  ".join(f"{max(prefixes[m]):18.3f}" for m in prices)
        print(f"{'worst prefix, ours/full':>48}  {worst}")
        last = {m: max((n for n, r in enumerate(prefixes[m], 1) if r > 1), default=0) for m in prices}
        over = "  ".join(f"{last[m]:18,}" for m in prices)
        print(f"{'last turn whose prefix costs more than full':>48}  {over}")
        print()


if __name__ == "__main__":
    asyncio.run(main())
