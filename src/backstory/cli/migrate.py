"""`backstory migrate FROM TO`: a whole store into another, compared at the end. Stopped, it goes on where it was."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import os
import shutil
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from backstory.agent.open import store_at
from backstory.cli.options import Subparsers, add_output
from backstory.cli.screen import Screen, note, show_json
from backstory.errors import ConfigurationError
from backstory.upkeep.migrate import Copied, compare, listed, migrate

_PLACES = "a workspace folder, sqlite:///chat.db, postgresql://… or redis://…"
_BESIDE = ("AGENTS.md", "SOUL.md", "USER.md", "memory", "skills")
"""What a workspace holds beside its sessions."""
_BAR = 24


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "migrate",
        help="copy a whole store into another",
        description=f"Copies every session, its inbox and its blobs, and compares at the end. A place is {_PLACES}.",
    )
    parser.add_argument("source", metavar="FROM", help="where everything is now; nothing there is changed")
    parser.add_argument(
        "target", metavar="TO", help="where it goes; what is there already is not copied again"
    )
    parser.add_argument("--scope", metavar="NAME", help="the sessions of this scope alone")
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 where everything is there and the same; 1 where something is not."""
    if args.source == args.target:
        raise ConfigurationError("FROM and TO are the same place")
    if "://" not in args.source and not Path(args.source, "sessions").is_dir():
        raise ConfigurationError(f"{args.source} holds no sessions: FROM is {_PLACES}")
    if args.source.startswith("sqlite:///") and not Path(args.source.removeprefix("sqlite:///")).is_file():
        raise ConfigurationError(f"there is no file {args.source.removeprefix('sqlite:///')}")
    screen = Screen.of(sys.stderr, no_color=args.no_color)
    found, files = asyncio.run(_migrated(args, screen))
    bad = [each for each in found if each.problem]
    if args.json:
        rows = [_row(each) for each in found]
        show_json({"sessions": rows, "files": files, "whole": not bad})
        return 1 if bad else 0
    for each in bad:
        print(f"{each.session}: {each.problem}")
    records, blobs = sum(each.records for each in found), sum(each.blobs for each in found)
    whole = f"{len(found) - len(bad)} of {len(found)} sessions" if bad else f"{len(found)} sessions"
    note(f"{whole}, {records:,} records and {blobs:,} blobs are there, and the same")
    if files:
        note(f"files: {', '.join(files)}")
    return 1 if bad else 0


def _row(each: Copied) -> dict[str, Any]:
    place = {"scope": each.session.scope, "key": each.session.key}
    return {**place, **{name: value for name, value in dataclasses.asdict(each).items() if name != "session"}}


async def _migrated(args: argparse.Namespace, screen: Screen) -> tuple[list[Copied], list[str]]:
    source, here = store_at(args.source)
    try:
        target, there = store_at(args.target)
        try:
            sessions = await listed(source, args.scope)
            copies = await _told(migrate(source, target, sessions), len(sessions), "copied", screen)
            good = [each.session for each in copies if not each.problem]
            found = {each.session: each for each in copies}
            compared = await _told(compare(source, target, good), len(good), "compared", screen)
            found |= {each.session: each for each in compared}
            return list(found.values()), await asyncio.to_thread(_beside, here, there)
        finally:
            await target.close()
    finally:
        await source.close()


async def _told(copies: AsyncIterator[Copied], total: int, what: str, screen: Screen) -> list[Copied]:
    found: list[Copied] = []
    shows = sys.stderr.isatty()
    async for each in copies:
        found.append(each)
        if shows:
            full = _BAR * len(found) // max(total, 1)
            bar = ("█" if screen.unicode else "#") * full + ("░" if screen.unicode else ".") * (_BAR - full)
            records = sum(one.records for one in found)
            print(
                f"\r{bar} {len(found):,}/{total:,} sessions {what}, {records:,} records ",
                end="",
                file=sys.stderr,
            )
    if shows and found:
        print(file=sys.stderr)
    return found


def _beside(here: Path | None, there: Path | None) -> list[str]:
    """Copy what a workspace holds beside its sessions into another: what is there already stays. Which were copied."""
    if here is None or there is None:
        return []
    copied: list[str] = []
    for name in _BESIDE:
        for path in sorted([here / name, *(here / name).rglob("*")]):
            to = there / path.relative_to(here)
            if path.is_file() and not path.is_symlink() and not to.exists():
                to.parent.mkdir(parents=True, exist_ok=True)
                temporary = to.with_name(f"{to.name}.tmp")
                shutil.copyfile(path, temporary)
                os.replace(temporary, to)
                copied.append(str(path.relative_to(here)))
    return copied
