"""Ten thousand sessions in one process: what is kept of them is bounded."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

PROGRAM = """
import asyncio, gc, sys
import backstory

def resident():
    with open("/proc/self/status") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS")) / 1024

async def main():
    async with backstory.open(sys.argv[1], target="openai_chat", budget=8_000, durability="process") as bs:
        async def talk(key):
            async with bs.turn(key, f"hello {key} " + "word " * 60) as turn:
                await turn.request()
                await turn.record({"role": "assistant", "content": f"fine {key} " + "answer " * 100})
        for number in range(200):
            await talk(f"first {number}")
        gc.collect()
        before = resident()
        for number in range(10_000):
            await talk(f"s{number}")
        gc.collect()
        print(resident() - before)

asyncio.run(main())
"""


@pytest.mark.slow
@pytest.mark.skipif(not os.path.exists("/proc/self/status"), reason="resident memory is read from /proc")
def test_ten_thousand_sessions_take_little_memory(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, f"sqlite:///{tmp_path}/chat.db"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert float(done.stdout) < 64, "MB over the start"
