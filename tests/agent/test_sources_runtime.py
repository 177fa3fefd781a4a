"""The runtime block: facts of the moment, deterministic, never to be mistaken, never shown to people."""

import datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.sources import runtime_facts, without_runtime
from backstory.agent.sources.runtime import NOTE_LIMIT, channel_and_chat, told_time
from backstory.context.builder import compose
from backstory.context.sections import Passage, retrieved_block, runtime_block
from backstory.errors import ConfigurationError
from backstory.messages import Image, Message, Text, assistant, from_json, to_json
from backstory.stores.clock import ManualClock

CLOCK = ManualClock(1_750_000_000.0)


def block(**given: object) -> str:
    return runtime_block(runtime_facts(clock=CLOCK, zone="UTC", **given))  # type: ignore[arg-type]


# --- facts


def test_the_whole_block():
    facts = runtime_facts(
        session="telegram:12345",
        clock=CLOCK,
        zone="Asia/Shanghai",
        tools={"read_file": "", "notes": "", "weather": "no network"},
        mcp={"github": "", "jira": "not connected"},
        pending={"memory": "- likes tea\n- lives in Hangzhou", "orders": "two"},
        late=["search (call 7): 3 hits"],
        notes=["AGENTS.md is not in UTF-8"],
        more={"user": "张三"},
    )
    assert runtime_block(facts) == (
        "<runtime>\n"
        "time: 2025-06-15 23:06:40 +08:00 Asia/Shanghai, Sunday\n"
        "channel: telegram\n"
        "chat id: 12345\n"
        "tools: 2 ready; weather: no network\n"
        "mcp: 1 ready; jira: not connected\n"
        "user: 张三\n"
        "new in memory: \n  - likes tea\n  - lives in Hangzhou\n"
        "new in orders: two\n"
        "late results: search (call 7): 3 hits\n"
        "notes: AGENTS.md is not in UTF-8\n"
        "</runtime>"
    )


def test_what_there_is_nothing_to_say_of_is_left_out():
    assert runtime_facts(clock=CLOCK, zone="UTC") == {"time": "2025-06-15 15:06:40 +00:00 UTC, Sunday"}


@pytest.mark.parametrize(
    ("zone", "told"),
    [
        ("America/New_York", "2025-06-15 11:06:40 -04:00 America/New_York, Sunday"),
        ("Asia/Kathmandu", "2025-06-15 20:51:40 +05:45 Asia/Kathmandu, Sunday"),
        (datetime.UTC, "2025-06-15 15:06:40 +00:00 UTC, Sunday"),
        (datetime.timezone(datetime.timedelta(hours=10)), "2025-06-16 01:06:40 +10:00, Monday"),
    ],
)
def test_times_have_their_zone(zone: datetime.tzinfo | str, told: str):
    assert told_time(CLOCK.now(), zone) == told


def test_the_machines_own_zone_is_the_default():
    told = told_time(CLOCK.now())
    at = datetime.datetime.fromtimestamp(CLOCK.now()).astimezone()
    assert told.startswith(f"{at:%Y-%m-%d %H:%M:%S} ")
    assert runtime_facts()["time"] != ""


@pytest.mark.parametrize("zone", ["Mars/Olympus", "../../etc/passwd", "a\0b", "/etc/localtime"])
def test_an_unknown_zone_is_a_setting_gone_wrong(zone: str):
    with pytest.raises(ConfigurationError, match="there is no time zone"):
        runtime_facts(zone=zone)


@pytest.mark.parametrize(
    ("key", "found"),
    [
        ("telegram:12345", ("telegram", "12345")),
        ("cli:direct", ("cli", "direct")),
        ("slack:C1:thread-2", ("slack", "C1:thread-2")),
        ("plain", ("", "plain")),
        ("", ("", "")),
    ],
)
def test_channel_and_chat_come_from_the_key(key: str, found: tuple[str, str]):
    assert channel_and_chat(key) == found


def test_a_long_note_is_shortened():
    text = block(pending={"memory": "\n".join(f"- fact {number}" for number in range(10_000))})
    assert len(text) < NOTE_LIMIT * 1.5
    assert "…" in text


anything = st.one_of(
    st.text(max_size=60),
    st.sampled_from(
        ["</runtime>", "< / RUNTIME >", "<retrieved>", "\n</runtime>\n", "a\u2028time: 0", "\ud800"]
    ),
)


@given(anything, anything, st.dictionaries(anything, anything, max_size=3), st.lists(anything, max_size=3))
def test_nothing_ends_the_block_or_passes_for_another_fact(
    session: str, text: str, states: dict[str, str], notes: list[str]
):
    whole = block(
        session=session,
        tools=states,
        mcp=states,
        pending={text: text, **states},
        late=notes,
        notes=notes,
        more=states,
    )
    assert whole.count("<runtime>") == whole.count("</runtime>") == 1
    assert whole.startswith("<runtime>\ntime: ")
    assert whole.endswith("\n</runtime>")
    assert "<retrieved>" not in whole
    assert len([line for line in whole.split("\n") if line.startswith("time:")]) == 1
    whole.encode()


# --- for people


def logged(*parts: Text | Image, passages: bool = False, runtime: bool = True) -> Message:
    found = [Passage(text="from a page", source="wiki")] if passages else []
    facts = runtime_facts(session="cli:direct", clock=CLOCK, zone="UTC") if runtime else {}
    return Message(role="user", parts=compose(parts, passages=found, runtime=facts), id="m-1")


@pytest.mark.parametrize("passages", [True, False])
@pytest.mark.parametrize("runtime", [True, False])
def test_people_see_what_was_written(passages: bool, runtime: bool):
    parts = (Text(text="look"), Image(url="https://example.org/a.png"))
    message = logged(*parts, passages=passages, runtime=runtime)
    assert len(message.parts) == 2 + passages + runtime
    shown = without_runtime(from_json(to_json(message)))
    assert shown.parts == parts
    assert shown.id == "m-1"
    assert without_runtime(shown) is shown


@pytest.mark.parametrize(
    "text", ["<runtime>\ntime: 0\n</runtime>", "<retrieved>\nx\n</retrieved>", "a <runtime>"]
)
def test_what_a_person_wrote_stays_whatever_it_looks_like(text: str):
    assert without_runtime(logged(Text(text=text))).text == text
    assert without_runtime(logged(Text(text=text), runtime=False)).text == text


def test_only_whole_parts_at_the_end_are_blocks():
    runtime = Text(text=runtime_block({"time": "0"}))
    retrieved = Text(text=retrieved_block([Passage(text="x")]))
    said = Text(text="hello")
    for parts in (
        (said, runtime, Text(text="more")),
        (said, Text(text=runtime.text + " and more")),
        (said, Text(text="say " + runtime.text)),
    ):
        message = Message(role="user", parts=parts)
        assert without_runtime(message) is message
    assert without_runtime(Message(role="user", parts=(said, retrieved, runtime))).parts == (said,)


def test_other_roles_are_left_alone():
    answer = assistant("hello").evolve(parts=(Text(text="hi"), Text(text=runtime_block({"time": "0"}))))
    assert without_runtime(answer) is answer


@given(st.lists(st.text(), min_size=1, max_size=4), st.booleans(), st.booleans())
def test_blocks_that_were_put_on_come_off(words: list[str], passages: bool, runtime: bool):
    parts = tuple(Text(text=word) for word in words)
    shown = without_runtime(logged(*parts, passages=passages, runtime=runtime))
    assert shown.parts == parts
