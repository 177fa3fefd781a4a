"""Arguments that several commands share, and what they mean to the library."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from backstory.cli.reading import Conversation, read_conversations, read_json
from backstory.context.budget import Budget
from backstory.errors import ConfigurationError, InvalidInput
from backstory.formats.detect import detect
from backstory.targets import FORMATS, PRESETS, Target
from backstory.tokens import Counter, counter_for

Subparsers: TypeAlias = "argparse._SubParsersAction[argparse.ArgumentParser]"


def add_input(parser: argparse.ArgumentParser, *, target: bool = True) -> None:
    """The file, how it is read, and for whom."""
    parser.add_argument(
        "file", metavar="FILE", help="a conversation in JSON or JSON Lines; - is standard input"
    )
    parser.add_argument(
        "--source", metavar="FORMAT", help=f"its format, else told from it: {', '.join(FORMATS)}"
    )
    parser.add_argument(
        "--line", metavar="N", help="where each line is a conversation: that of line N, or all"
    )
    if target:
        parser.add_argument(
            "--target", metavar="NAME", default="openai_chat", help=f"who takes it: {', '.join(PRESETS)}"
        )


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="write everything as JSON to standard output")
    parser.add_argument("--no-color", action="store_true", help="no colours (nor with NO_COLOR set)")


def add_limits(parser: argparse.ArgumentParser) -> None:
    """What a request may take, and how it is counted."""
    group = parser.add_argument_group("limits", "the tightest holds; without any, nothing is cut")
    group.add_argument(
        "--budget", type=int, metavar="TOKENS", help="all input: system, tools, media, messages"
    )
    group.add_argument("--window", type=int, metavar="TOKENS", help="input and output together")
    group.add_argument(
        "--reserve", type=int, metavar="TOKENS", help="of the window, for the output (a fifth)"
    )
    group.add_argument("--max-turns", type=int, metavar="N", help="turns that are sent")
    group.add_argument("--max-messages", type=int, metavar="N", help="messages that are sent")
    group.add_argument(
        "--tools", metavar="FILE", help="tool declarations, a JSON list; else those of the body"
    )
    group.add_argument("--model", metavar="NAME", help="count tokens as this model does")
    group.add_argument("--encoding", metavar="NAME", help="count tokens in this encoding, such as o200k_base")


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """The shared settings of `fit` and `replay`, checked."""

    target: Target
    counter: Counter
    budget: Budget
    max_turns: int | None
    max_messages: int | None

    @staticmethod
    def of(args: argparse.Namespace) -> Limits:
        """Raises `ConfigurationError`."""
        target = Target.of(args.target)
        if args.model is not None and args.encoding is not None:
            raise ConfigurationError("give --model or --encoding, not both")
        counter = Counter(name=args.encoding) if args.encoding else counter_for(args.model, target.format)
        budget = Budget.of(
            budget=args.budget, window=args.window, reserve=args.reserve, margin=counter.margin
        )
        return Limits(
            target=target,
            counter=counter,
            budget=budget,
            max_turns=args.max_turns,
            max_messages=args.max_messages,
        )


def conversations(args: argparse.Namespace, *, all_by_default: bool = False) -> list[Conversation]:
    """Those that `--line` chooses. Raises `InvalidInput`."""
    found = read_conversations(args.file)
    chosen: str | None = args.line
    if chosen is None:
        if len(found) == 1 or all_by_default:
            return found
        first, last = found[0].line, found[-1].line
        raise InvalidInput(
            f"{args.file} holds {len(found)} conversations: choose one with --line {first} to --line {last},"
            " or --line all"
        )
    if chosen == "all":
        return found
    if not chosen.isascii() or not chosen.isdigit():
        raise ConfigurationError(f"--line takes a number or all, not {chosen!r}")
    lines = [1 if each.line is None else each.line for each in found]
    if int(chosen) not in lines:
        raise InvalidInput(f"{args.file} has no conversation in line {chosen}; there are {_spans(lines)}")
    return [found[lines.index(int(chosen))]]


def _spans(lines: Sequence[int]) -> str:
    if len(lines) == 1:
        return f"one, in line {lines[0]}"
    return f"{len(lines)}, from line {lines[0]} to {lines[-1]}"


def source_of(args: argparse.Namespace, conversation: Conversation) -> str:
    """The format of a conversation: as said, else as its body or its items tell, else Chat Completions."""
    if args.source is not None and args.source not in FORMATS:
        raise ConfigurationError(f"unknown format {args.source!r}; one of {', '.join(FORMATS)}")
    return args.source or conversation.format or detect(conversation.items) or "openai_chat"


def tools_of(args: argparse.Namespace, conversation: Conversation) -> list[Any] | None:
    """The tools of `--tools FILE`, else of the body. Raises `InvalidInput` for what is no list."""
    given = conversation.tools
    if args.tools is not None:
        given = read_json(args.tools, "tool declarations")
        if isinstance(given, dict) and isinstance(given.get("tools"), list):
            given = given["tools"]
    if given is not None and not isinstance(given, list):
        raise InvalidInput(f"tools must be a list of tool declarations, not {type(given).__name__}")
    return given


def label(args: argparse.Namespace, conversation: Conversation) -> str:
    """How a conversation is called in what is printed."""
    name = "standard input" if args.file == "-" else str(args.file)
    return name if conversation.line is None else f"{name}, line {conversation.line}"
