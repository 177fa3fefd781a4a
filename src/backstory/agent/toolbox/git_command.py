"""`git`, as far as it only reads, and with nothing in a repository's own configuration that could run a program.

A repository may come from anybody, and its configuration names programs: pagers, diff drivers, text converters,
filters, file system monitors, signature checkers, hooks, transports (https://git-scm.com/docs/git-config; for the
danger see https://git-scm.com/docs/git#_security). All are switched off here, by an option or by a value that takes
precedence. Submodules are not entered, since each has a configuration of its own. Nothing is fetched.

Nothing is run here either: this module says what to run.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path

from backstory.agent.toolbox.commands import refused
from backstory.agent.toolbox.confine import closed_to_tools, outside
from backstory.errors import ToolError

_SAFE = (
    "--no-pager",
    "--no-optional-locks",
    "--no-replace-objects",
)
_CONFIG = {
    "core.fsmonitor": "false",
    "core.hooksPath": "/dev/null",
    "core.pager": "cat",
    "core.attributesFile": "/dev/null",
    "core.excludesFile": "/dev/null",
    "core.quotePath": "false",
    "color.ui": "false",
    "diff.external": "",
    "diff.submodule": "short",
    "diff.orderFile": "/dev/null",
    "gpg.program": "false",
    "gpg.openpgp.program": "false",
    "gpg.ssh.program": "false",
    "gpg.x509.program": "false",
    "log.showSignature": "false",
    "mailmap.file": "/dev/null",
    "protocol.allow": "never",
    "status.submoduleSummary": "false",
    "submodule.recurse": "false",
}
ENVIRONMENT = {
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": "/dev/null",
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_ALLOW_PROTOCOL": "none",
    "GIT_ASKPASS": "false",
    "GIT_SSH_COMMAND": "false",
}
RUNS_PROGRAMS = r"^(filter\..*\.(clean|smudge|process)|diff\..*\.(textconv|command)|merge\..*\.driver)$"
"""Settings with a name of the repository's own in them: they are asked for first, then emptied one by one."""

_DIFF = (
    "-p -u --patch --stat --numstat --shortstat --name-only --name-status --summary -w -b --ignore-all-space "
    "--ignore-space-change --ignore-blank-lines --word-diff --minimal --patience --histogram -M -C --no-renames "
    "--no-color --color=never --no-patch -s --raw --full-index --abbrev"
)
_LOG = (
    "--oneline --graph --decorate --no-decorate --all --branches --tags --merges --no-merges --first-parent --reverse "
    "--follow --abbrev-commit --date-order --topo-order -i --regexp-ignore-case -E --extended-regexp -F "
    "--fixed-strings --invert-grep --all-match --no-notes --pickaxe-regex --pickaxe-all"
)
_LOG_VALUED = (
    "--max-count --skip --since --after --until --before --author --committer --grep --format --pretty --date "
    "--diff-filter -n -S -G -U --unified"
)


def _set(words: str) -> frozenset[str]:
    return frozenset(words.split())


# Subcommand -> its options without and with a value.
_COMMANDS: dict[str, tuple[frozenset[str], frozenset[str]]] = {
    "status": (
        _set("-s --short -sb -b --branch --porcelain --long -uno -unormal -uall --ignored"),
        frozenset(),
    ),
    "log": (_set(f"{_LOG} {_DIFF}"), _set(_LOG_VALUED)),
    "show": (
        _set(f"{_DIFF} --oneline --no-notes --abbrev-commit"),
        _set("--format --pretty --date -U --unified --diff-filter"),
    ),
    "diff": (
        _set(f"{_DIFF} --cached --staged --merge-base --exit-code"),
        _set("-U --unified --diff-filter -S -G"),
    ),
    "ls-files": (
        _set("-c --cached -m --modified -o --others -d --deleted --exclude-standard -t -s --stage"),
        frozenset(),
    ),
    "branch": (
        _set("-a --all -r --remotes -v -vv --verbose -l --list --show-current --no-color"),
        frozenset(),
    ),
    "rev-parse": (_set("--short --abbrev-ref --show-toplevel --verify --symbolic-full-name"), frozenset()),
}
_DIFFS = frozenset({"log", "show", "diff"})
_NO_PATHS = frozenset({"branch", "rev-parse"})
_NO_REVISIONS = frozenset({"status", "ls-files", "branch"})  # a word after `branch` would make one

# A revision, range or REVISION:PATH (https://git-scm.com/docs/gitrevisions). It never begins like an option or a path.
_REVISION = re.compile(r"[\w@^][\w./@{}^~:+=, -]*|:/?[\w./ -]+")
_MAX_COUNT = "--max-count=200"


def git_arguments(
    words: Sequence[str],
    *,
    locate: Callable[[str], str],
    exists: Callable[[str], bool],
    is_closed: Callable[[Sequence[str]], bool],
    closed: Sequence[str],
    root: Path,
    emptied: Sequence[str] = (),
) -> list[str]:
    """The arguments for `git`. `locate` confines a path, `exists` says whether a word is one.

    `closed` are the patterns of what tools do not see, `is_closed` judges the steps of a path by them. `emptied`
    are settings to be emptied, see `RUNS_PROGRAMS`. Raises `ToolError` for whatever is not in the table.
    """
    if not words:
        raise ToolError(f"git needs a command: {', '.join(_COMMANDS)}")
    name, *rest = words
    if name not in _COMMANDS:
        raise ToolError(f"git {name} is not allowed here; there are: {', '.join(_COMMANDS)}")
    options, revisions, paths = _taken_apart(name, rest, exists)
    if revisions and name in _NO_REVISIONS:
        raise ToolError(f"git {name} {revisions[0]} is not allowed here, or there is no such file")
    specs = [_pathspec(path, locate) for path in paths]
    for revision in revisions:
        _check_revision(revision, is_closed)
    if name in _DIFFS:
        options += ["--no-ext-diff", "--no-textconv", "--ignore-submodules=all"]
    elif name == "status":
        options.append("--ignore-submodules=all")
    if name == "log" and not any(re.match(r"-\d|-n|--max-count", option) for option in options):
        options.append(_MAX_COUNT)
    plain = name == "show" and any(
        ":" in revision for revision in revisions
    )  # a file's content: no paths go with it
    if name in _NO_PATHS or plain:
        if specs:
            raise ToolError(f"git {name} takes no path here")
        tail = ["--"] if plain else []
    else:
        tail = ["--", *(specs or ["."] if closed else specs), *_excluded(closed)]
    return [*git_prefix(root, emptied), name, *options, *revisions, *tail]


def git_prefix(root: Path, emptied: Sequence[str] = ()) -> list[str]:
    """What stands before the subcommand: this repository and no other, and nothing of its configuration that runs.

    Raises `ToolError` for a setting that cannot be emptied: `-c` takes what precedes the first = for the name.
    """
    if any("=" in key for key in emptied):
        raise ToolError("this repository's configuration names programs in a way that cannot be switched off")
    settings = {**_CONFIG, **dict.fromkeys(emptied, "")}
    settings |= {f"{key.rsplit('.', 1)[0]}.required": "false" for key in emptied if key.startswith("filter.")}
    return [
        *_SAFE,
        f"--git-dir={root / '.git'}",
        f"--work-tree={root}",
        *(word for key, value in settings.items() for word in ("-c", f"{key}={value}")),
    ]


def _taken_apart(
    name: str, rest: Sequence[str], exists: Callable[[str], bool]
) -> tuple[list[str], list[str], list[str]]:
    """Options, revisions and paths; without a ``--`` a word is a path where there is one of that name."""
    bare, valued = _COMMANDS[name]
    options: list[str] = []
    revisions: list[str] = []
    paths: list[str] = []
    words = list(rest)
    while words:
        word = words.pop(0)
        if word == "--":
            paths += words
            break
        if not word.startswith("-") or word == "-":
            (paths if exists(word) else revisions).append(word)
            continue
        option, equals, _ = word.partition("=")
        short = word[:2]
        if word in bare or (option in valued and equals and option.startswith("--")):
            options.append(word)
        elif word in valued and words:
            options.append(f"{word}={words.pop(0)}" if word.startswith("--") else word + words.pop(0))
        elif (short in valued and len(word) > 2) or (name == "log" and re.fullmatch(r"-\d{1,6}", word)):
            options.append(word)
        else:
            raise refused(f"git {name}", option)
    return options, revisions, paths


def _check_revision(word: str, is_closed: Callable[[Sequence[str]], bool]) -> None:
    """Also a path within a revision must stay inside and open, by its name: it need not be there today.

    A path may hold a colon, and so may what stands before it: whatever could be the path is checked.
    """
    if not _REVISION.fullmatch(word):
        raise ToolError(f"{word!r} is no revision, and there is no such file")
    for colon in re.finditer(":", word):
        steps = [step for step in word[colon.end() :].split("/") if step not in ("", ".")]
        if ".." in steps:
            raise outside(word)
        if is_closed(steps):
            raise closed_to_tools(word)


def _pathspec(path: str, locate: Callable[[str], str]) -> str:
    if path.startswith(":"):
        raise ToolError(f"{path!r}: paths with magic words are not allowed here")
    pattern = any(char in path for char in "*?[") and not path.startswith("/") and ".." not in path.split("/")
    return path if pattern else locate(path)


def _excluded(closed: Sequence[str]) -> list[str]:
    return [
        f":(exclude,icase,glob){pattern.strip('/') if pattern.startswith('/') else '**/' + pattern}{tail}"
        for pattern in closed
        for tail in ("", "/**")
    ]
