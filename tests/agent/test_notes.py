"""Notes: Markdown that a model keeps, and people edit."""

import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from backstory.agent.toolbox import notes
from backstory.agent.toolbox.notes import _dump, parse_note
from backstory.agent.toolbox.workspace import Workspace
from tests.agent.conftest import Ask, asking


class Clock:
    def __init__(self) -> None:
        self.now = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)

    def __call__(self) -> datetime:
        self.now += timedelta(days=1)
        return self.now


def files_in(folder: Path) -> set[Path]:
    return {path for path in folder.rglob("*") if path.is_file()}


@pytest.fixture
def ask(space: Workspace) -> Ask:
    tool = asking([notes(space, now=Clock())])

    async def ask(action: str, **arguments: Any) -> str:
        return await tool("notes", action=action, **arguments)

    return ask


async def test_write_read_append(ask: Ask, root: Path):
    done = await ask("write", name="Project plan", text="# Goal\n你好\n", tags=["work", "中文"])
    assert done == "Wrote the note 'Project plan' (memory/notes/project-plan.md)."
    assert (root / "memory/notes/project-plan.md").read_text() == (
        "---\ntitle: Project plan\ncreated: '2026-01-03T03:04:05+00:00'\nupdated: '2026-01-03T03:04:05+00:00'\n"
        "tags:\n- work\n- 中文\n---\n\n# Goal\n你好\n"
    )
    assert "Appended to" in await ask("append", name=" project  PLAN", text="More.")
    text = await ask("read", name="project plan")
    assert text == "Project plan [work, 中文] (2026-01-04)\n\n# Goal\n你好\n\nMore.\n"
    assert "Replaced" in await ask("write", name="Project plan", text="New.", tags=[])
    assert await ask("read", name="Project plan") == "Project plan (2026-01-05)\n\nNew.\n"
    assert "created: '2026-01-03" in (root / "memory/notes/project-plan.md").read_text()


async def test_list_and_search(ask: Ask):
    assert await ask("list") == "[There are no notes.]"
    await ask("write", name="one", text="apples and pears", tags=["fruit"])
    await ask("write", name="two", text="first line\nonly Apples here")
    await ask("write", name="购物", text="苹果")
    assert await ask("list") == "- 购物 (2026-01-05)\n- two (2026-01-04)\n- one [fruit] (2026-01-03)"
    assert await ask("list", tags=["FRUIT"]) == "- one [fruit] (2026-01-03)"
    assert await ask("list", tags=["none"]) == "[There are no notes with these tags.]"
    assert await ask("search", query="apples pears") == "- one [fruit] (2026-01-03): apples and pears"
    assert await ask("search", query="APPLES") == (
        "- two (2026-01-04): only Apples here\n- one [fruit] (2026-01-03): apples and pears"
    )
    assert "购物" in await ask("search", query="苹果")
    assert await ask("search", query="plums") == "[No note holds 'plums'.]"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"action": "write", "name": "x"}, "to write, give text"),
        ({"action": "write", "text": "x"}, "to write, give name"),
        ({"action": "read"}, "to read, give name"),
        ({"action": "search", "query": "  "}, "to search, give query"),
        ({"action": "burn"}, "Input should be 'write'"),
        ({"action": "write", "name": "x", "text": "x" * 200_000}, "so split it"),
        ({"action": "write", "name": "///", "text": "x"}, "is no name for a note"),
        ({"action": "read", "name": "nothing"}, "there are: none"),
    ],
)
async def test_errors(ask: Ask, arguments: dict[str, Any], words: str):
    assert words in await ask(**arguments)


@pytest.mark.parametrize(
    "name",
    [
        "../../escape",
        "/etc/passwd",
        "a/b",
        "..",
        "con",
        "NUL",
        "x" * 500,
        "🙂 smile",
        "a\0b",
        "~",
        "AGENTS.md",
    ],
)
async def test_names_stay_in_their_folder(ask: Ask, root: Path, name: str):
    before = files_in(root)
    done = await ask("write", name=name, text="x")
    new = files_in(root) - before
    if done.startswith("Error: "):
        assert not new
        return
    (path,) = new
    assert path.parent == root / "memory" / "notes"
    assert "x" in await ask("read", name=name)


async def test_a_folder_that_is_a_link_out_is_refused(ask: Ask, root: Path, outside: Path):
    (root / "memory").symlink_to(outside)
    assert "outside the workspace" in await ask("write", name="x", text="x")
    assert {path.name for path in files_in(outside)} == {"secret.txt"}


async def test_a_note_that_is_a_link_is_replaced_and_never_read_through(ask: Ask, root: Path, outside: Path):
    (root / "memory" / "notes").mkdir(parents=True)
    (root / "memory" / "notes" / "x.md").symlink_to(outside / "secret.txt")
    assert "secret" not in await ask("list")
    assert "secret outside" not in await ask("read", name="x")
    await ask("write", name="x", text="mine")
    assert (outside / "secret.txt").read_text() == "the secret outside"
    assert "mine" in await ask("read", name="x")


async def test_what_people_write_is_read(ask: Ask, root: Path):
    folder = root / "memory" / "notes"
    folder.mkdir(parents=True)
    (folder / "Shopping List.md").write_text("milk\n")
    (folder / "dated.md").write_text("---\nupdated: 2026-05-05\ntags: one\nowner: Ann\n---\nbody\n")
    (folder / "timed.md").write_text("---\r\nupdated: 2026-05-06 10:00:00\r\n---\r\nbody\r\n")
    (folder / "broken.md").write_text("---\ntitle: [\n---\nbody\n")
    (folder / "unclosed.md").write_text("---\ntitle: x\nbody\n")
    (folder / "binary.md").write_bytes(b"\0\1")
    (folder / "huge.md").write_text("x" * 500_000)
    (folder / "picture.png").write_bytes(b"\0")
    assert (await ask("list")).splitlines() == [
        "- timed (2026-05-06)",
        "- dated [one] (2026-05-05)",
        "- unclosed",
        "- broken",
        "- Shopping List",
    ]
    assert "milk" in await ask("read", name="shopping list")
    assert "title: [" in await ask("read", name="broken")
    assert "is too long" in await ask("read", name="huge")
    assert "is no text" in await ask("read", name="binary")
    assert "Appended" in await ask("append", name="dated", text="more")
    text = (folder / "dated.md").read_text()
    assert "owner: Ann" in text
    assert text.endswith("body\n\nmore\n")
    await ask("append", name="Shopping List", text="bread")
    assert (folder / "Shopping List.md").read_text().endswith("milk\n\nbread\n")


async def test_yaml_that_bites_is_harmless(ask: Ask, root: Path):
    folder = root / "memory" / "notes"
    folder.mkdir(parents=True)
    bomb = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 12))
    (folder / "bomb.md").write_text(f"---\n{bomb}title: *a11\ntags: *a11\n---\nbody\n")
    (folder / "code.md").write_text(
        "---\ntitle: !!python/object/apply:os.system ['touch /tmp/x']\n---\nbody\n"
    )
    assert "- bomb" in await ask("list")
    assert "touch" in await ask("read", name="code")


async def test_appending_from_many_threads_loses_nothing(space: Workspace):
    made: Any = notes(space)
    threads = [
        threading.Thread(target=made, kwargs={"action": "append", "name": "n", "text": f"<{number}>"})
        for number in range(12)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    text = made(action="read", name="n")
    assert all(f"<{number}>" in text for number in range(12))


@given(st.text(max_size=50), st.text(max_size=20), st.lists(st.text(max_size=5), max_size=3))
@example("", "\x85", [])
@example("", "a\u2028b", ["\u2029"])
def test_what_was_written_is_read_back(text: str, title: str, tags: list[str]):
    body = text.replace("\0", "").encode("utf-8", "replace").decode()
    head = {"title": title.encode("utf-8", "replace").decode(), "tags": tags}
    note = parse_note("n", _dump(head, body))
    assert note.text.strip() == body.strip()
    assert note.head["title"] == head["title"]
