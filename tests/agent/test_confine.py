"""No way out of the workspace: paths, links, races; and what is closed in it."""

import os
import socket
import threading
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from backstory.agent.toolbox import confine
from backstory.agent.toolbox.workspace import Workspace, printable
from backstory.errors import ConfigurationError, ToolError
from tests.agent.conftest import SECRET

WAYS = [
    "../space-not/secret.txt",
    "src/../../space-not/secret.txt",
    "src/deep/../../../space-not/secret.txt",
    "./../space-not/secret.txt",
    "..//space-not/secret.txt",
    "/etc/passwd",
    "//etc/passwd",
    "{outside}/secret.txt",
    "{root}/../space-not/secret.txt",
    "{root}-not/secret.txt",
    "..",
    "../",
    "src/a.py\0",
    "\0",
    "README.md\0/../../space-not/secret.txt",
    "x" * 5_000,
    "a/" * 300 + "b",
    "link/secret.txt",
    "link",
    "file-link",
    "up/../space-not/secret.txt",
    "up/space-not/secret.txt",
    "chain/secret.txt",
    "src/out/secret.txt",
    "loop",
    "loop/x",
    "relative",
    "~/secret.txt",
    "file:///etc/passwd",
    "lone \ud800",
]


@pytest.fixture(params=["openat", "resolve"])
def guarded(
    request: pytest.FixtureRequest, root: Path, outside: Path, monkeypatch: pytest.MonkeyPatch
) -> Workspace:
    """The workspace with every kind of bad link, confined in both ways."""
    if request.param == "resolve":
        monkeypatch.setattr(confine, "OPENAT", False)
    elif not confine.OPENAT:
        pytest.skip("this system has no openat")
    (root / "link").symlink_to(outside)
    (root / "file-link").symlink_to(outside / "secret.txt")
    (root / "relative").symlink_to("../space-not/secret.txt")
    (root / "up").symlink_to("..")
    (root / "chain").symlink_to("link")
    (root / "src" / "out").symlink_to("../../space-not")
    (root / "loop").symlink_to("loop")
    return Workspace(root)


@pytest.mark.parametrize("way", WAYS, ids=range(len(WAYS)))
def test_there_is_no_way_out(guarded: Workspace, root: Path, outside: Path, way: str):
    path = way.replace("{outside}", str(outside)).replace("{root}", str(root))
    with pytest.raises(ToolError) as caught, guarded.open_file(path) as file:
        pytest.fail(f"opened {file.read()!r}")
    assert SECRET not in str(caught.value)
    assert len(str(caught.value)) < 400
    for use in (guarded.look, guarded.entries, lambda path: list(guarded.walk(path))):
        with pytest.raises(ToolError):
            use(path)
    for new in (path, f"{path}/new"):  # a link may be replaced; through it nothing is written
        with suppress(ToolError):
            guarded.write_file(new, b"overwritten")
    assert (outside / "secret.txt").read_text() == SECRET
    assert os.listdir(outside) == ["secret.txt"]


def test_what_is_inside_opens(guarded: Workspace, root: Path):
    (root / "inner").symlink_to("src/deep")
    (root / "src" / "up").symlink_to("../README.md")
    (root / "absolute").symlink_to(root / "docs")
    for path, name in {
        "README.md": "README.md",
        "./src//a.py": "src/a.py",
        "src/../README.md": "README.md",
        f"{root}/docs/读我.md": "docs/读我.md",
        "inner/b.py": "src/deep/b.py",
        "inner/../a.py": "src/a.py",
        "src/up": "README.md",
        "absolute/读我.md": "docs/读我.md",
    }.items():
        with guarded.open_file(path) as file:
            assert file.read() == (root / name).read_bytes()
        assert guarded.look(path) == ("file", name)
    for path in ("", ".", "./", "src/..", str(root)):
        assert guarded.look(path) == ("folder", ".")


pieces = st.sampled_from(
    ["..", ".", "", "src", "deep", "a.py", "link", "up", "chain", "loop", "inner", "~", "space-not", "secret.txt",
     "/", "\0", "读我.md", "sessions", "Sessions", ".ENV", "cli=direct.jsonl"]
) | st.text(max_size=3)  # fmt: skip


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(pieces, max_size=8), st.booleans())
@example(["up", "space-not", "secret.txt"], False)
def test_whatever_opens_lies_inside_and_is_open(
    guarded: Workspace, root: Path, steps: list[str], absolute: bool
):
    path = "/".join([str(root)] * absolute + steps)
    try:
        with guarded.open_file(path) as file:
            real = (
                Path(os.readlink(f"/proc/self/fd/{file.fileno()}")) if Path("/proc/self").exists() else None
            )
            data = file.read().decode()
    except ToolError:
        return
    assert "secret" not in data
    assert real is None or real.is_relative_to(root.resolve())


@pytest.mark.skipif(not confine.OPENAT, reason="this system has no openat")
def test_swapping_a_folder_for_a_link_meanwhile_wins_nothing(root: Path, outside: Path):
    """A folder that another thread turns into a link out, and back, as fast as it can."""
    space = Workspace(root)
    (root / "swap").mkdir()
    (root / "swap" / "secret.txt").write_text("inside")
    (root / "bad").symlink_to(outside)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            for new, old in (("swap", "kept"), ("bad", "swap"), ("swap", "bad"), ("kept", "swap")):
                os.rename(root / new, root / old)

    thread = threading.Thread(target=swap)
    thread.start()
    opened = 0
    try:
        for _ in range(3_000):
            try:
                with space.open_file("swap/secret.txt") as file:
                    assert file.read() == b"inside"
                    opened += 1
            except ToolError:
                continue
    finally:
        done.set()
        thread.join()
    assert opened


@pytest.mark.parametrize(
    "path",
    ["sessions", "sessions/cli=direct.jsonl", "SESSIONS/cli=direct.jsonl", "./sessions/", "src/../sessions", ".env",
     "src/.env", ".Env", "to-sessions/cli=direct.jsonl", "to-env", ".git/config"],
)  # fmt: skip
def test_what_is_closed_stays_closed(guarded: Workspace, root: Path, path: str):
    (root / "to-sessions").symlink_to("sessions")
    (root / "to-env").symlink_to("src/.env")
    (root / ".git").mkdir()
    (root / ".git" / "config").write_text("token")
    with pytest.raises(ToolError), guarded.open_file(path):
        pass
    with suppress(ToolError):
        guarded.write_file(path, b"x")
    assert "sessions" not in {entry.path for entry in guarded.entries()}
    assert not [entry.path for entry in guarded.walk() if ".env" in entry.path or "jsonl" in entry.path]
    assert (root / "sessions" / "cli=direct.jsonl").read_text().startswith('{"secret"')
    assert (root / "src" / ".env").read_text() == (root / ".env").read_text() == "KEY=secret\n"
    assert (root / ".git" / "config").read_text() == "token"


def test_only_the_top_folder_of_a_name_with_a_slash_is_closed(root: Path):
    (root / "src" / "sessions").mkdir()
    (root / "src" / "sessions" / "view.py").write_text("x")
    assert Workspace(root).look("src/sessions/view.py")[0] == "file"
    opened = Workspace(root, closed=())
    assert opened.look(".env")[0] == "file"
    wild = Workspace(root, closed=("*.md", "/src/deep"))
    for path in ("README.md", "docs/读我.md", "src/deep", "src/deep/b.py"):
        with pytest.raises(ToolError, match="closed"):
            wild.look(path)
    assert wild.look("src/a.py")[0] == "file"


def test_only_regular_files_are_opened(guarded: Workspace, root: Path, tmp_path: Path):
    os.mkfifo(root / "pipe")
    with socket.socket(socket.AF_UNIX) as server:
        here = os.getcwd()
        os.chdir(root)  # the name of a socket is short
        try:
            server.bind("socket")
        finally:
            os.chdir(here)
        for path, words in (
            ("pipe", "no regular file"),
            ("socket", "no regular file"),
            ("src", "is a folder"),
        ):
            with pytest.raises(ToolError, match=words), guarded.open_file(path):
                pass
        assert {e.path: e.kind for e in guarded.entries()}["pipe"] == "other"


def test_errors_help(guarded: Workspace, root: Path):
    for path, words in (
        ("REDME.md", "Did you mean 'README.md'?"),
        ("src/a.p", "Did you mean 'src/a.py'?"),
        ("nothing/at/all", "list_files shows"),
        ("README.md/x", "is no folder"),
        ("x" * 300, "too long a name"),
    ):
        with pytest.raises(ToolError) as caught, guarded.open_file(path):
            pass
        assert words in str(caught.value)


def test_a_root_that_vanished_is_an_error_and_no_recursion(guarded: Workspace, root: Path):
    root.rename(root.with_name("moved"))
    for path in (".", "README.md", "a/b/c"):
        with pytest.raises(ToolError):
            guarded.entries(path)


def test_a_root_must_be_a_folder(root: Path):
    for bad in (root / "none", root / "README.md", "\0"):
        with pytest.raises(ConfigurationError):
            Workspace(bad)


def test_a_root_may_be_reached_by_a_link(root: Path, tmp_path: Path):
    (tmp_path / "alias").symlink_to(root)
    space = Workspace(tmp_path / "alias")
    assert space.look(f"{tmp_path}/alias/src/a.py") == ("file", "src/a.py")
    assert space.look(f"{root}/src/a.py") == ("file", "src/a.py")


def test_writing(guarded: Workspace, root: Path):
    guarded.write_file("new/folder/笔记.md", b"one")
    guarded.write_file("new/folder/笔记.md", b"two")
    assert (root / "new/folder/笔记.md").read_bytes() == b"two"
    assert os.listdir(root / "new/folder") == ["笔记.md"]
    (root / "target").write_text("kept")
    (root / "to-target").symlink_to("target")
    guarded.write_file("to-target", b"replaced the link")
    assert (root / "target").read_text() == "kept"
    for path in ("src", "", ".", "a/..", "README.md/x", "src/"):
        with pytest.raises(ToolError):
            guarded.write_file(path, b"x")
    assert not [name for name in os.listdir(root) if name.endswith(".tmp")]


def test_walking_follows_no_link_and_passes_noise_over(guarded: Workspace, root: Path):
    (root / "node_modules").mkdir()
    (root / "node_modules" / "x.js").write_text("")
    paths = [entry.path for entry in guarded.walk()]
    assert "src/deep/b.py" in paths
    assert "node_modules" in paths
    assert not [path for path in paths if path.startswith(("link/", "up/", "src/out/", "node_modules/"))]
    assert [entry.path for entry in guarded.walk("node_modules")] == ["node_modules/x.js"]
    assert [entry.path for entry in guarded.walk("src/a.py")] == ["src/a.py"]


def test_names_that_are_no_text_are_shown_escaped(guarded: Workspace, root: Path):
    try:
        (root / os.fsdecode(b"bad\xff\n\x1b[31m")).write_text("x")
    except OSError:
        pytest.skip("this file system takes only text for names")
    (name,) = [entry.path for entry in guarded.entries() if entry.path.startswith("bad")]
    assert printable(name) == "bad\\udcff\\n\\x1b[31m"
    assert printable("读我 a.md") == "读我 a.md"


def test_no_file_is_left_open(guarded: Workspace, root: Path):
    if not Path("/proc/self/fd").exists():
        pytest.skip("this system does not list open files there")
    before = len(os.listdir("/proc/self/fd"))
    for path in ("README.md", "link/secret.txt", "none", "src", "loop", "sessions"):
        for use in (guarded.look, guarded.entries):
            try:
                use(path)
            except ToolError:
                continue
    assert len(os.listdir("/proc/self/fd")) == before
