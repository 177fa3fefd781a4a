"""The examples run, the recording is what its script writes, and the READMEs' figures are those of the demo."""

import contextlib
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize("name", ["three_messages.py", "fit_in_a_loop.py"])
def test_an_example_runs(root: Path, name: str):
    done = subprocess.run(
        [sys.executable, root / "examples" / name], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert "tokens" in done.stdout


def test_the_recording_is_what_its_script_writes(root: Path):
    program = "import sys, json, record_agent_run as r; json.dump([r.record(), r.TOOLS], sys.stdout)"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, cwd=root / "examples"
    )
    messages, tools = json.loads(done.stdout)
    text = (root / "examples" / "agent_run.jsonl").read_text(encoding="utf-8")
    assert [json.loads(line) for line in text.splitlines()] == messages
    assert json.loads((root / "examples" / "agent_tools.json").read_text(encoding="utf-8")) == tools


def test_the_recording_has_what_real_logs_have(command, root: Path):
    found = command("check", root / "examples" / "agent_run.jsonl", "--target", "anthropic", "--json").json
    rules = {problem["rule"] for problem in found["problems"]}
    assert {"call.arguments", "result.duplicate", "result.missing", "call.id_twice"} <= rules
    assert found["messages"] >= 60


def recipe(root: Path) -> list[str]:
    """The arguments with which `make demo` calls `replay`."""
    found = re.search(
        r"backstory replay (.*?)\$\(ARGS\)", (root / "Makefile").read_text(encoding="utf-8"), re.DOTALL
    )
    assert found
    words = found[1].replace("\\\n", " ").split()
    return [str(root / word) if word.startswith("examples/") else word for word in words]


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_figures_of_the_demo_are_those_of_the_demo(command, root: Path, readme: str):
    walks = command("replay", *recipe(root), "--json").json["strategies"]
    text = (root / readme).read_text(encoding="utf-8")
    for walk in walks:
        (row,) = re.findall(rf"^\| `{walk['strategy']}` \|.*$", text, re.MULTILINE)
        totals = walk["totals"]
        for figure in (
            f"{totals['input']:,}",
            f"{totals['cached'] / totals['input']:.1%}".replace("%", " %"),
            f"{totals['largest']:,}",
            f"${totals['cost']:.3f}",
        ):
            assert f" {figure} |" in row


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_what_the_readme_says_of_others_is_what_was_measured(root: Path, readme: str):
    def rows(text: str) -> list[list[str]]:
        found = [line for line in text.splitlines() if re.match(r"\| \w.* \|$", line)]
        return [[cell.strip() for cell in line.strip("|").split("|")] for line in found]

    measured = (root / "docs" / "measurements.md").read_text(encoding="utf-8")
    turns, requests = (
        {name: cells for name, *cells in rows(part)}
        for part in re.split(r"^A durable turn|^A request of|^Everything else", measured, flags=re.MULTILINE)[
            1:3
        ]
    )
    told = re.split(r"^## ", (root / readme).read_text(encoding="utf-8"), flags=re.MULTILINE)[2]
    compared = rows(told)
    assert len(compared) == 5
    for name, turn, request in compared:
        assert (turn, request) == (turns[name][4], requests[name][3]), name


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_output_in_the_readme_is_the_output(root: Path, readme: str):
    text = (root / readme).read_text(encoding="utf-8")
    block = re.search(r"^```python\n(.*?)^```\n+```text\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert block, "the first Python block is followed by what it prints"
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(block[1], readme, "exec"), {"__name__": "readme"})
    assert printed.getvalue() == block[2]


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_the_pieces_of_the_demo_in_the_readme_are_of_the_demo(
    command, story: list[str], long_session: list[str], root: Path, monkeypatch, readme: str
):
    monkeypatch.setenv("COLUMNS", "80")
    told, long, replayed = re.findall(
        r"^```console\n(.*?)^```", (root / readme).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    printed = command("replay", *recipe(root)).out.splitlines()
    assert [line for line in replayed.splitlines() if line not in printed] == []
    assert [line for line in told.splitlines() if line not in story] == []
    assert [line for line in long.splitlines() if line not in long_session] == []


@pytest.fixture(scope="module")
def story(root: Path) -> list[str]:
    """What the first part of `make demo` prints: a conversation that is killed for real."""
    done = subprocess.run(
        [sys.executable, root / "examples" / "story.py"],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def talked(root: Path, *arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, root / "examples" / "long_session.py", *arguments],
        capture_output=True,
        text=True,
        check=False,
        encoding="utf-8",
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


@pytest.fixture(scope="module")
def long_session(root: Path) -> list[str]:
    """What the second part of `make demo` prints."""
    return talked(root, "--brief")


def test_after_a_hundred_turns_in_a_small_window_the_first_is_known_and_explain_says_why(
    root: Path, long_session
):
    whole = talked(root)
    for lines in (whole, long_session):
        text = "\n".join(lines)
        assert "Your name is Xiao Zhang." in text
        assert "The invoice number of our supplier is TX-20417." in text
        assert "a summary stands for them (by extract)" in text
        assert "- Never order from Meyer & Sons again." in text
    assert any(line.startswith("  identity") for line in whole)


def test_the_story_of_the_demo_loses_nothing(story: list[str]):
    text = "\n".join(story)
    assert "Your name is Xiao Zhang." in text
    assert text.count('requires-python = ">=3.11"') >= 2
    assert "healed  read file: outcome unknown" in text
    assert "healed  read file: not started" in text
    assert "Nothing was lost" in text
