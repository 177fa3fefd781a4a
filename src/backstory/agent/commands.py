"""Slash commands: what a person types into a conversation that is meant for us, and never for the model.

A table, and one function a command over the parts of a `Backstory` and a session. Nothing of it goes into the log as a
message: what a command does is a record of its own (a cut, an undo, a fork), or nothing.

`say` and `stream` know no commands, since a program's message may begin with a slash and mean it. Whoever takes what
people type (the terminal's chat, the server's channels) asks `parse` first. ``/stop`` and ``/status`` need no lease:
they answer while a turn is under way. The others wait for it in this process; where another process holds the session
they raise `LeaseHeld`.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from backstory.agent.compacting import session_frame
from backstory.agent.cutting import cut_back, last_request
from backstory.agent.requests import Shape
from backstory.agent.sources.files import WorkspaceFiles, own_path
from backstory.agent.sources.memory import MEMORY_FILE, MEMORY_LIMIT
from backstory.agent.sources.runtime import without_runtime
from backstory.compaction.extract import BY
from backstory.compaction.standing import standing
from backstory.errors import InvalidInput
from backstory.models.base import Usage
from backstory.sessions import operations
from backstory.sessions.archive import read_through
from backstory.sessions.session import Session, Sessions
from backstory.stores.base import Store
from backstory.stores.values import DEFAULT_SCOPE, SessionId
from backstory.upkeep.compactor import Compacted, Compactor

_SHAPE = re.compile(r"/[A-Za-z][\w-]*\Z")
_QUOTED = 60


class Means(Protocol):
    """What commands draw on: the parts of a `Backstory`."""

    @property
    def store(self) -> Store: ...
    @property
    def sessions(self) -> Sessions: ...
    @property
    def workspace(self) -> Path | None: ...
    async def stop(self, key: str, *, scope: str = DEFAULT_SCOPE) -> bool: ...
    @property
    def compactor(self) -> Compactor | None: ...
    def shape(self, key: str, *, scope: str = DEFAULT_SCOPE) -> Shape: ...
    async def compacted(self, session: Session, topic: str = "") -> Compacted | None: ...


@dataclass(frozen=True, kw_only=True, slots=True)
class Commanded:
    """The answer to a command, in the shape of a `Reply`: `reason` is ``command``, `turn` the session's newest.

    `session` is the key in which the conversation goes on: another one after ``/fork``.
    """

    text: str
    name: str
    session: str
    turn: int = 0
    reason: str = "command"
    usage: Usage = field(default_factory=lambda: Usage(input=0, output=0))

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, kw_only=True, slots=True)
class Command:
    """One command: how it is called, what it does in a line, and whether it waits for a turn under way."""

    name: str
    takes: str
    what: str
    run: Callable[[Means, Session, str], Awaitable[str | tuple[str, str]]]
    waits: bool = True

    @property
    def usage(self) -> str:
        return f"/{self.name} {self.takes}".rstrip()


def parse(text: str) -> tuple[Command, str] | None:
    """The command that a text is, and what follows its name; `None` where it is a message.

    Raises `InvalidInput` for what looks like a command and is none. A blank before the slash makes it a message.
    """
    word, _, rest = text.partition(" ") if "\n" not in text.split(" ", 1)[0] else text.partition("\n")
    if not _SHAPE.match(word.rstrip()):
        return None
    command = COMMANDS.get(word.rstrip()[1:].lower())
    if command is None:
        raise InvalidInput(
            f"{word.rstrip()} is no command; /help lists them (begin with a blank to say it anyway)"
        )
    return command, rest.strip()


async def perform(means: Means, id: SessionId, text: str) -> Commanded:
    """Do what a command says. Raises `InvalidInput` for what is none, and the errors of sessions and stores."""
    parsed = parse(text)
    if parsed is None:
        raise InvalidInput(
            f"not a command: {text[:_QUOTED]!r}; one of {', '.join(f'/{name}' for name in COMMANDS)}"
        )
    command, rest = parsed
    if command.waits:
        async with means.sessions.hold(id) as session:
            done = await command.run(means, session, rest)
    else:
        session, _ = means.sessions.peek(id)
        done = await command.run(means, session, rest)
    said, key = done if isinstance(done, tuple) else (done, id.key)
    return Commanded(text=said, name=command.name, session=key, turn=session.view.turns)


# --- the commands ------------------------------------------------------------------------------


async def _new(means: Means, session: Session, rest: str) -> str:
    await operations.begin_anew(session)
    return "From here on nothing before is sent. It stays in the log: `backstory sessions show` has it."


async def _undo(means: Means, session: Session, rest: str) -> str:
    if rest.lower() == "compact":
        await operations.lift(session)
        return "The compaction is undone: what it stood for is sent again. /redo takes that back."
    count = _number(rest, "/undo")
    await session.refresh()
    undone = await operations.undo(session, count)
    span = session.view.spans[undone.turns[0]]
    records = await read_through(session.store, session.id, after=span.first - 1, before=span.last + 1)
    first = next((r.message for r in records if r.kind == "message" and r.message.role == "user"), None)
    words = _short(without_runtime(first).text) if first is not None else ""
    turns = f"turn {undone.turns[0]}" if count == 1 else f"turns {undone.turns[0]} to {undone.turns[-1]}"
    said = f"Undone: {turns}" + (f", which began with “{words}”." if words else ".")
    if undone.tools:
        said += f" What its tools did stays done: {', '.join(undone.tools)}."
    return f"{said} /redo takes it back."


async def _redo(means: Means, session: Session, rest: str) -> str:
    await operations.redo(session)
    return "What was undone is there again."


async def _fork(means: Means, session: Session, rest: str) -> tuple[str, str]:
    old = session.id
    name = rest or await _free(means.store, old)
    copied = await operations.fork(session, SessionId(scope=old.scope, key=name))
    return f"Now in {name}, with the {copied} messages of {old.key}, which stays as it is.", name


async def _free(store: Store, id: SessionId) -> str:
    number = 2
    while (await store.head(SessionId(scope=id.scope, key=f"{id.key}-{number}"))).seq:
        number += 1
    return f"{id.key}-{number}"


async def _status(means: Means, session: Session, rest: str) -> str:
    if not (await session.store.head(session.id)).seq:
        return f"session  {session.id.key} (nothing said yet)"
    if not means.sessions.peek(session.id)[1]:  # while a turn runs it keeps the view up to date itself
        await session.refresh()
    view = session.view
    rows = [("session", session.id.key)]
    hidden = sum(view.is_hidden(span.first) for span in view.spans.values())
    rows.append(("turns", f"{view.turns}" + (f", {hidden} of them undone" if hidden else "")))
    shape = means.shape(session.id.key, scope=session.id.scope)
    rows.append(("model", shape.model or "none"))
    ledger = last_request(view)
    if ledger:
        used, budget = ledger["total"], ledger["budget"]
        of = f" of {budget:,} ({used / budget:.0%})" if budget else ""
        rows.append(("request", f"{used:,}{of} tokens in the last one; epoch {ledger['epoch']}"))
    if view.active:
        tokens = view.summary["tokens"]
        by = view.summary["summary"]["by"]
        rows.append(("summary", f"by {by}; it made {tokens[0]:,} tokens of history {tokens[1]:,}"))
    if view.cut.start:
        rows.append(("sent from", f"record {view.cut.start} on; what is before stays in the log"))
    lease = await session.store.lease(session.id)
    if view.turn is not None:
        state = "is under way" if lease is not None else "was left open by a crash; your next message ends it"
        rows.append(("turn", f"{view.turn.number} {state}"))
    waiting = await session.store.inbox(session.id)
    if waiting:
        rows.append(("waiting", f"{len(waiting)} in the inbox"))
    if view.parent:
        rows.append(("forked from", str(view.parent.get("parent"))))
    return "\n".join(f"{name:<12} {value}" for name, value in rows)


async def _compact(means: Means, session: Session, rest: str) -> str:
    if means.compactor is None:
        return await _cut(means, session)
    done = await means.compacted(session, rest)
    if done is None:
        return "There is nothing to compact: what is sent is below the low mark, or one turn alone."
    by = "an extract" if done.by == BY else f"a summary by {done.by}"
    said = f"{done.messages} messages are now {by}: {done.before:,} → {done.after:,} tokens of history."
    refused = f" (The model's was not used: {'; '.join(done.refused)}.)" if done.refused else ""
    return f"{said}{refused} They stay in the log; /undo compact takes it back."


async def _cut(means: Means, session: Session) -> str:
    """Compaction is off: a cut alone."""
    await session.refresh()
    shape = means.shape(session.id.key, scope=session.id.scope)
    done = await cut_back(session, await session_frame(session, shape))
    if done is None:
        return "There is nothing to cut: what is sent is below the low mark, or one turn alone."
    said = f"{done.left_out} messages fewer will be sent: {done.before:,} → {done.after:,} tokens of history."
    return f"{said} They stay in the log. Compaction is off, so no summary stands for them."


async def _pin(means: Means, session: Session, rest: str) -> str:
    await session.refresh()
    if rest:
        place = await operations.pin(session, rest)
        return f"Pinned as {place}: it is told with each request. /unpin {place} takes it away."
    await session.load(None)
    view = session.view
    held = [f"{place:>6}  {_short(str(pin['text']))}" for place, pin in view.pins.items()]
    pinned = {str(pin["text"]) for pin in view.pins.values()}
    messages = [without_runtime(record.message) for record in view.live()]
    offered = [one.text for one in standing(messages) if one.text not in pinned]
    said = "\n".join(held) if held else "Nothing is pinned."
    if offered:
        said += "\n\nStanding instructions, which /pin TEXT would keep:\n" + "\n".join(
            f"  {t}" for t in offered
        )
    return said


async def _unpin(means: Means, session: Session, rest: str) -> str:
    if not rest:
        return await _pin(means, session, "")
    return f"No longer pinned: {_short(await operations.unpin(session, _number(rest, '/unpin')))}"


async def _memory(means: Means, session: Session, rest: str) -> str:
    if means.workspace is None:
        return "There is no workspace, so nothing is kept from one conversation to the next."
    files = WorkspaceFiles(means.workspace)
    said = []
    for path in ("USER.md", MEMORY_FILE):
        own = own_path(session.id.scope, path)
        found = files.read(own, MEMORY_LIMIT, scope=session.id.scope)
        text = found.text.strip() if found is not None else ""
        said.append(f"{own}:\n{text}" if text else f"{own}: nothing yet")
    return "\n\n".join([*said, "Edit these files, and the next request knows it."])


async def _stop(means: Means, session: Session, rest: str) -> str:
    stopped = await means.stop(session.id.key, scope=session.id.scope)
    return "Stopped." if stopped else "No turn is under way."


async def _help(means: Means, session: Session, rest: str) -> str:
    width = max(len(command.usage) for command in COMMANDS.values())
    return "\n".join(f"{command.usage:<{width}}  {command.what}" for command in COMMANDS.values())


COMMANDS: Mapping[str, Command] = {
    command.name: command
    for command in (
        Command(name="new", takes="", what="begin anew: nothing before is sent any more", run=_new),
        Command(
            name="undo",
            takes="[N|compact]",
            what="take back the last turn, or the last N, or a compaction",
            run=_undo,
        ),
        Command(name="redo", takes="", what="take back the undo", run=_redo),
        Command(name="fork", takes="[NAME]", what="go on in a copy of this conversation", run=_fork),
        Command(name="status", takes="", what="where this conversation stands", run=_status, waits=False),
        Command(
            name="compact",
            takes="[WHAT]",
            what="send less: a summary, favouring WHAT, stands for what was said long ago",
            run=_compact,
        ),
        Command(
            name="pin", takes="[TEXT]", what="tell it with each request; alone, what is pinned", run=_pin
        ),
        Command(name="unpin", takes="N", what="take pin N away", run=_unpin),
        Command(name="memory", takes="", what="what is kept across conversations", run=_memory),
        Command(name="stop", takes="", what="end the turn that is under way", run=_stop, waits=False),
        Command(name="help", takes="", what="this list", run=_help, waits=False),
    )
}


def _number(text: str, command: str) -> int:
    if not text:
        return 1
    if not (text.isascii() and text.isdigit()) or not 0 < int(text) < 10_000:
        raise InvalidInput(f"{command} takes a number of turns, not {text[:_QUOTED]!r}")
    return int(text)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= _QUOTED else f"{line[:_QUOTED].rstrip()}…"
