"""`backstory sessions`: which conversations there are, what was said in them, and how to keep house."""

from __future__ import annotations

import argparse
import asyncio
import dataclasses
import sys
from collections.abc import Awaitable, Callable, Iterator, Sequence
from datetime import datetime
from typing import Any, TypeVar

from backstory.agent.sources.runtime import without_runtime
from backstory.cli import transfer
from backstory.cli.opening import add_place, existing_store
from backstory.cli.options import Subparsers, add_output
from backstory.cli.screen import Screen, columns, note, one_line, padded, show_json, wrapped
from backstory.cli.telling import printable
from backstory.errors import ConfigurationError, SessionNotFound
from backstory.messages import Message, texts
from backstory.records import Record
from backstory.sessions import operations
from backstory.sessions.session import Session
from backstory.sessions.view import View, fold
from backstory.stores.base import Store
from backstory.stores.values import SessionId, SessionInfo
from backstory.upkeep.archive import Cap, archive, restore
from backstory.upkeep.retention import DAY, Expired, Retention, expire
from backstory.upkeep.sweep import Swept, sweep

T = TypeVar("T")
_TURNS = 10


def add(commands: Subparsers) -> None:
    parser = commands.add_parser(
        "sessions", help="the conversations: list, show, rename, fork, delete, export, import"
    )
    actions = parser.add_subparsers(title="actions", metavar="ACTION", required=True)

    listing = actions.add_parser("list", help="which there are, the newest first")
    listing.add_argument("--limit", type=int, metavar="N", default=50, help="so many at most (50)")
    _with_place(listing, _list)

    show = actions.add_parser("show", help="what was said")
    show.add_argument("session", metavar="KEY")
    show.add_argument(
        "--turns", type=int, metavar="N", default=_TURNS, help="the last N turns (10); 0 for all"
    )
    show.add_argument("--undone", action="store_true", help="what was undone, too")
    _with_place(show, _show)

    rename = actions.add_parser("rename", help="give one another key")
    rename.add_argument("session", metavar="KEY")
    rename.add_argument("to", metavar="NEW")
    _with_place(rename, _rename)

    fork = actions.add_parser("fork", help="begin another one with what is in one")
    fork.add_argument("session", metavar="KEY")
    fork.add_argument("to", metavar="NEW")
    fork.add_argument("--turn", type=int, metavar="N", help="up to and with turn N")
    _with_place(fork, _fork)

    delete = actions.add_parser("delete", help="remove some for good")
    delete.add_argument("sessions", metavar="KEY", nargs="+")
    delete.add_argument("--yes", action="store_true", help="do not ask")
    _with_place(delete, _delete)

    archiving = actions.add_parser("archive", help="move the oldest turns into compressed segments")
    archiving.add_argument("session", metavar="KEY")
    archiving.add_argument(
        "--keep", type=int, metavar="N", default=5_000, help="so many messages stay at most (5,000)"
    )
    _with_place(archiving, _archive)

    restoring = actions.add_parser("restore", help="put what was archived back into the log")
    restoring.add_argument("session", metavar="KEY")
    _with_place(restoring, _restore)

    sweeping = actions.add_parser("sweep", help="remove blobs that no conversation names any more")
    sweeping.add_argument(
        "--grace", metavar="AGE", default="1h", help="only what is older than that, such as 90m or 1d (1h)"
    )
    sweeping.add_argument("--all-scopes", action="store_true", help="of every scope, not of --scope alone")
    sweeping.add_argument("--dry-run", action="store_true", help="name them, and remove nothing")
    _with_place(sweeping, _sweep)

    expire = actions.add_parser("expire", help="remove those that nobody wrote to for so long")
    expire.add_argument("--after", metavar="AGE", required=True, help="such as 12h, 30d or 8w")
    expire.add_argument("--all-scopes", action="store_true", help="of every scope, not of --scope alone")
    expire.add_argument("--dry-run", action="store_true", help="name them, and remove nothing")
    expire.add_argument("--yes", action="store_true", help="do not ask")
    _with_place(expire, _expire)

    transfer.add(actions)


def _with_place(parser: argparse.ArgumentParser, run: Callable[[argparse.Namespace], int]) -> None:
    add_place(parser)
    add_output(parser)
    parser.set_defaults(run=run)


def _with_store(args: argparse.Namespace, work: Callable[[Store], Awaitable[T]]) -> T:
    async def whole() -> T:
        store = existing_store(args)
        try:
            return await work(store)
        finally:
            await store.close()

    return asyncio.run(whole())


def _id(args: argparse.Namespace, key: str) -> SessionId:
    return SessionId(scope=args.scope, key=key)


# --- list --------------------------------------------------------------------------------------


def _list(args: argparse.Namespace) -> int:
    async def work(store: Store) -> tuple[list[tuple[SessionInfo, View]], bool]:
        page = await store.sessions(args.scope, limit=args.limit)
        return [
            (info, await Session(store, info.session).refresh()) for info in page.sessions
        ], page.cursor is not None

    if args.limit < 1:
        raise ConfigurationError(f"--limit takes a number from 1 on, not {args.limit}")
    found, more = _with_store(args, work)
    if args.json:
        show_json([_row(info, view) for info, view in found])
        return 0
    screen = Screen.of(sys.stdout, no_color=args.no_color)
    width = max([12, *(columns(info.session.key) for info, _ in found)])
    width = min(width, screen.width - 50)
    for info, view in found:
        row = _row(info, view)
        state = f"  {row['state']}" if row["state"] else ""
        turns = f"{view.turns} turn" if view.turns == 1 else f"{view.turns} turns"
        key = padded(one_line(info.session.key, width), width)
        print(
            f"{screen.paint(key, 'bold')}  {turns:>10}  {_when(info.active)}{screen.paint(state, 'yellow')}"
        )
    if not found:
        note(f"there is no conversation in scope {args.scope!r}")
    if more:
        note(f"and more: --limit {args.limit * 2}")
    return 0


def _row(info: SessionInfo, view: View) -> dict[str, Any]:
    state = f"turn {view.turn.number} is open" if view.turn is not None else ""
    if not state and view.parent:
        state = f"forked from {view.parent['parent']}"
    if not state and view.meta.get("imported"):
        state = f"imported from {view.meta['imported']}"
    return {
        "session": info.session.key,
        "scope": info.session.scope,
        "turns": view.turns,
        "records": view.head,
        "active": datetime.fromtimestamp(info.active).astimezone().isoformat(timespec="seconds"),
        "state": state,
    }


def _when(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds).astimezone():%Y-%m-%d %H:%M}"


# --- show --------------------------------------------------------------------------------------


def _show(args: argparse.Namespace) -> int:
    async def work(store: Store) -> list[Record]:
        return [record async for page in operations.pages(store, _id(args, args.session)) for record in page]

    records = _with_store(args, work)
    if not records:
        raise SessionNotFound(
            f"there is no session {args.session!r}; `backstory sessions list` shows those there are"
        )
    view = fold(records)
    said = [r for r in records if r.kind == "message" and (args.undone or not view.is_hidden(r.seq))]
    if args.turns > 0:
        last = sorted({record.turn for record in said})[-args.turns :]
        said = [record for record in said if record.turn in last]
    if args.json:
        show_json([_said(record, view) for record in said])
        return 0
    screen = Screen.of(sys.stdout, no_color=args.no_color)
    for line in _conversation(screen, said, view):
        print(line)
    return 0


def _said(record: Record, view: View) -> dict[str, Any]:
    return {
        "seq": record.seq,
        "at": record.at,
        "turn": record.turn,
        "sent": view.replayed(record.seq),
        "undone": view.is_hidden(record.seq),
        "message": record.data["message"],
    }


def _conversation(screen: Screen, said: Sequence[Record], view: View) -> Iterator[str]:
    turn, sent = -1, True
    for record in said:
        if view.replayed(record.seq) and not sent:
            yield screen.paint("--- from here on it is sent to the model ---", "dim")
        sent = view.replayed(record.seq)
        if record.turn != turn:
            turn = record.turn
            undone = ", undone" if view.is_hidden(record.seq) else ""
            yield screen.paint(f"turn {turn} · {record.at[:16].replace('T', ' ')}{undone}", "dim")
        yield from _message(screen, without_runtime(record.message))


def _message(screen: Screen, message: Message) -> Iterator[str]:
    style = {"user": "cyan", "assistant": "green"}.get(message.role, "dim")
    lead = f"{message.role:<9} "
    text = texts([part for part in message.parts if part not in (*message.calls, *message.results)])
    for line in printable(text).splitlines() if text else ():
        for piece in wrapped(line, screen.width - len(lead)):
            yield screen.paint(lead, style) + piece
            lead = " " * len(lead)
    for call in message.calls:
        yield screen.paint(lead, style) + one_line(
            f"· {call.name} {call.arguments}", screen.width - len(lead)
        )
    for part in message.results:
        mark = f" ({part.synthetic})" if part.synthetic else ""
        said = one_line(texts(part.content), screen.width - len(lead) - len(mark) - 3)
        yield screen.paint(f"{lead}→ {said}{mark}", "dim")


# --- keeping house -----------------------------------------------------------------------------


def _rename(args: argparse.Namespace) -> int:
    _with_store(args, lambda store: operations.move(store, _id(args, args.session), _id(args, args.to)))
    note(f"{args.session} is now {args.to}")
    return 0


def _fork(args: argparse.Namespace) -> int:
    copied = _with_store(
        args,
        lambda store: operations.fork(
            Session(store, _id(args, args.session)), _id(args, args.to), turn=args.turn
        ),
    )
    note(f"{args.to} begins with {copied} messages of {args.session}")
    return 0


def _archive(args: argparse.Namespace) -> int:
    cap = Cap(messages=args.keep)
    done = _with_store(args, lambda store: archive(Session(store, _id(args, args.session)), cap))
    if args.json:
        show_json(dataclasses.asdict(done) if done is not None else None)
    elif done is None:
        note("nothing moves: it is below that, or all that is over it is still sent to the model")
    else:
        note(
            f"{done.records:,} records, {done.messages:,} of them messages, are archived; everything still finds them"
        )
    return 0


def _restore(args: argparse.Namespace) -> int:
    count = _with_store(args, lambda store: restore(Session(store, _id(args, args.session))))
    if args.json:
        show_json({"records": count})
    else:
        note(f"{count:,} records are back in the log" if count else "nothing of it is archived")
    return 0


_UNITS = {"m": 60.0, "h": 3_600.0, "d": DAY, "w": 7 * DAY}


def _age(text: str, option: str) -> float:
    """Seconds. Raises `ConfigurationError`."""
    number, unit = text[:-1], text[-1:]
    if unit not in _UNITS or not (number.isascii() and number.isdigit()) or not int(number):
        raise ConfigurationError(f"{option} takes a time such as 90m, 12h, 30d or 8w, not {text[:40]!r}")
    return int(number) * _UNITS[unit]


def _sweep(args: argparse.Namespace) -> int:
    grace = _age(args.grace, "--grace")
    scope = None if args.all_scopes else args.scope

    async def work(store: Store) -> list[Swept]:
        return [each async for each in sweep(store, scope=scope, grace=grace, act=not args.dry_run)]

    found = _with_store(args, work)
    if args.json:
        show_json([dataclasses.asdict(each) for each in found])
    else:
        for each in found:
            print(each.handle if each.scope == args.scope else f"{each.scope}  {each.handle}")
        note(f"{len(found)} {'would be' if args.dry_run else 'were'} removed")
    return 0


def _expire(args: argparse.Namespace) -> int:
    retention = Retention(max_age=_age(args.after, "--after"))
    scope = None if args.all_scopes else args.scope

    async def work(store: Store, act: bool) -> list[Expired]:
        return [each async for each in expire(store, retention, scope=scope, act=act)]

    found = _with_store(args, lambda store: work(store, False))
    if found and not args.dry_run:
        if not args.yes and not _agreed(f"Delete {len(found)} sessions for good?"):
            return 1
        found = _with_store(args, lambda store: work(store, True))
    if args.json:
        show_json(
            [
                {
                    "scope": e.session.scope,
                    "key": e.session.key,
                    "days": round(e.age / DAY, 2),
                    "problem": e.problem,
                }
                for e in found
            ]
        )
    else:
        for each in found:
            print(
                f"{each.session}  {each.age / DAY:,.1f} days{f'  stays: {each.problem}' if each.problem else ''}"
            )
        gone = sum(not each.problem for each in found)
        note(f"{gone} {'would be' if args.dry_run else 'were'} removed")
    return 0


def _agreed(question: str) -> bool:
    if not sys.stdin.isatty():
        raise ConfigurationError("nobody can be asked here: say --yes to delete for good")
    note(f"{question} y or n")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def _delete(args: argparse.Namespace) -> int:
    if not args.yes and not _agreed(f"Delete {', '.join(args.sessions)} for good?"):
        note("nothing was deleted")
        return 1

    async def work(store: Store) -> None:
        for key in args.sessions:
            await operations.delete(Session(store, _id(args, key)))
            note(f"{key} is deleted")

    _with_store(args, work)
    return 0
