"""Prose travels with code: what exists is documented, and what is documented exists."""

import argparse
import re
import tomllib
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest

from tests.architecture.test_floors import FLOORS
from tests.architecture.tree import ROOT, SRC, modules

READMES = ("README.md", "README.zh-CN.md")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def pages() -> list[Path]:
    return [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def prose(text: str) -> str:
    """The text without its fenced blocks, whose brackets are not links and whose hashes are not headings."""
    return re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)


def anchors(text: str) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    titles = re.findall(r"^#+ +(.+?) *$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("page", pages(), ids=lambda page: page.name)
def test_links_resolve(page: Path):
    broken = []
    for link in re.findall(r"\]\(([^)\s]+)\)", prose(page.read_text(encoding="utf-8"))):
        if re.match(r"https?://|mailto:", link):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text(encoding="utf-8"))):
            broken.append(link)
    assert not broken, "these lead nowhere"


@pytest.mark.parametrize("readme", READMES)
def test_where_is_x_names_every_folder(readme: str):
    text = read(readme)
    units = {
        f"src/backstory/{unit}" + (".py" if (SRC / "backstory" / f"{unit}.py").is_file() else "/")
        for unit in {module.unit for module in modules()} - {"", "__main__"}
    }
    assert not [unit for unit in sorted(units) if unit not in text]


@pytest.mark.parametrize("readme", READMES)
def test_readme_names_no_path_that_is_missing(readme: str):
    named = re.findall(r"`((?:src|docs|examples|tests|benchmarks|scripts)/[\w./-]*)`", read(readme))
    assert not [path for path in named if not (ROOT / path).exists()]


def test_design_lists_the_floors_in_order():
    floors = read("docs/design.md").split("\n## Floors\n")[1].split("\n## ")[0]
    rows = re.findall(r"^\| (`[^|]+`) \|", floors, re.MULTILINE)
    assert [tuple(row.replace("`", "").split(" · ")) for row in rows] == list(FLOORS)


def test_every_dependency_is_accounted_for():
    project = tomllib.loads(read("pyproject.toml"))
    declared = list(project["build-system"]["requires"] + project["project"]["dependencies"])
    for extra in project["project"]["optional-dependencies"].values():
        declared += extra
    wanted = {re.split(r"[\[<>=!~; ]", line)[0] for line in declared}
    accounted = set(re.findall(r"^\| `([\w.-]+)` \|", read("docs/dependencies.md"), re.MULTILINE))
    assert wanted == accounted


def test_every_setting_is_documented():
    """Environment variables are the settings there are; each is named somewhere in README or docs."""
    text = "".join(page.read_text(encoding="utf-8") for page in pages())
    used = {name for module in modules() for name in re.findall(r"\bBACKSTORY_[A-Z_]+\b", module.source)}
    assert not sorted(name for name in used if name not in text)


def commands(
    parser: argparse.ArgumentParser, name: str = ""
) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    """Every command of a parser, nested ones too, by the words that call it; "" is the parser itself."""
    yield name, parser
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for word, sub in action.choices.items():
                yield from commands(sub, f"{name} {word}".strip())


def undocumented(parser: argparse.ArgumentParser, text: str) -> list[str]:
    """Commands without a section `## … backstory NAME …`, and options missing from it and from the preamble."""
    preamble, *rest = re.split(r"^## ", text, flags=re.MULTILINE)
    missing = []
    for name, sub in commands(parser):
        wanted = re.compile(rf"\bbackstory {re.escape(name)}(?![\w-])")
        found = [section for section in rest if wanted.search(section.split("\n", 1)[0])]
        if name and not found:
            missing.append(name)
            continue
        for action in sub._actions:
            option = max(action.option_strings, key=len, default="")
            if option in ("", "--help"):
                continue
            if not re.search(rf"(?<![\w-]){re.escape(option)}(?![\w-])", "".join([preamble, *found])):
                missing.append(f"{name} {option}".strip())
    return missing


def test_every_command_and_option_is_documented():
    assert not undocumented(import_module("backstory.cli.main").build_parser(), read("docs/cli.md"))


def test_undocumented_commands_and_options_are_seen():
    parser = argparse.ArgumentParser()
    parser.add_argument("--version", action="store_true")
    sub = parser.add_subparsers()
    sub.add_parser("fit").add_argument("-b", "--budget")
    sub.add_parser("check").add_argument("--json")
    assert undocumented(parser, "") == ["--version", "fit", "check"]
    page = "--version\n## `backstory fit FILE`\n--budget-share\n## `backstory check FILE`\n--json\n"
    assert undocumented(parser, page) == ["fit --budget"]
