"""`backstory check`: what an API would refuse about a conversation, and how each thing is mended."""

from __future__ import annotations

import argparse
import dataclasses
import sys
from typing import Any

from backstory.cli.options import Subparsers, add_input, add_output, conversations, label, source_of
from backstory.cli.screen import Screen, show_json, wrapped
from backstory.legality.rules import Problem
from backstory.legality.wire import check


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("check", help="what an API would refuse, and how it is mended")
    add_input(parser)
    parser.add_argument("--ready", action="store_true", help="the model must be the one to speak next")
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 where there is no problem, 1 where there is one."""
    screen = Screen.of(sys.stdout, no_color=args.no_color)
    reports: list[dict[str, Any]] = []
    bad = 0
    for each in conversations(args, all_by_default=True):
        source = source_of(args, each)
        found = check(each.items, target=args.target, source=source, system=each.system, ready=args.ready)
        bad += bool(found)
        if args.json:
            reports.append(
                {
                    "line": each.line,
                    "source": source,
                    "target": args.target,
                    "messages": len(each.items),
                    "problems": [dataclasses.asdict(problem) for problem in found],
                }
            )
        else:
            _print(screen, label(args, each), len(each.items), source, args.target, found)
    if args.json:
        show_json(reports if len(reports) > 1 else reports[0])
    return 1 if bad else 0


def _print(screen: Screen, name: str, count: int, source: str, target: str, found: list[Problem]) -> None:
    kinds = source if source == target else f"{source} for {target}"
    said = "1 problem" if len(found) == 1 else f"{len(found)} problems" if found else "legal"
    print(f"{name}: {count} messages, {kinds}: {screen.paint(said, 'bold', 'red' if found else 'green')}")
    for problem in found:
        where = "system" if problem.index < 0 else f"message {problem.index}"
        print(f"  {screen.paint(f'{where:<12}', 'bold')} {screen.paint(problem.rule, 'yellow')}")
        for line in wrapped(problem.what, screen.width - 4):
            print(f"    {line}")
        for line in wrapped(f"mend: {problem.mend}", screen.width - 4):
            print(f"    {screen.paint(line, 'dim')}")
