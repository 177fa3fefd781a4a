"""`backstory replay`: what it tells people, its JSON, prices, pictures."""

import json
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest

from backstory.cli.chart import bar, charts
from backstory.cli.prices import Prices, choose
from backstory.cli.screen import Screen, columns, one_line, padded, wrapped
from backstory.errors import ConfigurationError

PLAIN = Screen(width=80, color=False, unicode=True)


@pytest.fixture
def run(root: Path) -> tuple[str, ...]:
    folder = root / "examples"
    return (str(folder / "agent_run.jsonl"), "--tools", str(folder / "agent_tools.json"), "--budget", "5000")


def test_it_tells_every_call(command, run):
    done = command("replay", *run)
    assert (done.code, done.err) == (0, "")
    rows = [line for line in done.out.splitlines() if line[:5].strip().isdigit()]
    assert len(rows) == 49
    for words in (
        "117 messages, 14 turns, 49 model calls",
        "counted in o200k_base (exact)",
        "input $1.25, from cache $0.125, output $10 (gpt-5",
        "turn 2  另外，周六下午",
        "✂ cut ",
        "✚ healed",
        "≡ preview",
        "calls read_file ×2",
        "(is asked now)",
        "problems healed on the way",
    ):
        assert words in done.out


def test_brief_tells_what_happened_only(command, run):
    whole, brief = command("replay", *run).out, command("replay", *run, "--brief").out
    assert brief.count("✚ healed") == whole.count("✚ healed") > 3
    assert brief.count("\n") < whole.count("\n")
    assert "more calls, each extending the one before" in brief


@pytest.mark.parametrize("width", [80, 100, 120, 140])
def test_no_line_is_wider_than_the_screen(command, run, monkeypatch, width):
    monkeypatch.setenv("COLUMNS", str(width))
    done = command("replay", *run, "--compare", "full,sliding,stepped")
    story, _, end = done.out.partition("full: tokens of input")
    assert max(columns(line) for line in story.splitlines()[4:-1]) <= width
    assert end


def test_compare_sets_side_by_side(command, run):
    done = command("replay", *run, "--compare", "full,sliding,stepped")
    table = [
        line.split() for line in done.out.splitlines() if line.startswith(("full ", "sliding ", "stepped "))
    ]
    assert [row[0] for row in table[:3]] == ["full", "sliding", "stepped"]
    assert done.out.count("tokens of input, call by call") == 3
    assert "stepped costs" in done.out
    assert "less than full, which no window of 5,000 tokens would take after call" in done.out


def test_json(command, run):
    found = command("replay", *run, "--compare", "stepped,full", "--json").json
    assert set(found) == {"file", "source", "target", "messages", "counter", "limits", "price", "strategies"}
    assert [each["strategy"] for each in found["strategies"]] == ["stepped", "full"]
    walk = found["strategies"][0]
    assert set(walk) == {"strategy", "totals", "calls", "skipped"}
    assert set(walk["totals"]) == {
        *("calls", "input", "cached", "output", "largest", "cuts", "healed", "over_budget", "failed", "cost")
    }
    assert set(walk["calls"][0]) == {
        *("call", "turn", "at", "sent", "items", "input", "cached", "output", "cost", "epoch", "why", "cut"),
        *("sections", "dropped", "condensed", "repairs", "losses", "error"),
    }
    assert sum(call["input"] for call in walk["calls"]) == walk["totals"]["input"]
    assert sum(call["cost"] for call in walk["calls"]) == pytest.approx(walk["totals"]["cost"])
    assert found["price"]["model"] == "gpt-5"


def test_prices(command, run):
    def cost(*words: str) -> float:
        found = command("replay", *run, "--json", *words)
        assert found.code == 0
        return found.json["strategies"][0]["totals"]["cost"]

    totals = command("replay", *run, "--json").json["strategies"][0]["totals"]
    fresh = totals["input"] - totals["cached"]
    own = cost("--price-input", "2", "--price-cached", "1", "--price-output", "3")
    assert own == pytest.approx((fresh * 2 + totals["cached"] + totals["output"] * 3) / 1e6)
    assert cost("--price", "gpt-5-nano") < cost("--price", "gpt-5-mini") < cost() < cost("--price", "gpt-4o")
    done = command("replay", *run, "--price", "nonsense")
    assert (done.code, done.out) == (2, "")
    assert "no price is known for 'nonsense': give --price with one of gpt-5," in done.err
    assert "a price is a number, zero or more" in command("replay", *run, "--price-input", "-1").err


def test_a_table_of_prices_of_ones_own(command, run, write):
    table = '[own]\nas_of = "2026-01"\n[own.models]\n"tea" = { input = 1, cached = 0.5, output = 2 }\n'
    done = command("replay", *run, "--prices", write(table, name="p.toml"), "--price", "tea")
    assert "(tea, list price of 2026-01)" in done.out
    for text, what in (
        ("[", "no TOML"),
        ("own = 1", "has no table of models"),
        ("[own.models]\ntea = 1", "tea needs the prices"),
        ('[own.models]\ntea = { input = "1", cached = 1, output = 1 }', "must be numbers"),
    ):
        done = command("replay", *run, "--prices", write(text, name="p.toml"))
        assert done.code == 2
        assert what in done.err


def test_the_table_of_prices():
    table = Prices()
    for name in ("openai_chat", "openai_responses", "anthropic", "gemini"):
        assert table.of(None, name)
    for name in ("gpt-5-mini-2025-08-07", "openai/gpt-5-mini"):
        found = table.of(name, "openai_chat")
        assert found
        assert found.model == "gpt-5-mini"
    assert table.of("gpt-55", "openai_chat") is None
    for name in table.names:
        found = table.of(name, "")
        assert found
        assert found.as_of
        assert found.source.startswith("https://")
        assert found.price.cached < found.price.input < found.price.output
    own = {"input": 1.0, "cached": None, "output": 2.0}
    with pytest.raises(ConfigurationError):
        choose(table, preset=None, model="unknown", format="openai_chat", own={"input": 1.0})
    found = choose(table, preset=None, model="unknown", format="openai_chat", own=own)
    assert (found.price.input, found.price.cached, found.price.output) == (1.0, 1.0, 2.0)


def test_one_call(command, run):
    done = command("replay", *run, "--call", 22)
    assert done.code == 0
    assert done.json["tools"]
    assert "call 22, stepped:" in done.err
    found = command("replay", *run, "--call", 22, "--json").json
    assert set(found) == {"call", "strategy", "body", "ledger", "repairs", "losses"}
    assert found["body"] == done.json
    assert "there is no call 99; there are 49" in command("replay", *run, "--call", 99).err


def test_a_call_that_cannot_be_made(command, write, chat):
    chat[1]["content"] = "long " * 500
    path = write(chat)
    done = command("replay", path, "--budget", 100)
    assert done.code == 1
    assert "✗ failed" in done.out
    assert "could not be made" in done.out
    assert command("replay", path, "--budget", 100, "--call", 1).code == 1


def test_many_conversations(command, write, chat):
    path = write(chat, chat, name="many.jsonl")
    done = command("replay", path, "--line", "all")
    assert done.code == 0
    assert "2 conversations" in done.out
    assert [
        json.loads(line)["file"]
        for line in command("replay", path, "--line", "all", "--json").out.splitlines()
    ] == [
        f"{path}, line 1",
        f"{path}, line 2",
    ]
    for option in (("--plot", "x.png"), ("--call", "1")):
        assert "of one conversation" in command("replay", path, "--line", "all", *option).err.replace(
            "draws", "of"
        )


def test_strategies_that_nobody_knows(command, run):
    for names in ("nonsense", "full,,stepped", ""):
        done = command("replay", *run, "--compare", names)
        assert done.code == 2
        assert "--compare takes full,sliding,stepped" in done.err


def test_nothing_to_replay(command, write):
    done = command("replay", write("[]"))
    assert done.code == 0
    assert "0 model calls" in done.out


def test_plot(command, run, tmp_path):
    picture = tmp_path / "out.png"
    done = command("replay", *run, "--compare", "full,stepped", "--plot", picture)
    if find_spec("matplotlib") is None:
        assert done.code == 2
        assert "pip install 'backstory[plot]'" in done.err
        return
    assert done.code == 0
    assert picture.read_bytes().startswith(b"\x89PNG")
    done = command("replay", *run, "--plot", tmp_path / "out.nonsense")
    assert done.code == 2


def test_an_escape_in_a_recording_does_not_reach_the_terminal(command, write):
    done = command("replay", write([{"role": "user", "content": "\x1b[31mred\x1b]0;title\x07 \u202eabc"}]))
    assert "\x1b" not in done.out
    assert "\u202e" not in done.out


def test_texts_in_columns():
    assert [columns(text) for text in ("abc", "茶铺", "é", "e\u0301", "\u200b")] == [3, 4, 1, 1, 0]
    assert one_line("a\n b\t c", 10) == "a b c"
    assert one_line("龙井茶叶", 6) == "龙井…"
    assert padded("茶", 4) == "茶  "
    assert wrapped("one two three", 7) == ["one two", "three"]
    assert wrapped("龙井碧螺春毛峰", 6) == ["龙井碧", "螺春毛", "峰"]
    assert wrapped("", 5) == [""]
    assert all(
        columns(line) <= 9 for line in wrapped("message 12: 一二三四五六七八九十 abcdefghijklmnop x", 9)
    )


def test_bars():
    assert bar(PLAIN, 50, 50, full=100, width=10) == "░░░░░█████"
    assert bar(PLAIN, 99, 1, full=100, width=10) == "░░░░░░░░░░"
    assert bar(PLAIN, 97, 3, full=100, width=10) == "░░░░░░░░░█"
    assert bar(PLAIN, 0, 1, full=1000, width=10) == "█         "
    assert bar(PLAIN, 0, 0, full=0, width=3) == "   "
    assert bar(PLAIN, 0, 500, full=100, width=4) == "████"
    ascii_only = Screen(width=80, color=False, unicode=False)
    assert bar(ascii_only, 1, 1, full=2, width=2) == ":#"


def test_charts_hold_any_number_of_calls():
    for count in (0, 1, 30, 71, 72, 1000):
        calls = tuple(SimpleNamespace(input=10 * n, cached=9 * n, fresh=n) for n in range(count))
        walk = SimpleNamespace(strategy="stepped", calls=calls)
        for budget in (None, 100, 1_000_000):
            lines = charts(PLAIN, [walk], budget)  # type: ignore[list-item]
            assert len(lines) == (8 if count > 1 else 7)
            assert max(map(columns, lines)) <= 80
