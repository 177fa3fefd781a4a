"""What other programs keep on disk, as messages."""

from typing import Any

import pytest

from backstory.errors import InvalidInput
from backstory.formats.transcripts import detect_transcript, read_transcripts
from backstory.messages import Message

NANOBOT: list[Any] = [
    {"_type": "metadata", "key": "telegram:12345", "created_at": "2026-01-02T03:04:05", "metadata": {}},
    {"role": "user", "content": "我叫小张", "timestamp": "2026-01-02T03:04:06"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}],
        "timestamp": "2026-01-02T03:04:07",
    },
    {"role": "tool", "tool_call_id": "a", "name": "look", "content": "rain", "timestamp": "x"},
    {"role": "assistant", "content": "It rains.", "tools_used": ["look"], "timestamp": "x"},
]


def line(kind: str, name: str, parent: str | None, content: Any, **more: Any) -> dict[str, Any]:
    message = {"role": kind, "content": content, **more.pop("message", {})}
    return {"type": kind, "uuid": name, "parentUuid": parent, "sessionId": "s-1", "message": message, **more}


def use(name: str) -> dict[str, Any]:
    return {"type": "tool_use", "id": name, "name": "Read", "input": {"path": name}}


def got(name: str, text: str) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": name, "content": text}


CLAUDE: list[Any] = [
    {"type": "summary", "summary": "Reading files", "leafUuid": "7"},
    {"type": "file-history-snapshot", "messageId": "1"},
    line("user", "0", None, "<local-command-caveat>", isMeta=True),
    line("user", "1", "0", "Read both files"),
    line(
        "assistant",
        "2",
        "1",
        [{"type": "thinking", "thinking": "Hm.", "signature": "sig"}],
        message={"id": "m1"},
    ),
    line("assistant", "3", "2", [use("a")], message={"id": "m1"}),
    line("assistant", "4", "3", [use("b")], message={"id": "m1"}),
    line("user", "5", "3", [got("a", "one")]),
    line("user", "6", "4", [got("b", "two")]),
    {"type": "progress", "uuid": "p", "parentUuid": "6", "sessionId": "s-1"},
    line("user", "s1", None, "You are a sub-agent", isSidechain=True),
    line("assistant", "7", "6", [{"type": "text", "text": "One and two."}], message={"id": "m2"}),
    line("user", "8", "7", "A question that was taken back"),
    line("assistant", "9", "8", [{"type": "text", "text": "An answer that was too"}], message={"id": "m3"}),
    line("user", "10", "7", "The question instead"),
    line("user", "c", "10", "This session is being continued…", isCompactSummary=True),
    line("assistant", "11", "10", [{"type": "text", "text": "The answer."}], message={"id": "m4"}),
]

SHAREGPT: list[Any] = [
    {
        "id": "identity_0",
        "conversations": [
            {"from": "system", "value": "Be brief."},
            {"from": "human", "value": "How is Rome?"},
            {"from": "function_call", "value": '{"name": "look", "arguments": {"place": "Rome"}}'},
            {"from": "observation", "value": "rain"},
            {"from": "gpt", "value": "It rains."},
        ],
    },
    {
        "conversations": [{"from": "human", "value": "Hi"}, {"from": "gpt", "value": "Hello."}],
        "system": "Be kind.",
    },
]


def told(messages: tuple[Message, ...]) -> list[tuple[str, str]]:
    return [
        (m.role, m.text or " ".join(c.name for c in m.calls) or " ".join(r.call_id for r in m.results))
        for m in messages
    ]


@pytest.mark.parametrize(
    ("values", "source"), [(NANOBOT, "nanobot"), (CLAUDE, "claude-code"), (SHAREGPT, "sharegpt")]
)
def test_each_is_told_from_its_shape(values: list[Any], source: str):
    assert detect_transcript(values) == source


@pytest.mark.parametrize(
    "values",
    [[], [{"role": "user", "content": "Hi"}], [{"messages": []}], ["text"], [{"seq": 1, "kind": "message"}]],
)
def test_what_is_none_of_them(values: list[Any]):
    assert detect_transcript(values) is None


def test_nanobot():
    (found,) = read_transcripts(NANOBOT, "nanobot")
    assert found.key == "telegram:12345"
    assert told(found.messages) == [
        ("user", "我叫小张"),
        ("assistant", "look"),
        ("tool", "a"),
        ("assistant", "It rains."),
    ]
    assert all("timestamp" not in (m.native.value if m.native else {}) for m in found.messages)


def test_claude_code():
    (found,) = read_transcripts(CLAUDE, "claude-code")
    assert (found.key, found.title) == ("s-1", "Reading files")
    assert told(found.messages) == [
        ("user", "Read both files"),
        ("assistant", "Read Read"),  # one response, spread over three lines
        ("tool", "a"),
        ("tool", "b"),
        ("assistant", "One and two."),
        ("user", "The question instead"),
        ("assistant", "The answer."),
    ]


def test_sharegpt():
    first, second = read_transcripts(SHAREGPT, "sharegpt")
    assert first.key == "identity_0"
    assert told(first.messages)[1:] == [
        ("user", "How is Rome?"), ("assistant", "look"), ("tool", "call_1"), ("assistant", "It rains."),
    ]  # fmt: skip
    assert first.messages[2].calls[0].arguments == '{"place": "Rome"}'
    assert [m.role for m in second.messages] == ["system", "user", "assistant"]


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ({"conversations": [{"from": "martian", "value": "x"}]}, "speaker"),
        ({"conversations": [{"from": "human"}]}, "without a text"),
        ({"conversations": "x"}, "no list"),
        ({"conversations": []}, "no conversation"),
        ([], "no list"),
    ],
)
def test_broken_sharegpt(value: Any, what: str):
    with pytest.raises(InvalidInput, match=what):
        read_transcripts([value], "sharegpt")


@pytest.mark.parametrize("text", ["not json", "[]", '{"nom": 1}'])
def test_a_call_that_cannot_be_read_stays_as_it_is(text: str):
    value = {"conversations": [{"from": "human", "value": "Hi"}, {"from": "function_call", "value": text}]}
    (found,) = read_transcripts([value], "sharegpt")
    assert found.messages[1].calls[0].arguments == text


@pytest.mark.parametrize("source", ["nanobot", "claude-code"])
def test_nothing_said(source: Any):
    with pytest.raises(InvalidInput, match="no conversation"):
        read_transcripts([{"_type": "metadata"}, "x", 3], source)
