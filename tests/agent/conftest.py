"""A workspace with something in it, something outside of it, and a way to call its tools as a model does."""

import json
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from backstory.agent.execute import execute
from backstory.agent.toolbox.workspace import Workspace
from backstory.agent.tools import Tool
from backstory.messages import ToolCall, ToolResult, texts

Ask: TypeAlias = Callable[..., Awaitable[str]]

SECRET = "the secret outside"


@pytest.fixture
def outside(tmp_path: Path) -> Path:
    """A folder beside the workspace, whose name begins like the workspace's."""
    folder = tmp_path / "space-not"
    folder.mkdir()
    (folder / "secret.txt").write_text(SECRET)
    return folder


@pytest.fixture
def root(tmp_path: Path, outside: Path) -> Path:
    folder = tmp_path / "space"
    (folder / "src" / "deep").mkdir(parents=True)
    (folder / "docs").mkdir()
    (folder / "sessions").mkdir()
    (folder / "README.md").write_text("# Read me\nfirst\nsecond\n")
    (folder / "src" / "a.py").write_text("def f():\n    return 1\n")
    (folder / "src" / "deep" / "b.py").write_text("from a import f\n")
    (folder / "docs" / "读我.md").write_text("你好,世界\n")
    (folder / "sessions" / "cli=direct.jsonl").write_text('{"secret": "somebody else"}\n')
    (folder / ".env").write_text("KEY=secret\n")
    (folder / "src" / ".env").write_text("KEY=secret\n")
    return folder


@pytest.fixture
def space(root: Path) -> Workspace:
    return Workspace(root)


def asking(tools: Iterable[Tool[..., Any]]) -> Ask:
    """Call a tool by its name; gives the text of the result, which begins with "Error: " where it is one."""
    known = {made.name: made for made in tools}

    async def ask(name: str, /, **arguments: Any) -> str:
        result: ToolResult = await execute(
            ToolCall(id="1", name=name, arguments=json.dumps(arguments)), known
        )
        text = texts(result.content)
        assert text.startswith("Error: ") is result.is_error
        return text

    return ask
