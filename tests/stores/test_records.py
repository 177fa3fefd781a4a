"""A record's line: canonical, loss-free, checked, encoded once."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.errors import InvalidInput, StoreDamaged
from backstory.messages import Message, Text, ToolCall, assistant, user
from backstory.records import (
    KINDS,
    NewRecord,
    encode_json,
    from_line,
    new_message,
    restored,
    stamp,
    to_line,
)

AT = "2025-11-30T09:15:02.113Z"
SURROGATES = st.characters(categories=["Cs"])
anything = st.text(st.one_of(st.characters(), SURROGATES)).map(
    lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | anything,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(anything, inner, max_size=3),
    max_leaves=8,
)


@given(
    kind=st.sampled_from(sorted(KINDS)),
    data=st.dictionaries(anything, json_values, max_size=4),
    turn=st.integers(0, 10**6),
    seq=st.integers(1, 10**9),
    batch=st.none() | anything,
    size=st.integers(1, 3),
)
def test_a_line_reads_back_equal(kind, data, turn, seq, batch, size):
    records = stamp([NewRecord(kind=kind, data=data, turn=turn)] * size, seq=seq, at=AT, batch=batch)
    for index, record in enumerate(records):
        line = to_line(record)
        assert b"\n" not in line
        line.decode()  # UTF-8
        again = from_line(line)
        assert again == record
        assert again.intact
        assert again.data == data
        for name in ("seq", "at", "turn", "kind", "first", "batch", "part"):
            assert getattr(again, name) == getattr(record, name), name
        assert again.part == (index + 1, size)
        assert json.loads(line)["seq"] == seq + index


@given(anything)
def test_messages_survive(text):
    message = Message(role="user", parts=(Text(text=text),))
    (record,) = stamp([new_message(message, message_id=text, tokens={"c": 1})], seq=1, at=AT)
    again = from_line(record.line)
    assert again.message == message
    assert again.message is again.message
    assert again.message_id == text


def test_a_message_is_read_once_and_a_written_one_never():
    message = assistant("hello", ToolCall(id="c1", name="f"))
    (record,) = stamp([new_message(message)], seq=1, at=AT)
    assert record.message is message


def test_encoding_happens_once():
    record = NewRecord(kind="meta", data={"a": 1})
    assert record.body is record.body
    assert stamp([record], seq=4, at=AT)[0].line == (
        b'{"seq":4,"at":"2025-11-30T09:15:02.113Z","kind":"meta","data":{"a":1},"crc":"%08x"}'
        % int(json.loads(stamp([record], seq=4, at=AT)[0].line)["crc"], 16)
    )


def test_a_span():
    (record,) = stamp([NewRecord(kind="archived")], seq=9, at=AT, first=3)
    assert (record.first, record.seq) == (3, 9)
    assert from_line(record.line).first == 3


def test_a_lone_surrogate_is_escaped():
    assert encode_json("a\ud83db") == b'"a\\ud83db"'


@given(st.data())
def test_no_flipped_bit_goes_unseen(data):
    (record,) = stamp([new_message(user("It costs 12.50 €"), turn=3)], seq=7, at=AT, batch="b")
    line = bytearray(record.line)
    index = data.draw(st.integers(0, len(line) - 1))
    line[index] ^= 1 << data.draw(st.integers(0, 7))
    try:
        read = from_line(bytes(line))
    except StoreDamaged:
        return
    assert not read.intact


@given(st.integers(0, 200))
def test_no_cut_line_is_a_record(end):
    (record,) = stamp([new_message(user("x"))], seq=1, at=AT)
    if end < len(record.line):
        with pytest.raises(StoreDamaged):
            from_line(record.line[:end])


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{}",
        b"[]",
        b"null",
        b"\0" * 300,
        b'{"type":"note","te',
        b'{"seq":0,"at":"","kind":"meta","data":{}}',
        b'{"seq":true,"at":"","kind":"meta","data":{}}',
        b'{"seq":1,"at":"","kind":"meta","data":[]}',
        b'{"seq":1,"at":"","kind":"meta","data":{},"part":[2,1]}',
        b'{"seq":1,"at":"","kind":"meta","data":{},"part":["a",1]}',
        b'{"seq":1,"at":"","kind":"meta","data":{},"first":2}',
        b'{"seq":1,"at":"\xff","kind":"meta","data":{}}',
        b"[" * 100_000,
    ],
)
def test_what_is_no_record(line):
    with pytest.raises(StoreDamaged):
        from_line(line)


def test_an_edited_line_loads_and_can_be_sealed_again():
    (record,) = stamp([new_message(user("secret"), turn=2)], seq=5, at=AT, batch="b")
    edited = from_line(record.line.replace(b"secret", b"[gone]"))
    assert edited.message.text == "[gone]"
    assert not edited.intact
    sealed = restored(edited)
    assert sealed.intact
    assert (sealed.seq, sealed.turn, sealed.batch, sealed.message) == (5, 2, "b", edited.message)


def test_bad_records():
    with pytest.raises(InvalidInput):
        NewRecord(kind="no such kind")  # type: ignore[arg-type]
    with pytest.raises(InvalidInput):
        NewRecord(kind="meta", turn=-1)
    (record,) = stamp([NewRecord(kind="meta")], seq=1, at=AT)
    with pytest.raises(StoreDamaged):
        record.message  # noqa: B018
    (bad,) = stamp([NewRecord(kind="message", data={"message": {"role": "nobody"}})], seq=1, at=AT)
    with pytest.raises(StoreDamaged):
        bad.message  # noqa: B018
