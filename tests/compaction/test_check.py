"""The check of a model's summary: what it refuses, what it appends, and what it never lets pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.compaction.check import OVER, check
from backstory.compaction.extract import extract
from backstory.compaction.signs import holds, values
from backstory.messages import assistant, user

SAID = [
    user("Help me move the shop. My landlord is Mrs Okafor and the rent is 1,450 euros."),
    assistant("Noted."),
    user("Never sign anything before 14 March."),
    assistant("I will not."),
    user("The contract is in docs/lease_v2.pdf. Now draft a letter to her."),
]


def judged(text, messages=SAID, **options):
    given_options = {"limit": 400, "replaces": 2_000, "count": len, "by": "m", **options}
    return check(text, messages, **given_options)


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        ("", {}, "empty"),
        ("  \n ", {}, "empty"),
        ("... !!!", {}, "empty"),
        ("## Goal\n- move", {"finish": "length"}, "cut off"),
        ("## Goal\n```\nmove", {}, "cut off inside"),
        ("x", {"finish": "tool_calls"}, "tool call"),
        ('{"name": "search", "arguments": {"q": "rent"}}', {}, "tool call"),
        ("<tool_call>search</tool_call>", {}, "tool call"),
        ("I cannot help with that.", {"finish": "refusal"}, "refused"),
        ("word " * 200, {"limit": 2_000, "replaces": 900}, "as long as"),
        ("word " * 150, {}, "too long"),
    ],
)
def test_what_is_refused(text, options, why):
    verdict = judged(text, **options)
    assert not verdict.accepted
    assert verdict.summary is None
    assert why in verdict.why


def test_a_little_too_long_is_taken_and_what_matters_with_it_as_far_as_there_is_room():
    text = "## Goal\n- " + "a shop is moved, " * 5
    verdict = judged(text, limit=len(text.strip()) - 10, replaces=900)
    assert verdict.accepted
    assert verdict.summary is not None
    assert len(verdict.summary.rendered) <= OVER * (len(text.strip()) - 10)
    assert verdict.left_out, "and what had no room is named"
    assert not judged(text, limit=int(len(text.strip()) / OVER) - 1, replaces=900).accepted


def test_what_is_missing_is_appended_word_for_word():
    verdict = judged("## Goal\n- The user moves a shop; the rent is 1450 euros.")
    assert verdict.accepted
    assert verdict.summary is not None
    text = verdict.summary.rendered
    assert "Never sign anything before 14 March." in text
    assert "docs/lease_v2.pdf" in text
    assert "Now draft a letter to her." in text
    assert verdict.missing == verdict.summary.kept
    assert len(text) <= 400


def test_a_stale_value_does_not_pass_for_the_newest():
    messages = [
        user("The review is on 7 February."),
        assistant("ok"),
        user("The review has moved to 14 February."),
    ]
    verdict = judged("## Facts\n- The review is on 7 February.", messages)
    assert verdict.summary is not None
    assert "14 February" in verdict.summary.rendered


def test_nothing_is_appended_where_nothing_is_missing():
    good = extract(SAID, tokens=1_000, count=len).text
    verdict = judged(good, limit=1_000)
    assert verdict.missing == ()
    assert verdict.summary is not None
    assert verdict.summary.text == good
    assert judged(verdict.summary.rendered, limit=1_000).missing == ()


def test_without_room_it_says_what_was_left_out():
    verdict = judged("## Goal\n- A shop is moved.", limit=60)
    assert verdict.accepted
    assert verdict.left_out


def test_pinned_texts_survive():
    verdict = judged("## Goal\n- A shop is moved.", keep=["Speak like a pirate."])
    assert verdict.summary is not None
    assert "Speak like a pirate." in verdict.summary.rendered


@given(
    st.text(max_size=300),
    st.lists(st.text(max_size=60), max_size=6),
    st.integers(1, 400),
    st.integers(1, 400),
)
def test_never_raises_and_never_passes_what_is_too_long(text, said, limit, replaces):
    verdict = check(text, [user(one) for one in said], limit=limit, replaces=replaces, count=len)
    if verdict.summary is not None:
        assert len(verdict.summary.rendered) < max(replaces, len(text.strip()) + 1)
        assert len(verdict.summary.text) <= OVER * limit
    else:
        assert verdict.why


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("I meet Priya Natarajan at 3pm on Tuesday.", {"priya natarajan", "3pm", "tuesday"}),
        ("Run `make test` in src/app_v2 for TICKET-42.", {"make test", "src/app_v2", "ticket-42"}),
        ("It costs $1,250.50, or 15 %.", {"$1250.50", "15 %"}),
        (
            "Write to ada@example.org or see https://example.org/x?y=1.",
            {"ada@example.org", "https://example.org/x?y=1"},
        ),
        ("复查改到2月14日下午3点，预算5000元", {"2月14日", "3", "5000元"}),
        ("nothing of the kind", set()),
    ],
)
def test_values(text, found):
    assert found <= values(text)
    assert holds(text.lower(), values(text))


def test_a_number_inside_another_is_another():
    assert not holds("room 112", {"12"})
    assert holds("room 12.", {"12"})
    assert holds("1,250 euros", {"1250"})
