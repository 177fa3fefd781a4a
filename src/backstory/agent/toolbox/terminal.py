"""The tool `terminal`: a few programs that only read, in a workspace, without a shell.

What may run is decided in `commands`, `find_command` and `git_command`; here paths are confined, and the program
runs with no input, a bare environment, a limit on time and on output, in a process group that ends with the call.

Paths are confined by `Workspace.look` right before the program starts, and given to it with every link resolved.
Between the two a path could be swapped by somebody who can write to the workspace; nothing that a model can run
here does.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

from backstory.agent.toolbox.commands import RULES, Parsed, parse, split
from backstory.agent.toolbox.find_command import find_arguments
from backstory.agent.toolbox.git_command import ENVIRONMENT, RUNS_PROGRAMS, git_arguments, git_prefix
from backstory.agent.toolbox.workspace import Location, Workspace
from backstory.agent.tools import AnyTool, tool
from backstory.errors import ToolError

MAX_OUTPUT = 200_000
"""Bytes that are read of what a program prints; it is ended then."""

_MAX_PATHS = 2_000
_MAX_ARGUMENTS = 100_000
"""Bytes of a command line: below the 128 KiB that Linux allows a single argument, and well below the sum's limit."""

_WILD = frozenset("*?[")

_PASSED = ("TZ", "SystemRoot")
"""What a program gets to see of our environment: nothing that could be a secret."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Ended:
    """How a program ended. `cut`: it printed more than was read."""

    code: int
    output: str
    errors: str
    cut: bool


def terminal(workspace: Location, *, seconds: float = 20.0) -> AnyTool:
    """The tool that runs read-only commands in this workspace, each for `seconds` at most."""
    space = Workspace.of(workspace)

    async def terminal(command: Annotated[str, "Such as: grep -rn 'def main' src"]) -> str:
        """Run a read-only command: ls, cat, head, tail, wc, nl, grep, find, diff, sort, uniq, cut, du, stat, git.

        One command at a time, without a shell: no pipes, redirections, variables, cd. git only reads (status, log,
        diff, show, branch, ls-files). Paths are relative to the workspace.
        """
        program, *words = split(command)
        if program == "pwd" and not words:
            return str(space.root)
        found = _program(space, program)
        environment: dict[str, str] = {}
        if program == "git":
            arguments = await _git(space, found, words, seconds)
            environment = ENVIRONMENT
        elif program == "find":
            arguments = find_arguments(words, lambda path: _located(space, path), space.closed)
        else:
            arguments = await asyncio.to_thread(_arguments, space, parse(program, words))
        if sum(len(os.fsencode(word)) + 1 for word in arguments) > _MAX_ARGUMENTS:
            raise ToolError("these are too many files for one command; name fewer, or use search_files")
        ended = await run([found, *arguments], cwd=space.root, environment=environment, seconds=seconds)
        return _told(program, ended)

    return tool(terminal, timeout=seconds + 15)


def _program(space: Workspace, name: str) -> str:
    """Where the program lies: on the PATH, and not in the workspace, where somebody may have put another."""
    if name not in RULES and name not in ("find", "git"):
        known = ", ".join(sorted([*RULES, "find", "git"]))
        raise ToolError(f"{name!r} is not allowed here; there are: {known}")
    found = shutil.which(name)
    if found is None or Path(found).resolve().is_relative_to(space.root):
        raise ToolError(f"{name} is not installed")
    return os.path.abspath(found)


# --- paths ---------------------------------------------------------------------------------


def _located(space: Workspace, path: str) -> str:
    """A path as a program gets it: inside, open, without links, and never like an option."""
    kind, real = space.look(path)
    if kind not in ("file", "folder"):
        raise ToolError(f"{path!r} is no regular file or folder")
    return real if real == "." else f"./{real}"


def _arguments(space: Workspace, parsed: Parsed) -> list[str]:
    """The arguments of a program of the table, its paths confined and its wildcards replaced."""
    paths = [found for path in parsed.paths for found in _expanded(space, path)]
    if not RULES[parsed.program].folders:
        for path in paths:
            if space.look(path)[0] == "folder":
                raise ToolError(f"{path!r} is a folder; {parsed.program} takes files")
    if parsed.program == "grep":
        return _grep(space, parsed, paths)
    options = [*parsed.options, *(["-s"] if parsed.program == "du" else [])]  # else du names every folder
    return [*options, "--", *paths]


def _expanded(space: Workspace, path: str) -> list[str]:
    """The paths that one with wildcards stands for, or the path itself; a shell would do this.

    As there, ``*`` never crosses a slash, and what begins with a dot must be asked for with one.
    """
    if not _WILD.intersection(path):
        return [_located(space, path)]
    with suppress(ToolError):
        return [_located(space, path)]  # a name that holds such a character
    reached = ["/"] if path.startswith("/") else [""]
    for step in filter(None, path.split("/")):
        if _WILD.isdisjoint(step):
            reached = [f"{folder}{step}/" for folder in reached]
            continue
        reached = [
            f"{entry.path}/"
            for folder in reached
            if folder in ("", "/") or space.look(folder)[0] == "folder"
            for entry in space.entries(folder or ".")
            if fnmatchcase(name := entry.path.rpartition("/")[2], step) and (step[0] == "." or name[0] != ".")
        ]
        if len(reached) > _MAX_PATHS:
            raise ToolError(f"{path!r} stands for too many files")
    found = []
    for name in reached:
        with suppress(ToolError):  # nothing of that name there, or no file
            found.append(_located(space, name.rstrip("/")))
    if not found:
        raise ToolError(f"nothing matches {path!r}")
    return found


def _grep(space: Workspace, parsed: Parsed, paths: list[str]) -> list[str]:
    """Folders become the files below them, so that nothing closed and no link is ever searched."""
    recursive = bool(parsed.names & {"r", "R", "recursive"})
    if not recursive and not paths:
        raise ToolError("grep needs a path; with -r it searches the whole workspace")
    files: list[str] = []
    for path in paths or ["."]:
        if space.look(path)[0] == "file":
            files.append(path)
            continue
        if not recursive:
            raise ToolError(f"{path!r} is a folder; use grep -r, or search_files")
        files += [f"./{entry.path}" for entry in space.walk(path) if entry.kind == "file"]
        if len(files) > _MAX_PATHS:
            raise ToolError(
                f"there are more than {_MAX_PATHS} files in {path!r}; name fewer, or use search_files"
            )
    if not files:
        raise ToolError("there is no file to search")
    names = [] if parsed.names & {"h", "no-filename"} or not recursive else ["-H"]
    options = [_unrecursive(option) for option in parsed.options]
    pattern = [f"--regexp={word}" for word in parsed.words]
    return [*names, *(option for option in options if option), *pattern, "--", *files]


def _unrecursive(option: str) -> str:
    """Without -r and -R, which come to nothing for files; a cluster's letters end where a value begins."""
    if option == "--recursive" or option.startswith("--"):
        return "" if option == "--recursive" else option
    valued = next((i for i, letter in enumerate(option) if letter in RULES["grep"].valued), len(option))
    kept = option[:valued].replace("r", "").replace("R", "") + option[valued:]
    return "" if kept == "-" else kept


# --- git -----------------------------------------------------------------------------------


async def _git(space: Workspace, program: str, words: Sequence[str], seconds: float) -> list[str]:
    folder = space.root / ".git"
    if folder.is_symlink() or not folder.is_dir() or (folder / "commondir").exists():
        raise ToolError("the workspace is not the root of a git repository of its own")
    asked = [*git_prefix(space.root), "config", "--name-only", "--get-regexp", "-z", RUNS_PROGRAMS]
    ended = await run([program, *asked], cwd=space.root, environment=ENVIRONMENT, seconds=seconds)
    if ended.code not in (0, 1) or ended.cut:  # 1: there is none
        raise ToolError(f"this repository's configuration cannot be read: {ended.errors[:300]}")

    def exists(path: str) -> bool:
        with suppress(ToolError):
            space.look(path)
            return True
        return any(char in path for char in "*?[")

    return git_arguments(
        words,
        locate=lambda path: _located(space, path),
        exists=exists,
        is_closed=space.is_closed,
        closed=space.closed,
        root=space.root,
        emptied=ended.output.split("\n")[:-1] if ended.output else (),
    )


# --- the program ---------------------------------------------------------------------------


async def run(command: Sequence[str], *, cwd: Path, environment: dict[str, str], seconds: float) -> Ended:
    """Run a program to its end. Raises `ToolError` when its time is up; however this is left, the program is gone."""
    passed = {name: os.environ[name] for name in _PASSED if name in os.environ}
    bare = {"PATH": os.defpath, "LC_ALL": "C.UTF-8", "HOME": os.devnull, **passed, **environment}
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            cwd=cwd,
            env=bare,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        raise ToolError(f"{Path(command[0]).name} cannot be run: {error}") from error
    assert process.stdout is not None
    assert process.stderr is not None
    try:
        async with asyncio.timeout(seconds):
            (output, cut), (errors, _) = await asyncio.gather(
                _read(process.stdout, MAX_OUTPUT, process), _read(process.stderr, 10_000, process)
            )
            code = await process.wait()
    except TimeoutError:
        raise ToolError(f"{Path(command[0]).name} took longer than {seconds:g} s and was ended") from None
    finally:
        _end(process)
        await process.wait()
    return Ended(code=code, output=_text(output), errors=_text(errors), cut=cut)


async def _read(
    stream: asyncio.StreamReader, most: int, process: asyncio.subprocess.Process
) -> tuple[bytes, bool]:
    """What a stream gives, up to a limit, and whether there was more; the program then ends."""
    data = bytearray()
    while chunk := await stream.read(65_536):
        data += chunk
        if len(data) > most:
            _end(process)
            return bytes(data[:most]), True
    return bytes(data), False


def _end(process: asyncio.subprocess.Process) -> None:
    """End the program and all that it started."""
    if process.returncode is not None:  # its number may be somebody else's by now
        return
    with suppress(ProcessLookupError, PermissionError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def _text(data: bytes) -> str:
    return data.replace(b"\0", b"\n").decode("utf-8", "replace")


def _told(program: str, ended: Ended) -> str:
    """What the model gets to read of it."""
    if ended.cut:
        return f"{ended.output}\n[Cut: it printed more than {MAX_OUTPUT:,} bytes; narrow the command.]"
    errors = ended.errors.strip()
    if ended.code == 1 and program in ("grep", "diff") and not errors:
        return ended.output or "[Nothing found.]"
    if ended.code and not ended.output:
        raise ToolError(f"{program} failed ({ended.code}): {errors or 'it did not say why'}")
    notes = f"\n[{errors}]" if errors else ""
    return f"{ended.output}{notes}" or "[It printed nothing.]"
