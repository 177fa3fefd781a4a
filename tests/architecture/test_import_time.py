"""Importing backstory takes no more than three times what three modules of the standard library take.

The measure is CPU time of whole interpreters, user and system, as the kernel accounts for it: other load on the
machine then matters little. Runs alternate, and the least of each is compared, since noise only ever adds. Where
the first rounds are too noisy, more rounds are taken before the test gives up.
"""

import os
import subprocess
import sys

import pytest

LIMIT = 3.0
ROUNDS, MOST_ROUNDS = 7, 40

OURS = "import backstory"
THEIRS = "import sqlite3, json, asyncio"


def cpu_seconds(program: str) -> float:
    """The CPU time of one interpreter that runs `program`, start and end included."""
    # A coverage tool may ask child processes to report to it, and without byte code we would time the compiler.
    skipped = ("COV_", "COVERAGE_", "PYTHONDONTWRITEBYTECODE", "PYTHONPROFILEIMPORTTIME")
    environment = {name: value for name, value in os.environ.items() if not name.startswith(skipped)}
    process = subprocess.Popen([sys.executable, "-c", program], env=environment)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.returncode == 0, program
    return usage.ru_utime + usage.ru_stime


@pytest.mark.skipif(
    not hasattr(os, "wait4"), reason="this system does not account CPU time per child (os.wait4)"
)
def test_import_is_cheap():
    for program in (OURS, THEIRS):
        cpu_seconds(program)  # writes the byte code
    ours: list[float] = []
    theirs: list[float] = []
    ratio = float("inf")
    while len(ours) < MOST_ROUNDS and (len(ours) < ROUNDS or ratio > LIMIT):
        ours.append(cpu_seconds(OURS))
        theirs.append(cpu_seconds(THEIRS))
        ratio = min(ours) / min(theirs)
    print(f"import backstory: {min(ours) * 1000:.1f} ms, {ratio:.2f} times {THEIRS!r}, {len(ours)} rounds")
    assert ratio <= LIMIT
