"""`backstory chat`: a conversation in the terminal that is there again tomorrow, and after a crash.

Each line is a turn; what begins with a slash is a command (`backstory.agent.commands`) or one of the chat's own.
Ctrl-C ends the turn and not the chat, Ctrl-D leaves. Input that is piped in is read the same way, a turn a line,
without a prompt.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

from backstory.agent.blocking import SyncBackstory
from backstory.agent.commands import parse
from backstory.agent.left_open import LeftOpen, left_open
from backstory.cli.opening import add_model, add_place, opened, place, shown
from backstory.cli.options import Subparsers
from backstory.cli.screen import one_line
from backstory.cli.telling import Teller, printable
from backstory.errors import BackstoryError, SessionError
from backstory.stores.values import SessionId

_HISTORY = 2_000
"""Lines of input that are kept for the arrow keys."""

OWN = {"resume": "go on with the turn that was cut short", "exit": "leave, as Ctrl-D does"}
"""The commands of the chat itself."""


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("chat", help="talk in the terminal; the conversation is kept")
    add_place(parser)
    add_model(parser)
    parser.add_argument("--no-color", action="store_true", help="no colours (nor with NO_COLOR set)")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 when it is left; of piped input 1 where a turn failed."""
    face, line = opened(args)
    with face:
        chat = Chat(face, args)
        if sys.stdin.isatty():
            chat.greet(line)
            with _editing(place(args)):
                chat.talk(_typed(chat))
            return 0
        chat.teller.note(line)
        chat.talk(_piped)
        return 1 if chat.failed else 0


class Chat:
    """One conversation in the terminal. `key` is its session, another one after ``/fork``."""

    def __init__(self, face: SyncBackstory, args: argparse.Namespace) -> None:
        self.face = face
        self.key: str = args.session
        self.scope: str = args.scope
        self.failed = False
        self.teller = Teller(aside=sys.stdout if sys.stdout.isatty() else None, no_color=args.no_color)
        self._folder = place(args)
        self._tools: bool = args.tools

    def greet(self, line: str) -> None:
        """Which conversation this is, and where it stands."""
        note = self.teller.note
        note(f"{self.key} in {shown(self._folder)}", "bold")
        note(line)
        if self._tools:
            note("Its tools read and search the files there and keep notes (--no-tools: none).")
        note("/help lists the commands. Ctrl-C stops an answer, Ctrl-D leaves.")
        self._tell_left_open()
        print(file=self.teller.aside)

    def talk(self, read: Callable[[], str | None]) -> None:
        """Turn after turn, until there is nothing more to read."""
        while (text := read()) is not None:
            if not text.strip():
                continue
            try:
                if self._own(text.strip()):
                    return
            except BackstoryError as error:
                self.failed = True
                self.teller.note(one_line(str(error), 2_000), "red")
            except KeyboardInterrupt:
                self.teller.note("(interrupted)")

    def _own(self, text: str) -> bool:
        """Do what a line says; whether it says to leave."""
        if text in ("/exit", "/quit"):
            return True
        if text == "/resume":
            self._resume()
        elif (parsed := self._parsed(text)) is None:
            self._wait_note()
            self.teller.tell(self.face.stream(self.key, text, scope=self.scope))
        else:
            done = self.face.command(self.key, text, scope=self.scope)
            said = printable(done.text)
            if parsed == "help":
                said += "".join(f"\n/{name:<14}  {what}" for name, what in OWN.items())
            self.key = done.session
            print(said, flush=True)
        return False

    @staticmethod
    def _parsed(text: str) -> str | None:
        found = parse(text)
        return found[0].name if found is not None else None

    def _resume(self) -> None:
        if self._left_open() is None:
            raise SessionError("there is no turn to go on with")
        self._wait_note()
        reply = self.face.resume(self.key, scope=self.scope)
        print(printable(reply.text), flush=True)

    # --- after a crash -----------------------------------------------------------------------

    def _left_open(self) -> LeftOpen | None:
        session, _ = self.face.bs.sessions.peek(SessionId(scope=self.scope, key=self.key))
        return self.face.run(left_open(session))

    def _tell_left_open(self) -> None:
        left = self._left_open()
        if left is None:
            return
        say = self.teller.note
        words = one_line(left.text, self.teller.screen.width - 32)
        say(f"Turn {left.turn} was cut short: “{words}”", "yellow")
        say(f"  {left}", "yellow")
        say("  /resume goes on with it; saying something else ends it. Nothing is lost either way.", "yellow")

    def _wait_note(self) -> None:
        """Say why nothing happens while the session is somebody else's."""
        lease = self.face.run(self.face.bs.store.lease(SessionId(scope=self.scope, key=self.key)))
        if lease is not None:
            seconds = max(1, round(lease.expires - self.face.bs.store.clock.now()))
            self.teller.note(
                f"(waiting: another process holds this conversation; if it is gone, {seconds} s more)"
            )


def _piped() -> str | None:
    line = sys.stdin.readline()
    return line.rstrip("\n") if line else None


def _typed(chat: Chat) -> Callable[[], str | None]:
    """What a person types; a backslash at the end of a line goes on with the next."""

    def read() -> str | None:
        lines: list[str] = []
        prompt = chat.teller.screen.paint("> ", "bold")
        if chat.teller.screen.color:  # readline counts columns: what it brackets so takes none
            prompt = "\001\x1b[1m\002> \001\x1b[0m\002"
        while True:
            try:
                line = input("… " if lines else prompt)
            except EOFError:
                print()
                return None
            except KeyboardInterrupt:
                print("\n(Ctrl-D leaves)")
                return ""
            if not line.endswith("\\"):
                return "\n".join([*lines, line])
            lines.append(line[:-1])

    return read


class _editing:  # noqa: N801 - a context manager, used as a function
    """Line editing with a history that is kept in the workspace, where the system has readline."""

    def __init__(self, folder: Path) -> None:
        self._path = folder / ".backstory" / "chat_history"
        self._readline: ModuleType | None = None

    def __enter__(self) -> None:
        with contextlib.suppress(ImportError):
            self._readline = importlib.import_module("readline")
        if self._readline is not None:
            with contextlib.suppress(OSError):
                self._readline.read_history_file(self._path)
            self._readline.set_history_length(_HISTORY)

    def __exit__(self, *ended: object) -> None:
        if self._readline is not None and self._path.parent.is_dir():
            with contextlib.suppress(OSError):
                self._path.touch(mode=0o600)
                self._readline.write_history_file(self._path)
