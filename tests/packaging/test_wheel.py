"""The wheel, as a stranger gets it: built, installed into an empty environment, and used from elsewhere."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import backstory

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def run(*command: str | Path, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("COV_", "PYTHON"))}
    return subprocess.run(command, cwd=cwd, env=inherited | environment, capture_output=True, text=True)


@pytest.fixture(scope="module")
def wheel(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built with the hatchling that the dev extra brought, so no network is needed."""
    out = tmp_path_factory.mktemp("wheel")
    options = ("--no-deps", "--no-build-isolation", "--disable-pip-version-check", "--wheel-dir")
    done = run(sys.executable, "-m", "pip", "wheel", *options, out, root, cwd=out)
    assert done.returncode == 0, done.stderr
    (path,) = out.glob("*.whl")
    return path


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of an environment that holds the wheel and what it requires, and nothing else."""
    place = tmp_path_factory.mktemp("clean")
    assert run(sys.executable, "-m", "venv", place, cwd=place).returncode == 0
    python = place / ("Scripts" if os.name == "nt" else "bin") / "python"
    done = run(python, "-m", "pip", "install", "--disable-pip-version-check", "--quiet", wheel, cwd=place)
    if done.returncode and "No matching distribution found for" in done.stderr:
        pytest.skip("a dependency of the wheel cannot be fetched: no package index is within reach")
    assert done.returncode == 0, done.stderr
    return python


def test_wheel_holds_the_package_and_nothing_else(wheel: Path, root: Path):
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = root / "src"
    expected = {
        path.relative_to(source).as_posix()
        for path in (source / "backstory").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in names if ".dist-info/" not in name} == expected
    assert "backstory/py.typed" in names
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_wheel_works_in_an_empty_environment(python: Path, tmp_path: Path):
    program = (
        "import backstory, importlib.metadata as metadata\n"
        "assert metadata.version('backstory') == backstory.__version__\n"
        "for name in backstory.__all__: getattr(backstory, name)\n"
        "print(backstory.__version__)"
    )
    done = run(python, "-c", program, cwd=tmp_path)
    assert (done.returncode, done.stdout.strip()) == (0, backstory.__version__), done.stderr


def test_counting_needs_no_network(python: Path, tmp_path: Path):
    """With every proxy a dead end and no cache to fall back on, the vocabularies must come from the wheel."""
    program = (
        "from backstory.tokens import count_text\n"
        "print(count_text('hello world', 'o200k_base'), count_text('你好，世界', 'cl100k_base'))"
    )
    dead = "http://127.0.0.1:9"
    done = run(
        python, "-c", program, cwd=tmp_path,
        HTTP_PROXY=dead, HTTPS_PROXY=dead, http_proxy=dead, https_proxy=dead, TIKTOKEN_CACHE_DIR=str(tmp_path),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert [int(count) for count in done.stdout.split()] == [2, 6]


def test_the_command_is_installed(python: Path, tmp_path: Path):
    if not (Path(backstory.__file__).parent / "cli").is_dir():
        pytest.skip("there is no command line yet")
    done = run(python.parent / "backstory", "--help", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "replay" in done.stdout
