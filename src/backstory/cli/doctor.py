"""`backstory doctor`: is every conversation whole, and if not, what happened and what can be done?"""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import logging
import sys
from typing import Any

from backstory.cli.opening import add_place, existing_store
from backstory.cli.options import Subparsers, add_output
from backstory.cli.screen import Screen, note, show_json, wrapped
from backstory.errors import SessionNotFound
from backstory.stores.values import SessionId
from backstory.targets import PRESETS, Target
from backstory.upkeep.doctor import Checkup, examine, examine_all

_STYLES = {"broken": "red", "mended": "green", "note": "dim"}


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "doctor", help="is every conversation whole? --repair mends what can be mended"
    )
    add_place(parser)
    parser.set_defaults(scope=None)
    parser.add_argument("--session", metavar="KEY", help="this one alone")
    parser.add_argument("--repair", action="store_true", help="mend, and keep the original")
    parser.add_argument(
        "--target",
        metavar="NAME",
        default="openai_chat",
        help=f"for whom views are judged: {', '.join(PRESETS)}",
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 where all is whole, or mended; 1 where something is broken."""
    target = Target.of(args.target)
    logging.getLogger("backstory.stores").setLevel(logging.ERROR)  # what reading finds is told below
    screen = Screen.of(sys.stdout, no_color=args.no_color)
    found = asyncio.run(_examined(args, target, screen))
    broken = sum(not each.sound for each in found)
    if args.json:
        show_json([_row(each) for each in found])
    else:
        conversations = "1 conversation" if len(found) == 1 else f"{len(found)} conversations"
        note(f"{conversations}: " + (f"{broken} broken" if broken else "all whole"))
    return 1 if broken else 0


async def _examined(args: argparse.Namespace, target: Target, screen: Screen) -> list[Checkup]:
    store = existing_store(args)
    found = []
    try:
        if args.session is not None:
            session_id = SessionId(scope=args.scope or "default", key=args.session)
            if not (await store.head(session_id)).seq and (await store.verify(session_id)).sound:
                raise SessionNotFound(f"there is no session {args.session!r}")
            found.append(await examine(store, session_id, target=target, repair=args.repair))
            _tell(args, screen, found[-1])
            return found
        async for each in examine_all(store, scope=args.scope, target=target, repair=args.repair):
            found.append(each)
            _tell(args, screen, each)
    finally:
        await store.close()
    return found


def _tell(args: argparse.Namespace, screen: Screen, each: Checkup) -> None:
    if args.json or not each.findings:
        return
    print(f"{screen.paint(str(each.session), 'bold')}: {each.records} records, {each.turns} turns")
    for finding in each.findings:
        said = "; ".join(filter(None, (finding.what, finding.cause, finding.remedy)))
        lead = f"  {finding.level:<6}  "
        for line in wrapped(said, screen.width - len(lead)):
            print(screen.paint(lead, _STYLES[finding.level]) + line)
            lead = " " * len(lead)
    for path in each.kept:
        print(f"  kept    {path}")


def _row(each: Checkup) -> dict[str, Any]:
    return {
        "session": each.session.key,
        "scope": each.session.scope,
        "records": each.records,
        "turns": each.turns,
        "sound": each.sound,
        "findings": [dataclasses.asdict(finding) for finding in each.findings],
        "kept": list(each.kept),
    }
