"""`backstory sessions export` and `import`: conversations out of a workspace, and into it from other programs."""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from backstory.agent.sources.runtime import without_runtime
from backstory.cli.opening import add_place, existing_store, place
from backstory.cli.options import Subparsers, add_output
from backstory.cli.reading import Conversation, conversations_in, read_text, values_in
from backstory.cli.screen import dumps, note, show_json
from backstory.errors import ConfigurationError, SessionNotFound
from backstory.formats import wire_format
from backstory.formats.detect import detect
from backstory.formats.request import read_all
from backstory.formats.transcripts import SOURCES, Transcript, detect_transcript, read_transcripts
from backstory.messages import Message, texts
from backstory.sessions.session import Session
from backstory.sessions.transfer import Imported, export_records, import_messages, import_records
from backstory.stores.base import Store
from backstory.stores.files import FilesStore
from backstory.stores.large_parts import with_large_parts
from backstory.stores.values import SessionId
from backstory.targets import FORMATS, Target
from backstory.tokens import counter_for

EXPORTS = ("openai", "records", "markdown")


def add(actions: Subparsers) -> None:
    export = actions.add_parser("export", help="one conversation as a list, as records, or to read")
    export.add_argument("session", metavar="KEY")
    export.add_argument(
        "--as",
        dest="form",
        choices=EXPORTS,
        default="openai",
        help="OpenAI's list, every record, or Markdown",
    )
    export.add_argument("--output", metavar="FILE", help="a file; else standard output")
    add_place(export)
    export.set_defaults(run=run_export)

    importing = actions.add_parser("import", help="conversations of other programs")
    importing.add_argument("file", metavar="FILE", help="JSON or JSON Lines; - is standard input")
    importing.add_argument(
        "--session", metavar="KEY", help="the key it gets; else as the file says, or its name"
    )
    importing.add_argument(
        "--source",
        metavar="WHAT",
        help=f"what it is, else told from it: {', '.join((*SOURCES, 'records', *FORMATS))}",
    )
    add_place(importing)
    add_output(importing)
    importing.set_defaults(run=run_import)


# --- export ------------------------------------------------------------------------------------


def run_export(args: argparse.Namespace) -> int:
    text = asyncio.run(_exported(args))
    if args.output is None:
        sys.stdout.write(text)
    else:
        Path(args.output).write_text(text, encoding="utf-8")
        note(f"{args.session} is in {args.output}")
    return 0


async def _exported(args: argparse.Namespace) -> str:
    store = existing_store(args)
    session_id = SessionId(scope=args.scope, key=args.session)
    try:
        if not (await store.head(session_id)).seq:
            raise SessionNotFound(
                f"there is no session {args.session!r}; `backstory sessions list` shows them"
            )
        if args.form == "records":
            lines = [record.line.decode() async for record in export_records(store, session_id)]
            return "".join(f"{line}\n" for line in lines)
        messages = [without_runtime(record.message) async for record in _live(store, session_id)]
    finally:
        await store.close()
    if args.form == "markdown":
        return "\n".join(_markdown(args.session, messages))
    written = wire_format("openai_chat").write(messages, Target.of("openai"))
    return f"{dumps(written.items)}\n"


async def _live(store: Store, session_id: SessionId) -> AsyncIterator[Any]:
    """What was said and not undone, cut or not."""
    view = await Session(store, session_id).refresh()
    async for record in export_records(store, session_id):
        if record.kind == "message" and not view.is_hidden(record.seq):
            yield record


def _markdown(key: str, messages: Sequence[Message]) -> Iterator[str]:
    yield f"# {key}\n"
    for message in messages:
        text = texts([part for part in message.parts if part not in (*message.calls, *message.results)])
        if text or message.calls:
            yield f"**{message.role}**\n\n{text}".rstrip() + "\n"
        for call in message.calls:
            yield f"> `{call.name}` {call.arguments}\n"
        for part in message.results:
            fence = "`" * 4
            yield f"{fence}\n{texts(part.content)}\n{fence}\n"


# --- import ------------------------------------------------------------------------------------


def run_import(args: argparse.Namespace) -> int:
    """0 when all are in; a key that is taken stops it, and what was before it is in."""
    text = read_text(args.file)
    name = "standard input" if args.file == "-" else args.file
    values = values_in(text, name) if text.strip() else []
    source = _source(args, values)
    done = asyncio.run(_imported(args, source, values, lambda: conversations_in(text, name)))
    if args.json:
        show_json([{"session": d.session.key, "turns": d.turns, "messages": d.messages} for d in done])
        return 0
    for each in done:
        note(f"{each.session.key}: {each.turns} turns, {each.messages} messages of {source}")
        if each.system:
            note("  its system message is no part of a history: put what still holds into AGENTS.md")
    return 0


async def _imported(
    args: argparse.Namespace, source: str, values: Sequence[Any], lists: Callable[[], list[Conversation]]
) -> list[Imported]:
    async with _store(args) as store:
        if source == "records":
            records = [value for value in values if not (isinstance(value, dict) and "seq" not in value)]
            return [await import_records(store, _id(args, None, 0, 1), records)]
        found = read_transcripts(values, source) if source in SOURCES else _of_lists(args, lists())
        counter = counter_for(None, "openai_chat")
        return [
            await import_messages(
                store,
                _id(args, each.key, number, len(found)),
                each.messages,
                source=each.source,
                counter=counter,
                format="openai_chat",
            )
            for number, each in enumerate(found, 1)
        ]


@asynccontextmanager
async def _store(args: argparse.Namespace) -> AsyncIterator[Store]:
    store = with_large_parts(FilesStore(place(args)))
    try:
        yield store
    finally:
        await store.close()


def _source(args: argparse.Namespace, values: Sequence[Any]) -> str:
    """What the file is: as said, else told from it; ``a list`` for messages in some API's format."""
    known = (*SOURCES, "records", *FORMATS)
    if args.source is not None and args.source not in known:
        raise ConfigurationError(f"unknown source {args.source!r}; one of {', '.join(known)}")
    return args.source or detect_transcript(values) or ("records" if _is_log(values) else "a list")


def _is_log(values: Sequence[Any]) -> bool:
    return any(isinstance(value, dict) and {"seq", "kind", "data"} <= value.keys() for value in values[:3])


def _of_lists(args: argparse.Namespace, given: Sequence[Conversation]) -> list[Transcript]:
    found = []
    for each in given:
        form = args.source or each.format or detect(each.items) or "openai_chat"
        messages, _ = read_all(each.items, form, system=each.system)
        found.append(Transcript(source=form, messages=tuple(messages)))
    return found


def _id(args: argparse.Namespace, key: str | None, number: int, count: int) -> SessionId:
    """Which key an imported conversation gets: as asked, as its file says, else by the file's name."""
    stem = "stdin" if args.file == "-" else Path(args.file).stem
    if args.session is not None:
        name = args.session if count <= 1 else f"{args.session}-{number}"
    else:
        name = key or (f"import:{stem}" if count <= 1 else f"import:{stem}-{number}")
    return SessionId(scope=args.scope, key=name)
