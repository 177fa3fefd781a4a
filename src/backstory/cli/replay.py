"""`backstory replay`: a recorded conversation, walked as if it were live; strategies side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import cast

from backstory.cli.chart import charts
from backstory.cli.options import (
    Limits,
    Subparsers,
    add_input,
    add_limits,
    add_output,
    conversations,
    label,
    source_of,
    tools_of,
)
from backstory.cli.plot import plot
from backstory.cli.prices import Priced, Prices, choose
from backstory.cli.reading import Conversation
from backstory.cli.replay_json import report, request_report
from backstory.cli.replay_table import closing, table
from backstory.cli.replay_walk import header, rows
from backstory.cli.screen import Screen, note, show_json
from backstory.context.history import History
from backstory.context.replay import STRATEGIES, Strategy, Walk, replay
from backstory.errors import ConfigurationError


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("replay", help="a recording call by call: sent, cut, healed, cached, cost")
    add_input(parser)
    add_limits(parser)
    known = ",".join(STRATEGIES)
    parser.add_argument("--compare", metavar="NAMES", help=f"strategies side by side: {known}")
    parser.add_argument("--brief", action="store_true", help="just the calls at which something happened")
    parser.add_argument("--call", type=int, metavar="N", help="show the request of call N instead")
    parser.add_argument("--plot", metavar="FILE", help="a picture of tokens and cost (needs matplotlib)")
    group = parser.add_argument_group("prices", "dollars for a million tokens")
    group.add_argument("--price", metavar="NAME", help="those of this model, from the table; else --model's")
    group.add_argument("--prices", metavar="FILE", help="a table of your own (see prices.toml)")
    group.add_argument("--price-input", type=float, metavar="USD", help="input that is read anew")
    group.add_argument("--price-cached", type=float, metavar="USD", help="input that the cache serves")
    group.add_argument("--price-output", type=float, metavar="USD", help="output")
    add_output(parser)
    parser.set_defaults(run=run)


@dataclass(frozen=True, kw_only=True, slots=True)
class _Replayed:
    """One conversation, walked under each strategy."""

    name: str
    conversation: Conversation
    source: str
    history: History
    walks: list[Walk]


def run(args: argparse.Namespace) -> int:
    """0, or 1 where some call could not have been made."""
    limits = Limits.of(args)
    strategies = _strategies(args.compare)
    own = {"input": args.price_input, "cached": args.price_cached, "output": args.price_output}
    priced = choose(
        Prices(args.prices),
        preset=args.price,
        model=args.model,
        format=limits.target.format,
        own=own,
    )
    chosen = conversations(args)
    done = [_replayed(args, limits, each, strategies) for each in chosen]
    if args.call is not None:
        return _show_call(args, done)
    if args.json:
        reports = [report(each.name, each.source, each.history, each.walks, limits, priced) for each in done]
        for each in reports if len(reports) > 1 else ():
            show_json(each, indent=None)
        if len(reports) == 1:
            show_json(reports[0])
    else:
        _print(Screen.of(sys.stdout, no_color=args.no_color), args, limits, priced, done)
    if args.plot is not None:
        if len(done) > 1:
            raise ConfigurationError("--plot draws one conversation: choose it with --line N")
        plot(args.plot, done[0].walks, limits.budget.tokens, priced.price)
        note(f"{args.plot} written")
    return 1 if any(walk.failed for each in done for walk in each.walks) else 0


def _strategies(given: str | None) -> list[Strategy]:
    names = [name.strip() for name in given.split(",")] if given is not None else ["stepped"]
    for name in names:
        if name not in STRATEGIES:
            raise ConfigurationError(f"unknown strategy {name!r}; --compare takes {','.join(STRATEGIES)}")
    return [cast(Strategy, name) for name in dict.fromkeys(names)]


def _replayed(
    args: argparse.Namespace, limits: Limits, conversation: Conversation, strategies: Sequence[Strategy]
) -> _Replayed:
    source = source_of(args, conversation)
    history = History(conversation.items, source, system=conversation.system)
    tools = tools_of(args, conversation)
    walks = [
        replay(
            history,
            limits.target,
            limits.counter,
            limits.budget,
            strategy=strategy,
            tools=tools,
            max_turns=limits.max_turns,
            max_messages=limits.max_messages,
            keep=() if args.call is None else (args.call,),
        )
        for strategy in strategies
    ]
    name = label(args, conversation)
    return _Replayed(name=name, conversation=conversation, source=source, history=history, walks=walks)


def _main_walk(walks: Sequence[Walk]) -> Walk:
    """The one that is told call by call: the stepped one, where it was asked for."""
    return next((walk for walk in walks if walk.strategy == "stepped"), walks[0])


def _show_call(args: argparse.Namespace, done: Sequence[_Replayed]) -> int:
    if len(done) > 1:
        raise ConfigurationError("--call is of one conversation: choose it with --line N")
    walk = _main_walk(done[0].walks)
    call = next((call for call in walk.calls if call.number == args.call), None)
    if call is None:
        raise ConfigurationError(f"there is no call {args.call}; there are {len(walk.calls)}")
    if call.fitted is None:
        note(f"{done[0].name}, call {call.number}: {call.error}")
        return 1
    if args.json:
        show_json(request_report(walk.strategy, call))
    else:
        show_json(call.fitted.body)
        note(f"{done[0].name}, call {call.number}, {walk.strategy}: {call.ledger}")
    return 0


def _print(
    screen: Screen, args: argparse.Namespace, limits: Limits, priced: Priced, done: Sequence[_Replayed]
) -> None:
    budget = limits.budget.tokens
    if len(done) > 1:
        print(f"{len(done)} conversations of {args.file}, each replayed by itself")
        walks = _together([each.walks for each in done])
    else:
        (only,) = done
        walks = only.walks
        walk = _main_walk(walks)
        for line in header(screen, only.name, only.source, only.history, walk, limits, priced):
            print(line)
        for line in rows(screen, walk, budget, brief=args.brief):
            print(line)
        print()
        if len(walks) > 1:
            for line in charts(screen, walks, budget):
                print(line)
            print()
    for line in table(screen, walks, budget, priced):
        print(line)
    for line in closing(screen, walks, budget, priced.price):
        print(line)


def _together(found: Sequence[Sequence[Walk]]) -> list[Walk]:
    """The walks of many conversations as one a strategy, for the table."""
    return [
        Walk(
            strategy=walks[0].strategy,
            calls=tuple(call for walk in walks for call in walk.calls),
            skipped=tuple(skipped for walk in walks for skipped in walk.skipped),
        )
        for walks in zip(*found, strict=True)
    ]
