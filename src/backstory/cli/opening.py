"""Where conversations lie, and with which model they go on: the options of every command that opens a workspace."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from backstory.agent.blocking import SyncBackstory, open_sync
from backstory.agent.toolbox import Workspace, list_files, notes, read_file, search_files, terminal
from backstory.agent.tools import AnyTool
from backstory.errors import ConfigurationError
from backstory.models.environment import Chosen, from_environment
from backstory.stores.base import Store
from backstory.stores.files import FilesStore
from backstory.stores.large_parts import with_large_parts
from backstory.stores.values import DEFAULT_SCOPE

SESSION = "cli:direct"
LEASE = 10.0
"""Seconds after which a chat that was killed is taken over: a person waits."""


def add_place(parser: argparse.ArgumentParser) -> None:
    """Where the conversations lie."""
    parser.add_argument(
        "--workspace",
        metavar="FOLDER",
        help="where conversations are kept; else $BACKSTORY_WORKSPACE, else the current folder",
    )
    parser.add_argument("--scope", metavar="NAME", default=DEFAULT_SCOPE, help="whose conversations")


def add_model(parser: argparse.ArgumentParser) -> None:
    """Who answers, and with what."""
    parser.add_argument("--session", metavar="KEY", default=SESSION, help=f"which conversation ({SESSION})")
    parser.add_argument("--model", metavar="NAME", help="the model; 'offline' for none at all")
    parser.add_argument("--base-url", metavar="URL", help="a server that speaks OpenAI's protocol")
    parser.add_argument("--window", type=int, metavar="TOKENS", help="what the model takes, in and out")
    parser.add_argument(
        "--tools",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="let the model read and search the workspace's files, and keep notes",
    )


def place(args: argparse.Namespace) -> Path:
    """The workspace's folder, there or not.

    In one's home folder, and in the root of all, it is ``~/.backstory``: tools see what lies in a workspace.
    """
    given = args.workspace or os.environ.get("BACKSTORY_WORKSPACE")
    if given:
        return Path(given).expanduser()
    here, home = Path.cwd(), Path.home()
    return home / ".backstory" if here in (home, Path(here.anchor)) else Path()


def existing_store(args: argparse.Namespace) -> Store:
    """The store of a workspace that is there. Raises `ConfigurationError` where there is none."""
    folder = place(args)
    if not (folder / "sessions").is_dir():
        raise ConfigurationError(
            f"{shown(folder)} holds no conversations; say where they are with --workspace FOLDER"
        )
    return with_large_parts(FilesStore(folder))


def opened(args: argparse.Namespace) -> tuple[SyncBackstory, str]:
    """The workspace, made where there is none, with model and tools; and a line that says which model."""
    folder = place(args)
    chosen = _model(args)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise ConfigurationError(f"{shown(folder)} is a file, not a folder") from None
    face = open_sync(
        folder,
        model=chosen.model,
        tools=_tools(folder) if args.tools else [],
        window=args.window,
        lease_ttl=LEASE,
    )
    return face, chosen.line


def _model(args: argparse.Namespace) -> Chosen:
    return from_environment(args.model, args.base_url)


def _tools(folder: Path) -> list[AnyTool]:
    space = Workspace(folder)
    return [read_file(space), list_files(space), search_files(space), terminal(space), notes(space)]


def shown(folder: Path) -> str:
    """A folder as people write it."""
    absolute = os.path.abspath(folder)
    home = os.path.expanduser("~")
    if absolute == os.path.abspath(os.curdir):
        return "the current folder"
    return absolute.replace(home, "~", 1) if absolute.startswith(os.path.join(home, "")) else absolute
