"""The READMEs' Python is run, so that the first thing anybody tries works."""

import re
from pathlib import Path

import pytest


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_python_in_the_readme_runs(root: Path, readme: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    for key in ("OPENAI_API_KEY", "ANTHROPIC_API_KEY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(key, raising=False)
    blocks = re.findall(
        r"^```python\n(.*?)^```", (root / readme).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert blocks
    for block in blocks:
        exec(compile(block, readme, "exec"), {"__name__": "readme"})
