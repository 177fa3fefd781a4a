"""The chat: piped, in a terminal of its own, interrupted, and killed."""

import os
import re
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Command

posix = pytest.mark.skipif(sys.platform == "win32", reason="terminals")
NO_MODEL = {"OPENAI_API_KEY": "", "OPENAI_BASE_URL": "", "ANTHROPIC_API_KEY": "", "BACKSTORY_WORKSPACE": ""}


@pytest.fixture(autouse=True)
def offline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    for name in NO_MODEL:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


# --- piped -------------------------------------------------------------------------------------


def test_a_turn_a_line(command: Command):
    done = command("chat", stdin=b"My name is Ada.\n\nWhat is my name?\n/status\n/exit\nnever said\n")
    assert done.code == 0
    lines = done.out.splitlines()
    assert "Your name is Ada." in lines
    assert any(line.startswith("turns") and line.endswith(" 2") for line in lines)
    assert ">" not in done.out
    assert "no LLM" in done.err
    assert command("chat", stdin=b"What is my name?").out == "Your name is Ada.\n"


def test_commands_move_the_chat(command: Command):
    done = command("chat", stdin=b"My name is Ada.\n/fork copy\nMy name is Bob.\n/help\n")
    assert "Now in copy" in done.out
    assert "/resume" in done.out
    assert "/undo [N|compact]" in done.out
    assert command("chat", stdin=b"What is my name?\n").out == "Your name is Ada.\n"


def test_a_turn_that_fails_does_not_end_the_chat(command: Command):
    done = command("chat", stdin=b"/nonsense\n/undo 9\n/resume\nMy name is Ada.\nWhat is my name?\n")
    assert done.code == 1
    assert "Your name is Ada." in done.out
    assert done.err.count("/nonsense is no command") == 1
    assert "no turn to go on with" in done.err


def test_what_a_tool_says_cannot_move_the_cursor(command: Command, tmp_path: Path):
    (tmp_path / "evil.txt").write_text("before\x1b[2J\x1b]0;title\x07after\n")
    done = command("chat", stdin=b"read evil.txt\n")
    assert "before" in done.out
    assert "\x1b" not in done.out + done.err
    assert "\x07" not in done.out + done.err


# --- in a terminal -----------------------------------------------------------------------------


class Terminal:
    """A chat on a pseudo-terminal of 80 columns."""

    def __init__(self, folder: Path, *words: str, program: str = "") -> None:
        import pty

        self.pid, self.fd = pty.fork()
        if self.pid == 0:  # pragma: no cover - another process
            os.chdir(folder)
            os.environ.update({**NO_MODEL, "TERM": "xterm", "COLUMNS": "80", "LC_ALL": "C.UTF-8"})
            command = ["-c", program] if program else ["-m", "backstory"]
            os.execv(sys.executable, [sys.executable, *command, "chat", *words])
        self.seen = ""

    def until(self, pattern: str, seconds: float = 90) -> str:
        """What was written until something shows; then that is seen, and looked for no more."""
        deadline = time.monotonic() + seconds
        while not (found := re.search(pattern, self.seen)):
            ready, _, _ = select.select([self.fd], [], [], 0.2)
            if ready:
                try:
                    data = os.read(self.fd, 65_536)
                except OSError:
                    data = b""
                if not data:
                    raise AssertionError(f"it ended before {pattern!r}: {self.seen!r}")
                self.seen = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", self.seen + data.decode(errors="replace"))
            elif time.monotonic() > deadline:
                raise AssertionError(f"{pattern!r} never came: {self.seen!r}")
        before, self.seen = self.seen[: found.end()], self.seen[found.end() :]
        return before

    def type(self, text: str) -> None:
        os.write(self.fd, text.encode())

    def ended(self, seconds: float = 90) -> int:
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            done, status = os.waitpid(self.pid, os.WNOHANG)
            if done:
                self.pid = 0
                return os.waitstatus_to_exitcode(status)
            if select.select([self.fd], [], [], 0.1)[0]:
                try:
                    os.read(self.fd, 65_536)
                except OSError:
                    time.sleep(0.05)
        raise AssertionError("it did not end")

    def close(self) -> None:
        if self.pid:
            os.kill(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
        os.close(self.fd)


@pytest.fixture
def terminals() -> Iterator[list[Terminal]]:
    opened: list[Terminal] = []
    yield opened
    for each in opened:
        each.close()


def start(terminals: list[Terminal], folder: Path, *words: str, program: str = "") -> Terminal:
    terminals.append(Terminal(folder, *words, program=program))
    return terminals[-1]


def press_until(chat: Terminal, key: str, pattern: str) -> None:
    """Press a key again, as a person would: one that comes just as the prompt is drawn is seen with the next."""
    for seconds in (3, 3, 3, 30):
        chat.type(key)
        try:
            chat.until(pattern, seconds)
        except AssertionError:
            continue
        return
    raise AssertionError(f"{pattern!r} never came: {chat.seen!r}")


@posix
def test_a_conversation_at_a_prompt(terminals: list[Terminal], tmp_path: Path):
    chat = start(terminals, tmp_path)
    greeting = chat.until(r"\n> ")
    assert "cli:direct in the current folder" in greeting
    assert "no LLM" in " ".join(greeting.split())
    assert all(len(line) <= 80 for line in greeting.splitlines())
    chat.type("Two things. \\\nMy name is Ada.\n")
    chat.until(r"Noted\.")
    chat.until("> ")
    press_until(chat, "\x03", r"\(Ctrl-D leaves\)")
    chat.until("> ")
    chat.type("What is my name?\n")
    chat.until(r"Your name is Ada\.")
    chat.until("> ")
    chat.type("\x04")
    assert chat.ended() == 0
    again = start(terminals, tmp_path)
    again.until(r"\n> ")
    again.type("\x1b[A")  # the line that was typed last
    again.until(r"What is my name\?")
    again.type("\n")
    again.until(r"Your name is Ada\.")


SLOW = """
import sys, time
import backstory.cli.opening as opening
from backstory.agent.tools import tool
from backstory.models import ScriptedModel, Play, calls
from backstory.models.environment import Chosen

@tool
def first() -> str:
    "The first."
    return "one"

@tool
def second() -> str:
    "The second, which takes its time."
    open("began", "w").close()
    time.sleep(60)
    return "two"

@tool
def third() -> str:
    "The third."
    return "three"

opening.LEASE = 1.5
opening._tools = lambda folder: [first, second, third]
script = ["Noted."] if "--first" in sys.argv else []
if "--slow" in sys.argv:
    script = [Play(step="Once upon a time there was a very long story. " * 40, between=0.02), "Yes."]
if "--kill" in sys.argv:
    script = ["Noted.", calls("first", "second", "third")]
if "--after" in sys.argv:
    script = ["All three were looked at."]
sys.argv = [word for word in sys.argv if word not in ("--slow", "--kill", "--after")]
opening._model = lambda args: Chosen(ScriptedModel(script), "Model: scripted.")
from backstory.cli.main import main
raise SystemExit(main())
"""


@posix
def test_ctrl_c_ends_the_answer_and_not_the_chat(terminals: list[Terminal], tmp_path: Path):
    chat = start(terminals, tmp_path, "--slow", program=SLOW)
    chat.until(r"\n> ")
    chat.type("Tell me a story\n")
    chat.until("very long story")
    chat.type("\x03")
    chat.until(r"\(interrupted\)")
    chat.until("> ")
    chat.type("Still there?\n")
    chat.until(r"Yes\.")
    chat.until("> ")
    chat.type("/status\n")
    assert "turns        2" in chat.until("request.*epoch")


@posix
def test_killed_in_the_middle_of_a_tool_and_nothing_is_lost(terminals: list[Terminal], tmp_path: Path):
    chat = start(terminals, tmp_path, "--kill", program=SLOW)
    chat.until(r"\n> ")
    chat.type("My name is Ada.\n")
    chat.until(r"Noted\.")
    chat.type("Look at all three\n")
    chat.until("second")
    while not (tmp_path / "began").exists():
        time.sleep(0.05)
    os.kill(chat.pid, signal.SIGKILL)
    again = start(terminals, tmp_path, "--after", program=SLOW)
    greeting = again.until(r"\n> ")
    assert "Turn 2 was cut short: “Look at all three”" in greeting
    assert "finished, and kept: first; started, outcome unknown: second; never started: third" in " ".join(
        greeting.split()
    )
    again.type("/resume\n")
    again.until(r"All three were looked at\.")  # once the lease of the killed one has run out
    again.until("> ")
    again.type("\x04")
    assert again.ended() == 0
    shown = subprocess.run(
        [sys.executable, "-m", "backstory", "sessions", "show", "cli:direct"],
        capture_output=True, text=True, cwd=tmp_path, check=True,
    ).stdout  # fmt: skip
    assert "My name is Ada." in shown
    assert "(outcome_unknown)" in shown
    assert "(not_started)" in shown
