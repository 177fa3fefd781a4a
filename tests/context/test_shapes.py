"""Previews by what a text is: JSON stays JSON, logs keep their errors, tables their header, code its signatures."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.context.passes import condense, condense_old, note, numbered
from backstory.context.preview import LEAST, preview
from backstory.context.shapes import MOST, code, ends, log, shape_of, shorter_object, table
from backstory.messages import ToolCall, assistant, texts, tool, user
from backstory.tokens import count_text

ROWS = "id,name,price\n" + "\n".join(f"{n},tea number {n},{n}.50" for n in range(900))
LOG = "\n".join(
    [
        *(f"2026-03-01 10:00:{n % 60:02} INFO request {n} served" for n in range(400)),
        "2026-03-01 10:07:00 ERROR payment 77 failed: card declined",
        "Traceback (most recent call last):",
        *(f"2026-03-01 10:08:{n % 60:02} INFO request {n} served" for n in range(400)),
        "2026-03-01 10:09:00 INFO bye",
    ]
)
CODE = "\n\n".join(
    f"class Shop{n}(Base):\n    def open(self, day: int) -> bool:\n" + "        x = day * 2\n" * 30
    for n in range(20)
)
DATA = {
    "order": "A-17",
    "items": [{"sku": f"S{n}", "price": n, "notes": "very long " * 50} for n in range(300)],
    "total": {"net": 100, "vat": 19},
}


def test_json_keeps_its_shape_and_key_fields():
    short = preview(json.dumps(DATA), 300, count_text)
    assert count_text(short) <= 300
    value = json.loads(short)
    assert value["order"] == "A-17"
    assert value["total"] == {"net": 100, "vat": 19}
    assert value["items"][0]["sku"] == "S0"
    assert value["items"][-1]["sku"] == "S299"
    assert "items left out" in value["items"][-2]


def test_logs_keep_both_ends_and_the_errors():
    short = preview(LOG, 300, count_text)
    assert "payment 77 failed" in short
    assert short.startswith("2026-03-01 10:00:00 INFO request 0")
    assert short.endswith("INFO bye")
    assert "lines left out" in short


def test_tables_keep_header_and_rows():
    lines = preview(ROWS, 200, count_text).splitlines()
    assert lines[0] == "id,name,price"
    assert lines[1].startswith("0,")
    assert lines[-1].startswith("899,")
    assert any("rows left out" in line for line in lines)


def test_code_keeps_signatures():
    short = preview(CODE, 400, count_text)
    assert short.count("def open(self, day: int)") >= 8
    assert "x = day * 2" not in short


@pytest.mark.parametrize(
    ("text", "shape"),
    [(LOG, log), (ROWS, table), (CODE, code), ("word " * 5_000, ends), ("{not json" * 900, ends), ("", ends)],
)
def test_what_a_text_is(text, shape):
    assert shape_of(text) is shape


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=200),
    lambda inner: st.lists(inner, max_size=8) | st.dictionaries(st.text(max_size=10), inner, max_size=8),
    max_leaves=60,
)


@given(
    JSON.filter(lambda value: isinstance(value, (dict, list))), st.integers(1, 12), st.integers(LEAST, 400)
)
def test_json_stays_json_where_there_is_room(value: Any, repeat: int, tokens: int):
    text = json.dumps([value] * repeat)
    short = preview(text, tokens, count_text)
    assert count_text(short) <= tokens or short == text
    assert preview(text, tokens, count_text) == short


@given(st.text(max_size=2_000), st.integers(1, 30), st.integers(0, 200), st.sampled_from(["", note("12.0")]))
def test_any_text_fits(text: str, repeat: int, tokens: int, told: str):
    whole = text * repeat
    short = preview(whole, tokens, count_text, note=told)
    assert short == whole or count_text(short) <= max(tokens, LEAST)


def test_a_very_long_text_is_not_read_whole():
    text = "a line of words\n" * (MOST // 8)
    assert count_text(preview(text, 100, count_text)) <= 100


def test_a_note_stands_before_it():
    short = preview("word " * 4_000, 200, count_text, note=note("12.0"))
    assert short.startswith('[Preview of a long result. The whole: read_result(handle="result:12.0").]\n')
    assert count_text(short) <= 200


@given(st.dictionaries(st.text(max_size=8), JSON, max_size=6), st.integers(16, 2_000))
def test_shortened_arguments_are_an_object(value: dict[str, Any], room: int):
    text = json.dumps(value)
    assert isinstance(json.loads(shorter_object(text, room)), dict)
    assert len(shorter_object(text, room)) <= len(text)


def test_what_is_no_object_stays():
    for text in ("", "[1, 2]", '"' + "x" * 900 + '"', "{broken"):
        assert shorter_object(text, 20) == text


def test_old_calls_are_condensed_as_objects():
    """CP-12: an argument cut as plain text is refused on every later request."""
    big = json.dumps({"path": "notes.txt", "body": "lorem " * 3_000})
    found = [user("save")]
    for number in range(5):
        found += [
            assistant("", ToolCall(id=f"c{number}", name="write", arguments=big)),
            tool(f"c{number}", "saved"),
        ]
    entries = list(enumerate(found))
    decided = condense_old(entries, lambda part: count_text(getattr(part, "arguments", "") or texts([part])))
    assert decided == {"1.0": 400, "3.0": 400}
    shown = dict(numbered(condense(entries, decided, count_text)))
    for place in decided:
        call = shown[place]
        assert isinstance(call, ToolCall)
        value = json.loads(call.arguments)
        assert value["path"] == "notes.txt"
        assert "left out" in value["body"]
        assert count_text(call.arguments) <= 400
