"""Skills and the lines of history: indexes, front matter, the tool that loads, the end of a long file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.execute import execute
from backstory.agent.sources import (
    SkillFolder,
    SourceContext,
    WorkspaceFiles,
    default_sources,
    gather,
    load_skill_tool,
)
from backstory.agent.sources.entries import LAST, EntriesSource
from backstory.agent.sources.files import own_path
from backstory.agent.sources.pinned_skills import PinnedSkillsSource
from backstory.agent.sources.skills import SkillsSource
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import AnyTool
from backstory.context.sections import Section, shrink
from backstory.messages import Text, ToolCall

LONG_AGO = 1_600_000_000_123_456_789


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode())
    os.utime(path, ns=(LONG_AGO, LONG_AGO))


def add_skill(root: Path, folder: str, body: str = "Do it.", **fields: Any) -> None:
    head = "".join(f"{name}: {json.dumps(value)}\n" for name, value in fields.items())
    write(root / "skills" / folder / "SKILL.md", f"---\n{head}---\n\n{body}\n" if fields else body)


async def section(source: Any, **context: Any) -> tuple[Section | None, tuple[str, ...]]:
    found = await gather([source], SourceContext(**context))
    return (found.sections[0] if found.sections else None), found.notes


async def index(root: Path, **context: Any) -> list[str]:
    found, _ = await section(SkillsSource(SkillFolder(WorkspaceFiles(root))), **context)
    return found.text.split("\n")[1:] if found else []


async def load(tool: AnyTool, name: str, scope: str = "default") -> tuple[str, bool | None]:
    call = ToolCall(id="1", name="load_skill", arguments=json.dumps({"name": name}))
    result = await execute(call, [tool], ToolContext(scope=scope))
    (part,) = result.content
    assert isinstance(part, Text)
    return part.text, result.is_error


# --- the index


async def test_the_index_has_one_line_a_skill(tmp_path: Path):
    add_skill(tmp_path, "pdf", name="pdf", description="Read and fill in\n  PDF forms.")
    add_skill(tmp_path, "charts", "# Draw charts\n\nWith care.")
    add_skill(tmp_path, "daily", description="Every day.", pinned=True)
    write(tmp_path / "skills/README.md", "no skill")
    write(tmp_path / "skills/empty/notes.md", "no skill")
    assert await index(tmp_path) == ["- charts: Draw charts", "- pdf: Read and fill in PDF forms."]


async def test_the_index_says_how_to_load(tmp_path: Path):
    folder = SkillFolder(WorkspaceFiles(tmp_path))
    add_skill(tmp_path, "pdf", description="PDF.")
    plain, _ = await section(SkillsSource(folder))
    able, _ = await section(SkillsSource(folder), tools=[load_skill_tool(folder)])
    assert plain is not None
    assert able is not None
    assert "read skills/NAME/SKILL.md" in plain.text
    assert "load_skill(name=…)" in able.text


async def test_no_skills_no_section(tmp_path: Path):
    add_skill(tmp_path, "daily", pinned=True)
    assert await index(tmp_path) == []
    assert await index(tmp_path / "nowhere") == []


async def test_an_index_too_long_loses_its_last_lines(tmp_path: Path):
    for number in range(20):
        add_skill(tmp_path, f"s{number:02}", description="word " * 10)
    found, _ = await section(SkillsSource(SkillFolder(WorkspaceFiles(tmp_path))))
    assert found is not None
    (short,), _ = shrink([found], 100, lambda text: len(text.split()))
    assert short.text.startswith(found.text.split("\n")[0])
    assert "- s00:" in short.text
    assert "- s19:" not in short.text


async def test_only_changed_skills_are_read_again(tmp_path: Path):
    files = WorkspaceFiles(tmp_path)
    source = SkillsSource(SkillFolder(files))
    for name in ("a", "b", "c"):
        add_skill(tmp_path, name, description=name)
    for _ in range(3):
        await section(source)
    assert files.reads == 3
    add_skill(tmp_path, "b", description="changed")
    found, _ = await section(source)
    assert found is not None
    assert "- b: changed" in found.text
    assert files.reads == 4
    (tmp_path / "skills/a/SKILL.md").unlink()
    found, _ = await section(source)
    assert found is not None
    assert "- a:" not in found.text


@pytest.mark.parametrize(
    "text",
    [
        "---\nname: [\n---\nDo it.",
        "---\nname: a\nDo it.",
        "---\n- a list\n---\nDo it.",
        "---\n&a [*a]: x\n---\nDo it.",
        "---\n" + "[" * 5_000 + "\n---\nDo it.",
        "---\nname: !!python/object/apply:os.getcwd []\n---\nDo it.",
    ],
)
async def test_broken_front_matter_is_told_of_and_the_skill_stays(tmp_path: Path, text: str):
    write(tmp_path / "skills/odd/SKILL.md", text)
    folder = SkillFolder(WorkspaceFiles(tmp_path))
    found, notes = await section(SkillsSource(folder))
    assert found is not None
    assert "\n- odd:" in found.text
    assert len(notes) == 1
    assert notes[0].startswith("skills/odd/SKILL.md has front matter that is no YAML")
    loaded, is_error = await load(load_skill_tool(folder), "odd")
    assert "Do it." in loaded
    assert not is_error


async def test_fields_that_are_no_text_are_passed_over(tmp_path: Path):
    write(tmp_path / "skills/no/SKILL.md", "---\nname: no\ndescription: 3\npinned: 1\n---\nDo it.")
    assert await index(tmp_path) == ["- no: Do it."]


async def test_names_and_descriptions_stay_on_their_line(tmp_path: Path):
    add_skill(tmp_path, "long", name="a\nb", description="x " * 1_000)
    (line,) = await index(tmp_path)
    assert line.startswith("- a b: x x")
    assert len(line) < 320


# --- pinned


async def test_pinned_skills_are_there_in_full(tmp_path: Path):
    add_skill(tmp_path, "b", "Second.", pinned=True)
    add_skill(tmp_path, "a", "First.", always=True)
    add_skill(tmp_path, "c", "Third.", pinned=False)
    found, _ = await section(PinnedSkillsSource(SkillFolder(WorkspaceFiles(tmp_path))))
    assert found is not None
    assert found.text == "### a\n\nFirst.\n\n### b\n\nSecond."
    assert not found.optional


async def test_a_skill_too_long_is_cut_and_says_so(tmp_path: Path):
    add_skill(tmp_path, "a", "word " * 1_000, pinned=True)
    folder = SkillFolder(WorkspaceFiles(tmp_path), limit=500)
    found, _ = await section(PinnedSkillsSource(folder))
    assert found is not None
    assert found.text.endswith("[skills/a/SKILL.md is longer than 500 bytes; the rest is left out.]")


# --- loading


async def test_a_skill_is_loaded_by_the_name_in_the_index(tmp_path: Path):
    add_skill(tmp_path, "folder", "Fill in the form.", name="pdf", description="PDF.")
    tool = load_skill_tool(SkillFolder(WorkspaceFiles(tmp_path)))
    assert await load(tool, " pdf ") == (
        "# Skill: pdf (skills/folder/SKILL.md)\n\nFill in the form.",
        False,
    )
    assert list(tool.parameters["properties"]) == ["name"]


@pytest.mark.parametrize("name", ["../../USER.md", "../secret", "/etc/passwd", "", "pdff", "a\0b"])
async def test_any_other_name_is_refused(tmp_path: Path, name: str):
    add_skill(tmp_path, "pdf", description="PDF.")
    write(tmp_path / "secret/SKILL.md", "the secret")
    text, is_error = await load(load_skill_tool(SkillFolder(WorkspaceFiles(tmp_path))), name)
    assert is_error
    assert "the secret" not in text
    assert "There are: pdf" in text
    assert ("Did you mean 'pdf'?" in text) == (name == "pdff")


@pytest.mark.skipif(os.name == "nt", reason="links need a right on Windows that tests lack")
async def test_skills_that_are_links_out_are_refused(tmp_path: Path):
    write(tmp_path / "outside/SKILL.md", "the secret")
    root = tmp_path / "workspace"
    (root / "skills").mkdir(parents=True)
    (root / "skills/out").symlink_to(tmp_path / "outside")
    folder = SkillFolder(WorkspaceFiles(root))
    found, notes = await section(SkillsSource(folder))
    assert found is None
    assert notes == ("skills/out/SKILL.md is a link that leads out of its place, and is not followed",)
    text, is_error = await load(load_skill_tool(folder), "out")
    assert is_error
    assert "the secret" not in text


async def test_scopes_share_skills_and_add_their_own(tmp_path: Path):
    add_skill(tmp_path, "pdf", "Shared.", description="shared")
    add_skill(tmp_path, "tea", "Tea.", description="shared")
    own = tmp_path / own_path("acme", "skills")
    write(own / "pdf/SKILL.md", "---\ndescription: own\n---\nAcme's way.")
    write(own / "tax/SKILL.md", "---\ndescription: own\n---\nAcme's taxes.")
    assert await index(tmp_path, scope="acme") == ["- pdf: own", "- tax: own", "- tea: shared"]
    assert await index(tmp_path, scope="other") == ["- pdf: shared", "- tea: shared"]
    tool = load_skill_tool(SkillFolder(WorkspaceFiles(tmp_path)))
    assert "Acme's way." in (await load(tool, "pdf", "acme"))[0]
    assert "Shared." in (await load(tool, "pdf"))[0]
    text, is_error = await load(tool, "tax", "other")
    assert is_error
    assert "Acme" not in text


# --- entries


def history(root: Path, lines: list[str], scope: str = "default") -> None:
    write(root / own_path(scope, "memory/history.jsonl"), "".join(f"{line}\n" for line in lines))


def event(text: str, **more: str) -> str:
    return json.dumps({"text": text, **more}, ensure_ascii=False)


async def test_the_last_entries_are_told_oldest_first(tmp_path: Path):
    history(tmp_path, [event(f"event {number}", at=f"2026-01-{number:02}") for number in range(1, 31)])
    found, notes = await section(EntriesSource(WorkspaceFiles(tmp_path)))
    assert found is not None
    lines = found.text.split("\n")
    assert len(lines) == LAST
    assert lines[0] == "- [2026-01-11] event 11"
    assert lines[-1] == "- [2026-01-30] event 30"
    assert found.optional
    assert notes == ()


async def test_only_the_end_of_a_long_file_is_read(tmp_path: Path):
    path = tmp_path / "memory/history.jsonl"
    write(path, "")
    with path.open("wb") as file:
        file.truncate(2 * 1024**3)  # 2 GB of nothing, then lines
        file.seek(0, os.SEEK_END)
        file.write(b"\n" + "".join(f"{event(f'事件 {number}')}\n" for number in range(3_000)).encode())
    found, notes = await section(EntriesSource(WorkspaceFiles(tmp_path)))
    assert found is not None
    assert found.text.split("\n") == [f"- 事件 {number}" for number in range(2_980, 3_000)]
    assert notes == ()


async def test_bad_lines_are_passed_over_and_told_of(tmp_path: Path):
    good = [
        event("one"),
        '"two"',
        json.dumps({"cursor": 3, "timestamp": "2026-01-02", "content": "three\nmore"}),
    ]
    history(tmp_path, [good[0], "{broken", "3", good[1], "", '{"no": "text"}', good[2]])
    found, notes = await section(EntriesSource(WorkspaceFiles(tmp_path)))
    assert found is not None
    assert found.text == "- one\n- two\n- [2026-01-02] three more"
    assert notes == ("memory/history.jsonl: 3 of its last lines cannot be read and are passed over",)


@pytest.mark.parametrize("torn", ["", '{"text": "to', "{", event("whole")])
async def test_a_last_line_that_is_being_written_is_no_damage(tmp_path: Path, torn: str):
    write(tmp_path / "memory/history.jsonl", f"{event('one')}\n{torn}")
    found, notes = await section(EntriesSource(WorkspaceFiles(tmp_path)))
    assert found is not None
    assert found.text == ("- one\n- whole" if "whole" in torn else "- one")
    assert notes == ()


async def test_the_sessions_own_entries_come_after_and_once(tmp_path: Path):
    history(tmp_path, [event("a"), event("b")])
    source = EntriesSource(WorkspaceFiles(tmp_path), last=3)
    found, _ = await section(source, entries=["b", "c", " "])
    assert found is not None
    assert found.text == "- a\n- b\n- c"
    alone, _ = await section(EntriesSource(), entries=["b", "c"])
    assert alone is not None
    assert alone.text == "- b\n- c"


async def test_a_long_entry_is_shortened(tmp_path: Path):
    found, _ = await section(EntriesSource(), entries=["x" * 5_000])
    assert found is not None
    assert len(found.text) < 420


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), max_size=30))
async def test_entries_never_fail(lines: list[str]):
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder) / "memory/history.jsonl", "\n".join(lines))
        found, _ = await section(EntriesSource(WorkspaceFiles(folder)))
        assert found is None or len(found.text.split("\n")) <= LAST


# --- whose they are


async def test_no_text_of_one_scope_reaches_another(tmp_path: Path):
    """Law 11, over all sources at once: each scope's files hold its own mark."""
    scopes = ["default", "acme", "Acme", "acme/../default", "张三"]
    for number, scope in enumerate(scopes):
        for path in ("USER.md", "memory/MEMORY.md"):
            write(tmp_path / own_path(scope, path), f"mark-{number}")
        history(tmp_path, [event(f"mark-{number}")], scope)
        if scope != "default":
            write(tmp_path / own_path(scope, "AGENTS.md"), f"mark-{number}")
            write(tmp_path / own_path(scope, "skills/x/SKILL.md"), f"mark-{number}")
    sources = default_sources(tmp_path)
    for _ in range(2):
        for number, scope in enumerate(scopes):
            found = await gather(sources, SourceContext(scope=scope))
            text = "\n".join(section.text for section in found.sections)
            assert text.count(f"mark-{number}") >= 3
            assert not [other for other in range(len(scopes)) if other != number and f"mark-{other}" in text]
