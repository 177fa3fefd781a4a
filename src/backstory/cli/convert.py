"""`backstory convert`: a conversation in another API's format, and what that cannot carry."""

from __future__ import annotations

import argparse
import dataclasses
from typing import Any

from backstory.cli.options import Subparsers, add_input, add_output, conversations, label, source_of
from backstory.cli.screen import note, show_json
from backstory.formats.convert import convert
from backstory.formats.request import tools_for
from backstory.targets import PRESETS, Target


def add(commands: Subparsers) -> None:
    parser = commands.add_parser("convert", help="the same conversation in another API's format")
    add_input(parser, target=False)
    parser.add_argument("--target", metavar="NAME", required=True, help=f"who takes it: {', '.join(PRESETS)}")
    add_output(parser)
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """0, also where something could not be carried: that is reported."""
    target = Target.of(args.target)
    chosen = conversations(args)
    indent = 2 if len(chosen) == 1 else None
    for each in chosen:
        source = source_of(args, each)
        converted = convert(each.items, source=source, target=target, system=each.system)
        body: dict[str, Any] = dict(converted.body)
        if isinstance(each.tools, list) and each.tools:
            body["tools"] = tools_for(target, each.tools)
        if args.json:
            losses = [dataclasses.asdict(loss) for loss in converted.losses]
            known = {"line": each.line, "source": source, "target": target.name}
            show_json({**known, "body": body, "losses": losses}, indent=indent)
            continue
        show_json(body, indent=indent)
        for loss in converted.losses:
            where = "system" if loss.index < 0 else f"message {loss.index}"
            note(f"{label(args, each)}: {where} lost ({loss.kind}): {loss.what}")
    return 0
