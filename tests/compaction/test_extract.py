"""Summaries without a model: what survives, what gives way to a newer value, and what no input can break."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from backstory.compaction.ask import ask, chunks, transcript
from backstory.compaction.extract import extract, language_of
from backstory.compaction.policy import Policy, mark
from backstory.compaction.standing import standing
from backstory.compaction.summary import Summary
from backstory.compaction.words import is_chinese
from backstory.errors import ConfigurationError
from backstory.legality.steps import cut_points
from backstory.messages import Message, ToolCall, assistant, tool, user
from backstory.tokens import count_text


def count(text: str) -> int:
    return count_text(text)


def of(*texts: str, tokens: int = 600, **options) -> Summary:
    messages = [m for text in texts for m in (user(text), assistant("ok"))]
    return extract(messages, tokens=tokens, count=count, **options)


CHANGES = [
    ("We deploy to eu-west-1.", "Actually deploy to us-east-2.", "eu-west-1", "us-east-2"),
    ("Our budget for the wedding is $2,000.", "Let's raise what we can spend to $2,500.", "2,000", "2,500"),
    ("The release is owned by Ada Byron.", "Brian Eno owns the release now.", "Ada", "Brian"),
    ("The check-up is on 7 February.", "It moved to 14 February.", "7 February", "14 February"),
    ("My dentist is on Monday at 3pm.", "The dentist moved it to Tuesday at 4pm.", "3pm", "4pm"),
    ("Answer in English.", "From now on answer in Chinese please.", "English", "Chinese"),
    ("The timeout is 30s.", "Set the timeout to 60s.", "30s", "60s"),
    ("We have 3 servers.", "We now have 5 servers.", "3 servers", "5 servers"),
    ("预算是5000元。", "预算改为8000元。", "5000", "8000"),
    ("会议定在周三下午三点。", "会议改到周五下午四点。", "周三", "周五"),
    ("请用英文回答。", "以后请用中文回答。", "英文", "中文"),
]


@pytest.mark.parametrize(("before", "after", "stale", "newest"), CHANGES)
def test_the_newest_value_wins(before, after, stale, newest):
    text = of(before, "Thanks, go on.", after).text
    assert newest in text
    assert stale not in text
    first = of(before)
    text = of(after, previous=first).text
    assert newest in text
    assert stale not in text


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The staging port is 8080.", "The production port is 9090."),
        ("I am allergic to peanuts.", "I am allergic to shellfish too."),
        ("My son is called Tom.", "My daughter is called Ann."),
        ("The hotel costs 120 euros a night.", "The flight costs 300 euros."),
        ("Never call me before 9:00.", "The train leaves at 8:30."),
        ("测试环境端口是8080。", "生产环境端口是9090。"),
    ],
)
def test_two_things_stay_two(one, other):
    text = of(one, "Thanks.", other).text
    assert one.rstrip(".。") in text
    assert other.rstrip(".。") in text


def test_what_matters_comes_before_what_does_not():
    filler = [f"By the way, it was quite sunny near the office on that walk, number {n}." for n in range(40)]
    said = ["Never deploy on a Friday.", *filler[:20], "The release id is REL-2041.", *filler[20:]]
    text = of(*said, tokens=160).text
    assert "Never deploy on a Friday." in text
    assert "REL-2041" in text
    assert count(text) <= 160


def test_the_last_request_and_the_goal_are_there():
    text = of(
        "Help me plan a week in Lisbon.", *["Fine, go on."] * 10, "Now book the tram tour.", tokens=120
    ).text
    assert "Lisbon" in text
    assert "Now book the tram tour." in text


def test_tools_tell_how_it_went():
    messages = [
        user("Run the tests."),
        assistant("", ToolCall(id="c", name="pytest", arguments='{"path": "tests"}')),
        tool("c", "collecting\n" + "....\n" * 50 + "FAILED tests/test_a.py::test_b - KeyError\n1 failed"),
        assistant("One fails."),
    ]
    text = extract(messages, tokens=200, count=count).text
    assert "FAILED tests/test_a.py::test_b" in text
    assert "...." not in text


def test_topic_and_keep():
    said = [
        f"The {word} report has code R-{n}."
        for n, word in enumerate(["alpha", "beta", "gamma", "delta", "omega"])
    ]
    assert "omega" in of(*said, *["Fine."] * 3, tokens=60, topic="the omega report").text
    kept = of(*said, tokens=60, keep=["Call me Ishmael."])
    assert kept.kept == ("Call me Ishmael.",)
    assert "Call me Ishmael." in kept.rendered


def test_languages():
    assert language_of([user("你好，帮我订票"), assistant("好的")]) == "zh"
    assert "## 要求" in of("以后都用中文回答我。").text
    assert "## Rules" in of("Always answer in verse.").text


WORDS = st.one_of(
    st.text(max_size=80),
    st.sampled_from(
        [
            "Never use tabs.",
            "预算是300元",
            "x" * 5_000,
            "\ud800",
            "a.b.c/d_e",
            "1" * 400,
            "## Goal",
            "- \n-",
            "",
            "\0",
        ]
    ),
)


@given(
    st.lists(st.tuples(st.sampled_from(["user", "assistant"]), WORDS), max_size=12),
    st.integers(0, 300),
    WORDS,
)
def test_whatever_is_said_it_fits_and_is_the_same_again(said, tokens, topic):
    messages = [Message(role=role, parts=user(text).parts) for role, text in said]
    first = extract(messages, tokens=tokens, count=len, topic=topic)
    assert len(first.rendered) <= tokens
    assert extract(messages, tokens=tokens, count=len, topic=topic) == first
    rolled = extract(messages, tokens=tokens, count=len, previous=first)
    assert len(rolled.rendered) <= tokens


@settings(max_examples=50)
@given(st.lists(WORDS, min_size=1, max_size=12))
def test_rolled_on_alone_a_summary_stays(said):
    first = extract([user(text) for text in said], tokens=400, count=len)
    again = extract([], tokens=400, count=len, previous=first)
    assert set(dict(_lines(first))) >= set(dict(_lines(again)))
    assert extract([], tokens=400, count=len, previous=again) == again


def _lines(summary):
    return [(text, kind) for kind, text in summary.lines()]


def test_summaries_are_json():
    one = of("Never deploy on a Friday.", keep=["Call me Ishmael."])
    assert Summary.from_json(one.to_json()) == one


# --- policy, standing instructions, asking


def test_marks():
    policy = Policy()
    assert [mark(used, 100, policy) for used in (0, 69, 70, 89, 90, 200)] == [
        "",
        "",
        "soft",
        "soft",
        "hard",
        "hard",
    ]
    assert mark(10**9, None, policy) == ""
    turns = Policy(every_turns=8)
    assert [mark(0, None, turns, n) for n in (7, 8, 15, 16)] == ["", "soft", "soft", "hard"]
    for wrong in ({"soft": 0.95}, {"target": 0.8}, {"every_turns": 3}, {"keep_turns": 0}, {"summary": 0.6}):
        with pytest.raises(ConfigurationError):
            Policy(**wrong)


def test_standing_instructions_are_recognised():
    found = standing(
        [
            user("From now on answer in French. What is the weather?"),
            assistant("Always yours."),
            user("以后都用表格回答。今天星期几？"),
            user("Never mention prices to the guests."),
            user("Have you never seen the sea?"),
        ]
    )
    assert [(one.text, one.index) for one in found] == [
        ("From now on answer in French.", 0),
        ("以后都用表格回答。", 2),
        ("Never mention prices to the guests.", 3),
    ]


def test_a_summariser_is_asked_in_the_conversations_language():
    messages = [user("我叫小张，预算三百元"), assistant("好的")]
    instructions, given_text = ask(messages, tokens=200, count=count, topic="预算")
    assert is_chinese(instructions.text)
    assert "预算" in instructions.text
    assert "小张" in given_text.text
    before = Summary(text="## Goal\n- tea", by="m")
    _, given_text = ask([user("go on")], tokens=200, count=count, previous=before)
    assert "## Goal\n- tea" in given_text.text


@given(
    st.lists(st.sampled_from(["user", "call", "answer"]), max_size=30),
    st.integers(1, 200),
)
def test_chunks_are_whole_steps_and_cover_all(shape, window):
    messages: list[Message] = []
    for number, what in enumerate(shape):
        if what == "user":
            messages.append(user(f"question {number} " * 3))
        elif what == "call":
            messages += [
                assistant("", ToolCall(id=f"c{number}", name="look", arguments="{}")),
                tool(f"c{number}", f"result {number} " * 5),
            ]
        else:
            messages.append(assistant(f"answer {number} " * 4))
    pieces = chunks(messages, window=window, count=len)
    assert [m for piece in pieces for m in piece] == messages
    cuts = {cut.index for cut in cut_points(messages)}
    at = 0
    for piece in pieces:
        assert at == 0 or at in cuts
        inside = [cut for cut in cuts if at < cut < at + len(piece)]
        assert len(transcript(piece, len)) <= window + len(inside) or not inside
        at += len(piece)
