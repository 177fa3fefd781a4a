"""Gemini's contents: what is read is written back as the same object, and what is new is what the API takes."""

import copy
import dataclasses
from typing import Any

import pytest
from google.genai import types
from hypothesis import given
from hypothesis import strategies as st

from backstory import messages as m
from backstory.errors import InvalidMessage
from backstory.formats import gemini
from backstory.formats.synthetic import OUTCOME_UNKNOWN_TEXT
from backstory.targets import Target

TARGET = Target.of("gemini")
SIGNED = Target.of("gemini-3")
PNG = "iVBORw0KGgo="


def read_all(items: list[Any], origin: m.Origin = gemini.ORIGIN) -> list[m.Message]:
    return [
        message
        for index, item in enumerate(items)
        for message in gemini.read(item, index=index, origin=origin)
    ]


def write(*messages: m.Message, target: Target = TARGET):
    written = gemini.write(messages, target)
    for item in written.items:
        types.Content.model_validate(item)
    if written.system is not None:
        types.Content.model_validate(written.system)
    assert len(written.starts) == len(written.items)
    return written


def user(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": "user", "parts": list(parts), **more}


def model(*parts: Any, **more: Any) -> dict[str, Any]:
    return {"role": "model", "parts": list(parts), **more}


def call(name: str = "f", args: Any = None, **more: Any) -> dict[str, Any]:
    return {"functionCall": {"name": name, "args": {} if args is None else args}, **more}


def answer(name: str = "f", response: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "functionResponse": {
            "name": name,
            "response": {"output": "ok"} if response is None else response,
            **more,
        }
    }


# --- identity ------------------------------------------------------------------------------

UNKNOWN = st.dictionaries(
    st.sampled_from(["x", "future", "partMetadata"]), st.none() | st.integers(), max_size=2
)
SIGNATURE = st.sampled_from([{}, {}, {"thoughtSignature": "U0lH"}, {"thought_signature": "U0lH"}])
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)
OBJECTS = st.dictionaries(
    st.text(max_size=3) | st.sampled_from(["output", "error", "result"]), JSON, max_size=2
)


def with_unknown(base: st.SearchStrategy[dict[str, Any]]) -> st.SearchStrategy[dict[str, Any]]:
    return st.builds(lambda item, sign, more: {**more, **sign, **item}, base, SIGNATURE, UNKNOWN)


TEXTS = with_unknown(st.builds(lambda text: {"text": text}, st.text(max_size=6)))
MEDIA = st.sampled_from(
    [
        {"inlineData": {"mimeType": "image/png", "data": PNG}},
        {"inline_data": {"mime_type": "audio/wav", "data": PNG}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": "https://e.com/a.pdf"}},
        {"fileData": {"fileUri": "gs://b/a.mp4"}, "videoMetadata": {"fps": 1}},
        {"inlineData": {}},
    ]
)
RESPONSES = with_unknown(
    st.builds(
        lambda key, body, more: {key: {"name": "f", "response": body, **more}},
        st.sampled_from(["functionResponse", "function_response"]),
        OBJECTS,
        st.sampled_from(
            [{}, {"id": "c1"}, {"parts": [{"inlineData": {"mimeType": "image/png", "data": PNG}}], "y": 1}]
        ),
    )
)
ANSWERS = st.one_of(
    TEXTS,
    with_unknown(
        st.builds(
            lambda key, body, more: {key: {"name": "f", **body, **more}},
            st.sampled_from(["functionCall", "function_call"]),
            st.builds(lambda args: {"args": args}, OBJECTS) | st.just({}),
            st.sampled_from([{}, {"id": "c1"}, {"willContinue": False}]),
        )
    ),
    st.just({"text": "hm", "thought": True, "thoughtSignature": "U0lH"}),
    st.just({"executableCode": {"language": "PYTHON", "code": "1"}, "thoughtSignature": "U0lH"}),
    st.just({"codeExecutionResult": {"outcome": "OUTCOME_OK"}}),
    st.just({"fromTheFuture": {}}),
    st.just({}),
)
ITEMS = st.one_of(
    st.builds(
        lambda parts, more: user(*parts, **more), st.lists(TEXTS | MEDIA | RESPONSES, max_size=5), UNKNOWN
    ),
    st.builds(lambda parts, more: model(*parts, **more), st.lists(ANSWERS, max_size=4), UNKNOWN),
    st.just({"parts": [{"text": "no role"}]}),
    st.just({"role": "model"}),
    st.just({"role": None, "parts": None}),
)


@given(st.lists(ITEMS, max_size=6))
def test_what_is_read_is_written_as_the_very_same_objects(items: list[Any]) -> None:
    before = copy.deepcopy(items)
    messages = read_all(items)
    written = gemini.write(messages, TARGET)
    assert len(written.items) == len(items)
    assert all(new is old for new, old in zip(written.items, items, strict=True))
    assert written.losses == []
    assert items == before
    assert written.starts == [index for index, message in enumerate(messages) if not message.joined]


@given(st.lists(ITEMS, max_size=4))
def test_messages_from_the_log_are_written_equal(items: list[Any]) -> None:
    messages = [m.from_json(m.to_json(message)) for message in read_all(items)]
    assert gemini.write(messages, TARGET).items == items


@given(ITEMS)
def test_a_changed_message_keeps_its_parts_and_unknown_fields(item: Any) -> None:
    messages = [message.evolve(id="new") for message in read_all([item])]
    written = gemini.write(messages, TARGET)
    if item.get("parts"):
        (back,) = written.items
        assert back == {"role": "user", **item}
        assert all(new is old for new, old in zip(back["parts"], item["parts"], strict=True))


@given(ITEMS)
def test_changed_parts_keep_what_we_do_not_know(item: Any) -> None:
    """All parts are touched, nothing is changed: but for the spelling of fields, the same comes out."""
    messages = [
        message.evolve(parts=tuple(m.evolve(part, signature=part.signature) for part in message.parts))
        for message in read_all([item])
    ]
    written = gemini.write(messages, TARGET)
    kept = [part for part in item.get("parts") or () if part.get("text") != "" or _signature(part)]
    assert [_camel(part) for item in written.items for part in item["parts"]] == [
        _camel(part) for part in kept
    ]


def _signature(part: Any) -> Any:
    return part.get("thoughtSignature") or part.get("thought_signature")


def _camel(part: Any) -> Any:
    names = {
        "function_call": "functionCall",
        "function_response": "functionResponse",
        "thought_signature": "thoughtSignature",
        "inline_data": "inlineData",
        "mime_type": "mimeType",
    }
    if not isinstance(part, dict):
        return part
    part = {names.get(key, key): value for key, value in part.items()}
    if isinstance(part.get("inlineData"), dict):
        part["inlineData"] = _camel(part["inlineData"])
    if isinstance(part.get("fileData"), dict):  # the field is required; ours is told from the name
        part["fileData"] = {key: value for key, value in part["fileData"].items() if key != "mimeType"}
    if isinstance(part.get("functionCall"), dict):
        part["functionCall"] = {"args": {}, **part["functionCall"]}
    return part


# --- reading -------------------------------------------------------------------------------


def test_a_content_of_responses_and_words_is_read_as_two() -> None:
    item = user(answer("f", {"output": "one"}), answer("g", {"error": "two"}), {"text": "and?"})
    first, second = read_all([item])
    assert (first.role, first.joined, second.role, second.joined) == ("tool", False, "user", True)
    assert [(r.call_id, r.name, m.texts(r.content), r.is_error) for r in first.results] == [
        ("", "f", "one", None),
        ("", "g", "two", True),
    ]
    assert second.text == "and?"


def test_parts_are_read() -> None:
    origin = m.Origin(provider="google", platform="vertex", model="gemini-x")
    item = model(
        {"text": "hm", "thought": True, "thoughtSignature": "A"},
        {"text": "say", "thought_signature": "B"},
        call("f", {"item": "茶"}, thoughtSignature="C"),
        {"function_call": {"name": "g", "id": "c2"}},
        {"executableCode": {"code": "1"}},
    )
    (message,) = read_all([item], origin)
    thought, said, first, second, code = message.parts
    assert isinstance(thought, m.Reasoning)
    assert (thought.text, thought.signature, thought.origin) == ("hm", "A", origin)
    assert isinstance(said, m.Text)
    assert (said.text, said.signature) == ("say", "B")
    assert isinstance(first, m.ToolCall)
    assert (first.id, first.name, first.arguments, first.signature) == ("", "f", '{"item":"茶"}', "C")
    assert isinstance(second, m.ToolCall)
    assert (second.id, second.name, second.arguments, second.signature) == ("c2", "g", "{}", None)
    assert isinstance(code, m.Opaque)
    assert (code.kind, code.origin) == ("executableCode", origin)
    assert message.role == "assistant"


@pytest.mark.parametrize(
    ("response", "expected", "is_error"),
    [
        ({"output": "x"}, "x", None),
        ({"result": "x"}, "x", None),
        ({"error": "x"}, "x", True),
        ({"output": {"a": "茶"}}, '{"a":"茶"}', None),
        ({"output": "x", "error": "y"}, '{"output":"x","error":"y"}', None),
        ({"a": 1}, '{"a":1}', None),
        ({}, "", None),
    ],
)
def test_a_response_is_read_as_text(response: Any, expected: str, is_error: bool | None) -> None:
    (found,) = read_all([user(answer("f", response))])[0].results
    assert (m.texts(found.content), found.is_error) == (expected, is_error)


def test_media_are_read() -> None:
    for given_, expected in [
        ({"inlineData": {"mimeType": "image/png", "data": PNG}}, m.Image(data=PNG, media_type="image/png")),
        ({"inline_data": {"mime_type": "audio/wav", "data": PNG}}, m.Audio(data=PNG, media_type="audio/wav")),
        (
            {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://b/a", "displayName": "a"}},
            m.File(url="gs://b/a", media_type="application/pdf", name="a"),
        ),
        ({"file_data": {"file_uri": "u"}}, m.File(url="u")),
    ]:
        (message,) = read_all([user(given_)])
        native = m.Native(format="gemini", value=given_)
        assert message.parts == (dataclasses.replace(expected, native=native),)


def test_a_synthetic_result_is_known_for_what_it_is() -> None:
    (message,) = read_all([user(answer("f", {"error": OUTCOME_UNKNOWN_TEXT}))])
    assert message.results[0].synthetic == "outcome_unknown"


def test_a_content_without_a_role_is_the_users_and_function_is_an_older_word_for_it() -> None:
    assert read_all([{"parts": [{"text": "x"}]}])[0].role == "user"
    (message,) = read_all([{"role": "function", "parts": [answer()]}])
    assert message.role == "tool"
    assert write(message).items == [user(answer())]


@pytest.mark.parametrize(
    ("item", "what"),
    [
        ("hello", "must be an object"),
        ({"role": "assistant", "parts": []}, "unknown role 'assistant'"),
        ({"role": [], "parts": []}, "unknown role"),
        ({"role": "user", "parts": "x"}, "parts must be a list"),
        ({"role": "user", "parts": ["x"]}, "a part must be an object"),
        ({"role": "model", "parts": [call("f", {"a": b"x"})]}, "not JSON"),
        ({"role": "user", "parts": [answer("f", {"a": b"x"})]}, "not JSON"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_place(item: Any, what: str) -> None:
    with pytest.raises(InvalidMessage, match=what) as caught:
        gemini.read(item, index=3)
    assert caught.value.index == 3


# --- the system ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    "value", ["Be brief.", {"parts": [{"text": "a"}, {"text": "b"}], "role": "system"}, {}]
)
def test_a_system_that_was_read_comes_back_verbatim(value: Any) -> None:
    assert gemini.write([*gemini.read_system(value), m.user("u")], TARGET).system is value


def test_leading_system_messages_become_the_system_instruction() -> None:
    developer = m.Message(role="developer", parts=(m.Text(text="two"), m.Audio(data="x")))
    written = write(m.system("one"), developer, m.user("u"), m.assistant("a"), m.system("late"))
    assert written.system == {"parts": [{"text": "one"}, {"text": "two"}]}
    assert written.items[-1] == user({"text": "<system>\nlate\n</system>"})
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "audio")]
    assert gemini.read_system(None) == []
    with pytest.raises(InvalidMessage):
        gemini.read_system(5)


# --- writing what is new or comes from elsewhere ------------------------------------------------


def test_all_responses_of_a_step_share_one_content_and_get_their_calls_names() -> None:
    written = write(
        m.user("u"),
        m.assistant("hm", m.ToolCall(id="1", name="f", arguments='{"a": 1}'), m.ToolCall(id="2", name="g")),
        m.tool("2", "two", is_error=True),
        m.tool("1", "one"),
        m.user("next"),
    )
    assert written.items == [
        user({"text": "u"}),
        model(
            {"text": "hm"},
            {"functionCall": {"id": "1", "name": "f", "args": {"a": 1}}},
            {"functionCall": {"id": "2", "name": "g", "args": {}}},
        ),
        user(answer("g", {"error": "two"}, id="2"), answer("f", {"output": "one"}, id="1")),
        user({"text": "next"}),
    ]
    assert written.starts == [0, 1, 2, 4]
    assert written.losses == []


def test_ids_are_scoped_to_their_step_and_results_of_one_id_answer_in_order() -> None:
    written = write(
        m.user("u"),
        m.assistant("", m.ToolCall(id="0", name="f")),
        m.tool("0", "one"),
        m.assistant("", m.ToolCall(id="0", name="g"), m.ToolCall(id="0", name="h")),
        m.tool("0", "two"),
        m.tool("0", "three"),
        m.tool("9", "four"),
    )
    names = [
        p["functionResponse"]["name"] for i in written.items for p in i["parts"] if "functionResponse" in p
    ]
    assert names == ["f", "g", "h", "unknown"]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(6, "name")]


def test_a_changed_result_keeps_its_response_where_that_did_not_change() -> None:
    item = user({"functionResponse": {"name": "f", "response": {"a": [1]}, "scheduling": "SILENT"}, "z": 1})
    (message,) = read_all([item])
    (found,) = message.results
    renamed = message.evolve(parts=(m.evolve(found, call_id="c1"),))
    assert write_raw(renamed) == [
        user(
            {
                "functionResponse": {"id": "c1", "name": "f", "response": {"a": [1]}, "scheduling": "SILENT"},
                "z": 1,
            }
        )
    ]
    shorter = message.evolve(parts=(m.evolve(found, content=(m.Text(text="[…]"),)),))
    assert write_raw(shorter) == [
        user(
            {"functionResponse": {"name": "f", "response": {"output": "[…]"}, "scheduling": "SILENT"}, "z": 1}
        )
    ]


def write_raw(*messages: m.Message) -> list[Any]:
    """Without the SDK's types, which take no unknown field."""
    return gemini.write(messages, TARGET).items


def test_media_in_a_response_stand_beside_it() -> None:
    image = m.Image(data=PNG, media_type="image/png")
    audio = m.Audio(data="UklG", transcript="hello")
    remote = m.Image(url="https://e.com/a.png")
    answered = m.ToolResult(
        call_id="1", name="f", content=(m.Text(text="a"), image, m.File(text="b"), audio, remote)
    )
    written = write(m.Message(role="tool", parts=(answered,)))
    body = written.items[0]["parts"][0]["functionResponse"]
    assert body["response"] == {"output": "a\nb\n[image left out: https://e.com/a.png]"}
    assert [part["inlineData"]["mimeType"] for part in body["parts"]] == ["image/png", "audio/wav"]
    assert [loss.kind for loss in written.losses] == ["image"]
    written = write(m.Message(role="tool", parts=(dataclasses.replace(answered, content=(image,)),)))
    assert written.items[0]["parts"][0]["functionResponse"]["response"] == {}


def test_media_from_elsewhere() -> None:
    for part, expected in [
        (m.Image(data=PNG), {"inlineData": {"mimeType": "image/png", "data": PNG}}),
        (m.Image(url=f"data:image/gif;base64,{PNG}"), {"inlineData": {"mimeType": "image/gif", "data": PNG}}),
        (
            m.Image(url="https://e.com/a.jpg"),
            {"fileData": {"mimeType": "image/jpeg", "fileUri": "https://e.com/a.jpg"}},
        ),
        (m.Audio(data=PNG, media_type="audio/mpeg"), {"inlineData": {"mimeType": "audio/mpeg", "data": PNG}}),
        (
            m.File(text="hi", media_type="text/plain"),
            {"inlineData": {"mimeType": "text/plain", "data": "aGk="}},
        ),
    ]:
        written = write(m.Message(role="user", parts=(part,)))
        assert written.items == [user(expected)]
        assert written.losses == []


def test_what_has_no_place_is_reported() -> None:
    foreign = m.Opaque(kind="web_search_call", native=m.Native(format="openai_responses", value={}))
    written = write(
        m.user("u", name="Ann"),
        m.Message(
            role="assistant",
            parts=(
                m.Reasoning(text="hm", signature="S", origin=m.Origin(provider="anthropic")),
                m.Reasoning(text="hm"),
                foreign,
                m.Audio(file_id="a1", transcript="said"),
                m.ToolCall(id="1", name="f", arguments="free", kind="custom"),
            ),
        ),
        m.Message(
            role="user",
            parts=(
                m.Image(file_id="file-1"),
                m.Image(data=PNG, detail="low"),
                m.File(data="JVBERi0=", name="a.pdf"),
            ),
        ),
        m.Message(role="assistant"),
    )
    assert [(loss.index, loss.kind) for loss in written.losses] == [
        (0, "name"), (1, "reasoning"), (1, "reasoning"), (1, "opaque"), (1, "audio"), (1, "call"),
        (2, "image"), (2, "detail"), (2, "name"), (3, "empty"),
    ]  # fmt: skip
    assert written.items[1]["parts"] == [
        {"text": "said"},
        {"functionCall": {"id": "1", "name": "f", "args": {"input": "free"}}},
    ]


def test_changed_media_keep_what_we_do_not_know() -> None:
    item = user(
        {"inlineData": {"mimeType": "application/pdf", "data": "JVBERi0=", "displayName": "a"}, "z": 1}
    )
    (message,) = read_all([item])
    changed = message.evolve(parts=(m.evolve(message.parts[0], data="JVBERi1="),))
    written = gemini.write([changed], TARGET)
    assert written.items == [
        user({"inlineData": {"mimeType": "application/pdf", "data": "JVBERi1=", "displayName": "a"}, "z": 1})
    ]
    assert written.losses == []


def test_a_refusal_is_kept_as_text() -> None:
    written = write(m.user("u"), m.Message(role="assistant", parts=(m.Refusal(text="No."),)))
    assert written.items[1] == model({"text": "No."})


# --- thought signatures --------------------------------------------------------------------


def test_a_thought_goes_back_to_its_maker_only() -> None:
    item = model({"text": "hm", "thought": True, "thoughtSignature": "U0lH"}, {"text": "a"})
    assert write(*read_all([item])).items[0] is item
    other = TARGET.but(origin=m.Origin(provider="google", model="b"))
    written = write(*read_all([item], m.Origin(provider="google", model="a")), target=other)
    assert written.items == [model({"text": "a"})]
    assert [loss.kind for loss in written.losses] == ["reasoning"]


def test_signatures_of_others_messages_are_written_where_they_belong() -> None:
    message = m.Message(
        role="assistant",
        parts=(
            m.Reasoning(text="hm", signature="QQ==", origin=gemini.ORIGIN),
            m.Text(text="say", signature="Qg=="),
            m.ToolCall(id="1", name="f", signature="Qw=="),
            m.ToolCall(id="2", name="g"),
            m.Text(text="", signature="RA=="),
        ),
    )
    written = write(message, target=SIGNED)
    assert written.items == [
        model(
            {"text": "hm", "thought": True, "thoughtSignature": "QQ=="},
            {"text": "say", "thoughtSignature": "Qg=="},
            {"functionCall": {"id": "1", "name": "f", "args": {}}, "thoughtSignature": "Qw=="},
            {"functionCall": {"id": "2", "name": "g", "args": {}}},
            {"text": "", "thoughtSignature": "RA=="},
        )
    ]
    assert written.losses == []


def test_where_signatures_are_asked_for_the_first_call_of_a_step_gets_the_placeholder() -> None:
    items = [
        user({"text": "u"}),
        model(call("f"), call("g")),
        user(answer("f"), answer("g")),
        model(call("h")),
    ]
    before = copy.deepcopy(items)
    written = write(*read_all(items), target=SIGNED)
    assert items == before
    assert written.items[0] is items[0]
    assert written.items[1] == model(call("f", thoughtSignature=gemini.PLACEHOLDER), call("g"))
    assert written.items[3] == model(call("h", thoughtSignature=gemini.PLACEHOLDER))
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "signature"), (3, "signature")]
    longer = write(
        *read_all([*items, user(answer("h")), model({"text": "a"}), user({"text": "new turn"})]),
        target=SIGNED,
    )
    assert longer.items[:4] == written.items  # a turn that is over keeps its bytes
    assert write(*read_all(items)).losses == []


def test_a_signature_that_is_there_is_enough() -> None:
    items = [model({"text": "hm"}, call("f", thought_signature="U0lH"), call("g"))]
    written = write(*read_all(items), target=SIGNED)
    assert written.items[0] is items[0]
