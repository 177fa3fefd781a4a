"""`backstory fit`: a conversation becomes the request that fits a budget and that its API accepts."""

from __future__ import annotations

import argparse
import dataclasses
import os
from pathlib import Path
from typing import Any

from backstory.cli.options import (
    Limits,
    Subparsers,
    add_input,
    add_limits,
    add_output,
    conversations,
    label,
    source_of,
    tools_of,
)
from backstory.cli.reading import Conversation, read_json
from backstory.cli.screen import dumps, note, show_json
from backstory.context.fit import Fitted, assemble
from backstory.context.history import History
from backstory.errors import BudgetExceeded, ConfigurationError, NothingToSend


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("fit", help="the request that fits a budget and that an API accepts")
    add_input(parser)
    add_limits(parser)
    parser.add_argument(
        "--state", metavar="FILE", help="go on from the request before: read if it is there, then written"
    )
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0 with the request, 1 where there is none: over the budget, or nothing to send."""
    limits = Limits.of(args)
    chosen = conversations(args)
    if args.state is not None and len(chosen) > 1:
        raise ConfigurationError("--state belongs to one conversation: choose it with --line N")
    code = 0
    for each in chosen:
        try:
            fitted = _fit(args, limits, each)
        except (BudgetExceeded, NothingToSend) as error:
            code = 1
            ledger = error.ledger if isinstance(error, BudgetExceeded) else None
            if args.json:
                known = {"line": each.line, "error": str(error)}
                show_json({**known, "ledger": ledger.to_json() if ledger else None}, indent=_indent(chosen))
            note(f"{label(args, each)}: {error}")
            continue
        if args.json:
            show_json(_report(each, fitted), indent=_indent(chosen))
        else:
            show_json(fitted.body, indent=_indent(chosen))
            _explain(label(args, each), fitted)
        if args.state is not None:
            _write(Path(args.state), dumps(fitted.state))
    return code


def _fit(args: argparse.Namespace, limits: Limits, each: Conversation) -> Fitted:
    state = None
    if args.state is not None and Path(args.state).exists():
        state = read_json(args.state, "state")
    return assemble(
        History(each.items, source_of(args, each), system=each.system),
        limits.target,
        limits.counter,
        limits.budget,
        tools=tools_of(args, each),
        state=state,
        max_turns=limits.max_turns,
        max_messages=limits.max_messages,
    )


def _indent(chosen: list[Conversation]) -> int | None:
    """One conversation is written for reading, many one a line."""
    return 2 if len(chosen) == 1 else None


def _report(each: Conversation, fitted: Fitted) -> dict[str, Any]:
    return {
        "line": each.line,
        "body": fitted.body,
        "ledger": fitted.ledger.to_json(),
        "repairs": [dataclasses.asdict(repair) for repair in fitted.repairs],
        "losses": [dataclasses.asdict(loss) for loss in fitted.losses],
        "state": fitted.state,
    }


def _explain(name: str, fitted: Fitted) -> None:
    note(f"{name}: {fitted.ledger}")
    for repair in fitted.repairs:
        note(f"  message {repair.index} healed ({repair.rule}): {repair.what}")
    for loss in fitted.losses:
        note(f"  message {loss.index} lost ({loss.kind}): {loss.what}")


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    fresh = path.with_name(f"{path.name}.{os.getpid()}.new")
    try:
        fresh.write_text(f"{text}\n", encoding="utf-8")
        os.replace(fresh, path)
    finally:
        fresh.unlink(missing_ok=True)
