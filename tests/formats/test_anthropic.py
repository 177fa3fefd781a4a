"""Anthropic's Messages: what is read is written back as the same object, and what is new is what the API takes."""

import copy
import dataclasses
from typing import Any

import pytest
from anthropic.types import MessageParam, TextBlockParam
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from backstory import messages as m
from backstory.errors import InvalidMessage
from backstory.formats import anthropic
from backstory.formats.synthetic import NOT_STARTED_TEXT
from backstory.targets import Target

TARGET = Target.of("anthropic")
PARAM: TypeAdapter[Any] = TypeAdapter(MessageParam)
SYSTEM: TypeAdapter[Any] = TypeAdapter(str | list[TextBlockParam])
PNG = "iVBORw0KGgo="


def read_all(items: list[Any], origin: m.Origin = anthropic.ORIGIN) -> list[m.Message]:
    return [
        message
        for index, item in enumerate(items)
        for message in anthropic.read(item, index=index, origin=origin)
    ]


def write(*messages: m.Message, target: Target = TARGET):
    written = anthropic.write(messages, target)
    for item in written.items:
        PARAM.validate_python(item)
    if written.system is not None:
        SYSTEM.validate_python(written.system)
    assert len(written.starts) == len(written.items)
    return written


def result(use_id: str, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": use_id, "content": content, **fields}


def use(use_id: str, name: str = "f", **given: Any) -> dict[str, Any]:
    return {"type": "tool_use", "id": use_id, "name": name, "input": given}


def text(value: str, **fields: Any) -> dict[str, Any]:
    return {"type": "text", "text": value, **fields}


# --- identity ------------------------------------------------------------------------------

UNKNOWN = st.dictionaries(
    st.sampled_from(["x", "future", "note"]), st.none() | st.integers() | st.text(max_size=3)
)
IDS = st.sampled_from(["t1", "t2", "toolu_3"])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


def with_unknown(base: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda item, more: {**more, **item}, base, UNKNOWN)


TEXTS = with_unknown(st.builds(text, st.text(max_size=8)))
MEDIA = st.sampled_from(
    [
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}},
        {"type": "image", "source": {"type": "file", "file_id": "file_1"}, "cache_control": None},
        {"type": "image", "source": {"type": "hologram"}},
        {
            "type": "document",
            "source": {"type": "text", "media_type": "text/plain", "data": "d"},
            "title": "T",
        },
        {"type": "document", "source": {"type": "content", "content": [text("a")]}, "context": None},
        {"type": "search_result", "source": "s", "title": "t", "content": [text("a")]},
    ]
)
RESULTS = with_unknown(
    st.builds(
        lambda use_id, content, error: {**result(use_id, content), **error},
        IDS,
        st.none() | st.text(max_size=5) | st.lists(TEXTS | MEDIA, max_size=2),
        st.sampled_from([{}, {"is_error": True}, {"is_error": False}, {"is_error": None}]),
    )
)
ANSWERS = st.one_of(
    TEXTS,
    with_unknown(
        st.builds(lambda i, given: {"type": "tool_use", "id": i, "name": "f", "input": given}, IDS, JSON)
    ),
    st.just({"type": "thinking", "thinking": "hm", "signature": "S"}),
    st.just({"type": "thinking", "thinking": "unsigned"}),
    st.just({"type": "redacted_thinking", "data": "B"}),
    st.just({"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}}),
    st.just({"type": "from_the_future", "content": None}),
    st.just({}),
)
ITEMS = with_unknown(
    st.one_of(
        st.builds(
            lambda content: {"role": "user", "content": content},
            st.none() | st.text(max_size=5) | st.lists(TEXTS | MEDIA | RESULTS, max_size=5),
        ),
        st.builds(
            lambda content: {"role": "assistant", "content": content},
            st.text(max_size=5) | st.lists(ANSWERS, max_size=4),
        ),
        st.just({"role": "user"}),
    )
)


@given(st.lists(ITEMS, max_size=6))
def test_what_is_read_is_written_as_the_very_same_objects(items: list[Any]) -> None:
    before = copy.deepcopy(items)
    messages = read_all(items)
    written = anthropic.write(messages, TARGET)
    assert len(written.items) == len(items)
    assert all(new is old for new, old in zip(written.items, items, strict=True))
    assert written.losses == []
    assert items == before
    starts = [index for index, message in enumerate(messages) if not message.joined]
    assert written.starts == starts


@given(st.lists(ITEMS, max_size=4))
def test_messages_from_the_log_are_written_equal(items: list[Any]) -> None:
    messages = [m.from_json(m.to_json(message)) for message in read_all(items)]
    assert anthropic.write(messages, TARGET).items == items


@given(st.lists(ITEMS, max_size=4))
def test_a_changed_message_keeps_its_blocks_and_unknown_fields(items: list[Any]) -> None:
    """Touched, but nothing in it changed: the blocks are the same objects, and no field is lost."""
    for item in items:
        messages = [message.evolve(id="new") for message in read_all([item])]
        written = anthropic.write(messages, TARGET)
        unsigned = {"type": "thinking", "thinking": "unsigned"}
        if not item.get("content") or unsigned in list(item["content"]):
            continue
        (back,) = written.items
        assert back == item
        if isinstance(item["content"], list):
            assert all(new is old for new, old in zip(back["content"], item["content"], strict=True))


@given(ITEMS)
def test_writing_twice_gives_the_same(item: Any) -> None:
    messages = [message.evolve(name=None) for message in read_all([item])]
    assert anthropic.write(messages, TARGET) == anthropic.write(messages, TARGET)


# --- reading -------------------------------------------------------------------------------


def test_a_user_message_of_results_and_words_is_read_as_two() -> None:
    item = {
        "role": "user",
        "content": [result("t1"), result("t2", [text("two")], is_error=True), text("and now?")],
    }
    first, second = read_all([item])
    assert (first.role, first.joined, second.role, second.joined) == ("tool", False, "user", True)
    assert [(r.call_id, m.texts(r.content), r.is_error) for r in first.results] == [
        ("t1", "ok", None),
        ("t2", "two", True),
    ]
    assert second.text == "and now?"
    assert first.native is not None
    assert first.native.value is item


def test_runs_keep_their_order() -> None:
    item = {"role": "user", "content": [text("a"), result("t1"), text("b"), result("t2")]}
    assert [(x.role, x.joined) for x in read_all([item])] == [
        ("user", False), ("tool", True), ("user", True), ("tool", True),
    ]  # fmt: skip


def test_blocks_are_read_as_parts() -> None:
    origin = m.Origin(provider="anthropic", platform="bedrock", model="claude-x")
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "S"},
        {"type": "redacted_thinking", "data": "B"},
        text("say"),
        use("t1", "look_up", item="茶", n=1.5),
        {"type": "server_tool_use", "id": "s1", "name": "web_search", "input": {}},
        {"type": "compaction", "content": None},
    ]
    (message,) = read_all([{"role": "assistant", "content": content}], origin)
    thinking, redacted, said, call, server, compaction = message.parts
    assert isinstance(thinking, m.Reasoning)
    assert (thinking.text, thinking.signature, thinking.origin) == ("hm", "S", origin)
    assert isinstance(redacted, m.Reasoning)
    assert (redacted.redacted, redacted.encrypted, redacted.origin) == (True, "B", origin)
    assert isinstance(said, m.Text)
    assert isinstance(call, m.ToolCall)
    assert (call.id, call.name, call.arguments) == ("t1", "look_up", '{"item":"茶","n":1.5}')
    assert isinstance(server, m.Opaque)
    assert isinstance(compaction, m.Opaque)
    assert (server.kind, server.origin, compaction.kind) == ("server_tool_use", origin, "compaction")


def test_media_are_read() -> None:
    sources = [
        (
            "image",
            {"type": "base64", "media_type": "image/png", "data": PNG},
            m.Image(data=PNG, media_type="image/png"),
        ),
        ("image", {"type": "url", "url": "https://e.com/a"}, m.Image(url="https://e.com/a")),
        ("image", {"type": "file", "file_id": "f"}, m.Image(file_id="f")),
        (
            "document",
            {"type": "base64", "data": "JVBERi0="},
            m.File(data="JVBERi0=", media_type="application/pdf"),
        ),
        (
            "document",
            {"type": "url", "url": "https://e.com/a"},
            m.File(url="https://e.com/a", media_type="application/pdf"),
        ),
        ("document", {"type": "text", "data": "d"}, m.File(text="d", media_type="text/plain")),
        ("document", {"type": "content", "content": "d"}, m.File(text="d", media_type="text/plain")),
        (
            "document",
            {"type": "content", "content": [text("a"), text("b")]},
            m.File(text="a\nb", media_type="text/plain"),
        ),
    ]
    for kind, source, expected in sources:
        block = {"type": kind, "source": source}
        (message,) = read_all([{"role": "user", "content": [block]}])
        native = m.Native(format="anthropic", value=block)
        assert message.parts == (dataclasses.replace(expected, native=native),)


def test_a_synthetic_result_is_known_for_what_it_is() -> None:
    (message,) = read_all([{"role": "user", "content": [result("t1", NOT_STARTED_TEXT)]}])
    assert message.results[0].synthetic == "not_started"


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ("hello", "must be an object"),
        ({"role": "tool", "content": "x"}, "unknown role 'tool'"),
        ({"content": "x"}, "unknown role None"),
        ({"role": ["user"], "content": "x"}, "unknown role"),
        ({"role": "user", "content": 5}, "content must be a text or a list"),
        ({"role": "user", "content": {"type": "text", "text": "x"}}, "content must be a text or a list"),
        ({"role": "user", "content": ["x"]}, "a block must be an object"),
        ({"role": "user", "content": [result("t1", 7)]}, "content must be"),
        ({"role": "assistant", "content": [{"type": "tool_use", "input": {"a": b"x"}}]}, "not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(item: Any, what: str) -> None:
    with pytest.raises(InvalidMessage, match=what) as caught:
        anthropic.read(item, index=7)
    assert caught.value.index == 7


def test_deep_nesting_is_a_typed_error_or_none() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidMessage, match="not JSON"):
        anthropic.read({"role": "assistant", "content": [use("t", **deep)]}, index=0)


def test_what_is_merely_illegal_is_read() -> None:
    """Repair deals with it; a typed error would brick the session."""
    (message,) = read_all(
        [{"role": "assistant", "content": [{"type": "tool_use", "input": "{"}, result("t9")]}]
    )
    assert message.calls == (m.ToolCall(id="", name="", arguments="{", native=message.calls[0].native),)
    assert message.role == "assistant"
    assert message.results[0].call_id == "t9"
    (call,) = read_all([{"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "f"}]}])[
        0
    ].calls
    assert call.arguments == ""


# --- the system ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["Be brief.", "", [text("a", cache_control={"type": "ephemeral"}), text("b")], []]
)
def test_a_system_that_was_read_comes_back_verbatim(value: Any) -> None:
    written = anthropic.write([*anthropic.read_system(value), m.user("u")], TARGET)
    assert written.system is value


def test_no_system_is_no_message() -> None:
    assert anthropic.read_system(None) == []
    assert anthropic.write([m.user("u")], TARGET).system is None


def test_a_system_of_a_wrong_type_is_refused() -> None:
    for value in (5, {"type": "text", "text": "x"}, ["x"]):
        with pytest.raises(InvalidMessage):
            anthropic.read_system(value)


def test_leading_system_and_developer_messages_become_the_system() -> None:
    assert write(m.system("one"), m.user("u")).system == "one"
    developer = m.Message(role="developer", parts=(m.Text(text="two"),))
    assert write(m.system("one"), developer, m.user("u")).system == [text("one"), text("two")]
    marked = anthropic.read_system([text("one", cache_control={"type": "ephemeral"})])
    written = write(*marked, m.system("two"), m.user("u"))
    assert written.system == [text("one", cache_control={"type": "ephemeral"}), text("two")]
    assert written.starts == [2]


def test_what_is_not_text_in_a_system_is_reported() -> None:
    written = write(
        m.Message(role="system", parts=(m.Image(url="https://e.com/a"), m.Text(text="s"))), m.user("u")
    )
    assert written.system == [text("s")]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(0, "image")]


def test_a_late_system_message_is_the_users_text_in_tags() -> None:
    written = write(m.user("u"), m.assistant("a"), m.system("now rhyme"))
    assert written.items[2] == {"role": "user", "content": "<system>\nnow rhyme\n</system>"}
    assert written.losses == []


def test_where_a_late_system_message_is_taken_it_stays_one() -> None:
    written = write(m.user("u"), m.system("rhyme"), m.assistant("a"), target=TARGET.but(system_anywhere=True))
    assert [item["role"] for item in written.items] == ["user", "system", "assistant"]


def test_a_system_message_inside_the_list_is_kept_in_its_place() -> None:
    items = [{"role": "user", "content": "u"}, {"role": "system", "content": "s", "clear_at": "next"}]
    messages = read_all(items)
    assert messages[1].role == "system"
    written = write(*messages)
    assert [new is old for new, old in zip(written.items, items, strict=True)] == [True, True]


# --- writing what is new or comes from elsewhere ------------------------------------------------


def test_all_results_of_a_step_share_one_message_and_the_words_after_them_have_their_own() -> None:
    written = write(
        m.user("u"),
        m.assistant("hm", m.ToolCall(id="1", name="f", arguments='{"a": 1}'), m.ToolCall(id="2", name="g")),
        m.tool("1", "one", is_error=True),
        m.tool("2", "two"),
        m.user("next"),
    )
    assert written.items == [
        {"role": "user", "content": "u"},
        {"role": "assistant", "content": [text("hm"), use("1", a=1), use("2", "g")]},
        {"role": "user", "content": [result("1", "one", is_error=True), result("2", "two")]},
        {"role": "user", "content": "next"},
    ]
    assert written.starts == [0, 1, 2, 4]
    assert written.losses == []


def test_items_of_one_answer_share_one_message() -> None:
    """As Responses has them: a text, a call and a call are three items there."""
    written = write(
        m.user("u"),
        m.assistant("hm"),
        m.assistant("", m.ToolCall(id="1", name="f"), joined=True),
        m.assistant("", m.ToolCall(id="2", name="f"), joined=True),
        m.tool("1", "one"),
        m.tool("2", "two"),
    )
    assert [len(item["content"]) for item in written.items] == [1, 3, 2]
    assert written.starts == [0, 1, 4]


def test_neighbours_of_the_users_stay_apart() -> None:
    items = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    written = write(*read_all(items), m.user("c"), m.user("d"))
    assert written.items == [*items, {"role": "user", "content": "c"}, {"role": "user", "content": "d"}]
    assert written.items[0] is items[0]


def test_a_new_result_joins_the_results_that_were_read() -> None:
    item: dict[str, Any] = {"role": "user", "content": [result("t1")], "x": 1}
    written = write(*read_all([item]), m.tool("t2", "two"))
    assert written.items == [{"role": "user", "content": [result("t1"), result("t2", "two")], "x": 1}]
    assert written.items[0]["content"][0] is item["content"][0]
    written = write(m.tool("t0", "zero"), *read_all([item]))
    assert written.items == [{"role": "user", "content": [result("t0", "zero"), result("t1")], "x": 1}]
    assert written.starts == [0]


def test_half_of_an_item_is_written_from_its_blocks() -> None:
    item = {"role": "user", "content": [result("t1", x=1), text("and", y=2)], "z": 3}
    first, second = read_all([item])
    assert write(second).items == [{"role": "user", "content": [text("and", y=2)], "z": 3}]
    assert write(first, m.user("new", joined=True)).items == [
        {"role": "user", "content": [result("t1", x=1), text("new")], "z": 3}
    ]
    changed = second.evolve(parts=(m.evolve(second.parts[0], text="other"),))
    assert write(first, changed).items == [
        {"role": "user", "content": [result("t1", x=1), text("other", y=2)], "z": 3}
    ]
    assert item == {"role": "user", "content": [result("t1", x=1), text("and", y=2)], "z": 3}


def test_changed_parts_keep_what_we_do_not_know() -> None:
    item = {
        "role": "assistant",
        "content": [
            text("t", citations=None),
            {**use("t1", a=1), "caller": {"type": "direct"}},
            {"type": "thinking", "thinking": "hm", "signature": "S", "x": 1},
            {"type": "redacted_thinking", "data": "B", "x": 1},
        ],
    }
    (message,) = read_all([item])
    said, call, thinking, redacted = message.parts
    changed = message.evolve(
        parts=(
            m.evolve(said, text="new"),
            m.evolve(call, id="t9"),
            m.evolve(thinking, signature="S2"),
            m.evolve(redacted, encrypted="C"),
        )
    )
    assert write(changed).items[0]["content"] == [
        text("new", citations=None),
        {**use("t9", a=1), "caller": {"type": "direct"}},
        {"type": "thinking", "thinking": "hm", "signature": "S2", "x": 1},
        {"type": "redacted_thinking", "data": "C", "x": 1},
    ]
    (answer,) = read_all([{"role": "user", "content": [result("t1", [text("r")], cache_control=None)]}])
    changed = answer.evolve(parts=(m.evolve(answer.parts[0], call_id="t9"),))
    assert write(changed).items[0]["content"] == [result("t9", [text("r")], cache_control=None)]


def test_arguments_that_are_no_object_are_kept_in_one() -> None:
    for arguments, expected in [
        ("{", {"_arguments": "{"}),
        ("[1]", {"_arguments": "[1]"}),
        ('{"a": NaN}', {"_arguments": '{"a": NaN}'}),
        ("", {}),
        ("[" * 100_000, {"_arguments": "[" * 100_000}),
    ]:
        written = write(m.assistant("", m.ToolCall(id="1", name="f", arguments=arguments)))
        assert written.items[0]["content"][0]["input"] == expected


def test_a_custom_call_becomes_a_function_call_and_says_so() -> None:
    written = write(m.assistant("", m.ToolCall(id="1", name="f", arguments="free", kind="custom")))
    assert written.items[0]["content"] == [use("1", input="free")]
    assert [loss.kind for loss in written.losses] == ["call"]


def test_reasoning_goes_back_to_its_maker_only() -> None:
    item = {
        "role": "assistant",
        "content": [{"type": "thinking", "thinking": "hm", "signature": "S"}, text("a")],
    }
    for origin, target, kept in [
        (anthropic.ORIGIN, TARGET, True),
        (
            m.Origin(provider="anthropic", model="a"),
            TARGET.but(origin=m.Origin(provider="anthropic", model="b")),
            False,
        ),
        (m.Origin(provider="anthropic", platform="bedrock"), TARGET, True),
        (m.Origin(provider="deepseek"), TARGET, False),
        (anthropic.ORIGIN, TARGET.but(reasoning="never"), False),
    ]:
        written = write(*read_all([item], origin), target=target)
        if kept:
            assert written.items[0] is item
            assert written.losses == []
        else:
            assert written.items == [{"role": "assistant", "content": [text("a")]}]
            assert [(loss.index, loss.kind) for loss in written.losses] == [(0, "reasoning")]


def test_unsigned_reasoning_of_others_is_left_out_and_reported() -> None:
    written = write(
        m.user("u"), m.Message(role="assistant", parts=(m.Reasoning(text="hm"), m.Text(text="a")))
    )
    assert written.items[1] == {"role": "assistant", "content": [text("a")]}
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "reasoning")]


def test_a_message_of_which_nothing_can_be_carried_is_reported_and_left_out() -> None:
    written = write(
        m.user("u"), m.Message(role="assistant", parts=(m.Reasoning(text="hm"),)), m.assistant("")
    )
    assert written.items == [{"role": "user", "content": "u"}]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "reasoning"), (2, "empty")]


def test_opaque_items_of_others_are_reported() -> None:
    foreign = m.Opaque(
        kind="web_search_call", native=m.Native(format="openai_responses", value={"type": "web_search_call"})
    )
    written = write(m.Message(role="assistant", parts=(foreign, m.Text(text="a"))))
    assert [loss.kind for loss in written.losses] == ["opaque"]
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    (message,) = read_all(
        [{"role": "assistant", "content": [server, text("a")]}], m.Origin(provider="anthropic", model="x")
    )
    other = TARGET.but(origin=m.Origin(provider="anthropic", model="y"))
    assert write(message, target=other).items[0]["content"] == [text("a")]


def test_a_refusal_is_kept_as_text() -> None:
    written = write(
        m.user("a"), m.Message(role="assistant", parts=(m.Refusal(text="I can't."),)), m.user("b")
    )
    assert written.items[1] == {"role": "assistant", "content": [text("I can't.")]}
    assert written.losses == []


def test_media_from_elsewhere() -> None:
    pdf, txt = "JVBERi0=", "aGk="
    for part, block in [
        (
            m.Image(data=PNG, media_type="image/png"),
            {"type": "base64", "media_type": "image/png", "data": PNG},
        ),
        (
            m.Image(url=f"data:image/gif;base64,{PNG}"),
            {"type": "base64", "media_type": "image/gif", "data": PNG},
        ),
        (m.Image(url="https://e.com/a.png"), {"type": "url", "url": "https://e.com/a.png"}),
        (m.File(data=pdf), {"type": "base64", "media_type": "application/pdf", "data": pdf}),
        (m.File(data=txt, name="a.txt"), {"type": "text", "media_type": "text/plain", "data": "hi"}),
        (m.File(text="hi"), {"type": "text", "media_type": "text/plain", "data": "hi"}),
        (m.File(url="https://e.com/a.pdf"), {"type": "url", "url": "https://e.com/a.pdf"}),
    ]:
        written = write(m.Message(role="user", parts=(part,)))
        assert written.items[0]["content"][0]["source"] == block
        assert written.losses == []


def test_changed_media_keep_what_we_do_not_know() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": PNG, "x": 1}
    (message,) = read_all(
        [{"role": "user", "content": [{"type": "image", "source": source, "transformations": {}}]}]
    )
    changed = message.evolve(parts=(m.evolve(message.parts[0], data="UklG"),))
    assert write(changed).items[0]["content"] == [
        {"type": "image", "source": {**source, "data": "UklG"}, "transformations": {}}
    ]


@pytest.mark.parametrize(
    ("part", "kind"),
    [
        (m.Image(file_id="file-of-openai"), "image"),
        (m.Image(url="gs://bucket/a.png"), "image"),
        (m.File(data="UEs=", media_type="application/zip"), "file"),
        (m.Audio(data="UklG", media_type="audio/wav"), "audio"),
    ],
)
def test_media_that_it_cannot_take_are_named_in_the_text_and_reported(part: m.Part, kind: str) -> None:
    written = write(m.Message(role="user", parts=(part,)))
    assert written.items[0]["content"][0]["type"] == "text"
    assert [loss.kind for loss in written.losses] == [kind]


def test_a_transcript_stands_for_audio_and_an_answer_holds_no_image() -> None:
    written = write(m.Message(role="assistant", parts=(m.Audio(file_id="a1", transcript="hello"),)))
    assert written.items[0]["content"] == [text("hello")]
    written = write(m.Message(role="assistant", parts=(m.Image(url="https://e.com/a"), m.Text(text="see"))))
    assert [block["type"] for block in written.items[0]["content"]] == ["text", "text"]
    assert [loss.kind for loss in written.losses] == ["image"]


def test_media_in_results() -> None:
    image = m.Image(data=PNG, media_type="image/png")
    answer = m.ToolResult(call_id="t1", content=(m.Text(text="look"), image))
    written = write(m.Message(role="tool", parts=(answer,)))
    assert [block["type"] for block in written.items[0]["content"][0]["content"]] == ["text", "image"]


def test_what_has_no_field_is_reported() -> None:
    call = m.ToolCall(id="1", name="f", signature="GEMINI")
    image = m.Image(url="https://e.com/a", detail="high")
    written = write(m.user("u", name="Ann"), m.assistant("", call), m.Message(role="user", parts=(image,)))
    assert [(loss.index, loss.kind) for loss in written.losses] == [
        (0, "name"),
        (1, "signature"),
        (2, "detail"),
    ]


def test_an_opaque_block_that_was_touched_is_still_its_own_providers() -> None:
    block = {"type": "from_the_future", "x": [1]}
    (message,) = read_all([{"role": "assistant", "content": [block]}])
    touched = message.evolve(parts=(m.evolve(message.parts[0], kind="other"),))
    assert anthropic.write([touched], TARGET).items == [{"role": "assistant", "content": [block]}]


def test_files_of_its_own_keep_their_id_when_changed() -> None:
    content = [
        {"type": "image", "source": {"type": "file", "file_id": "f1"}},
        {"type": "document", "source": {"type": "file", "file_id": "f2"}, "title": "a"},
    ]
    (message,) = read_all([{"role": "user", "content": content}])
    image, document = message.parts
    changed = message.evolve(parts=(m.evolve(image, detail="auto"), m.evolve(document, name="b")))
    assert write(changed).items[0]["content"] == [content[0], {**content[1], "title": "b"}]


def test_two_halves_of_different_items_do_not_pass_for_a_whole_one() -> None:
    items = [{"role": "user", "content": [result("t1"), text(word)]} for word in ("a", "b")]
    first, _, _, other = read_all(items)
    assert write(first, other).items == [{"role": "user", "content": [result("t1"), text("b")]}]


def test_text_data_that_is_no_text_is_reported() -> None:
    written = write(
        m.Message(role="user", parts=(m.File(data="gIE=", media_type="text/plain", name="a.txt"),))
    )
    assert [loss.kind for loss in written.losses] == ["file"]
    assert write(m.Message(role="user", parts=(m.Image(url="data:,x"),))).losses[0].kind == "image"
