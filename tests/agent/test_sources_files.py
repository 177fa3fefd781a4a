"""Files of the workspace as sections: read when they changed, confined, bounded, and kept apart by scope."""

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.sources import SourceContext, WorkspaceFiles, gather
from backstory.agent.sources.agents import agents_source
from backstory.agent.sources.files import FileSection, own_path
from backstory.agent.sources.memory import MEMORY_CAP, memory_source
from backstory.agent.sources.soul import soul_source
from backstory.agent.sources.user import user_source
from backstory.context.sections import Section

LONG_AGO = 1_600_000_000_123_456_789
LINKS = pytest.mark.skipif(os.name == "nt", reason="links need a right on Windows that tests lack")


def write(path: Path, data: str | bytes, *, old: bool = True) -> None:
    """A file that changed long ago, or just now."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    if old:
        os.utime(path, ns=(LONG_AGO, LONG_AGO))


async def one(source: FileSection, scope: str = "default") -> tuple[Section | None, tuple[str, ...]]:
    found = await gather([source], SourceContext(scope=scope))
    return (found.sections[0] if found.sections else None), found.notes


async def text(source: FileSection, scope: str = "default") -> str | None:
    section, _ = await one(source, scope)
    return section.text if section else None


@pytest.fixture
def files(tmp_path: Path) -> WorkspaceFiles:
    return WorkspaceFiles(tmp_path)


# --- when a file is read


async def test_an_unchanged_file_is_read_once(files: WorkspaceFiles):
    write(files.root / "AGENTS.md", "Be brief.")
    source = agents_source(files)
    assert [await text(source) for _ in range(5)] == ["Be brief."] * 5
    assert files.reads == 1


async def test_a_changed_file_is_read_again(files: WorkspaceFiles):
    path = files.root / "AGENTS.md"
    source = agents_source(files)
    write(path, "one")
    assert await text(source) == "one"
    path.write_text("other")
    assert await text(source) == "other"


async def test_a_change_that_leaves_size_and_time_as_they_were_is_seen(files: WorkspaceFiles):
    """Replaced by another file (as editors do), or within one tick of the file system's clock."""
    path = files.root / "AGENTS.md"
    source = agents_source(files)
    write(path, "one")
    assert await text(source) == "one"
    write(files.root / "new", "two")
    os.replace(files.root / "new", path)
    assert await text(source) == "two"
    for number in range(200):  # in place, as fast as can be
        write(path, f"{number:03}", old=False)
        assert await text(source) == f"{number:03}"


async def test_a_file_written_just_now_is_read_until_its_time_is_past(files: WorkspaceFiles):
    path = files.root / "AGENTS.md"
    write(path, "one", old=False)
    stamp = path.stat().st_mtime_ns // 10**9 * 10**9  # a file system that keeps whole seconds
    os.utime(path, ns=(stamp, stamp))
    source = agents_source(files)
    await text(source)
    await text(source)
    assert files.reads == 2


async def test_a_deleted_file_is_gone_and_comes_back(files: WorkspaceFiles):
    path = files.root / "SOUL.md"
    source = soul_source(files)
    assert await one(source) == (None, ())
    write(path, "Warm.")
    assert await text(source) == "Warm."
    path.unlink()
    assert await one(source) == (None, ())
    write(path, "Warm.")
    assert await text(source) == "Warm."


async def test_a_workspace_that_is_not_there_has_no_sections(tmp_path: Path):
    files = WorkspaceFiles(tmp_path / "later")
    source = agents_source(files)
    assert await one(source) == (None, ())
    write(tmp_path / "later" / "AGENTS.md", "Here.")
    assert await text(source) == "Here."


async def test_few_files_stay_at_hand(files: WorkspaceFiles, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("backstory.agent.sources.files._KEPT", 3)
    source = user_source(files)
    for number in range(6):
        write(files.root / own_path(f"s{number}", "USER.md"), f"user {number}")
        await text(source, f"s{number}")
    assert len(files._held) == 3
    await text(source, "s5")
    assert files.reads == 6
    assert await text(source, "s0") == "user 0"
    assert files.reads == 7


# --- what is in it


async def test_titles_say_which_file_it_is(files: WorkspaceFiles):
    for name in ("AGENTS.md", "SOUL.md", "USER.md"):
        write(files.root / name, f"in {name}")
    made = [agents_source(files), soul_source(files), user_source(files)]
    sections = (await gather(made, SourceContext())).sections
    assert [section.name for section in sections] == ["agents", "soul", "user"]
    for section in sections:
        assert section.title.endswith(f"({section.text[3:]})")
        assert not section.optional


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ("中文 ✓".encode(), "中文 ✓"),
        (b"\xef\xbb\xbf" + "中文".encode(), "中文"),
        (b"one\r\ntwo\rthree\n", "one\ntwo\nthree"),
        ("\ufeff中文".encode("utf-16-le"), "中文"),
        ("\ufeff中文".encode("utf-16-be"), "中文"),
    ],
)
async def test_what_editors_write_is_understood(files: WorkspaceFiles, data: bytes, expected: str):
    write(files.root / "AGENTS.md", data)
    section, notes = await one(agents_source(files))
    assert section is not None
    assert section.text == expected
    assert notes == ()


async def test_one_wrong_byte_costs_one_character(files: WorkspaceFiles):
    write(files.root / "AGENTS.md", "请用中文回答".encode() + b"\xff" + b" always")
    section, notes = await one(agents_source(files))
    assert section is not None
    assert section.text == "请用中文回答\ufffd always"
    assert notes == ("AGENTS.md is not in UTF-8 (the first wrong byte is number 18); save it as UTF-8",)


async def test_a_file_of_another_encoding_is_read_and_told_of(files: WorkspaceFiles):
    write(files.root / "AGENTS.md", "请用中文回答".encode("gb18030"))
    section, notes = await one(agents_source(files))
    assert section is not None
    assert section.text == "请用中文回答"
    assert notes == ("AGENTS.md is not in UTF-8 and was read as GB 18030; save it as UTF-8",)


async def test_bytes_are_no_text(files: WorkspaceFiles):
    write(files.root / "AGENTS.md", b"\x7fELF\x00\x00")
    section, notes = await one(agents_source(files))
    assert section is None
    assert notes == ("AGENTS.md is no text (it holds zero bytes)",)


@pytest.mark.parametrize("data", [b"", b"  \n\n", b"\xef\xbb\xbf"])
async def test_an_empty_file_is_no_section(files: WorkspaceFiles, data: bytes):
    write(files.root / "AGENTS.md", data)
    assert await one(agents_source(files)) == (None, ())


@given(st.binary(max_size=300))
async def test_no_bytes_raise(tmp_path_factory: pytest.TempPathFactory, data: bytes):
    root = tmp_path_factory.getbasetemp() / "any"
    write(root / "AGENTS.md", data)
    section, _ = await one(agents_source(WorkspaceFiles(root)))
    if section is not None:
        section.text.encode()
        assert "\0" not in section.text


async def test_a_huge_file_is_cut_and_says_so(files: WorkspaceFiles):
    path = files.root / "AGENTS.md"
    write(path, "规" * 1_000)
    with path.open("r+b") as file:
        file.truncate(3 * 1024**3)  # a sparse file of 3 GB
    os.utime(path, ns=(LONG_AGO, LONG_AGO))
    source = FileSection(files, name="agents", path="AGENTS.md", title="", shared=True, limit=1_000)
    section, notes = await one(source)
    assert section is not None
    assert section.text == "规" * 333 + (
        "\n[AGENTS.md is longer: these are the first 999 of 3,221,225,472 bytes.]"
    )
    assert notes == ()


async def test_memory_may_shrink_down_to_its_cap(files: WorkspaceFiles):
    write(files.root / "memory/MEMORY.md", "- a fact")
    section, _ = await one(memory_source(files))
    assert section == Section(
        name="memory", text="- a fact", title="Long-term memory", optional=True, least=MEMORY_CAP
    )


# --- where it is


@LINKS
async def test_a_link_out_of_the_workspace_is_refused(tmp_path: Path):
    write(tmp_path / "secret.txt", "the secret")
    for target in (tmp_path / "secret.txt", Path("../secret.txt"), Path("/etc/passwd")):
        root = tmp_path / "workspace"
        root.mkdir(exist_ok=True)
        link = root / "AGENTS.md"
        link.unlink(missing_ok=True)
        link.symlink_to(target)
        section, notes = await one(agents_source(WorkspaceFiles(root)))
        assert section is None
        assert notes == ("AGENTS.md is a link that leads out of its place, and is not followed",)


@LINKS
async def test_a_folder_that_is_a_link_out_is_refused(tmp_path: Path):
    write(tmp_path / "outside/MEMORY.md", "the secret")
    root = tmp_path / "workspace"
    root.mkdir()
    (root / "memory").symlink_to(tmp_path / "outside")
    section, notes = await one(memory_source(WorkspaceFiles(root)))
    assert section is None
    assert notes


@LINKS
async def test_a_link_within_the_workspace_is_followed(files: WorkspaceFiles):
    write(files.root / "docs/guide.md", "Guide.")
    (files.root / "AGENTS.md").symlink_to("docs/guide.md")
    source = agents_source(files)
    assert await text(source) == "Guide."
    write(files.root / "docs/guide.md", "Other.")
    assert await text(source) == "Other."


@LINKS
@pytest.mark.parametrize("kind", ["sessions/x.jsonl", "blobs/ab/x.bin", ".backstory/x"])
async def test_a_link_into_the_store_is_refused(files: WorkspaceFiles, kind: str):
    write(files.root / kind, "somebody's words")
    (files.root / "AGENTS.md").symlink_to(kind)
    section, notes = await one(agents_source(files))
    assert section is None
    assert notes


@LINKS
async def test_dangling_links_and_circles_are_told_of_or_nothing(files: WorkspaceFiles):
    (files.root / "AGENTS.md").symlink_to("nowhere")
    assert await one(agents_source(files)) == (None, ())
    (files.root / "SOUL.md").symlink_to("SOUL.md")
    section, notes = await one(soul_source(files))
    assert section is None
    assert len(notes) == 1


@LINKS
async def test_pipes_and_folders_are_no_files(files: WorkspaceFiles):
    os.mkfifo(files.root / "AGENTS.md")
    (files.root / "SOUL.md").mkdir()
    for source in (agents_source(files), soul_source(files)):
        section, notes = await one(source)
        assert section is None
        assert notes == (f"{source.path} is no regular file",)
    assert files.reads == 0


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may read anything")
async def test_a_file_that_may_not_be_read_is_told_of(files: WorkspaceFiles):
    write(files.root / "AGENTS.md", "Be brief.")
    (files.root / "AGENTS.md").chmod(0)
    section, notes = await one(agents_source(files))
    assert section is None
    assert notes == ("AGENTS.md cannot be read (Permission denied)",)


# --- whose it is


async def test_scopes_share_what_the_agent_is_and_nothing_of_a_person(files: WorkspaceFiles):
    for path in ("AGENTS.md", "SOUL.md", "USER.md", "memory/MEMORY.md"):
        write(files.root / path, f"root {path}")
    assert await text(agents_source(files), "acme") == "root AGENTS.md"
    assert await text(soul_source(files), "acme") == "root SOUL.md"
    assert await text(user_source(files), "acme") is None
    assert await text(memory_source(files), "acme") is None


async def test_a_scope_may_have_its_own(files: WorkspaceFiles):
    for scope in ("default", "acme", "Acme", "other"):
        for path in ("AGENTS.md", "USER.md", "memory/MEMORY.md"):
            write(files.root / own_path(scope, path), f"{scope} {path}")
    for scope in ("default", "acme", "Acme", "other"):
        for source in (agents_source(files), user_source(files), memory_source(files)):
            assert await text(source, scope) == f"{scope} {source.path}"


@given(
    st.text(min_size=1, max_size=40).filter(lambda scope: scope != "default"),
    st.text(min_size=1, max_size=40),
)
def test_no_name_of_a_scope_leads_to_another(scope: str, other: str):
    path = own_path(scope, "USER.md")
    parts = path.split("/")
    assert parts[0] == "scopes"
    assert parts[1].startswith("@")
    assert parts[2:] == ["USER.md"]
    assert (own_path(other, "USER.md").casefold() == path.casefold()) == (other == scope)


@pytest.mark.parametrize("scope", ["../..", "..", "/etc", "a/../../default", "@default", ".", "a\0b", "con"])
async def test_a_scope_that_guesses_at_paths_gets_nothing(files: WorkspaceFiles, scope: str):
    write(files.root / "USER.md", "the user")
    write(files.root.parent / "USER.md", "outside")
    assert await text(user_source(files), scope) is None


@LINKS
@pytest.mark.parametrize(
    ("link", "target", "scope"),
    [
        ("scopes/@b/USER.md", "../@a/USER.md", "b"),
        ("scopes/@b/USER.md", "../../USER.md", "b"),
        ("scopes/@b", "@a", "b"),
        ("USER.md", "scopes/@a/USER.md", "default"),
    ],
)
async def test_a_link_to_another_scope_is_refused(tmp_path: Path, link: str, target: str, scope: str):
    write(tmp_path / "scopes/@a/USER.md", "the user of a")
    if link != "USER.md":
        write(tmp_path / "USER.md", "the user of default")
    (tmp_path / link).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / link).symlink_to(target)
    section, notes = await one(user_source(WorkspaceFiles(tmp_path)), scope)
    assert section is None
    assert notes
