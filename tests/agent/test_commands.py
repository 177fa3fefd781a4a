"""What the terminal accepts: pure parsing, and above all what it refuses."""

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.toolbox.commands import RULES, parse, split
from backstory.agent.toolbox.find_command import find_arguments
from backstory.agent.toolbox.git_command import git_arguments
from backstory.errors import ToolError


@pytest.mark.parametrize(
    "command",
    [
        "cat a; rm b", "cat a;rm b", "cat a && rm b", "cat a || rm b", "cat a | sh", "cat a & rm b", "cat a > b",
        "cat a >> b", "cat < a", "cat `which sh`", "cat $(id)", 'cat "$(id)"', 'cat "`id`"', "cat a\nrm b",
        "cat a\r\nrm b", "cat ${HOME}", "cat <(ls)", "ls 2>/dev/null", "(ls)>x", "cat 'a' ; 'b'", 'cat "a"|"b"',
        "cat a\0b", "cat \\'; rm x",
    ],
)  # fmt: skip
def test_what_needs_a_shell_is_refused(command: str):
    with pytest.raises(ToolError, match="needs a shell"):
        split(command)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("ls -la  src", ["ls", "-la", "src"]),
        ("grep 'a;b|c' x", ["grep", "a;b|c", "x"]),
        ('grep "a > b" x', ["grep", "a > b", "x"]),
        ("grep '$(x)`y`' z", ["grep", "$(x)`y`", "z"]),
        (r"grep \; x", ["grep", ";", "x"]),
        (r"find . \( -name a \)", ["find", ".", "(", "-name", "a", ")"]),
        ("cat 'my file' 读我.md", ["cat", "my file", "读我.md"]),
        ('grep "\\$(x)" y', ["grep", "\\$(x)", "y"]),
        ("  ls \n", ["ls"]),
    ],
)
def test_what_needs_none_is_split(command: str, words: list[str]):
    assert split(command) == words


@pytest.mark.parametrize("command", ["", "   ", "cat 'a", 'cat "a', "cat a\\", "x" * 5_000])
def test_what_cannot_be_read(command: str):
    with pytest.raises(ToolError):
        split(command)


@given(st.text(alphabet="abc '\"\\;|&$()`<>\n{}", max_size=20))
def test_splitting_never_fails_otherwise(command: str):
    try:
        assert split(command)
    except ToolError:
        return


@pytest.mark.parametrize(
    ("program", "words", "options", "paths"),
    [
        ("ls", "-la src", ["-la"], ["src"]),
        ("ls", "--all -- -x", ["--all"], ["-x"]),
        ("head", "-20 a", ["-20"], ["a"]),
        ("head", "-n 5 a b", ["-n5"], ["a", "b"]),
        ("head", "-qn5 a", ["-qn5"], ["a"]),
        ("head", "--lines 5 a", ["--lines=5"], ["a"]),
        ("tail", "-n +5 a", ["-n+5"], ["a"]),
        ("cut", "-d , -f1 a", ["-d,", "-f1"], ["a"]),
        ("sort", "-k2 -rn a", ["-k2", "-rn"], ["a"]),
    ],
)
def test_options(program: str, words: str, options: list[str], paths: list[str]):
    parsed = parse(program, words.split())
    assert (parsed.options, parsed.paths) == (options, paths)


def test_the_pattern_of_grep():
    assert parse("grep", ["-rn", "x", "a"]).words == ["x"]
    parsed = parse("grep", ["-e", "x", "-e", "y", "a"])
    assert (parsed.options, parsed.words, parsed.paths) == (["-ex", "-ey"], [], ["a"])
    parsed = parse("grep", ["-A", "3", "-ine-x", "--", "a"])
    assert (parsed.options, parsed.paths) == (["-A3", "-ine-x"], ["a"])
    with pytest.raises(ToolError, match="pattern"):
        parse("grep", ["-r"])


@pytest.mark.parametrize(
    "command",
    [
        "sort -o out a", "sort -oout a", "sort -uo out a", "sort --output=out a", "sort --output out a",
        "sort --outp=x a", "sort --compress-program=sh a", "sort -T /tmp a", "sort --files0-from=x",
        "sort -S 90% a", "uniq a b", "tail -f a", "tail -F a", "tail --follow a", "tail --pid=1 a",
        "wc --files0-from=x", "grep -f patterns a", "grep --file=x a b", "grep -d recurse x a",
        "grep --devices=read x a", "grep --dereference-recursive x", "ls -R", "ls --recursive", "ls -L",
        "ls --dereference", "ls --hyperlink", "du -a", "du -L", "du --files0-from=x", "du -X f", "diff -r a b",
        "diff --from-file=a b", "diff a", "diff a b c", "diff --to-file=x a", "stat --printf=x a", "stat -L a",
        "stat -f a", "cat", "head", "cat --unknown a", "cat -x a", "head -n", "head --lines", "cat --number=3 a",
        "cut -f1", "pwd x", "nl -x a", "cat -9 a",
    ],
)  # fmt: skip
def test_options_that_do_more_than_read_are_refused(command: str):
    program, *words = command.split()
    with pytest.raises(ToolError):
        parse(program, words)


def test_no_rule_takes_an_option_that_is_known_to_be_dangerous():
    bad = {
        "sort": "oTS", "tail": "fF", "ls": "RLH", "du": "aLDX", "grep": "fdD", "diff": "r", "stat": "Lf",
    }  # fmt: skip
    for program, letters in bad.items():
        assert not set(letters) & set(RULES[program].flags + RULES[program].valued)
    words = {word for rule in RULES.values() for word in rule.long | rule.long_valued}
    telling = ("file", "output", "follow", "exec", "program", "deref", "temporary")
    assert {word for word in words if any(part in word for part in telling)} == {
        "files-with-matches", "files-without-match", "with-filename", "no-filename", "binary-files", "output-delimiter",
    }  # fmt: skip


# --- find ----------------------------------------------------------------------------------


def located(path: str) -> str:
    if path.startswith(("/", "..")) or "out" in path:
        raise ToolError("outside")
    return path if path == "." else f"./{path}"


def find(*words: str, closed: tuple[str, ...] = ()) -> list[str]:
    return find_arguments(words, located, closed)


def test_find():
    assert find() == [".", "-print"]
    assert find("src", "docs", "-name", "*.py") == ["./src", "./docs", "(", "-name", "*.py", ")", "-print"]
    assert find(".", "-type", "f", "-maxdepth", "2") == [
        ".",
        "-maxdepth",
        "2",
        "(",
        "-type",
        "f",
        ")",
        "-print",
    ]
    assert find("(", "-name", "a", "-o", "-name", "b", ")", "-print0")[-1] == ")"
    assert find(".", "-newer", "a") == [".", "(", "-newer", "./a", ")", "-print"]
    assert find(closed=("/sessions", ".env")) == [
        ".", "(", "-ipath", "./sessions", "-o", "-iname", ".env", ")", "-prune", "-o", "-print",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        ". -exec rm {} ;", ". -exec rm {} +", ". -execdir sh", ". -ok rm", ". -okdir rm", ". -delete",
        ". -fprint x", ". -fprintf x y", ". -fls x", ". -fprint0 x", ". -files0-from x", "-L .", "-H .",
        ". -follow", ". -depth", ". -d", ". -printf %p", ". -ls", ". -name", ". -newer /etc/passwd",
        ". -newer ../x", "/etc", "..", "src ..", ". -samefile x", ". -newerXY x", "-D exec .", "-O3 .",
        ". ) -exec", ". ( -name a", ". )", ". ( ) )", ". , -delete", ". -name a foo", ". -quit", ". -mount",
        ". -fstype x", ". -anewer out", ". -lname x", ". -context x",
    ],
)  # fmt: skip
def test_find_only_looks(words: str):
    with pytest.raises(ToolError):
        find(*words.split())


tokens = st.sampled_from(
    [
        "(",
        ")",
        "!",
        "-o",
        "-a",
        "-name",
        "-exec",
        "-delete",
        "-print",
        "-prune",
        "x",
        ";",
        "-maxdepth",
        "1",
        "-newer",
        "-fls",
    ]
)


@given(st.lists(tokens, max_size=12))
def test_whatever_find_gets_is_known_and_framed(words: list[str]):
    try:
        arguments = find(*words, closed=("/sessions",))
    except ToolError:
        return
    values = {"-name", "-newer", "-maxdepth"}
    acting = [
        word
        for i, word in enumerate(arguments)
        if word in ("-exec", "-delete", "-fls") and arguments[i - 1] not in values
    ]
    assert not acting
    start = arguments.index("-prune")
    assert arguments[start - 4 : start + 2] == ["(", "-ipath", "./sessions", ")", "-prune", "-o"]


# --- git -----------------------------------------------------------------------------------

THERE = {"src", "src/a.py", "README.md"}


def git(*words: str, closed: tuple[str, ...] = (), emptied: tuple[str, ...] = ()) -> list[str]:
    def is_closed(parts: Any) -> bool:
        return bool(closed) and list(parts[:1]) == ["sessions"]

    made = git_arguments(
        words,
        locate=located,
        exists=lambda path: path in THERE or "*" in path,
        is_closed=is_closed,
        closed=closed,
        root=Path("/w"),
        emptied=emptied,
    )
    return made[made.index(words[0]) :]


def test_git():
    assert git("status", "-sb") == ["status", "-sb", "--ignore-submodules=all", "--"]
    safe = ["--no-ext-diff", "--no-textconv", "--ignore-submodules=all"]
    assert git("log") == ["log", *safe, "--max-count=200", "--"]
    assert git("log", "-5", "--oneline", "main..dev", "src") == [
        "log",
        "-5",
        "--oneline",
        *safe,
        "main..dev",
        "--",
        "./src",
    ]
    assert git("log", "-n", "3", "--author", "Ann", "--", "src")[1:3] == ["-n3", "--author=Ann"]
    assert git("diff", "HEAD~2", "--stat", "*.py") == ["diff", "--stat", *safe, "HEAD~2", "--", "*.py"]
    assert git("show", "HEAD:src/a.py") == ["show", *safe, "HEAD:src/a.py", "--"]
    assert git("branch", "-a") == ["branch", "-a"]
    assert git("rev-parse", "HEAD") == ["rev-parse", "HEAD"]
    assert git("diff", closed=("/sessions", ".env"))[-6:] == [
        "--", ".", ":(exclude,icase,glob)sessions", ":(exclude,icase,glob)sessions/**",
        ":(exclude,icase,glob)**/.env", ":(exclude,icase,glob)**/.env/**",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "words",
    [
        "push", "commit", "checkout x", "config -l", "-c core.pager=sh log", "--git-dir=/x log",
        "--exec-path=x log", "grep x", "blame src/a.py", "archive HEAD", "fetch", "clone x", "difftool",
        "log --output=x", "log --output x", "diff --output=x", "diff --outpu=x", "log -Ofile",
        "diff --no-index /etc/passwd x", "diff --ext-diff", "log -p --textconv", "show --show-signature",
        "log --show-signature", "branch new", "branch -d main", "branch -D main", "branch -m x",
        "branch --edit-description", "branch --list x", "status foo", "ls-files foo",
        "diff /etc/passwd /etc/group", "diff ../x", "show HEAD:../../etc/passwd", "show HEAD:./../x",
        "log -- ../x", "log -- /etc", "log -- :(top)x", "log -- :/x", "log --follow=x", "show --remerge-diff",
        "log -L 1,5:/etc/passwd", "log -m", "diff -h", "log -", "show --ext-diff", "log --help", "log -5x",
        "status --ignore-submodules=none", "show --submodule=diff", "rev-parse --git-dir",
        "rev-parse HEAD src/a.py", "diff --cached=x", "log --grep", "x", "show ;id", "log $(id)", "log --stdin",
        "rev-parse --parseopt", "show -O/etc/passwd", "diff --exit-code=1",
    ],
)  # fmt: skip
def test_git_only_reads(words: str):
    with pytest.raises(ToolError):
        git(*words.split())


@pytest.mark.parametrize(
    "revision",
    [
        "HEAD:sessions", "HEAD:sessions/a", "HEAD:./sessions/a", "HEAD:sessions/a:b", ":sessions/a",
        "HEAD^{/a:b}:sessions/a", "main@{1}:sessions/x", "HEAD:.//sessions/a",
    ],
)  # fmt: skip
def test_what_is_closed_is_closed_in_every_revision(revision: str):
    with pytest.raises(ToolError):
        git("show", revision, closed=("/sessions",))
    assert git("show", "HEAD:src/sessions.py", closed=("/sessions",))


def test_settings_that_run_programs_are_emptied():
    made = git_arguments(
        ["diff"],
        locate=located,
        exists=lambda _: False,
        is_closed=lambda _: False,
        closed=(),
        root=Path("/w"),
        emptied=["filter.a.b.clean", "diff.x.textconv"],
    )
    settings = {made[i + 1] for i, word in enumerate(made) if word == "-c"}
    assert {
        "filter.a.b.clean=",
        "filter.a.b.required=false",
        "diff.x.textconv=",
        "core.fsmonitor=false",
    } <= settings
    with pytest.raises(ToolError, match="cannot be switched off"):
        git("diff", emptied=("filter.a=b.clean",))
    with pytest.raises(ToolError, match="needs a command"):
        git_arguments([], locate=located, exists=bool, is_closed=bool, closed=(), root=Path("/w"))
