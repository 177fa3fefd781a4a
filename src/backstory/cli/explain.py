"""`backstory explain`: what a request held and why, as a chart of its tokens; rebuilt from the log alone."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import re
import sys
from collections.abc import Iterator

from backstory.agent.compactions import CompactionTold, compactions
from backstory.agent.explain import Difference, Explanation, SentMessage, difference, explain
from backstory.cli.compactions import compactions_page
from backstory.cli.opening import add_place, existing_store
from backstory.cli.options import Subparsers, add_output
from backstory.cli.screen import Screen, columns, one_line, padded, show_json, wrapped
from backstory.errors import ConfigurationError
from backstory.stores.values import SessionId
from backstory.targets import PRESETS, Target

_NAME = 22
_FIGURES = 15


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("explain", help="what a past request sent, left out, and why")
    parser.add_argument("session", metavar="SESSION", help="the conversation's key")
    parser.add_argument(
        "call",
        metavar="CALL",
        nargs="?",
        type=int,
        help="which request, from 1; else the newest; -2 the one before",
    )
    add_place(parser)
    parser.add_argument(
        "--roles", action="store_true", help="the sequence of roles alone, one message a line"
    )
    parser.add_argument(
        "--diff", nargs=2, type=int, metavar=("A", "B"), help="what changed from request A to B"
    )
    parser.add_argument(
        "--compactions",
        action="store_true",
        help="each summary of the conversation: what it covers, kept and cost, and what was refused",
    )
    parser.add_argument("--body", action="store_true", help="the request itself, as it was sent")
    parser.add_argument(
        "--target", metavar="NAME", help=f"for whom it was made, where that is unclear: {', '.join(PRESETS)}"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 where it is shown, 1 where its bytes could not be proven."""
    if args.diff and (args.call is not None or args.roles or args.body):
        raise ConfigurationError("--diff A B stands for itself: leave out CALL, --roles and --body")
    screen = Screen.of(sys.stdout, no_color=args.no_color)
    if args.compactions:
        told_of = asyncio.run(_compactions(args))
        if args.json:
            show_json([one.to_json() for one in told_of])
        else:
            print("\n".join(compactions_page(screen, told_of)))
        return 0
    if args.diff:
        found = asyncio.run(_difference(args))
        if args.json:
            show_json(dataclasses.asdict(found))
        else:
            print("\n".join(_changed(screen, found)))
        return 0
    told = asyncio.run(_explanation(args))
    if args.body:
        show_json(told.body)
    elif args.json:
        show_json(told.to_json())
    elif args.roles:
        print("\n".join(_role(message) for message in told.sent))
    else:
        print("\n".join(_page(screen, told)))
    return 0 if told.proven else 1


async def _explanation(args: argparse.Namespace) -> Explanation:
    store = existing_store(args)
    try:
        return await explain(store, _id(args), args.call, target=_target(args))
    finally:
        await store.close()


async def _compactions(args: argparse.Namespace) -> list[CompactionTold]:
    store = existing_store(args)
    try:
        return await compactions(store, _id(args))
    finally:
        await store.close()


async def _difference(args: argparse.Namespace) -> Difference:
    store = existing_store(args)
    try:
        return await difference(store, _id(args), *args.diff, target=_target(args))
    finally:
        await store.close()


def _id(args: argparse.Namespace) -> SessionId:
    return SessionId(scope=args.scope, key=args.session)


def _target(args: argparse.Namespace) -> Target | None:
    return Target.of(args.target) if args.target is not None else None


# --- one request -------------------------------------------------------------------------------


def _page(screen: Screen, told: Explanation) -> Iterator[str]:
    ledger = told.ledger
    head = f"{told.session.key} · request {told.call} of {told.calls} · turn {told.turn} · {_when(told.at)}"
    yield screen.paint(one_line(f"{head} · {told.model or 'no model'}", screen.width), "bold")
    budget = ledger["budget"]
    of = f" of {budget:,} ({ledger['total'] / budget:.0%})" if budget else ""
    about = "" if ledger["exact"] else f" (±{ledger['margin']:.0%})"
    shared = f"{ledger['shared']:,} of them stood unchanged in the request before"
    yield from wrapped(f"{ledger['total']:,}{of} tokens{about}; {shared}", screen.width)
    yield from wrapped(f"epoch {ledger['epoch']}: {told.why}", screen.width)
    yield ""
    yield from _chart(screen, told)
    if told.usage:
        usage = {"input": 0, "cached": 0, "output": 0, **told.usage}
        yield f"billed: {usage['input']:,} in, {usage['cached']:,} of them from the cache, {usage['output']:,} out"
    yield ""
    yield screen.paint("sent" if told.proven else f"sent, as far as can be told ({told.doubt})", "bold")
    yield from _messages(screen, told.sent)
    yield ""
    yield screen.paint("left out", "bold")
    for line in told.left_out or ("nothing",):
        yield from _indented(screen, line, "  ")
    if told.findings:
        yield ""
        yield screen.paint("what this means", "bold")
    for finding in told.findings:
        yield from _indented(screen, finding.said, "  ! " if not screen.unicode else "  ▸ ", "yellow")
        yield from _indented(screen, finding.remedy, "    ", "dim")


def _chart(screen: Screen, told: Explanation) -> Iterator[str]:
    """A bar a section, to the scale of the whole window where there is one that is not far larger."""
    ledger = told.ledger
    total = max(1, ledger["total"])
    for line in ledger["lines"]:
        if not line["used"] and line["section"] == "overhead":
            continue
        asked = f", {line['asked']:,} asked" if line["asked"] > line["used"] else ""
        yield _bar(screen, line["section"], line["used"], total, "yellow") + screen.paint(asked, "dim")
        if line["section"] == "system":
            for name, tokens in told.sections if len(told.sections) > 1 else ():
                yield _bar(screen, f"  {name}", tokens, total, "dim")
    if ledger["budget"]:
        yield _bar(screen, "free", max(0, ledger["budget"] - ledger["total"]), 0, "dim")


def _bar(screen: Screen, name: str, tokens: int, total: int, style: str) -> str:
    width = screen.width - _NAME - _FIGURES - 18
    cells = max(1, round(tokens / total * width)) if total and tokens else 0
    drawn = ("█" if screen.unicode else "#") * min(width, cells)
    share = f"{tokens / total:>5.0%}" if total else ""
    label = padded(one_line(name, _NAME - 2), _NAME - 2)
    return f"  {label}{screen.paint(drawn, style)}{' ' * (width - cells)} {tokens:>9,}{share}"


def _messages(screen: Screen, sent: tuple[SentMessage, ...], *, first: int = 1) -> Iterator[str]:
    for number, message in enumerate(sent, first):
        lead = f"  {number:>3} {message.role:<9} {message.tokens:>7,}  "
        yield f"{lead}{one_line(message.said, screen.width - columns(lead))}"


def _role(message: SentMessage) -> str:
    """``assistant → read_file``, ``tool ← read_file``: who speaks, and which tools it is about."""
    if message.calls:
        return f"{message.role} → {', '.join(message.calls)}"
    return f"{message.role} ← {', '.join(message.answers)}" if message.answers else message.role


# --- two requests ------------------------------------------------------------------------------


def _changed(screen: Screen, found: Difference) -> Iterator[str]:
    yield screen.paint(f"from request {found.one} to request {found.other}", "bold")
    for title, lines in (("system", found.sections), ("tools", found.tools), ("settings", found.settings)):
        yield f"{title}: " + ("" if lines else "the same")
        for line in lines:
            style = {"-": ("red",), "+": ("green",)}.get(line[:1], ())
            yield f"  {screen.paint(one_line(line, screen.width - 2), *style)}"
    yield f"messages: {found.shared} the same, {len(found.gone)} gone, {len(found.new)} new"
    for message in found.gone:
        yield screen.paint(one_line(f"  - {message.role}: {message.said}", screen.width - 2), "red")
    for message in found.new:
        yield screen.paint(one_line(f"  + {message.role}: {message.said}", screen.width - 2), "green")


def _indented(screen: Screen, text: str, lead: str, *styles: str) -> Iterator[str]:
    for line in wrapped(text, screen.width - len(lead)):
        yield f"{lead}{screen.paint(line, *styles)}"
        lead = " " * len(lead)


def _when(at: str) -> str:
    return re.sub(r"T(\d\d:\d\d:\d\d).*", r" \1", at)
