"""The READMEs' Python is run, so that the first thing anybody tries works."""

import re
from pathlib import Path

import pytest

import backstory


@pytest.mark.parametrize("readme", ["README.md", "README.zh-CN.md"])
def test_python_in_the_readme_runs(root: Path, readme: str):
    if "fit" not in backstory.__all__:
        pytest.skip("`fit`, with which the READMEs open, does not exist yet")
    blocks = re.findall(
        r"^```python\n(.*?)^```", (root / readme).read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE
    )
    assert blocks
    for block in blocks:
        exec(compile(block, readme, "exec"), {"__name__": "readme"})
