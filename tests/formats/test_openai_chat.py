"""Chat Completions: what is read is written back as the same object, and what is new is what the API takes."""

import copy
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.chat import ChatCompletionMessageParam
from pydantic import TypeAdapter

from backstory import messages as m
from backstory.errors import InvalidMessage
from backstory.formats import openai_chat
from backstory.formats.synthetic import NO_ANSWER_TEXT, NOT_STARTED_TEXT, OUTCOME_UNKNOWN_TEXT, synthetic_text
from backstory.targets import Target

OPENAI = Target.of("openai").but(reasoning="as_given", tool_content="media")
PARAM: TypeAdapter[Any] = TypeAdapter(ChatCompletionMessageParam)
PNG = "data:image/png;base64,iVBORw0KGgo="


def read_all(items: list[Any], origin: m.Origin = openai_chat.ORIGIN) -> list[m.Message]:
    return [
        message
        for index, item in enumerate(items)
        for message in openai_chat.read(item, index=index, origin=origin)
    ]


def drain(value: Any) -> None:
    """Pydantic checks an `Iterable` only when it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            drain(inner)
    elif hasattr(value, "__iter__") and not isinstance(value, str | bytes):
        for inner in value:
            drain(inner)


def write(messages: list[m.Message], target: Target | str = OPENAI, valid: bool = True):
    target = Target.of(target)
    written = openai_chat.write(messages, target)
    assert len(written.starts) == len(written.items)
    assert all(0 <= start < len(messages) for start in written.starts)
    assert written.system is None
    if valid:
        for item in written.items:
            drain(PARAM.validate_python(item))
    return written


def function_call(call_id: str, name: str = "f", arguments: Any = "{}", **fields: Any) -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}, **fields}


def calls(*given: dict[str, Any], **fields: Any) -> dict[str, Any]:
    return {"role": "assistant", "content": None, "tool_calls": list(given), **fields}


def answer(call_id: str, content: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content, **fields}


def user(content: Any = "hi", **fields: Any) -> dict[str, Any]:
    return {"role": "user", "content": content, **fields}


def image(url: str = PNG, **fields: Any) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}, **fields}


# --- identity ------------------------------------------------------------------------------

TEXTS = st.text(max_size=6)
UNKNOWN = st.dictionaries(
    st.sampled_from(["x", "future", "annotations"]), st.none() | st.integers() | TEXTS, max_size=2
)


def built(draw: st.DrawFn, **fields: Any) -> dict[str, Any]:
    return {**fields, **draw(UNKNOWN)}


@st.composite
def part(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(
        st.sampled_from(["text", "image_url", "input_audio", "file", "refusal", "video_url", "future_part"])
    )
    inner: Any = draw(TEXTS)
    if kind == "image_url":
        inner = built(draw, url=draw(st.sampled_from([PNG, "https://x.org/a.png", "data:,plain"])))
        inner |= draw(st.sampled_from([{}, {"detail": "low"}]))
    elif kind == "input_audio":
        inner = built(draw, data="UklGRg==", format=draw(st.sampled_from(["wav", "mp3"])))
    elif kind == "file":
        given = [
            {"file_id": "file-1"},
            {"file_data": "data:application/pdf;base64,JVBERi0="},
            {"file_data": "JVBE"},
        ]
        inner = built(draw, filename="a.pdf", **draw(st.sampled_from(given)))
    return built(draw, type=kind, **{kind: inner})


@st.composite
def call(draw: st.DrawFn) -> dict[str, Any]:
    kind = draw(st.sampled_from(["function", "function", "custom", "future", None]))
    arguments = draw(st.sampled_from(["{}", '{"a": 1}', "{broken", "", '{ "a" : "é" }']) | TEXTS)
    name = draw(st.sampled_from(["f", "look_up", "", "bad name"]))
    if kind == "custom":
        inner = {"custom": built(draw, name=name, input=arguments)}
    elif kind == "future":
        inner = {"future": {"name": name}}
    else:
        inner = {"function": built(draw, name=name, arguments=arguments)}
    given = built(draw, id=draw(st.sampled_from(["c1", "c2", ""])), **inner)
    if kind is not None:
        given["type"] = kind
    if draw(st.booleans()):
        given["extra_content"] = {"google": {"thought_signature": "SIG", "more": 1}}
    return given


@st.composite
def item(draw: st.DrawFn) -> dict[str, Any]:
    role = draw(
        st.sampled_from(["system", "developer", "user", "assistant", "assistant", "tool", "function"])
    )
    content = draw(
        st.none()
        | st.sampled_from(["", NOT_STARTED_TEXT])
        | TEXTS
        | st.lists(part(), max_size=3).map(lambda parts: parts if role != "never" else [])
    )
    given: dict[str, Any] = {"role": role}
    if draw(st.integers(0, 5)):
        given["content"] = content
    if draw(st.booleans()):
        given["name"] = draw(st.sampled_from(["ann", "f"]))
    if role == "tool":
        given["tool_call_id"] = draw(st.sampled_from(["c1", ""]))
    if role == "assistant":
        optional: dict[str, Any] = {
            "tool_calls": st.none() | st.lists(call(), max_size=3),
            "refusal": st.none() | TEXTS,
            "audio": st.none() | st.just({"id": "audio_1", "transcript": "said"}),
            "reasoning_content": st.none() | TEXTS,
            "reasoning": st.none() | TEXTS,
            "reasoning_details": st.just([{"type": "reasoning.text", "text": "t", "signature": "s"}]),
            "function_call": st.none() | st.just({"name": "f", "arguments": "{bad"}),
        }
        for field in draw(st.lists(st.sampled_from(sorted(optional)), max_size=3, unique=True)):
            given[field] = draw(optional[field])
    return built(draw, **given)


ITEMS = st.lists(item(), max_size=6)


@given(ITEMS)
def test_what_was_read_is_written_as_the_same_objects(items: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(items)
    written = write(read_all(items), OPENAI, valid=False)
    assert len(written.items) == len(items)
    assert all(new is old for new, old in zip(written.items, items, strict=True))
    assert items == before
    assert written.losses == []
    assert written.starts == list(range(len(items)))


@given(ITEMS)
def test_the_log_keeps_what_was_read(items: list[dict[str, Any]]) -> None:
    messages = read_all(items)
    back = [m.from_json(json.loads(json.dumps(m.to_json(message)))) for message in messages]
    assert back == messages
    assert write(back, OPENAI, valid=False).items == items


@given(ITEMS)
def test_a_message_that_says_it_was_changed_is_built_again_the_same(items: list[dict[str, Any]]) -> None:
    """Its parts are intact, so that only null fields may go, and what contradicts itself."""
    before = copy.deepcopy(items)
    for item in items:
        written = write([message.evolve() for message in read_all([item])], OPENAI, valid=False).items
        plain = {key: value for key, value in item.items() if value is not None or key == "content"}
        if not written:
            assert item["role"] == "assistant" or not item.get("content")
            continue
        (new,) = written
        for key, value in plain.items():
            if key in ("refusal", "name", "content", "tool_calls", "function_call"):
                continue  # looked at below
            if key.startswith("reasoning"):
                assert value == new.get(key, value)
            else:
                assert new[key] == value, key
        if plain.get("tool_calls"):
            assert new["tool_calls"] == plain["tool_calls"]
        content = item.get("content")
        kinds = {each["type"] for each in content} if isinstance(content, list) else set()
        fitting = {"user": kinds - {"refusal"}, "assistant": kinds & {"text", "refusal"}}
        if content and kinds == fitting.get(item["role"], kinds & {"text"}):
            assert new["content"] == content
    assert items == before


@given(ITEMS)
def test_changed_parts_keep_the_fields_that_we_do_not_know(items: list[dict[str, Any]]) -> None:
    for item in items:
        (message,) = read_all([item])
        changed = message.evolve(
            parts=tuple(part if isinstance(part, m.Opaque) else m.evolve(part) for part in message.parts)
        )
        for new in write([changed], OPENAI, valid=False).items:
            assert {"x", "future", "annotations"}.isdisjoint(item) or any(key in new for key in item)
            for old_call, new_call in zip(
                item.get("tool_calls") or (), new.get("tool_calls") or (), strict=False
            ):
                assert new_call == {"type": "function", **old_call}


@pytest.mark.parametrize(
    "preset", ["openai_chat", "openai", "vllm", "ollama", "deepseek", "qwen", "llama_cpp"]
)
@settings(max_examples=25)
@given(items=ITEMS)
def test_every_preset_takes_anything_and_leaves_it_alone(preset: str, items: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(items)
    written = write(read_all(items), preset, valid=False)
    assert items == before
    json.dumps(written.items)
    target = Target.of(preset)
    for item in written.items:
        assert target.developer or item["role"] != "developer"
        if target.reasoning == "never":
            assert not item.keys() & {"reasoning_content", "reasoning", "reasoning_details"}
        if target.tool_content == "string" and item["role"] in ("tool", "function"):
            assert type(item["content"]) is str


# --- reading -------------------------------------------------------------------------------


def test_the_shapes_of_the_api_reference() -> None:
    items = [
        {"role": "developer", "content": "You are terse."},
        {"role": "system", "content": [{"type": "text", "text": "Be kind."}], "name": "ops"},
        user(
            [{"type": "text", "text": "What is this?"}, image(PNG), image("https://x.org/b.png")], name="ann"
        ),
        user([{"type": "input_audio", "input_audio": {"data": "UklG", "format": "mp3"}}]),
        user(
            [{"type": "file", "file": {"filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}}]
        ),
        user([{"type": "file", "file": {"file_id": "file-1"}}]),
        calls(function_call("c1", "look_up", '{"q": "tea"}')),
        answer("c1", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]),
        calls({"id": "c2", "type": "custom", "custom": {"name": "py", "input": "print(1)"}}),
        answer("c2"),
        {"role": "assistant", "content": None, "refusal": "I can't."},
        {
            "role": "assistant",
            "content": [{"type": "text", "text": "a"}, {"type": "refusal", "refusal": "b"}],
        },
        {"role": "assistant", "audio": {"id": "audio_1"}},
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    messages = read_all(items)
    for given_item in items:
        drain(PARAM.validate_python(given_item))
    assert [message.role for message in messages][:4] == ["developer", "system", "user", "user"]
    assert messages[2].name == "ann"
    text, inline, web = messages[2].parts
    assert isinstance(text, m.Text)
    assert isinstance(inline, m.Image)
    assert (inline.data, inline.media_type, inline.url) == ("iVBORw0KGgo=", "image/png", None)
    assert isinstance(web, m.Image)
    assert web.url == "https://x.org/b.png"
    (audio,) = messages[3].parts
    assert isinstance(audio, m.Audio)
    assert audio.media_type == "audio/mpeg"
    (file,) = messages[4].parts
    assert isinstance(file, m.File)
    assert (file.name, file.data, file.media_type) == ("a.pdf", "JVBE", "application/pdf")
    (look_up,) = messages[6].calls
    assert (look_up.id, look_up.name, look_up.arguments, look_up.kind) == (
        "c1",
        "look_up",
        '{"q": "tea"}',
        "function",
    )
    (result,) = messages[7].results
    assert [type(part) for part in result.content] == [m.Text, m.Text]
    (custom,) = messages[8].calls
    assert (custom.kind, custom.arguments) == ("custom", "print(1)")
    assert messages[10].parts == (m.Refusal(text="I can't."),)
    assert [type(part) for part in messages[11].parts] == [m.Text, m.Refusal]
    (spoken,) = messages[12].parts
    assert isinstance(spoken, m.Audio)
    assert spoken.file_id == "audio_1"
    (legacy,) = messages[13].calls
    assert (legacy.id, legacy.name) == ("", "f")
    assert messages[14].role == "tool"
    assert (messages[14].results[0].call_id, messages[14].results[0].name) == ("", "f")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
def test_reasoning_stands_first_and_knows_its_origin(field: str) -> None:
    origin = m.Origin(provider="deepseek")
    (message,) = read_all([{"role": "assistant", "content": "4", field: "2+2"}], origin)
    assert message.parts[0] == m.Reasoning(text="2+2", origin=origin)


def test_reasoning_details_alone_are_read() -> None:
    details = [{"type": "reasoning.summary", "summary": "a"}, {"type": "reasoning.encrypted", "data": "X"}]
    (message,) = read_all([{"role": "assistant", "content": "4", "reasoning_details": details}])
    assert isinstance(message.parts[0], m.Reasoning)
    assert message.parts[0].text == "a"
    assert write([message.evolve()], valid=False).items[0]["reasoning_details"] == details


@pytest.mark.parametrize("provider", ["google", "vertex"])
def test_a_thought_signature_is_read_from_extra_content(provider: str) -> None:
    signed = function_call("c1", extra_content={provider: {"thought_signature": "SIG"}})
    (message,) = read_all([calls(signed)])
    assert message.calls[0].signature == "SIG"


def test_arguments_that_came_as_an_object_go_back_as_the_string_they_should_be() -> None:
    item = calls(function_call("c1", arguments={"q": "茶"}), function_call("c2", arguments=None))
    (message,) = read_all([item])
    assert [one.arguments for one in message.calls] == ['{"q":"茶"}', ""]
    (written,) = write([message]).items
    assert [one["function"]["arguments"] for one in written["tool_calls"]] == ['{"q":"茶"}', ""]
    assert item["tool_calls"][0]["function"]["arguments"] == {"q": "茶"}


def test_an_id_that_is_a_number_becomes_a_string_on_both_sides() -> None:
    items = [calls(function_call(0, "f")), answer(0)]  # type: ignore[arg-type]
    written = write(read_all(items))
    assert written.items[0]["tool_calls"][0]["id"] == written.items[1]["tool_call_id"] == "0"


def test_an_unknown_type_of_call_still_has_an_id_to_answer() -> None:
    item = calls({"id": "c1", "type": "future", "future": {"name": "do", "more": 1}})
    (message,) = read_all([item])
    assert (message.calls[0].kind, message.calls[0].name) == ("future", "do")
    renamed = message.evolve(parts=(m.evolve(message.calls[0], id="c9"),))
    assert write([renamed], valid=False).items[0]["tool_calls"] == [{**item["tool_calls"][0], "id": "c9"}]


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (NOT_STARTED_TEXT, "not_started"),
        (OUTCOME_UNKNOWN_TEXT, "outcome_unknown"),
        (synthetic_text("outcome_unknown", "3 of 9"), "outcome_unknown"),
        ("no", None),
    ],
)
@pytest.mark.parametrize("shape", [str, lambda text: [{"type": "text", "text": text}]])
def test_our_own_synthetic_results_are_known_again(text: str, kind: Any, shape: Any) -> None:
    (message,) = read_all([answer("c1", shape(text))])
    assert message.results[0].synthetic == kind


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("text", "must be an object, not str"),
        (None, "must be an object"),
        ({}, "unknown role None; one of developer, system, user, assistant, tool, function"),
        ({"role": "robot"}, "unknown role 'robot'"),
        ({"role": ["user"]}, "unknown role"),
        (user(3), "content must be a string, a list of parts or null, not int"),
        (user({"type": "text"}), "content must be"),
        (user(["text"]), "must be an object, not str"),
        (user([{"type": "text", "text": 3}]), "text of a part must be a string"),
        ({"role": "assistant", "tool_calls": {}}, "tool_calls must be a list"),
        ({"role": "assistant", "tool_calls": ["c1"]}, "a tool call must be an object"),
        (
            calls({"id": "c1", "type": "function", "function": "f"}),
            "function of a tool call must be an object",
        ),
        (calls(function_call("c1", arguments=[1])), "arguments of a tool call must be a string, not list"),
        (calls(function_call([])), "the id of a tool call must be a string"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_read_says_which_and_why(item: Any, says: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        openai_chat.read(item, index=7, origin=m.Origin())
    assert says in str(caught.value)
    assert str(caught.value).startswith("message 7: ")
    assert caught.value.index == 7


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user"},
        {"role": "assistant", "tool_calls": []},
        {"role": "assistant", "tool_calls": [{}]},
        {"role": "tool"},
        user([]),
        user([{"type": "image_url"}]),
        user([{}]),
        {"role": "assistant", "content": "x", "name": 3},
    ],
)
def test_what_is_merely_illegal_is_read_and_comes_back(item: dict[str, Any]) -> None:
    messages = read_all([item])
    assert len(messages) == 1
    if item != {"role": "assistant", "tool_calls": [{}]}:  # a call without arguments gets empty ones
        assert write(messages, valid=False).items[0] is item


def test_arguments_nested_beyond_reason_are_a_message_that_cannot_be_read() -> None:
    deep: Any = {}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidMessage, match="cannot be written as JSON"):
        read_all([calls(function_call("c1", arguments=deep))])


def test_system() -> None:
    assert openai_chat.read_system(None) == []
    assert openai_chat.read_system("be kind") == [m.system("be kind")]
    with pytest.raises(InvalidMessage):
        openai_chat.read_system(3)


# --- writing what is new -------------------------------------------------------------------


def test_new_messages_have_the_plainest_shape() -> None:
    call = m.ToolCall(id="c1", name="f", arguments='{"a":1}')
    written = write(
        [
            m.system("s"),
            m.user("u", name="ann"),
            m.assistant("", call),
            m.tool("c1", "r", name="f"),
            m.assistant("a"),
        ]
    )
    assert written.items == [
        {"role": "system", "content": "s"},
        {"role": "user", "content": "u", "name": "ann"},
        calls(function_call("c1", arguments='{"a":1}')),
        answer("c1", "r"),
        {"role": "assistant", "content": "a"},
    ]
    assert written.losses == []


def test_a_name_has_no_field_where_the_target_says_so() -> None:
    written = write([m.user("u", name="ann")], OPENAI.but(speaker_pattern=None))
    assert written.items == [user("u")]
    assert [loss.kind for loss in written.losses] == ["name"]


def test_the_content_of_a_changed_message_stays_null_empty_or_absent() -> None:
    for fields in ({"content": None}, {"content": ""}, {}):
        (message,) = read_all([{"role": "assistant", **fields, "tool_calls": [function_call("c1")]}])
        renamed = message.evolve(parts=(m.evolve(message.calls[0], id="c9"),))
        (item,) = write([renamed]).items
        assert {key: value for key, value in item.items() if key == "content"} == fields
        assert item["tool_calls"] == [function_call("c9")]


def test_our_own_texts_become_one_string_since_many_templates_know_no_parts() -> None:
    two = (m.Text(text="a"), m.Text(text="b"))
    written = write([m.Message(role="system", parts=two), m.Message(role="user", parts=two)])
    assert written.items[0] == {"role": "system", "content": "a\n\nb"}
    assert written.items[1] == {"role": "user", "content": "a\n\nb"}


def test_the_assistants_texts_are_one_text_with_a_break_where_something_lay_between() -> None:
    whole = m.Message(
        role="assistant",
        parts=(m.Text(text="a"), m.Text(text="b"), m.Opaque(kind="search", native=None), m.Text(text="c")),
    )
    written = write([whole, m.Message(role="assistant", parts=(m.Text(text="d"),), joined=True)])
    assert written.items == [{"role": "assistant", "content": "ab\n\nc\n\nd"}]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(0, "opaque")]
    assert written.starts == [0]


def test_media() -> None:
    media = (
        m.Image(data="AA", media_type="image/jpeg", detail="low"),
        m.Image(url="https://x.org/a.png"),
        m.Audio(data="BB", media_type="audio/wav"),
        m.File(data="CC", media_type="application/pdf", name="a.pdf"),
        m.File(file_id="file-1"),
        m.File(text="words"),
    )
    written = write([m.Message(role="user", parts=media)])
    assert written.losses == []
    assert written.items[0]["content"] == [
        {"type": "image_url", "image_url": {"url": "data:image/jpeg;base64,AA", "detail": "low"}},
        {"type": "image_url", "image_url": {"url": "https://x.org/a.png"}},
        {"type": "input_audio", "input_audio": {"data": "BB", "format": "wav"}},
        {"type": "file", "file": {"file_data": "data:application/pdf;base64,CC", "filename": "a.pdf"}},
        {"type": "file", "file": {"file_id": "file-1"}},
        {"type": "text", "text": "words"},
    ]


@pytest.mark.parametrize(
    ("part", "kind", "words"),
    [
        (m.Audio(data="BB", media_type="audio/ogg"), "audio", "[audio left out]"),
        (m.Audio(data="BB", media_type="audio/ogg", transcript="said"), "audio", "said"),
        (m.File(url="https://x.org/a.pdf"), "file", "[file left out: https://x.org/a.pdf]"),
        (m.Image(file_id="file-1"), "image", "[image left out]"),
        (m.File(text="words", name="a.txt"), "file", "words"),
    ],
)
def test_media_without_a_form_is_reported_and_words_stand_in_its_place(
    part: m.Part, kind: str, words: str
) -> None:
    written = write([m.Message(role="user", parts=(part,))])
    assert written.items == [user(words)]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(0, kind)]


def test_media_that_the_server_does_not_take_is_left_out_of_an_intact_message_too() -> None:
    item = user([{"type": "text", "text": "see"}, image()])
    written = write(read_all([item]), "deepseek")
    assert written.items[0]["content"] == [
        {"type": "text", "text": "see"},
        {"type": "text", "text": "[image left out]"},
    ]
    assert [loss.kind for loss in written.losses] == ["image"]


def test_developer_becomes_system() -> None:
    item = {"role": "developer", "content": "s", "x": 1}
    assert write(read_all([item]), "vllm").items == [{"role": "system", "content": "s", "x": 1}]
    assert write(read_all([item]), "openai").items[0] is item


def test_items_of_one_response_are_one_message() -> None:
    origin = m.Origin(provider="openai")
    group = [
        m.Message(role="assistant", parts=(m.Reasoning(text="hm", encrypted="X", origin=origin),)),
        m.Message(role="assistant", parts=(m.Text(text="let me"),), joined=True),
        m.Message(role="assistant", parts=(m.ToolCall(id="c1", name="f"),), joined=True),
        m.Message(role="assistant", parts=(m.ToolCall(id="c2", name="sh", kind="shell_call"),), joined=True),
        m.tool("c1", "a"),
        m.tool("c2", "b"),
        m.assistant("done"),
    ]
    written = write([m.user("u"), *group])
    assert written.items[1] == {
        "role": "assistant",
        "content": "let me",
        "tool_calls": [function_call("c1"), function_call("c2", "sh")],
    }
    assert written.starts == [0, 1, 5, 6, 7]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "reasoning"), (4, "call")]


def test_a_refusal_has_its_field() -> None:
    written = write([m.Message(role="assistant", parts=(m.Refusal(text="no"),))])
    assert written.items == [{"role": "assistant", "content": None, "refusal": "no"}]
    assert write([m.Message(role="user", parts=(m.Refusal(text="no"),))]).items == [user("no")]


def test_custom_calls_become_functions_where_they_are_not_known() -> None:
    item = calls({"id": "c1", "type": "custom", "custom": {"name": "py", "input": 'print("é")'}})
    written = write(read_all([item]), "vllm")
    assert written.items[0]["tool_calls"] == [function_call("c1", "py", '{"input":"print(\\"é\\")"}')]
    assert [loss.kind for loss in written.losses] == ["call"]
    new = m.assistant("", m.ToolCall(id="c1", name="py", arguments="x", kind="custom"))
    assert write([new]).items[0]["tool_calls"] == [
        {"id": "c1", "type": "custom", "custom": {"name": "py", "input": "x"}}
    ]


def test_a_thought_signature_needs_extensions() -> None:
    new = m.assistant("", m.ToolCall(id="c1", name="f", signature="SIG"))
    kept = write([new], OPENAI.but(extensions=True))
    assert kept.items[0]["tool_calls"][0]["extra_content"] == {"google": {"thought_signature": "SIG"}}
    assert kept.losses == []
    lost = write([new])
    assert "extra_content" not in lost.items[0]["tool_calls"][0]
    assert [loss.kind for loss in lost.losses] == ["signature"]


def test_a_signature_that_was_taken_away_goes_and_the_rest_stays() -> None:
    extra = {"google": {"thought_signature": "SIG", "more": 1}, "x": 2}
    (message,) = read_all([calls(function_call("c1", extra_content=extra))])
    call = m.evolve(message.calls[0], signature=None)
    (item,) = write([message.evolve(parts=(call,))]).items
    assert item["tool_calls"][0]["extra_content"] == {"google": {"more": 1}, "x": 2}
    renamed = m.evolve(message.calls[0], id="c9")
    (item,) = write([message.evolve(parts=(renamed,))]).items
    assert item["tool_calls"][0]["extra_content"] == extra


def test_an_error_has_no_flag() -> None:
    written = write([m.Message(role="tool", parts=(m.ToolResult(call_id="c1", is_error=True),))])
    assert written.items == [answer("c1", "")]
    assert [loss.kind for loss in written.losses] == ["error_flag"]


def test_several_results_are_several_messages() -> None:
    results = tuple(m.ToolResult(call_id=each, content=(m.Text(text=each),)) for each in ("c1", "c2"))
    written = write([m.Message(role="tool", parts=results)])
    assert written.items == [answer("c1", "c1"), answer("c2", "c2")]
    assert written.starts == [0, 0]


def test_nothing_that_has_no_place_goes_in_silence() -> None:
    strays = [
        m.Message(role="user", parts=(m.ToolCall(id="c", name="f"), m.Reasoning(text="hm"))),
        m.Message(role="tool", parts=(m.Text(text="stray"),)),
        m.Message(role="assistant", parts=(m.ToolResult(call_id="c"), m.Image(url="https://x.org/a"))),
        m.Message(role="system", parts=(m.Opaque(kind="blob"),)),
    ]
    written = write(strays)
    assert written.items == [
        user("[message left out]"),
        {"role": "assistant", "content": "[image left out: https://x.org/a]"},
    ]
    assert [(loss.index, loss.kind) for loss in written.losses] == [
        (0, "toolcall"),
        (0, "reasoning"),
        (1, "text"),
        (2, "toolresult"),
        (2, "image"),
        (3, "opaque"),
    ]


def test_a_response_of_which_nothing_is_left_keeps_its_place_where_roles_alternate() -> None:
    lost = m.Message(role="assistant", parts=(m.Opaque(kind="web_search_call"),))
    strict = write([m.user("a"), lost, m.user("b")], "openai_chat")
    assert [item["content"] for item in strict.items] == ["a", NO_ANSWER_TEXT, "b"]
    assert [item["content"] for item in write([m.user("a"), lost, m.user("b")]).items] == ["a", "b"]
    assert [item["content"] for item in write([m.user("a"), lost], "openai_chat").items] == ["a"]


# --- reasoning -----------------------------------------------------------------------------

THOUGHT = [
    user("a"),
    calls(function_call("c1"), reasoning_content="old"),
    answer("c1"),
    {"role": "assistant", "content": "x", "reasoning_content": "older"},
    user("b"),
    calls(function_call("c2"), reasoning_content="new", x=1),
    answer("c2"),
]


@pytest.mark.parametrize(
    ("mode", "kept", "losses"),
    [
        ("as_given", ["old", "older", "new"], []),
        ("always", ["old", "older", "new"], []),
        ("never", [], ["reasoning"] * 3),
        ("turn", ["new"], ["reasoning_expired"] * 2),
    ],
)
def test_reasoning_goes_back_as_the_target_asks(mode: Any, kept: list[str], losses: list[str]) -> None:
    before = copy.deepcopy(THOUGHT)
    written = write(read_all(THOUGHT), OPENAI.but(reasoning=mode))
    assert [item["reasoning_content"] for item in written.items if "reasoning_content" in item] == kept
    assert [loss.kind for loss in written.losses] == losses
    assert written.items[5]["x"] == 1
    assert before == THOUGHT


@pytest.mark.parametrize(
    ("mode", "kept"), [("as_given", False), ("never", False), ("turn", True), ("always", True)]
)
def test_reasoning_of_another_format(mode: Any, kept: bool) -> None:
    thought = m.Reasoning(text="hm", signature="SIG", native=m.Native(format="anthropic", value={}))
    written = write(
        [m.user("a"), m.Message(role="assistant", parts=(thought, m.Text(text="b")))],
        OPENAI.but(reasoning=mode),
    )
    assert written.items[1].get("reasoning_content") == ("hm" if kept else None)
    assert [loss.kind for loss in written.losses] == ["signature" if kept else "reasoning"]


def test_reasoning_of_several_items_of_one_response_is_one_text() -> None:
    group = [m.Message(role="assistant", parts=(m.Reasoning(text=text),), joined=True) for text in ("a", "b")]
    written = write([*group, m.Message(role="assistant", parts=(m.Text(text="c"),), joined=True)], "deepseek")
    assert written.items == [{"role": "assistant", "content": "c", "reasoning_content": "a\nb"}]


def test_a_null_reasoning_field_goes_without_a_report() -> None:
    written = write(read_all([{"role": "assistant", "content": "a", "reasoning_content": None}]), "openai")
    assert written.items == [{"role": "assistant", "content": "a"}]
    assert written.losses == []


def test_changed_reasoning_keeps_the_name_of_its_field() -> None:
    (message,) = read_all([{"role": "assistant", "content": "a", "reasoning": "hm"}])
    changed = message.evolve(parts=(m.evolve(message.parts[0], text="ha"), *message.parts[1:]))
    assert write([changed], valid=False).items == [{"role": "assistant", "content": "a", "reasoning": "ha"}]


# --- media in tool results -----------------------------------------------------------------

SHOT = [
    user("a"),
    calls(function_call("c1"), function_call("c2")),
    answer("c1", [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}, image()]),
    answer("c2", "three"),
]


def test_media_moves_to_the_users_message_after_the_batch() -> None:
    """WF-07 of the collected cases."""
    written = write(read_all([*SHOT, user("b")]), "ollama")
    assert written.losses == []
    assert [item["role"] for item in written.items] == ["user", "assistant", "tool", "tool", "user"]
    assert written.items[2]["content"] == "one\ntwo\n[image: see the next user message]"
    assert written.items[4]["content"] == [image(), {"type": "text", "text": "b"}]
    assert written.starts == [0, 1, 2, 3, 4]


def test_media_gets_a_user_message_of_its_own_with_a_mark_before_it_where_the_server_asks() -> None:
    strict = write(read_all([*SHOT, {"role": "assistant", "content": "c"}]), "ollama")
    assert [item["role"] for item in strict.items][3:] == ["tool", "assistant", "user", "assistant"]
    assert strict.items[4]["content"] == NO_ANSWER_TEXT
    assert strict.items[5]["content"][1] == image()
    assert strict.starts == [0, 1, 2, 3, 2, 2, 4]
    free = write(read_all(SHOT), Target.of("openai"))
    assert [item["role"] for item in free.items][3:] == ["tool", "user"]


def test_text_parts_stay_parts_where_they_may() -> None:
    written = write(read_all(SHOT), Target.of("openai"))
    assert written.items[2]["content"][:2] == SHOT[2]["content"][:2]
    assert written.items[3] is SHOT[3]


def test_media_of_a_result_that_the_server_does_not_take_is_reported() -> None:
    written = write(read_all(SHOT), "deepseek")
    assert written.items[2]["content"] == "one\ntwo\n[image left out]"
    assert [(loss.index, loss.kind) for loss in written.losses] == [(2, "image")]
    assert len(written.items) == 4


# --- the old form --------------------------------------------------------------------------


def test_a_legacy_call_is_built_again_as_it_was_until_it_gets_an_id() -> None:
    items = [
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "1"},
    ]
    messages = read_all(items)
    assert write([message.evolve() for message in messages]).items == items
    call, result = messages[0].calls[0], messages[1].results[0]
    modern = [
        messages[0].evolve(parts=(m.evolve(call, id="c1"),)),
        messages[1].evolve(parts=(m.evolve(result, call_id="c1"),)),
    ]
    assert write(modern).items == [calls(function_call("c1")), answer("c1", "1")]
