"""The terminal at work: real programs in a real workspace, and every way out of it tried."""

import asyncio
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from backstory.agent.toolbox import terminal
from backstory.agent.toolbox.terminal import MAX_OUTPUT, run
from backstory.agent.toolbox.workspace import Workspace
from backstory.errors import ToolError
from tests.agent.conftest import SECRET, Ask, asking

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="the programs are those of POSIX systems")

needs_git = pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")


@pytest.fixture
def ask(space: Workspace) -> Ask:
    return asking([terminal(space)])


def git(root: Path, *words: str) -> None:
    """Plain git, which trusts the repository."""
    identity = ["-c", "user.name=Ann", "-c", "user.email=ann@example.org", "-c", "init.defaultBranch=main"]
    subprocess.run(["git", *identity, *words], cwd=root, check=True, capture_output=True)


@pytest.fixture
def repository(root: Path) -> Path:
    git(root, "init", "-q")
    git(root, "add", "-f", ".")
    git(root, "commit", "-q", "-m", "first commit")
    (root / "src" / "a.py").write_text("def f():\n    return 2\n")
    return root


def snapshot(folder: Path) -> dict[str, bytes]:
    """What lies there, without git's own book-keeping of access."""
    return {str(path): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


@pytest.mark.parametrize(
    ("command", "output"),
    [
        ("cat README.md", "# Read me\nfirst\nsecond\n"),
        ("cat docs/读我.md", "你好,世界\n"),
        ("head -n 1 README.md", "# Read me\n"),
        ("tail -1 README.md", "second\n"),
        ("cat src/*.py", "def f():\n    return 1\n"),
        ("cat s*/*/*.py", "from a import f\n"),
        ("grep -n return src/a.py", "2:    return 1\n"),
        ("grep -rn return src", "./src/a.py:2:    return 1\n"),
        ("grep -R --include=*.md -l first .", "./README.md\n"),
        ("grep -rh import", "from a import f\n"),
        ("grep nothing README.md", "[Nothing found.]"),
        ("grep -c -e first -e second README.md", "2\n"),
        ("find . -name '*.py' -type f -maxdepth 2", "./src/a.py\n"),
        ("find src -name b.py", "./src/deep/b.py\n"),
        ("cut -c 1-5 README.md", "# Rea\nfirst\nsecon\n"),
        ("sort -r README.md", "second\nfirst\n# Read me\n"),
        ("uniq -c docs/读我.md", "      1 你好,世界\n"),
        ("diff README.md README.md", "[It printed nothing.]"),
        ("stat -c %s README.md", "23\n"),
        ("ls src", "a.py\ndeep\n"),
        ("ls -d src/deep", "./src/deep\n"),
    ],
)
async def test_what_it_does(ask: Ask, command: str, output: str):
    assert await ask("terminal", command=command) == output


async def test_where_it_is(ask: Ask, root: Path):
    assert await ask("terminal", command="pwd") == str(root)
    assert (await ask("terminal", command=f"cat {root}/README.md")).startswith("# Read me")
    assert "./docs" not in await ask("terminal", command="du")
    assert (await ask("terminal", command="wc -l README.md src/a.py")).splitlines()[-1].split() == [
        "5",
        "total",
    ]
    assert "second" in await ask("terminal", command="diff README.md src/a.py")


@pytest.mark.parametrize(
    ("command", "words"),
    [
        ("rm README.md", "'rm' is not allowed here; there are: cat, cut"),
        ("sh -c ls", "'sh' is not allowed"),
        ("python -c 1", "is not allowed"),
        ("/bin/cat README.md", "is not allowed"),
        ("./cat README.md", "is not allowed"),
        ("env cat x", "is not allowed"),
        ("cat nothing", "there is no 'nothing'"),
        ("cat src", "is a folder; cat takes files"),
        ("cat *.rs", "nothing matches '*.rs'"),
        ("cat -", "there is no '-'"),
        ("grep x", "grep needs a path"),
        ("grep x src", "use grep -r"),
        ("grep -P '(' README.md", "grep failed (2)"),
        ("find . -regex '['", "find failed"),
        ("head -n x README.md", "head failed (1)"),
        ("ls | wc", "needs a shell"),
    ],
)
async def test_what_it_says_when_it_does_not(ask: Ask, command: str, words: str):
    text = await ask("terminal", command=command)
    assert text.startswith("Error: ")
    assert words in text
    assert len(text) < 500


@pytest.mark.parametrize(
    "command",
    [
        "cat ../space-not/secret.txt", "cat {outside}/secret.txt", "cat out/secret.txt", "cat out-file",
        "cat ou*/secret.txt", "cat out/*", "cat ../*/secret.txt", "cat */../../space-not/secret.txt",
        "head -n1 out-file", "ls out", "ls ..", "ls /", "grep -r secret ..", "grep -r . out",
        "grep secret out-file", "grep -R secret .", "find .. -type f", "find out", "find /etc",
        "find . -newer ../space-not/secret.txt", "diff README.md out-file", "diff . ..", "wc out-file",
        "stat ../space-not", "cat -- ../space-not/secret.txt", "cat sessions/cli=direct.jsonl", "cat .env",
        "cat src/.env", "cat .e*", "cat s*/*.jsonl", "cat SESSIONS/cli=direct.jsonl", "grep -r secret",
        "grep -r KEY", "ls sessions", "find sessions", "find . -name '*.jsonl'", "find . -name .env -print",
        "du -s sessions", "diff . src", "git log -- ../space-not", "git diff --no-index README.md out-file",
        "git diff ../space-not/secret.txt README.md", "git show HEAD:sessions/cli=direct.jsonl",
        "git log -p -- sessions", "git log -p -S secret", "git show", "git ls-files sessions", "git log -p --all",
        "git diff HEAD", "git show HEAD:.env", "cat /dev/stdin", "cat /proc/self/environ", "cat pipe",
    ],
)  # fmt: skip
@needs_git
async def test_nothing_outside_and_nothing_closed_is_ever_shown(
    ask: Ask, repository: Path, outside: Path, command: str
):
    (repository / "out").symlink_to(outside)
    (repository / "out-file").symlink_to(outside / "secret.txt")
    os.mkfifo(repository / "pipe")
    (repository / "sessions" / "cli=direct.jsonl").write_text("secret changed")
    text = await ask("terminal", command=command.replace("{outside}", str(outside)))
    body = "\n".join(line for line in text.splitlines() if not line.startswith("Error: "))
    for leak in (SECRET, "somebody else", "KEY=", "root:", "jsonl", "secret changed", "secret.txt"):
        assert leak not in body


@pytest.mark.parametrize(
    "command",
    [
        "sort -o stolen README.md", "sort --output=stolen README.md", "uniq README.md stolen",
        "find . -fprint stolen", "find . -delete", "find . -exec touch stolen ;", "git log --output=stolen",
        "git diff --output=stolen", "cat README.md > stolen", "cat README.md; touch stolen",
        "cat $(touch stolen)", "cat `touch stolen`", "git branch stolen", "git -c core.pager=touch log",
        "git -c alias.log=!touch log", "git commit -am x", "git checkout .", "git stash", "git gc",
        "git tag stolen", "touch stolen", "cat 'README.md; touch stolen'", "ls --color=always; touch stolen",
        "grep -e x -f /etc/passwd .",
    ],
)  # fmt: skip
@needs_git
async def test_nothing_is_ever_changed(ask: Ask, repository: Path, command: str):
    before = snapshot(repository)
    await ask("terminal", command=command)
    assert snapshot(repository) == before


# --- git -----------------------------------------------------------------------------------


@needs_git
async def test_git_reads(ask: Ask, repository: Path):
    assert "first commit" in await ask("terminal", command="git log --oneline")
    assert "modified:   src/a.py" in await ask("terminal", command="git status")
    diff = await ask("terminal", command="git diff")
    assert "-    return 1\n+    return 2" in diff
    assert await ask("terminal", command="git show HEAD:src/a.py") == "def f():\n    return 1\n"
    assert "docs/读我.md" in await ask("terminal", command="git ls-files")
    assert "main" in await ask("terminal", command="git branch -a")
    assert len((await ask("terminal", command="git rev-parse HEAD")).strip()) == 40
    assert await ask("terminal", command="git log -1 --format=%an src") == "Ann\n"
    assert "failed (128)" in await ask("terminal", command="git show nothing")


@needs_git
async def test_git_only_of_this_workspace(ask: Ask, root: Path, tmp_path: Path):
    git(tmp_path, "init", "-q")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "the repository around it")
    words = "not the root of a git repository"
    assert words in await ask("terminal", command="git log")
    (root / ".git").write_text(f"gitdir: {tmp_path}/.git\n")
    assert words in await ask("terminal", command="git log")
    (root / ".git").unlink()
    (root / ".git").symlink_to(tmp_path / ".git")
    assert words in await ask("terminal", command="git log")


@needs_git
async def test_a_repositorys_own_programs_never_run(ask: Ask, repository: Path):
    """A configuration as a hostile repository would bring it: each setting would leave a mark if it ran."""
    mark = repository.parent / "mark"
    script = repository / "run.sh"
    script.write_text(f"#!/bin/sh\ntouch {mark}\ncat\n")
    script.chmod(0o755)
    for key in (
        "core.pager", "core.fsmonitor", "core.sshCommand", "core.editor", "diff.external", "diff.evil.command",
        "diff.evil.textconv", "filter.evil.clean", "filter.evil.smudge", "filter.evil.process", "gpg.program",
        "gpg.ssh.program", "alias.log", "alias.status", "merge.evil.driver", "interactive.diffFilter", "pager.log",
        "credential.helper", "core.askPass",
    ):  # fmt: skip
        git(repository, "config", key, str(script))
    git(repository, "config", "filter.evil.required", "true")
    git(repository, "config", "log.showSignature", "true")
    git(repository, "config", "core.hooksPath", str(repository / "hooks"))
    git(repository, "config", "core.worktree", "/etc")
    (repository / "hooks").mkdir()
    shutil.copy(script, repository / "hooks" / "post-index-change")
    (repository / ".gitattributes").write_text("* diff=evil filter=evil merge=evil\n")
    os.utime(repository / "README.md", (1, 1))  # its content must be looked at again
    for command in (
        "git status", "git diff", "git log -p", "git log --format=%G?", "git show", "git diff HEAD", "git ls-files -m",
        "git log", "git diff --stat", "git show HEAD:src/a.py", "git branch -vv",
    ):  # fmt: skip
        text = await ask("terminal", command=command)
        assert "passwd" not in text, command
        assert not mark.exists(), command
    assert "+    return 2" in await ask("terminal", command="git diff")
    git(repository, "diff")
    assert mark.exists(), "the settings are harmless here, so nothing was tested"
    git(repository, "config", "--add", "filter.a=b.clean", str(script))
    assert "cannot be switched off" in await ask("terminal", command="git diff")


@needs_git
async def test_submodules_are_not_entered(ask: Ask, repository: Path):
    mark = repository.parent / "mark"
    inner = repository / "inner"
    inner.mkdir()
    git(inner, "init", "-q")
    (inner / "x").write_text("x")
    git(inner, "add", ".")
    git(inner, "commit", "-q", "-m", "inner")
    git(repository, "add", "inner")
    git(inner, "config", "core.fsmonitor", f"touch {mark}; false")
    (inner / "x").write_text("y")
    for command in ("git status", "git diff", "git log -p"):
        await ask("terminal", command=command)
    assert not mark.exists()


# --- the program ---------------------------------------------------------------------------


async def test_no_secret_of_ours_is_in_its_environment(root: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("OPENAI_API_KEY", "GIT_DIR", "LD_PRELOAD", "PAGER"):
        monkeypatch.setenv(name, "x")
    ended = await run(["/usr/bin/env"], cwd=root, environment={"MORE": "1"}, seconds=10)
    names = {line.partition("=")[0] for line in ended.output.splitlines()}
    assert (
        {"PATH", "LC_ALL", "HOME", "MORE"}
        <= names
        <= {"PATH", "LC_ALL", "HOME", "MORE", "TZ", "PWD", "SHLVL", "_"}
    )


async def test_a_program_in_the_workspace_is_not_taken(ask: Ask, root: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "cat").write_text("#!/bin/sh\necho mine\n")
    (root / "cat").chmod(0o755)
    monkeypatch.setenv("PATH", str(root))
    assert "cat is not installed" in await ask("terminal", command="cat README.md")


async def test_time_is_limited_and_the_program_gone(root: Path):
    with pytest.raises(ToolError, match=r"took longer than 0\.2 s"):
        await run(["/bin/sh", "-c", "sleep 60 & echo $! > pid; wait"], cwd=root, environment={}, seconds=0.2)
    await gone(int((root / "pid").read_text()))


async def test_cancelled_the_program_is_gone(root: Path):
    task = asyncio.create_task(
        run(["/bin/sh", "-c", "echo $$ > pid; sleep 60"], cwd=root, environment={}, seconds=60)
    )
    while not (root / "pid").exists() or not (root / "pid").read_text().strip():  # noqa: ASYNC110
        await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await gone(int((root / "pid").read_text()))


async def gone(pid: int) -> None:
    for _ in range(2_000):
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        if is_zombie(pid):
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"process {pid} runs on")


def is_zombie(pid: int) -> bool:
    """Dead, and not yet collected by whoever inherited it."""
    stat = Path(f"/proc/{pid}/stat")
    return stat.exists() and stat.read_text().rpartition(")")[2].split()[0] == "Z"


async def test_output_is_limited(ask: Ask, root: Path):
    (root / "big").write_text("x" * 99 + "\n" + ("y" * 99 + "\n") * 20_000)
    text = await ask("terminal", command="cat big")
    assert text.endswith("narrow the command.]")
    assert MAX_OUTPUT < len(text) < MAX_OUTPUT + 200


async def test_output_that_is_no_text(ask: Ask, root: Path):
    (root / "raw").write_bytes(b"\xff\x00\xfe")
    assert await ask("terminal", command="cat raw") == "\ufffd\n\ufffd"


async def test_too_many_files(ask: Ask, root: Path):
    (root / "many").mkdir()
    for number in range(2_100):
        (root / "many" / f"{number:05}").write_text("")
    assert "more than 2000 files" in await ask("terminal", command="grep -r x many")
    assert "too many files" in await ask("terminal", command="cat many/*")


async def test_a_pattern_that_never_ends_is_ended(space: Workspace, root: Path):
    (root / "evil").write_text("a" * 60 + "\n")
    ask = asking([terminal(space, seconds=0.5)])
    text = await ask("terminal", command=r"grep -E '(a|aa|aaa)*(a|aa)*(a|a?)*(.*)\1\2\3\4b' evil")
    assert "longer than" in text or "Nothing found" in text


async def test_a_program_that_cannot_start(root: Path):
    with pytest.raises(ToolError, match="cannot be run"):
        await run([str(root / "README.md")], cwd=root, environment={}, seconds=1)
