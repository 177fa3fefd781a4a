"""Ours beside what people use: a turn, a request, 64 sessions at once, bytes, memory, import. One run, one machine.

    python benchmarks/against.py               # 0, 100, 1,000, 10,000 messages held; about ten minutes
    python benchmarks/against.py --long        # 50,000 as well; about half an hour
    python benchmarks/against.py --quick       # a look
    python benchmarks/against.py --counted     # requests alone, where those who do not count exactly are made to
    python benchmarks/against.py --write       # and put tables and plot into docs/measurements.md

Each contestant has an environment of its own in .venv-peers, made here, and a script in benchmarks/peers that uses
the library as its documentation shows. The conversation is the same for all: turns of four messages (the user's 60
tokens, a call, its result of 400, an answer of 120), English and Chinese mixed, no text twice. A turn is as durable as
the library makes it: ours has four durable points, pydantic-ai's row a run has one, nanobot's file is not synced at
all. A request is the newest messages of about 8,000 tokens: ours is the whole body, counted, legal and proven to extend
the one before; theirs are messages, by tokens where the library counts them and by number where it does not.

CPU of the whole process, the least of several rounds; trust the ratios. A contestant that cannot be installed, or
fails, is named with its reason, and the others go on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
HOME = ROOT / ".venv-peers"
REPORT = ROOT / "docs" / "measurements.md"
PLOT = ROOT / "docs" / "figures" / "turns.svg"
BEGIN, END = "<!-- against: written by benchmarks/against.py --write -->", "<!-- against: end -->"
BEGIN_COUNTED = "<!-- against, counted: written by benchmarks/against.py --counted --write -->"
END_COUNTED = "<!-- against, counted: end -->"


@dataclass(frozen=True, kw_only=True)
class Contestant:
    """`module` is what its import costs are measured of, `most` the messages from which on it would take too long."""

    name: str
    script: str
    module: str
    install: tuple[str, ...] = ()
    arguments: tuple[str, ...] = ()
    most: int = 1_000_000

    def python(self) -> str:
        """Its Python, with everything installed. Raises `CalledProcessError`."""
        if not self.install:
            return sys.executable
        home = HOME / self.script.removeprefix("with_").removesuffix(".py")
        python = home / "bin" / "python"
        if not python.exists():
            subprocess.run([sys.executable, "-m", "venv", home], check=True)
        pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *self.install]
        subprocess.run(pip, check=True, capture_output=True)
        return str(python)


CONTESTANTS = (
    Contestant(
        name="Backstory, memory", script="ours.py", module="backstory", arguments=("memory",), most=1_000
    ),
    Contestant(name="Backstory, files", script="ours.py", module="backstory", arguments=("files",)),
    Contestant(name="Backstory, SQLite", script="ours.py", module="backstory", arguments=("sqlite",)),
    Contestant(
        name="openai-agents SQLiteSession",
        script="with_openai_agents.py",
        module="agents",
        install=("openai-agents==0.24.0",),
    ),
    Contestant(
        name="nanobot-ai",
        script="with_nanobot.py",
        module="nanobot.session.manager",
        install=("nanobot-ai==0.3.5",),
    ),
    Contestant(
        name="langgraph SqliteSaver",
        script="with_langgraph.py",
        module="langgraph.graph",
        install=("langgraph==1.2.24", "langgraph-checkpoint-sqlite==3.1.2"),
    ),
    Contestant(
        name="google-adk DatabaseSessionService",
        script="with_google_adk.py",
        module="google.adk.sessions",
        install=("google-adk[db]==2.13.0", "aiosqlite"),
        most=1_000,
    ),
    Contestant(
        name="llama-index-core Memory",
        script="with_llama_index.py",
        module="llama_index.core.memory",
        install=("llama-index-core==0.14.25", "aiosqlite"),
        most=10_000,
    ),
    Contestant(
        name="pydantic-ai, a row a run",
        script="with_pydantic_ai.py",
        module="pydantic_ai",
        install=("pydantic-ai-slim==2.68.0",),
    ),
)

COUNTED = (
    *(contestant for contestant in CONTESTANTS if not contestant.install),
    *(
        replace(
            contestant,
            name=f"{contestant.name}, {what}",
            install=(*contestant.install, "tiktoken==0.14.0"),
            arguments=(how,),
        )
        for contestant in CONTESTANTS
        if contestant.module in ("agents", "langgraph.graph", "pydantic_ai")
        for how, what in (("counted", "counted"), ("remembered", "counts remembered"))
    ),
)
"""Within 8,000 tokens by count: ours, and those that go by number or by an estimate (benchmarks/peers/counting.py)."""


@dataclass(kw_only=True)
class Figures:
    contestant: Contestant
    found: dict[str, Any] = field(default_factory=dict)
    imported: float = 0.0
    reason: str = ""

    def at(self, held: int, what: str) -> float | None:
        value: float | None = self.found.get("held", {}).get(str(held), {}).get(what)
        return value


def measured(contestant: Contestant, asked: dict[str, Any], limit: float) -> Figures:
    """What one contestant's script says; its `reason` where it says nothing."""
    figures = Figures(contestant=contestant)
    try:
        python = contestant.python()
    except subprocess.CalledProcessError as error:
        last = (error.stderr or b"").decode(errors="replace").strip().splitlines()[-1:]
        figures.reason = f"cannot be installed here: {' '.join(last)}"
        return figures
    held = [number for number in asked["held"] if number <= contestant.most]
    given = json.dumps({**asked, "held": held})
    script = ROOT / "benchmarks" / "peers" / contestant.script
    with tempfile.TemporaryDirectory() as home:
        environment = {
            **os.environ,
            "HOME": home,
            "PYTHONPATH": str(ROOT / "src") if not contestant.install else "",
        }
        command = [python, str(script), given, *contestant.arguments]
        try:
            done = subprocess.run(
                command, capture_output=True, text=True, check=False, timeout=limit, env=environment
            )
        except subprocess.TimeoutExpired:
            figures.reason = f"took more than {limit:,.0f} s"
            return figures
        if done.returncode:
            figures.reason = f"failed: {' '.join(done.stderr.strip().splitlines()[-1:])[:200]}"
            return figures
        figures.found = json.loads(done.stdout.strip().splitlines()[-1])
        figures.imported = import_seconds(python, contestant.module, environment)
    return figures


CPU = "import time, {module}; print(time.process_time())"


def import_seconds(python: str, module: str, environment: dict[str, str]) -> float:
    """CPU seconds of an interpreter that imports a module, the least of three."""
    return min(
        float(subprocess.check_output([python, "-c", CPU.format(module=module)], env=environment, text=True))
        for _ in range(3)
    )


def row(figures: Figures, cells: list[str]) -> str:
    return f"| {figures.contestant.name} | {' | '.join(cells)} |"


def figure(value: float | None, digits: int = 2) -> str:
    return "" if value is None else f"{value:,.{digits}f}"


def requests(found: list[Figures], levels: list[int]) -> list[str]:
    """The lines of the table of requests, warm and cold at each number of messages held."""
    heads = [f"{kind}, {number:,}" for kind in ("warm", "cold") for number in levels]
    return [
        f"| | {' | '.join(heads)} |",
        "| --- |" + " ---: |" * len(heads),
        *(
            row(figures, [figure(figures.at(n, kind)) for kind in ("warm", "cold") for n in levels])
            for figures in found
        ),
    ]


def failures(found: list[Figures]) -> list[str]:
    return [f"\n{figures.contestant.name}: {figures.reason}" for figures in found if figures.reason]


def tables(found: list[Figures], asked: dict[str, Any]) -> str:
    """Everything as Markdown."""
    held = asked["held"]
    longest = [number for number in held if number]
    titles = [f"{number:,}" for number in held]
    lines = [f"A durable turn, CPU ms, at so many messages held (wall ms at {longest[-1]:,}):", ""]
    lines += [f"| | {' | '.join(titles)} | wall |", "| --- |" + " ---: |" * (len(held) + 1)]
    good = [figures for figures in found if not figures.reason]
    for figures in good:
        cells = [figure(figures.at(number, "cpu")) for number in held]
        lines.append(row(figures, [*cells, figure(figures.at(longest[-1], "wall"))]))
    lines += [
        "",
        "A request of 8,000 tokens, CPU ms, in a session in hand (warm) and in a fresh object (cold):",
        "",
        *requests(good, longest),
    ]
    lines += ["", "Everything else:", ""]
    lines += [
        f"| | {asked['sessions']} sessions at once, turns/s | bytes a message | memory, MB | import, CPU s |",
        "| --- |" + " ---: |" * 4,
    ]
    for figures in good:
        sizes = [size for number in longest if (size := figures.at(number, "bytes")) is not None]
        cells = [
            figure(figures.found.get("together"), 0),
            figure(sizes[-1] if sizes else None, 0),
            figure(figures.found["memory"], 0),
            figure(figures.imported),
        ]
        lines.append(row(figures, cells))
    return "\n".join([*lines, *failures(found)])


def plot(found: list[Figures], held: list[int]) -> str:
    """CPU of a durable turn by messages held, both axes logarithmic, as SVG: one line a contestant."""
    import math

    shown = [
        (f, [(n, v) for n in held if n and (v := f.at(n, "cpu")) is not None]) for f in found if not f.reason
    ]
    points = [value for _, line in shown for _, value in line]
    low, high = math.log10(min(points)) - 0.1, math.log10(max(points)) + 0.1
    left, right = math.log10(min(n for n in held if n)), math.log10(max(held))
    width, height, name_room = 520, 320, 250

    def place(messages: float, value: float) -> tuple[float, float]:
        x = 60 + (math.log10(messages) - left) / ((right - left) or 1) * (width - 80)
        return x, 20 + (high - math.log10(value)) / (high - low) * (height - 60)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width + name_room} {height}">',
        "<style>text { font: 11px sans-serif }</style>",
        f'<rect width="{width + name_room}" height="{height}" fill="white"/>',
    ]
    for power in range(math.floor(low), math.ceil(high) + 1):
        if low <= power <= high:
            _, y = place(max(held), 10**power)
            parts.append(f'<line x1="60" x2="{width - 20}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
            parts.append(f'<text x="54" y="{y + 4:.0f}" text-anchor="end">{10.0**power:g} ms</text>')
    for number in (n for n in held if n):
        x, _ = place(number, 10**low)
        parts.append(f'<text x="{x:.0f}" y="{height - 22}" text-anchor="middle">{number:,}</text>')
    parts.append(f'<text x="{width / 2:.0f}" y="{height - 6}" text-anchor="middle">messages held</text>')
    colours = (
        "#0b6e4f",
        "#08a045",
        "#6bbf59",
        "#c1121f",
        "#e36414",
        "#5f0f40",
        "#4361ee",
        "#7209b7",
        "#577590",
    )
    for number, (figures, line) in enumerate(shown):
        colour = colours[number % len(colours)]
        path = " ".join(f"{x:.1f},{y:.1f}" for x, y in (place(n, v) for n, v in line))
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        y = 30 + number * 18
        parts.append(f'<rect x="{width}" y="{y - 9}" width="12" height="4" fill="{colour}"/>')
        parts.append(f'<text x="{width + 18}" y="{y - 3}">{figures.contestant.name}</text>')
    return "\n".join([*parts, "</svg>", ""])


def put(text: str, begin: str, end: str) -> None:
    """Between two marks of the report."""
    report = REPORT.read_text(encoding="utf-8")
    before, rest = report.split(begin, 1)
    after = rest.split(end, 1)[1]
    REPORT.write_text(f"{before}{begin}\n\n{text}\n\n{end}{after}", encoding="utf-8")


def write(text: str, picture: str) -> None:
    """Into the report, and the plot beside it."""
    put(f"{text}\n\n![CPU of a durable turn by messages held](figures/turns.svg)", BEGIN, END)
    PLOT.parent.mkdir(exist_ok=True)
    PLOT.write_text(picture, encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n")[0])
    size = parser.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true")
    size.add_argument("--long", action="store_true")
    parser.add_argument("--counted", action="store_true", help="requests alone, within 8,000 tokens by count")
    parser.add_argument("--only", metavar="WORD", help="contestants whose name has this word")
    parser.add_argument("--folder", default=None, help="where to write; a real disk")
    parser.add_argument("--write", action="store_true", help="put tables and plot into docs/")
    arguments = parser.parse_args()
    held = [0, 1_000] if arguments.quick else [0, 100, 1_000, 10_000, *([50_000] if arguments.long else [])]
    asked = {
        "held": held,
        "turns": 4,
        "rounds": 2 if arguments.quick else 4,
        "sessions": 16 if arguments.quick else 64,
        "each": 4,
        "folder": arguments.folder,
    }
    if arguments.counted:
        asked |= {"held": [n for n in held if n], "sessions": 0}
    found = []
    for contestant in COUNTED if arguments.counted else CONTESTANTS:
        if arguments.only and arguments.only.lower() not in contestant.name.lower():
            continue
        print(f"{contestant.name} …", file=sys.stderr)
        found.append(measured(contestant, asked, limit=1_200 if arguments.long else 300))
    if arguments.counted:
        good = [figures for figures in found if not figures.reason]
        text = "\n".join([*requests(good, asked["held"]), *failures(found)])
        print(text)
        if arguments.write:
            put(text, BEGIN_COUNTED, END_COUNTED)
        return
    text = tables(found, asked)
    print(text)
    if arguments.write:
        write(text, plot(found, held))


if __name__ == "__main__":
    main()
