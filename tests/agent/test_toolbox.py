"""The tools that read: files of every size and encoding, folders, search, long results."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.execute import execute
from backstory.agent.tool_context import ToolContext
from backstory.agent.toolbox import files as files_module
from backstory.agent.toolbox import list_files, notes, read_file, read_result, search_files, terminal
from backstory.agent.toolbox.decoding import MAX_LINE
from backstory.agent.toolbox.globs import matcher
from backstory.agent.toolbox.workspace import Workspace
from backstory.errors import StoreDamaged, ToolError
from backstory.messages import Image, Text, ToolCall
from tests.agent.conftest import Ask, asking

PNG = b"\x89PNG\r\n\x1a\n" + b"\0" * 20


@pytest.fixture
def ask(space: Workspace) -> Ask:
    return asking([read_file(space), list_files(space), search_files(space)])


def test_what_the_model_sees_of_the_tools(space: Workspace):
    for made in (read_file(space), list_files(space), search_files(space)):
        assert made.description
        assert len(json.dumps(made.schema())) < 1_200
        assert made.parallel


def test_their_parameters_change_only_on_purpose(space: Workspace):
    """A changed schema opens a new epoch in every session: the provider's cache is lost."""
    made = [
        read_file(space),
        list_files(space),
        search_files(space),
        terminal(space),
        notes(space),
        read_result(lambda handle, context: handle),
    ]
    seen = {
        tool.name: (list(tool.parameters["properties"]), tool.parameters.get("required", [])) for tool in made
    }
    assert seen == {
        "read_file": (["path", "offset", "limit", "encoding"], ["path"]),
        "list_files": (["path", "pattern"], []),
        "search_files": (["query", "path", "pattern", "regex", "ignore_case", "limit"], ["query"]),
        "terminal": (["command"], ["command"]),
        "notes": (["action", "name", "text", "tags", "query"], ["action"]),
        "read_result": (["handle", "offset", "limit"], ["handle"]),
    }


# --- read_file -----------------------------------------------------------------------------


async def test_a_whole_file_comes_as_it_is(ask: Ask):
    assert await ask("read_file", path="README.md") == "# Read me\nfirst\nsecond\n"
    assert await ask("read_file", path="docs/读我.md") == "你好,世界\n"


async def test_pages_join_to_the_whole(ask: Ask, root: Path):
    whole = "".join(f"line {number}\r\n" for number in range(2_000))
    (root / "long.txt").write_bytes(whole.encode())
    offset, got, pages = 0, "", 0
    while True:
        text = await ask("read_file", path="long.txt", offset=offset, limit=700)
        body, note = text.rsplit("[", 1)
        got += body
        pages += 1
        if note.endswith("the end]"):
            break
        offset = int(note.split("offset=")[1].rstrip("]"))
    assert got == whole
    assert pages == 3


async def test_huge_lines_and_files_come_in_pages_too(ask: Ask, root: Path):
    (root / "one-line.json").write_text("x" * 1_000_000)
    text = await ask("read_file", path="one-line.json", offset=3)
    assert len(text) <= files_module.PAGE + 100
    assert "lines 4 to 5; go on with offset=5" in text
    with (root / "huge.log").open("wb") as file:
        file.truncate(50_000_000)  # sparse
        file.seek(0)
        file.write(b"start\n" * 30_000)
    assert (await ask("read_file", path="huge.log")).startswith("start\n")


async def test_the_end_and_beyond(ask: Ask, root: Path):
    (root / "empty").write_text("")
    assert await ask("read_file", path="empty") == "[the file is empty]"
    assert await ask("read_file", path="README.md", offset=2) == "second\n[lines 3 to 3, the end]"
    assert "has 3 lines" in await ask("read_file", path="README.md", offset=3)
    for bad in ({"offset": -1}, {"limit": 0}):
        assert "at least" in await ask("read_file", path="README.md", **bad)


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16", "utf-32", "gb18030"])
async def test_encodings(ask: Ask, root: Path, encoding: str):
    (root / "text").write_bytes("第一行\n第二行\n".encode(encoding))
    text = await ask("read_file", path="text")
    assert text.startswith("第一行\n第二行\n")
    assert ("decoded as" in text) is (encoding != "utf-8-sig")


async def test_other_encodings(ask: Ask, root: Path):
    (root / "text").write_bytes("caf\xe9 \xe0 la\n".encode("latin-1"))
    assert (await ask("read_file", path="text")).startswith("café à la\n")
    (root / "jp").write_bytes("日本".encode("shift-jis"))
    assert (await ask("read_file", path="jp", encoding="shift-jis")).startswith("日本")
    assert "no encoding 'x-y'" in await ask("read_file", path="jp", encoding="x-y")


async def test_a_sample_that_ends_within_a_character(ask: Ask, root: Path):
    (root / "text").write_text("中" * 40_000)
    assert "decoded" not in await ask("read_file", path="text")


async def test_binary_files(ask: Ask, root: Path):
    (root / "program").write_bytes(b"\x7fELF\0\0")
    assert "is a binary file" in await ask("read_file", path="program")


async def test_images(space: Workspace, root: Path, monkeypatch: pytest.MonkeyPatch):
    (root / "a.png").write_bytes(PNG)
    result = await execute(
        ToolCall(id="1", name="read_file", arguments='{"path":"a.png"}'), [read_file(space)]
    )
    text, image = result.content
    assert text == Text(text="a.png: image/png, 28 bytes")
    assert isinstance(image, Image)
    monkeypatch.setattr(files_module, "MAX_IMAGE", 10)
    ask = asking([read_file(space)])
    assert "larger than" in await ask("read_file", path="a.png")


async def test_no_permission(ask: Ask, root: Path):
    if os.geteuid() == 0:
        pytest.skip("root may read anything")
    (root / "README.md").chmod(0)
    assert "permission denied" in await ask("read_file", path="README.md")


# --- list_files ----------------------------------------------------------------------------


async def test_listing(ask: Ask, root: Path):
    (root / "node_modules").mkdir()
    (root / "link").symlink_to("/etc")
    assert (await ask("list_files")).splitlines() == [
        "README.md  23",
        "docs/",
        "link  (link)",
        "node_modules/ (not searched)",
        "src/",
    ]
    assert await ask("list_files", path="src/deep") == "src/deep/b.py  16"
    (root / "none").mkdir()
    assert await ask("list_files", path="none") == "[The folder is empty.]"
    assert "is no folder" in await ask("list_files", path="README.md")
    assert "outside" in await ask("list_files", path="link")


async def test_finding_by_pattern(ask: Ask, root: Path):
    assert await ask("list_files", pattern="*.py") == "src/a.py  22\nsrc/deep/b.py  16"
    assert await ask("list_files", path="src", pattern="deep/*.py") == "src/deep/b.py  16"
    assert await ask("list_files", pattern="src/*.py") == "src/a.py  22"
    assert await ask("list_files", pattern="读*") == "docs/读我.md  14"
    assert await ask("list_files", pattern="*.rs") == "[No file matches '*.rs'.]"
    assert "too long" in await ask("list_files", pattern="*" * 1_000)


async def test_long_listings_are_cut(ask: Ask, root: Path):
    (root / "many").mkdir()
    for number in range(510):
        (root / "many" / f"{number:03}").write_text("")
    for options in ({"path": "many"}, {"pattern": "many/*"}):
        lines = (await ask("list_files", **options)).splitlines()
        assert len(lines) == 501
        assert "and more" in lines[-1]


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("*.py", ["a.py", "x/y/a.py"], ["a.pyc", "a.py/b"]),
        ("src/*", ["src/a"], ["src/a/b", "a", "x/src/a"]),
        ("src/**/*.py", ["src/a.py", "src/x/y/a.py"], ["a.py", "lib/a.py"]),
        ("**/test_*", ["test_a", "x/test_b"], ["x/test_b/c"]),
        ("**", ["a", "a/b"], []),
        ("src/**", ["src/a", "src/a/b"], ["lib/a"]),
        ("/a.py", ["a.py"], ["x/a.py"]),
        ("./a/b", ["a/b"], ["a"]),
        ("[ab]?", ["a1", "x/b2"], ["c1", "a"]),
    ],
)
def test_patterns(pattern: str, yes: list[str], no: list[str]):
    matches = matcher(pattern)
    assert [path for path in yes if not matches(path)] == []
    assert [path for path in no if matches(path)] == []


@given(
    st.lists(st.sampled_from(["a", "b", "*", "**", "?"]), max_size=8),
    st.lists(st.sampled_from("abc"), max_size=8),
)
def test_patterns_as_by_definition(wanted: list[str], steps: list[str]):
    def plain(want: list[str], left: list[str]) -> bool:
        if not want:
            return not left
        if want[0] == "**":
            return plain(want[1:], left) or (bool(left) and plain(want, left[1:]))
        return bool(left) and want[0] in ("*", "?", left[0]) and plain(want[1:], left[1:])

    if steps:
        assert matcher("/" + "/".join(wanted))("/".join(steps)) == plain(wanted, steps)


def test_a_pattern_of_many_stars_costs_little():
    assert not matcher("/".join(["**", "*a*"] * 40))("/".join(["b" * 20] * 100))  # or never ends


# --- search_files --------------------------------------------------------------------------


async def test_searching(ask: Ask, root: Path):
    assert await ask("search_files", query="return") == "src/a.py:2:     return 1"
    assert await ask("search_files", query="RETURN") == "[Nothing found for 'RETURN'.]"
    assert await ask("search_files", query="RETURN", ignore_case=True) == "src/a.py:2:     return 1"
    assert await ask("search_files", query="f()") == "src/a.py:1: def f():"
    assert await ask("search_files", query="世界") == "docs/读我.md:1: 你好,世界"
    assert (
        await ask("search_files", query=r"f\w*$", regex=True, pattern="*.py")
        == "src/deep/b.py:1: from a import f"
    )
    assert await ask("search_files", query="f", path="src/deep") == "src/deep/b.py:1: from a import f"
    assert await ask("search_files", query="first", path="README.md") == "README.md:2: first"
    assert await ask("search_files", query="secret") == "[Nothing found for 'secret'.]"


async def test_bad_queries(ask: Ask):
    assert "no regular expression" in await ask("search_files", query="(", regex=True)
    assert "characters" in await ask("search_files", query="")
    assert "characters" in await ask("search_files", query="x" * 2_000)
    assert "line break" in await ask("search_files", query="a\nb")
    assert "outside" in await ask("search_files", query="root", path="/etc")


async def test_a_catastrophic_pattern_is_stopped(space: Workspace, root: Path):
    (root / "evil.txt").write_text("a" * 60 + "!\n")
    ask = asking([search_files(space, seconds=0.3)])
    ticks = 0

    async def tick() -> None:
        nonlocal ticks
        while True:
            await asyncio.sleep(0.01)
            ticks += 1

    clock = asyncio.create_task(tick())
    text = await ask("search_files", query=r"(a|aa|aaa|b)*?(a+)\2\1[^!]$", regex=True, path="evil.txt")
    clock.cancel()
    assert "Stopped after 0.3 s" in text
    assert ticks > 2, "the event loop stood still meanwhile"


async def test_hits_are_limited_and_excerpts_short(ask: Ask, root: Path):
    (root / "many.txt").write_text("needle\n" * 1_000)
    lines = (await ask("search_files", query="needle", path="many.txt", limit=5)).splitlines()
    assert len(lines) == 6
    assert "first 5 lines" in lines[-1]
    (root / "wide.txt").write_text("x" * 5_000 + "needle" + "y" * 3_000)
    (line,) = (await ask("search_files", query="needle", path="wide.txt")).splitlines()
    assert len(line) < 500
    assert "…" in line
    assert "needle" in line
    (root / "very.txt").write_text("x" * (MAX_LINE + 5) + "needle")
    assert (await ask("search_files", query="needle", path="very.txt")).startswith("very.txt:2: ")


async def test_binary_files_are_passed_over_and_control_characters_shown(ask: Ask, root: Path):
    (root / "program").write_bytes(b"needle\0needle")
    (root / "colours").write_text("\x1b[31mneedle\tx\n")
    assert await ask("search_files", query="needle") == "colours:1: \ufffd[31mneedle\tx"


# --- read_result ---------------------------------------------------------------------------


async def test_reading_on():
    whole = "".join(f"{number} 中\n" for number in range(20_000))
    asked: list[str] = []

    async def fetch(handle: str, context: ToolContext) -> bytes:
        asked.append(handle)
        if handle != "h":
            raise StoreDamaged("no such blob")
        return whole.encode()

    ask = asking([read_result(fetch)])
    offset, got = 0, ""
    while True:
        text = await ask("read_result", handle="h", offset=offset, limit=100_000)
        body, note = text.rsplit("\n[", 1)
        got += body
        if note.endswith("the end]"):
            break
        offset = int(note.split("offset=")[1].rstrip("]"))
    assert got == whole
    assert asked == ["h"]
    assert "there is no result 'x'" in await ask("read_result", handle="x")
    assert "offset is too large" in await ask("read_result", handle="h", offset=10**9)
    assert "at least" in await ask("read_result", handle="h", offset=-1)


async def test_results_of_any_kind_and_only_a_few_at_hand():
    asked: list[str] = []

    def fetch(handle: str, context: ToolContext) -> str | bytes:
        asked.append(handle)
        known: dict[str, str | bytes] = {"a": "text", "b": b"\xff\x00"}
        return known.get(handle, "x")

    ask = asking([read_result(fetch)])
    assert (await ask("read_result", handle="a")).startswith("text\n[characters 0 to 4 of 4; the end]")
    assert "\ufffd" in await ask("read_result", handle="b")
    for handle in "acda":
        await ask("read_result", handle=handle)
    assert asked == ["a", "b", "c", "d", "a"]


def test_a_tool_may_be_called_directly(space: Workspace):
    made: Any = read_file(space)
    assert made("README.md", offset=1, limit=1).startswith("first\n")
    with pytest.raises(ToolError):
        made("../x")
