"""`backstory say`: one message, one answer; for scripts, and for a look."""

from __future__ import annotations

import argparse
import sys

from backstory.cli.opening import add_model, add_place, opened
from backstory.cli.options import Subparsers, add_output
from backstory.cli.reading import read_text
from backstory.cli.screen import note, show_json
from backstory.cli.telling import Teller
from backstory.errors import ConfigurationError, ModelError


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("say", help="say one thing in a conversation, and get the answer")
    parser.add_argument(
        "text", metavar="TEXT", nargs="?", help="the message; - or nothing takes standard input, whole"
    )
    add_place(parser)
    add_model(parser)
    parser.add_argument(
        "--message-id", metavar="ID", help="your own id of the message: said again, answered once"
    )
    parser.add_argument(
        "--resume", action="store_true", help="go on with the turn that a crash left open, instead"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 with an answer, 1 where the turn ended without one or the model failed."""
    text = _text(args)
    face, line = opened(args)
    with face:
        teller = Teller(no_color=args.no_color)
        teller.note(line)
        try:
            if text is None:
                reply = face.resume(args.session, scope=args.scope)
            elif args.json:
                reply = face.say(args.session, text, message_id=args.message_id, scope=args.scope)
            else:
                turn = teller.tell(
                    face.stream(args.session, text, message_id=args.message_id, scope=args.scope)
                )
                return 0 if turn is not None and turn.reason == "done" else 1
        except ModelError as error:
            teller.end_line()
            note(f"backstory: {error}")
            return 1
    if args.json:
        usage = {"input": reply.usage.input, "cached": reply.usage.cached, "output": reply.usage.output}
        show_json(
            {
                "session": args.session,
                "turn": reply.turn,
                "text": reply.text,
                "reason": reply.reason,
                "recovered": list(reply.recovered),
                "usage": usage,
            }
        )
    else:
        print(reply.text)
    return 0 if reply.reason == "done" else 1


def _text(args: argparse.Namespace) -> str | None:
    if args.resume:
        if args.text is not None:
            raise ConfigurationError("--resume goes on without a message: leave TEXT out")
        return None
    if args.text is None and sys.stdin.isatty():
        raise ConfigurationError("say what? give TEXT, or pipe it in")
    return read_text("-") if args.text in (None, "-") else str(args.text)
