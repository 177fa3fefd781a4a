"""Runs commands: in this process, which is quick, or in one of their own, which is the truth."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from backstory.cli.main import main


@dataclass
class Done:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)


Command = Callable[..., Done]


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch):
    for name in ("NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "100")


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Command:
    """`command("fit", path, "--json", stdin=b"…")` in this process."""

    def run(*words: object, stdin: bytes = b"") -> Done:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        try:
            code = main([str(word) for word in words])
        except SystemExit as stopped:
            code = stopped.code if isinstance(stopped.code, int) else 1
        out, err = capsys.readouterr()
        return Done(code, out, err)

    return run


def start(*words: object, **settings: Any) -> "subprocess.Popen[bytes]":
    environment = {**os.environ, **settings.pop("env", {})}
    return subprocess.Popen(
        [sys.executable, "-m", "backstory", *map(str, words)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        **settings,
    )


@pytest.fixture
def process() -> Command:
    """The same in a process of its own."""

    def run(*words: object, stdin: bytes = b"", env: dict[str, str] | None = None) -> Done:
        child = start(*words, env=env or {})
        out, err = child.communicate(stdin, timeout=60)
        return Done(child.returncode, out.decode(errors="replace"), err.decode(errors="replace"))

    return run


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a value as JSON, several as JSON Lines, text or bytes as they are; the file's path."""

    def to(*values: Any, name: str = "given.json") -> Path:
        path = tmp_path / name
        if len(values) == 1 and isinstance(values[0], bytes):
            path.write_bytes(values[0])
        elif len(values) == 1 and isinstance(values[0], str):
            path.write_text(values[0], encoding="utf-8")
        else:
            path.write_text(
                "\n".join(json.dumps(value, ensure_ascii=False) for value in values), encoding="utf-8"
            )
        return path

    return to


CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "你好，天气怎么样？"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": "a", "type": "function", "function": {"name": "weather", "arguments": '{"town": "杭州"}'}}
        ],
    },
    {"role": "tool", "tool_call_id": "a", "content": "18 °C，小雨"},
    {"role": "assistant", "content": "杭州 18 度，有小雨。"},
    {"role": "user", "content": "And tomorrow?"},
]
CLAUDE = {
    "system": "Be brief.",
    "messages": [
        {"role": "user", "content": "Weather?"},
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t1", "name": "weather", "input": {"town": "Zürich"}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t1", "content": "fog"}]},
    ],
    "tools": [
        {
            "name": "weather",
            "description": "The weather",
            "input_schema": {"type": "object", "properties": {}},
        }
    ],
}
BROKEN = [*CHAT[:3], {"role": "user", "content": "Never mind."}]


@pytest.fixture
def chat() -> list[Any]:
    return json.loads(json.dumps(CHAT))


@pytest.fixture
def claude() -> dict[str, Any]:
    return json.loads(json.dumps(CLAUDE))


@pytest.fixture
def broken() -> list[Any]:
    return json.loads(json.dumps(BROKEN))
