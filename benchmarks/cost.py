"""What a long life costs: 2,000 turns with tools and Chinese chat, ours against a sliding window and full history.

    python benchmarks/cost.py                       # the four lives of docs/measurements.md; a quarter of an hour
    python benchmarks/cost.py --turns 400 --windows 16000 --pauses 0

The life is made of recorded agent runs joined (../shared/data, airline) and of Chinese chat, in alternation, repeated
under other numbers until there are turns enough. Ours goes through sessions: governed requests, compaction prepared in
the background and put into force at the hard mark, its summaries written by the session's own model, for which a
stand-in extracts: in the conversation that it has in its cache where that is cheaper, and billed for all it reads and
writes; with --other, by the small model beside it (gpt-5-mini, claude-haiku, gemini-flash). The others are reckoned
from the same counts, with the same instructions and tools:

- *sliding*: as many of the newest whole turns as fit the same budget, refilled at each call, so that its start moves;
- *full*: everything, whether or not any window takes it.

The provider's cache serves what stands unchanged at the beginning of a request since the one before. With --pauses N
the user is away after each N turns, for 20 minutes: the cache goes cold for all three, and ours does what it does when
nobody speaks (`upkeep/idle`, its own timer on a clock that is moved by hand). With 0 nobody ever pauses. What is paid
in a pause counts to the turn after it; by how much ours is over full history in the pause itself is told apart.

Prices are list prices (src/backstory/cli/prices.toml, which can be edited, or --prices FILE); a price for cache writes
is paid for all input that is not read from the cache.
"""

from __future__ import annotations

import argparse
import asyncio
import json
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import backstory
from backstory import Compaction
from backstory.agent.sources.base import as_source
from backstory.agent.sources.tool_contract import RULES
from backstory.cli.prices import Prices
from backstory.compaction.extract import extract
from backstory.compaction.policy import Policy
from backstory.context.replay import Price
from backstory.formats.request import read_all
from backstory.messages import assistant, user
from backstory.models.base import Answer, Event, Usage
from backstory.stores import InMemoryStore, ManualClock, SessionId
from backstory.targets import Target
from backstory.tokens import count_text, count_tools, counter_for
from backstory.tokens.messages import PRIMING, count_message

ROOT = Path(__file__).resolve().parent.parent
DATA = ROOT.parent / "shared" / "data"
MODELS = {
    "gpt-5": "gpt-5-mini",
    "claude-sonnet-4-5": "claude-haiku-4-5",
    "gemini-2.5-pro": "gemini-2.5-flash",
}
"""The models whose prices are reckoned with, each with the small one beside it."""
AWAY = 20 * 60.0
"""Seconds of a pause: longer than any of the caches lives that cost nothing to keep, and than `idle_after`."""
LIFE = SessionId(key="life")
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
                # An empty result reads "nothing", so that all three send the same.
                turns[-1].items.append(
                    {**item, "content": item["content"] or "nothing"} if item["role"] == "tool" else item
                )
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
    """Tokens of a life; by the name of a price what it cost so far, at the end of each turn, and of each pause."""

    fresh: int = 0
    cached: int = 0
    output: int = 0
    summaries: tuple[int, int, int] = (0, 0, 0)
    costs: dict[str, float] = field(default_factory=dict)
    turns: dict[str, list[float]] = field(default_factory=dict)
    pauses: dict[str, list[tuple[int, float]]] = field(default_factory=dict)  # after which turn, and the cost

    def add(self, prices: Mapping[str, Price], *, fresh: int, cached: int, output: int) -> None:
        self.fresh += fresh
        self.cached += cached
        self.output += output
        for name, price in prices.items():
            cost = price.of(fresh=fresh, cached=cached, output=output)
            self.costs[name] = self.costs.get(name, 0.0) + cost

    def summarised(self, prices: Mapping[str, Price], usage: Usage) -> None:
        read, held, written = self.summaries
        fresh = usage.input - usage.cached
        self.summaries = (read + fresh, held + usage.cached, written + usage.output)
        self.add(prices, fresh=fresh, cached=usage.cached, output=usage.output)

    def turn_ends(self) -> None:
        for name, cost in self.costs.items():
            self.turns.setdefault(name, []).append(cost)

    def pause_ends(self) -> None:
        for name, cost in self.costs.items():
            self.pauses.setdefault(name, []).append((len(self.turns[name]), cost))

    @property
    def share(self) -> float:
        """Of the conversation's input, what the cache serves; the summariser's is billed, and told apart."""
        read, held, _ = self.summaries
        return (self.cached - held) / max(1, self.cached + self.fresh - read - held)


class Summariser:
    """Extracts what it is given to read, in about as many tokens as it may write; bills as a provider would.

    `sent` is what the provider has in its cache for it.
    """

    def __init__(self, name: str, tokens: int, window: int) -> None:
        self.name = name
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
        tools = count_tools(body.get("tools", []), COUNTER)
        made = extract(read[1:-1] or [user(read[-1].text)], tokens=self._tokens, count=count_text)
        usage = Usage(
            input=tools + sum(sizes),
            output=count_text(made.text),
            cached=(tools if common else 0) + sum(sizes[:common]),
        )
        self.used.append(usage)
        return Answer(messages=(assistant(made.text),), usage=usage, model=self.name)


def served(before: Mapping[str, Any] | None, body: Mapping[str, Any], shared: int, tools: int) -> int:
    """Tokens that the provider's cache serves: what our ledger says, and where the system block is another one, what it
    has in common with the one before from its beginning on, since these caches go by tokens and not by messages."""
    if before is None:  # the first request, or the first one after the cache went cold
        return 0
    if shared > tools:
        return shared
    old, new = before["messages"][0].get("content"), body["messages"][0].get("content")
    if before.get("tools") != body.get("tools") or not isinstance(old, str) or not isinstance(new, str):
        return shared
    common = next(
        (n for n, (a, b) in enumerate(zip(old, new, strict=False)) if a != b), min(len(old), len(new))
    )
    return max(shared, tools + count_text(new[:common]))


@dataclass(frozen=True, kw_only=True)
class Setting:
    """How ours is set, and when the user is away: after each so many turns, or never (0)."""

    window: int
    policy: Policy
    written: int
    other: bool = False
    pauses: int = 0


async def pause(bs: backstory.Backstory, clock: ManualClock) -> None:
    """Time goes by, and whatever is to be done then is done."""
    step = 15.0
    for _ in range(int(AWAY / step)):
        clock.advance(step)
        for _ in range(20):
            await asyncio.sleep(0)
        if bs.compactor is not None and bs.compactor.busy:
            await bs.compactor.settled(LIFE)


async def ours(
    system: str, turns: list[Turn], setting: Setting, prices: Mapping[str, Price], others: Mapping[str, Price]
) -> tuple[Bill, int]:
    """The life through a session; and how many compactions there were."""
    tools, policy = tools_of(turns), setting.policy
    bill, clock = Bill(), ManualClock()
    before: Mapping[str, Any] | None = None
    main = Summariser("gpt-5", setting.written, setting.window)
    other = Summariser("small", setting.written, setting.window)
    writer, paid = (other, others) if setting.other else (main, prices)

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

    def pay() -> None:
        for usage in writer.used:
            bill.summarised(paid, usage)
        writer.used.clear()

    async with backstory.open(
        InMemoryStore(clock=clock),
        target="openai_chat",
        window=setting.window,
        tools=made,
        runtime=False,
        sources=[as_source("identity", lambda _: system)],
        model=main,
        compaction=Compaction(policy=policy, model=other if setting.other else None),
    ) as bs:
        assert bs.compactor is not None
        for number, turn in enumerate(turns, 1):
            results = [item for item in turn.items if item["role"] == "tool"]
            async with bs.turn("life", turn.user) as live:
                for item in turn.items:
                    if item["role"] != "assistant":
                        continue
                    request = await live.request()
                    declared = count_tools(request.body.get("tools", []), COUNTER)
                    shared = served(before, request.body, request.ledger.shared, declared)
                    cached, before = min(shared, request.ledger.total), request.body
                    (message,), _ = read_all([item], "openai_chat")
                    output = count_message(message, COUNTER, "openai_chat")
                    bill.add(prices, fresh=request.ledger.total - cached, cached=cached, output=output)
                    main.sent = [
                        json.dumps(one, ensure_ascii=False, sort_keys=True)
                        for one in request.body["messages"]
                    ]
                    await live.record(item)
                    for call in live.open_calls:
                        result = next(r for r in results if r["tool_call_id"] == call.id)
                        results.remove(result)  # ids come again within a turn
                        await live.result(call, result["content"])
            await bs.compactor.settled(LIFE)
            pay()
            bill.turn_ends()
            if setting.pauses and number % setting.pauses == 0:
                await pause(bs, clock)
                pay()
                bill.pause_ends()
                before, main.sent = None, []
        records = await bs.store.read(LIFE)
    return bill, sum(record.kind == "summary" for record in records)


def reckoned(
    system: str, turns: list[Turn], budget: int | None, prices: Mapping[str, Price], pauses: int
) -> Bill:
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
                cached = before[1] - PRIMING if before[0] == first and before[1] else min(fixed, before[1])
                bill.add(prices, fresh=total - cached, cached=cached, output=size)
                before = (first, total)
            current += size
        sizes.append(current)
        held += current
        bill.turn_ends()
        if pauses and (number + 1) % pauses == 0:
            before = (first, 0)
    return bill


def told(setting: Setting, mine: Bill, sliding: Bill, full: Bill, compactions: int) -> None:
    """Print one life."""
    window, policy, names = setting.window, setting.policy, list(full.costs)
    fresh, held, written = mine.summaries
    away = f"a pause after each {setting.pauses} turns" if setting.pauses else "the cache never goes cold"
    turns = len(full.turns[names[0]])
    writer = "the small model beside it" if setting.other else "the session's model"
    print(
        f"window {window:,}, reserve {window // 5:,}, budget {window - window // 5:,}; {turns:,} turns; {away}"
    )
    print(
        f"marks {policy.soft:.0%}, {policy.hard:.0%}, target {policy.target:.0%}; {compactions} compactions by "
        f"{writer}, "
        f"{written // max(1, compactions):,} tokens each; it read {fresh:,} tokens anew, {held:,} from the cache"
    )
    print(
        f"{'':>10} {'input':>14} {'from cache':>11} {'output':>10}  " + "  ".join(f"{m:>18}" for m in names)
    )
    for name, bill in (("ours", mine), ("sliding", sliding), ("full", full)):
        costs = "  ".join(f"{bill.costs[m]:17.2f}$" for m in names)
        print(f"{name:>10} {bill.fresh + bill.cached:14,} {bill.share:11.1%} {bill.output:10,}  {costs}")

    def line(name: str, value: Callable[[str], str]) -> None:
        print(f"{name:>48}  " + "  ".join(f"{value(m):>18}" for m in names))

    line("ours/sliding", lambda m: f"{mine.costs[m] / sliding.costs[m]:.3f}")
    line("ours/full", lambda m: f"{mine.costs[m] / full.costs[m]:.3f}")
    ratios = {m: [a / b for a, b in zip(mine.turns[m], full.turns[m], strict=True)] for m in names}
    line("worst prefix, ours/full", lambda m: f"{max(ratios[m]):.4f}")
    line("at turn", lambda m: f"{ratios[m].index(max(ratios[m])) + 1:,}")
    over = {m: [n for n, ratio in enumerate(ratios[m], 1) if ratio > 1 + 1e-9] for m in names}
    line("prefixes that cost more than full", lambda m: f"{len(over[m]):,}")
    line("the last of them", lambda m: f"{over[m][-1] if over[m] else 0:,}")
    if setting.pauses:
        line(
            "worst instant within a pause",
            lambda m: f"{max(cost / full.turns[m][n - 1] for n, cost in mine.pauses[m]):.4f}",
        )
    print(flush=True)


async def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    parser.add_argument("--turns", type=int, default=2_000)
    parser.add_argument("--windows", type=int, nargs="+", default=[16_000, 128_000])
    parser.add_argument("--pauses", type=int, nargs="+", default=[0, 40], help="turns between two (0 40)")
    parser.add_argument("--prices", default=None, help="a file shaped as prices.toml")
    parser.add_argument("--soft", type=float, default=Policy().soft, help="the soft mark")
    parser.add_argument("--target", type=float, default=Policy().target, help="what a compaction leaves")
    parser.add_argument(
        "--written", type=int, default=0, help="tokens of a summary (a 25th of the budget, 1,500 at most)"
    )
    parser.add_argument("--other", action="store_true", help="a small model writes the summaries")
    arguments = parser.parse_args()
    policy = Policy(soft=arguments.soft, target=arguments.target)
    if not DATA.is_dir():
        raise SystemExit(f"the recordings are not at hand: {DATA}")
    table = Prices(arguments.prices)
    prices = {model: found.price for model in MODELS if (found := table.of(model, "")) is not None}
    others = {m: found.price for m, small in MODELS.items() if (found := table.of(small, "")) is not None}
    system, turns = life(arguments.turns)
    rules = f"{system}\n\n## Tools\n\n{RULES}"  # what a session says of tools is no part of the comparison
    for pauses in arguments.pauses:
        full = reckoned(rules, turns, None, prices, pauses)
        for window in arguments.windows:
            budget = window - window // 5
            setting = Setting(
                window=window,
                policy=policy,
                written=arguments.written or min(1_500, budget // 25),
                other=arguments.other,
                pauses=pauses,
            )
            mine, compactions = await ours(system, turns, setting, prices, others)
            told(setting, mine, reckoned(rules, turns, budget, prices, pauses), full, compactions)


if __name__ == "__main__":
    asyncio.run(main())
