"""The story of one conversation that is killed in the middle of a tool call, and loses nothing. Played for real.

    python examples/story.py

Three processes, one workspace, no network, no key: an offline stand-in answers from what it is sent and nothing else,
so that a right answer proves that the context was right.

1. The first process hears a name, reads `pyproject.toml` by a tool, and is then asked for three more files. While the
   second is being read, it is killed (SIGKILL).
2. A second process opens the same workspace, recovers the turn, and shows the healed chain.
3. It is asked for the name and for the Python version. Both come from the log.
4. `backstory explain` says what the model saw, and why.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import backstory
from backstory.agent.toolbox import Workspace, read_file
from backstory.models import ExtractiveModel

KEY = "cli:story"
HERE = Path(__file__).resolve().parent
COLOURS = (sys.stdout.isatty() and "NO_COLOR" not in os.environ) or "FORCE_COLOR" in os.environ


def colour(code: str, text: str) -> str:
    return f"\x1b[{code}m{text}\x1b[0m" if COLOURS else text


def chapter(text: str) -> None:
    print(f"\n{colour('1;36', text)}", flush=True)


def said(who: str, text: str) -> None:
    print(f"  {colour('1', who + ':'):<20} {text}", flush=True)


def touch(path: Path) -> None:
    path.touch()


def slow_read_file(root: Path) -> backstory.Tool:
    """`read_file`, but one of the files takes its time, and says when it is being read."""
    plain = read_file(Workspace(root))

    @backstory.tool(name="read_file", description=plain.description)
    async def slow(path: str) -> str:
        print(f"  {colour('2', f'… tool read_file({path!r})')}", flush=True)
        if path == "orders.txt":
            touch(root / ".reading")
            await asyncio.sleep(60)
        return str(await asyncio.to_thread(plain, path))

    return slow


async def first_process(root: Path) -> None:
    async with backstory.open(root, model=ExtractiveModel(), tools=[slow_read_file(root)], lease_ttl=2) as bs:
        for text in (
            "Hello! My name is Xiao Zhang, and I keep the books of a tea shop.",
            "Read pyproject.toml. Which Python version does it need?",
            "Now read stock.txt, orders.txt and prices.txt.",
        ):
            said("you", text)
            said("assistant", str(await bs.say(KEY, text)))


async def second_process(root: Path) -> None:
    async with backstory.open(
        root, model=ExtractiveModel(), tools=[read_file(Workspace(root))], lease_ttl=2
    ) as bs:
        for text in ("What is my name?", "Which Python version does the project need?"):
            said("you", text)
            reply = await bs.say(KEY, text)
            if reply.recovered:
                for healed in reply.recovered:
                    print(f"  {colour('33', 'healed')}  {healed.replace('_', ' ')}")
            said("assistant", str(reply))


def workspace() -> Path:
    root = Path(tempfile.mkdtemp(prefix="backstory-story-"))
    shutil.copy(HERE.parent / "pyproject.toml", root)
    (root / "stock.txt").write_text("jasmine 12 boxes\npu'er 3 cakes\n龙井 8 罐\n", encoding="utf-8")
    (root / "orders.txt").write_text("order 1041: jasmine, 4 boxes\n", encoding="utf-8")
    (root / "prices.txt").write_text("jasmine 24.00\npu'er 180.00\n", encoding="utf-8")
    return root


def play() -> int:
    root = workspace()
    began = time.monotonic()
    chapter("1. A first process: a name, a file, then three files at once")
    child = subprocess.Popen([sys.executable, __file__, "first", str(root)])
    while child.poll() is None and not (root / ".reading").exists():
        time.sleep(0.02)
    if child.poll() is not None:
        print("the first process ended before it could be killed", file=sys.stderr)
        return 1
    child.send_signal(signal.SIGKILL)
    child.wait()
    print(
        f"  {colour('1;31', 'SIGKILL')}: the process is gone, in the middle of the second of three tool calls"
    )

    chapter("2. A second process opens the same workspace, and is asked something else")
    code = subprocess.run([sys.executable, __file__, "second", str(root)], check=False).returncode
    if code:
        return code

    chapter("3. What the model saw: the chain of roles, and the ledger of the last request")
    for arguments in (["explain", KEY, "--roles"], ["explain", KEY]):
        command = [sys.executable, "-m", "backstory", *arguments, "--workspace", str(root)]
        print(f"  {colour('2', '$ backstory ' + ' '.join(arguments))}", flush=True)
        code = subprocess.run(command, check=False).returncode
        if code:
            return code
    shutil.rmtree(root)
    print(f"\n{colour('1;32', 'Nothing was lost')} in {time.monotonic() - began:.1f} seconds.")
    return 0


if __name__ == "__main__":
    if len(sys.argv) == 3:
        asyncio.run({"first": first_process, "second": second_process}[sys.argv[1]](Path(sys.argv[2])))
        sys.exit(0)
    sys.exit(play())
