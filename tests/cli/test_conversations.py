"""The commands over conversations: say, sessions, explain, doctor; and that no failure is a traceback."""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Command


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "space"
    folder.mkdir()
    monkeypatch.chdir(folder)
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "OPENAI_MODEL",
        "ANTHROPIC_API_KEY",
        "BACKSTORY_WORKSPACE",
    ):
        monkeypatch.delenv(name, raising=False)
    return folder


@pytest.fixture
def said(command: Command, place: Path) -> Command:
    """With a conversation of three turns, the last of which read a file."""
    (place / "pyproject.toml").write_text('requires-python = ">=3.11"\n')
    command("say", "My name is Ada.")
    command("say", "I live in Zürich.")
    assert command("say", "read pyproject.toml").code == 0
    return command


# --- say ---------------------------------------------------------------------------------------


def test_say_remembers(command: Command):
    first = command("say", "My name is Ada.")
    assert first.code == 0
    assert "no LLM" in first.err
    second = command("say", "What is my name?")
    assert second.out == "Your name is Ada.\n"
    assert command("say", "What is my name?", "--session", "other").out != second.out
    assert command("say", "What is my name?", "--scope", "other").out != second.out


def test_say_takes_standard_input_whole(command: Command):
    assert command("say", "-", stdin=b"Two things.\nMy name is Ada.").code == 0
    assert command("say", stdin=b"What is my name?").out == "Your name is Ada.\n"
    assert command("say", "-", stdin=b"  \n").code == 2


def test_say_as_json_and_twice(command: Command):
    one = command("say", "My name is Ada.", "--json", "--message-id", "m1").json
    two = command("say", "My name is Ada.", "--json", "--message-id", "m1").json
    assert (
        (one["turn"], one["text"], one["reason"])
        == (two["turn"], two["text"], "done")
        == (1, one["text"], "done")
    )
    conflict = command("say", "Something else", "--message-id", "m1")
    assert (conflict.code, "other content" in conflict.err) == (2, True)


def test_say_shows_what_tools_do(said: Command):
    done = said("say", "read pyproject.toml")
    assert "requires-python" in done.out
    assert "· read_file pyproject.toml" in done.err
    assert "read_file" not in said("say", "read pyproject.toml", "--no-tools").err


def test_resume_needs_an_open_turn(command: Command):
    done = command("say", "--resume")
    assert (done.code, "no open turn" in done.err) == (2, True)
    assert command("say", "Hi", "--resume").code == 2


def test_a_model_that_cannot_be_reached(command: Command, monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("openai")
    monkeypatch.setenv("OPENAI_API_KEY", "sk-very-secret-value")
    done = command("say", "Hi", "--base-url", "http://127.0.0.1:9/v1", "--model", "none", "--window", 8_000)
    assert done.code == 1
    assert "sk-very-secret" not in done.err + done.out
    assert "Traceback" not in done.err
    assert "backstory: " in done.err


def test_a_model_without_a_key(command: Command):
    done = command("say", "Hi", "--model", "gpt-5-mini")
    assert (done.code, "OPENAI_API_KEY" in done.err) == (2, True)


# --- where -------------------------------------------------------------------------------------


def test_the_workspace_is_named_in_three_ways(
    command: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    command("say", "Hi")
    assert (Path("sessions") / "cli=direct.jsonl").is_file()
    monkeypatch.setenv("BACKSTORY_WORKSPACE", str(tmp_path / "by-name"))
    command("say", "Hi")
    assert (tmp_path / "by-name" / "sessions").is_dir()
    command("say", "Hi", "--workspace", tmp_path / "by" / "option")
    assert (tmp_path / "by" / "option" / "sessions").is_dir()


def test_the_home_folder_is_no_workspace(command: Command, place: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("HOME", str(place))
    monkeypatch.setenv("USERPROFILE", str(place))
    command("say", "Hi")
    assert (place / ".backstory" / "sessions").is_dir()
    assert not (place / "sessions").exists()


@pytest.mark.parametrize(
    "words", [("sessions", "list"), ("explain", "cli:direct"), ("doctor",), ("sessions", "show", "x")]
)
def test_looking_makes_no_workspace(command: Command, words: tuple[str, ...], place: Path):
    done = command(*words)
    assert (done.code, "holds no conversations" in done.err) == (2, True)
    assert not list(place.iterdir())


def test_a_workspace_that_is_a_file(command: Command, place: Path):
    (place / "file").write_text("x")
    done = command("say", "Hi", "--workspace", place / "file")
    assert (done.code, "Traceback" in done.err) == (2, False)


# --- sessions ----------------------------------------------------------------------------------


def test_list_show_rename_fork_delete(said: Command):
    assert "3 turns" in said("sessions", "list").out
    shown = said("sessions", "show", "cli:direct").out
    assert "My name is Ada." in shown
    assert "<runtime>" not in shown
    assert "· read_file" in shown
    assert "Ada" not in said("sessions", "show", "cli:direct", "--turns", 1).out
    assert said("sessions", "fork", "cli:direct", "copy", "--turn", 1).code == 0
    assert said("sessions", "rename", "copy", "telegram:1").code == 0
    assert said("sessions", "rename", "copy", "x").code == 2
    assert said("sessions", "rename", "telegram:1", "cli:direct").code == 2
    listed = said("sessions", "list", "--json").json
    assert {row["session"]: row["turns"] for row in listed} == {"telegram:1": 1, "cli:direct": 3}
    assert said("sessions", "delete", "telegram:1").code == 2
    assert said("sessions", "delete", "telegram:1", "--yes").code == 0
    assert said("sessions", "delete", "telegram:1", "--yes").code == 2
    assert said("sessions", "show", "telegram:1").code == 2
    assert (
        "more" in (said("sessions", "fork", "cli:direct", "b"), said("sessions", "list", "--limit", 1))[1].err
    )
    assert said("sessions", "list", "--limit", 0).code == 2


def test_sessions_expire_by_age(said: Command):
    for wrong in ("30", "d", "0d", "x1d", "٣d"):
        assert said("sessions", "expire", "--after", wrong, "--yes").code == 2
    assert "0 were removed" in said("sessions", "expire", "--after", "1h", "--yes").err
    assert said("sessions", "expire", "--after", "1h", "--json").json == []
    assert "3 turns" in said("sessions", "list").out


def test_what_was_undone_is_shown_on_demand(command: Command):
    command("chat", stdin=b"My name is Ada.\n/undo\nHi\n")
    assert "Ada" not in command("sessions", "show", "cli:direct").out
    shown = command("sessions", "show", "cli:direct", "--undone")
    assert "Ada" in shown.out
    assert "undone" in shown.out
    assert [row["undone"] for row in command("sessions", "show", "cli:direct", "--undone", "--json").json][
        :2
    ] == [True, True]


def test_where_replay_begins_is_shown(command: Command):
    command("chat", stdin=b"My name is Ada.\n/new\nHi\n")
    assert "from here on it is sent" in command("sessions", "show", "cli:direct").out


@pytest.mark.parametrize("form", ["openai", "records"])
def test_out_and_in_again(said: Command, form: str, tmp_path: Path):
    out = tmp_path / "out.json"
    assert said("sessions", "export", "cli:direct", "--as", form, "--output", out).code == 0
    assert said("sessions", "import", out, "--session", "back").code == 0
    assert said("say", "What is my name?", "--session", "back").out == "Your name is Ada.\n"
    assert said("sessions", "import", out, "--session", "back").code == 2
    assert said("check", out).code == 0 if form == "openai" else True


def test_markdown_is_to_read(said: Command):
    text = said("sessions", "export", "cli:direct", "--as", "markdown").out
    assert text.startswith("# cli:direct\n")
    assert "**user**\n\nMy name is Ada.\n" in text
    assert "> `read_file`" in text
    assert said("sessions", "export", "nobody").code == 2


CLAUDE = [
    {"type": "user", "uuid": "1", "parentUuid": None, "sessionId": "s-1",
     "message": {"role": "user", "content": "My name is Ada."}},
    {"type": "assistant", "uuid": "2", "parentUuid": "1", "sessionId": "s-1",
     "message": {"id": "m", "role": "assistant", "content": [{"type": "text", "text": "Hello Ada."}]}},
]  # fmt: skip
NANOBOT = [
    {"_type": "metadata", "key": "telegram:7", "metadata": {}},
    {"role": "user", "content": "My name is Ada.", "timestamp": "x"},
    {"role": "assistant", "content": "Hello Ada.", "timestamp": "x"},
]
SHAREGPT = [
    {
        "id": "g1",
        "conversations": [{"from": "human", "value": "My name is Ada."}, {"from": "gpt", "value": "Hello."}],
    }
]


@pytest.mark.parametrize(
    ("values", "key", "source"),
    [(CLAUDE, "s-1", "claude-code"), (NANOBOT, "telegram:7", "nanobot"), (SHAREGPT, "g1", "sharegpt")],
)
def test_what_other_programs_keep(command: Command, write: Any, values: list[Any], key: str, source: str):
    path = write(*values, name="talk.jsonl")
    done = command("sessions", "import", path)
    assert done.code == 0, done.err
    assert source in done.err
    assert command("say", "What is my name?", "--session", key).out == "Your name is Ada.\n"


def test_lists_of_any_api_also_many_of_them(
    command: Command, write: Any, chat: list[Any], claude: dict[str, Any]
):
    assert command("sessions", "import", write(chat, name="chat.json")).code == 0
    done = command("sessions", "import", write(claude, name="claude.json"))
    assert "system message" in done.err
    many = write([chat, chat], name="many.json")
    assert [row["session"] for row in command("sessions", "import", many, "--json").json] == [
        "import:many-1",
        "import:many-2",
    ]
    assert (
        len(
            command(
                "sessions", "import", "-", "--session", "in", "--json", stdin=json.dumps(chat).encode()
            ).json
        )
        == 1
    )
    assert command("explain", "import:chat").code == 2


@pytest.mark.parametrize(
    "text", ["", "nonsense", "{}", "[]", '[{"from": 1}]', '{"conversations": [{"from": "x", "value": "y"}]}']
)
def test_what_cannot_be_imported(command: Command, write: Any, text: str):
    done = command("sessions", "import", write(text, name="x.json"))
    assert done.code == 2
    assert done.err.startswith("backstory: ")
    assert command("sessions", "import", write("[]", name="x.json"), "--source", "martian").code == 2


# --- explain -----------------------------------------------------------------------------------


def test_explain_shows_a_request(said: Command):
    done = said("explain", "cli:direct")
    assert done.code == 0
    for word in ("system", "tools", "history", "message", "█", "My name is Ada.", "left out", "billed"):
        assert word in done.out, word
    assert all(len(line) <= 100 for line in done.out.splitlines())
    first = said("explain", "cli:direct", 1, "--json").json
    assert (first["call"], first["proven"], first["why"]) == (1, True, "first request")
    assert said("explain", "cli:direct", "--roles").out.splitlines()[-2:] == [
        "assistant → read_file",
        "tool ← read_file",
    ]
    assert said("explain", "cli:direct", "-2").code == 0
    body = said("explain", "cli:direct", "--body").json
    assert body["messages"][0]["role"] == "system"
    assert said("explain", "cli:direct", 99).code == 2
    assert said("explain", "nobody").code == 2
    assert said("explain", "cli:direct", 1, "--diff", 1, 2).code == 2


def test_explain_shows_what_changed(said: Command, place: Path):
    (place / "AGENTS.md").write_text("Answer in Latin.\n")
    said("say", "And now?")
    done = said("explain", "cli:direct", "--diff", "-2", "-1")
    assert "+ Answer in Latin." in done.out
    assert "tools: the same" in done.out
    assert said("explain", "cli:direct", "--diff", 1, 2, "--json").json["gone"] == []
    assert "AGENTS.md came or went in the middle of the conversation" in " ".join(
        said("explain", "cli:direct").out.split()
    )


# --- doctor ------------------------------------------------------------------------------------


def test_doctor_reports_and_mends(said: Command, place: Path):
    assert "all whole" in said("doctor").err
    log = place / "sessions" / "cli=direct.jsonl"
    lines = log.read_bytes().split(b"\n")
    log.write_bytes(b"\n".join([*lines[:3], b"{broken", *lines[4:]]))
    done = said("doctor")
    assert (done.code, "json after record" in done.out) == (1, True)
    report = said("doctor", "--json").json
    assert [row["sound"] for row in report] == [False]
    mended = said("doctor", "--repair")
    assert (mended.code, "mended" in mended.out, "kept" in mended.out) == (0, True, True)
    assert said("doctor", "--session", "cli:direct").code == 0
    assert said("doctor", "--session", "nobody").code == 2


def test_no_traceback_whatever_is_wrong(said: Command, place: Path, monkeypatch: pytest.MonkeyPatch):
    log = place / "sessions" / "cli=direct.jsonl"
    log.write_bytes(log.read_bytes().replace(b'"version":1', b'"version":99', 1))
    for words in (["say", "Hi"], ["sessions", "show", "cli:direct"], ["explain", "cli:direct"], ["chat"]):
        done = said(*words, stdin=b"Hi\n")
        assert done.code in (1, 2), words
        assert "Traceback" not in done.err + done.out
        assert "newer" in done.err
    assert said("doctor").code == 1
