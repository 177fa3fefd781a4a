"""Takes the words of the command line to the command that they name, and every failure to one line and a code.

Codes: 0 all well, 1 the answer is bad (problems found, does not fit), 2 the question is (input, options), 130
interrupted, 141 nobody reads on.
"""

from __future__ import annotations

import argparse
import codecs
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module, metadata
from io import TextIOWrapper
from typing import NoReturn

from backstory.errors import BackstoryError

COMMANDS = ("chat", "say", "sessions", "explain", "doctor", "migrate", "check", "fit", "convert", "replay")
"""Each a module here with `add(subparsers)`, which sets the default `run` to a function from the arguments to a code.

It is loaded when it is called for: a command that reads a file need not wait for what a chat needs.
"""


class _Parser(argparse.ArgumentParser):
    """Says what is wrong in one line."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; see {self.prog} --help\n")


def build_parser(commands: Sequence[str] = COMMANDS) -> argparse.ArgumentParser:
    parser = _Parser(
        prog="backstory", description="The context layer for LLM agents: what a model call sends, and why."
    )
    parser.add_argument("--version", action="version", version=f"backstory {_version()}")
    found = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for command in commands:
        import_module(f"backstory.cli.{command}").add(found)
    return parser


def _version() -> str:
    try:
        return metadata.version("backstory")
    except metadata.PackageNotFoundError:
        return "(run from its source, not installed)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command; its exit code. `argv` is without the program's name."""
    _tolerant(sys.stdout, sys.stderr)
    try:
        words = sys.argv[1:] if argv is None else argv
        named = [word for word in words[:1] if word in COMMANDS]
        args = build_parser(named or COMMANDS).parse_args(words)
        code: int = args.run(args)
        sys.stdout.flush()
        return code
    except BrokenPipeError:
        _silence(sys.stdout)
        return 141
    except KeyboardInterrupt:
        _complain("interrupted")
        return 130
    except BackstoryError as error:
        _complain(str(error))
        return 2
    except RecursionError:
        _complain("the input is nested too deeply")
        return 2
    except OSError as error:
        _complain(f"{error.filename or 'output'}: {error.strerror or error}")
        return 2


_PLAIN = {"·": "-", "…": "...", "“": '"', "”": '"', "×": "x", "±": "+-", "–": "-", "—": "-", "’": "'"}


def _plain(error: UnicodeError) -> tuple[str, int]:
    """What stands for characters that an output cannot encode."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(each, "?") for each in error.object[error.start : error.end]), error.end


def _tolerant(*streams: object) -> None:
    """No character that an output cannot encode ends a command. (JSON escapes what it must by itself.)"""
    codecs.register_error("backstory.plain", _plain)
    for stream in streams:
        if isinstance(stream, TextIOWrapper):
            stream.reconfigure(errors="backstory.plain")


def _complain(what: str) -> None:
    with contextlib.suppress(OSError):
        sys.stdout.flush()
    with contextlib.suppress(OSError):
        print(f"backstory: {' '.join(what.split())}", file=sys.stderr)


def _silence(stream: object) -> None:
    """The reader has gone: what is still in the buffer goes nowhere, so that the interpreter's end is quiet too."""
    if isinstance(stream, TextIOWrapper):
        with contextlib.suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
