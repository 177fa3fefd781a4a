"""What takes an older value's place, and what does not: lists of our own, enumerations, and what the assistant says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.compaction.candidates import candidates
from backstory.compaction.changes import claim, is_update, likeness
from backstory.compaction.signs import CODE, about, values
from backstory.messages import assistant, user
from benchmarks.fidelity_changes import CHANGES, MISSED, PAIRS, holds, stays


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change[1])
def test_a_newer_value_takes_the_older_ones_place(change):
    assert holds(change) == (change[0] not in MISSED)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair[1])
def test_what_is_said_of_two_things_stays(pair):
    assert stays(pair)


@pytest.mark.parametrize(
    "line",
    [
        "Chapter {0} has {1} pages.",
        "Day {0}: run {1} km.",
        "Invoice A-{0} is for {1} euros.",
        "{0}号楼有{1}户。",
    ],
)
def test_enumerations_stay_whole(line):
    said = [line.format(number, 10 * number + 7) for number in range(1, 9)]
    kept = [one.text for one in candidates([user(text) for text in said])]
    assert set(said) <= set(kept)


def test_an_assistant_takes_no_value_of_the_users_back():
    said = [user("The rent is 900 euros."), assistant("The rent was raised to 950 euros.")]
    assert "The rent is 900 euros." in [one.text for one in candidates(said)]


def test_programs_of_the_assistants_are_no_facts():
    said = assistant("Here it is:\n```python\nport = 8080\nprint(port)\n```\nThe port is 8080.")
    assert [one.text for one in candidates([user("Go on."), said]) if "port" in one.text] == [
        "The port is 8080."
    ]


@pytest.mark.parametrize(
    "text",
    [
        "* Never deploy on a Friday.",
        "$500 is the cap.",
        "Deadline: Friday",
        "Return the key by Friday.",
        "/etc/hosts must stay",
        "Import taxes are 19 %.",
    ],
)
def test_prose_is_no_program(text):
    assert not CODE.search(text)


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("No meeting on Wednesday mornings.", "rule"),
        ("Use the blue form for all visitors.", "rule"),
        ("千万不要让他知道这件事。", "rule"),
        ("I'll keep you posted on the tickets.", "said"),
        ("I can always try the bakery in Bern.", "fact"),
    ],
)
def test_what_binds_and_what_is_mused(text, kind):
    said = [user("Hello there, dear friend."), user(text), user("Go on.")]
    assert [one.kind for one in candidates(said) if one.text == text] == [kind]


def test_a_prohibition_outlives_what_happens_on_its_day():
    said = [user("No meeting on Wednesday mornings."), user("The meeting with Ines moved to Friday.")]
    assert "No meeting on Wednesday mornings." in [one.text for one in candidates(said)]


def test_i_is_nobodys_name():
    assert values("Today I think I'm late, and I've told Rosa.") == {"today", "rosa"}


TEXTS = st.one_of(
    st.text(max_size=80), st.sampled_from([text for pair in PAIRS for text in pair] + [c[1] for c in CHANGES])
)


@given(TEXTS, TEXTS)
def test_nothing_changes_itself_and_likeness_has_its_bounds(one, other):
    mine, theirs = claim(one, about(one)), claim(other, about(other))
    if mine is not None:
        assert not is_update(mine, mine)
    if mine is not None and theirs is not None:
        assert 0 <= likeness(mine, theirs) <= 1
        assert is_update(mine, theirs) in (True, False)
