"""Responses: what is read is written back as the same object, and what is new is what the API takes."""

import copy
import dataclasses
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses.response_input_item_param import ResponseInputItemParam
from pydantic import TypeAdapter

from backstory import messages as m
from backstory.errors import InvalidMessage
from backstory.formats import openai_chat, openai_responses
from backstory.formats.synthetic import NO_ANSWER_TEXT, NOT_STARTED_TEXT
from backstory.targets import Target

TARGET = Target.of("openai_responses")
PARAM: TypeAdapter[Any] = TypeAdapter(ResponseInputItemParam)
PNG = "data:image/png;base64,iVBORw0KGgo="


def read_all(items: list[Any], origin: m.Origin = openai_responses.ORIGIN) -> list[m.Message]:
    return [
        message
        for index, item in enumerate(items)
        for message in openai_responses.read(item, index=index, origin=origin)
    ]


def drain(value: Any) -> None:
    """Pydantic checks an `Iterable` only when it is read."""
    if isinstance(value, dict):
        for inner in value.values():
            drain(inner)
    elif hasattr(value, "__iter__") and not isinstance(value, str | bytes):
        for inner in value:
            drain(inner)


def write(messages: list[m.Message], target: Target = TARGET, valid: bool = True):
    written = openai_responses.write(messages, target)
    assert len(written.starts) == len(written.items)
    assert written.system is None
    if valid:
        for item in written.items:
            drain(PARAM.validate_python(item))
    return written


def changed(message: m.Message) -> m.Message:
    """The message with every part touched, so that all is built again from typed fields."""

    def touch(part: m.Part) -> m.Part:
        if isinstance(part, m.ToolResult):
            return m.evolve(part, content=tuple(touch(inner) for inner in part.content))
        return part if isinstance(part, m.Opaque) else m.evolve(part)

    return message.evolve(parts=tuple(touch(part) for part in message.parts))


def user(content: Any = "hi", **fields: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": content, **fields}


def said(text: str, item_id: str = "msg_1", **fields: Any) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {
        "type": "message",
        "id": item_id,
        "role": "assistant",
        "status": "completed",
        "content": content,
        **fields,
    }


def thought(item_id: str = "rs_1", **fields: Any) -> dict[str, Any]:
    summary = [{"type": "summary_text", "text": "thinking"}]
    return {"type": "reasoning", "id": item_id, "summary": summary, "encrypted_content": "ENC", **fields}


def call(call_id: str = "c1", **fields: Any) -> dict[str, Any]:
    return {
        "type": "function_call",
        "id": f"fc_{call_id}",
        "call_id": call_id,
        "name": "f",
        "arguments": "{}",
        **fields,
    }


def output(call_id: str = "c1", value: Any = "ok", **fields: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": value, **fields}


# Every type of item of the API reference, as it may stand in `input`.
SHELL: dict[str, Any] = {
    "type": "shell_call",
    "id": "sh_1",
    "call_id": "c2",
    "action": {"commands": ["ls"]},
    "status": "completed",
}
SHELL_OUTPUT: dict[str, Any] = {
    "type": "shell_call_output",
    "call_id": "c2",
    "max_output_length": 100,
    "output": [{"stdout": "a", "stderr": "b", "outcome": {"type": "exit", "exit_code": 0}}],
}
LOCAL: dict[str, Any] = {
    "type": "local_shell_call",
    "id": "lsh_1",
    "call_id": "c3",
    "action": {"type": "exec", "command": ["ls"], "env": {}},
    "status": "completed",
}
LOCAL_OUTPUT: dict[str, Any] = {"type": "local_shell_call_output", "id": "c3", "output": '{"stdout": "a"}'}
COMPUTER: dict[str, Any] = {
    "type": "computer_call",
    "id": "cu_1",
    "call_id": "c4",
    "action": {"type": "screenshot"},
    "pending_safety_checks": [],
    "status": "completed",
}
COMPUTER_OUTPUT: dict[str, Any] = {
    "type": "computer_call_output",
    "call_id": "c4",
    "output": {"type": "computer_screenshot", "image_url": PNG},
    "acknowledged_safety_checks": [],
}
PATCH: dict[str, Any] = {
    "type": "apply_patch_call",
    "id": "apc_1",
    "call_id": "c5",
    "operation": {"type": "delete_file", "path": "a.py"},
    "status": "completed",
}
PATCH_OUTPUT: dict[str, Any] = {
    "type": "apply_patch_call_output",
    "call_id": "c5",
    "status": "failed",
    "output": "no such file",
}
SEARCH: dict[str, Any] = {
    "type": "tool_search_call",
    "call_id": "c6",
    "arguments": {"q": "x"},
    "execution": "client",
}
SEARCH_OUTPUT: dict[str, Any] = {
    "type": "tool_search_output",
    "call_id": "c6",
    "execution": "client",
    "tools": [],
}
CUSTOM: dict[str, Any] = {
    "type": "custom_tool_call",
    "id": "ctc_1",
    "call_id": "c7",
    "name": "py",
    "input": "print(1)",
}
CUSTOM_OUTPUT: dict[str, Any] = {"type": "custom_tool_call_output", "call_id": "c7", "output": "1"}
APPROVAL: dict[str, Any] = {
    "type": "mcp_approval_request",
    "id": "mcpr_1",
    "server_label": "s",
    "name": "repo.search",
    "arguments": "{}",
}
APPROVED: dict[str, Any] = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}

PAIRS: list[tuple[dict[str, Any], dict[str, Any]]] = [
    (call(), output()),
    (CUSTOM, CUSTOM_OUTPUT),
    (SHELL, SHELL_OUTPUT),
    (LOCAL, LOCAL_OUTPUT),
    (COMPUTER, COMPUTER_OUTPUT),
    (PATCH, PATCH_OUTPUT),
    (SEARCH, SEARCH_OUTPUT),
    (APPROVAL, APPROVED),
]
OPAQUE: list[dict[str, Any]] = [
    {
        "type": "web_search_call",
        "id": "ws_1",
        "status": "completed",
        "action": {"type": "search", "query": "x"},
    },
    {"type": "file_search_call", "id": "fs_1", "status": "completed", "queries": ["x"]},
    {
        "type": "code_interpreter_call",
        "id": "ci_1",
        "code": "1",
        "container_id": "x",
        "outputs": None,
        "status": "completed",
    },
    {"type": "image_generation_call", "id": "ig_1", "result": "iVBO", "status": "completed"},
    {"type": "mcp_list_tools", "id": "mcpl_1", "server_label": "s", "tools": []},
    {"type": "mcp_call", "id": "mcp_1", "server_label": "s", "name": "a.b", "arguments": "{}", "output": "x"},
    {
        "type": "tool_search_call",
        "call_id": None,
        "arguments": {},
        "execution": "server",
        "status": "completed",
    },
    {
        "type": "tool_search_output",
        "call_id": None,
        "tools": [],
        "execution": "server",
        "status": "completed",
    },
    {"type": "program", "id": "prog_1", "call_id": "p1", "code": "1", "fingerprint": "F"},
    {"type": "program_output", "id": "po_1", "call_id": "p1", "result": "1", "status": "completed"},
    {"type": "additional_tools", "role": "developer", "tools": []},
    {"type": "configuration_update", "reasoning": {"effort": "low"}},
    {"type": "compaction", "id": "cmp_1", "encrypted_content": "ENC"},
    {"type": "compaction_trigger"},
    {"type": "item_reference", "id": "msg_0"},
    {"id": "msg_0"},
]
FUTURE: list[dict[str, Any]] = [
    {"type": "compaction_summary", "encrypted_content": "ENC"},
    {"type": "future_call", "call_id": "z", "deep": {"a": [1, None]}},
]
MESSAGES: list[dict[str, Any]] = [
    {"role": "user", "content": "hi"},
    {"role": "assistant", "content": "hello"},
    {"role": "developer", "content": "be terse"},
    user([{"type": "input_text", "text": "see"}, {"type": "input_image", "image_url": PNG, "detail": "low"}]),
    user([{"type": "input_file", "filename": "a.pdf", "file_data": "data:application/pdf;base64,JVBE"}]),
    user(
        [
            {"type": "input_file", "file_url": "https://x.org/a.pdf"},
            {"type": "input_file", "file_id": "file-1"},
        ]
    ),
    {
        "type": "message",
        "role": "system",
        "content": [{"type": "input_text", "text": "kind"}],
        "status": "completed",
    },
    said("hello", phase="commentary"),
    {**said(""), "content": [{"type": "refusal", "refusal": "no"}]},
]
REASONING: list[dict[str, Any]] = [
    thought(),
    {"type": "reasoning", "id": "rs_2", "summary": [], "content": [{"type": "reasoning_text", "text": "t"}]},
]
EVERYTHING: list[dict[str, Any]] = [
    *MESSAGES,
    *REASONING,
    *[item for pair in PAIRS for item in pair],
    *OPAQUE,
]


# --- identity ------------------------------------------------------------------------------


@pytest.mark.parametrize("item", EVERYTHING, ids=lambda item: item.get("type", "message"))
def test_every_type_of_item_is_valid_and_comes_back(item: dict[str, Any]) -> None:
    drain(PARAM.validate_python(item))
    messages = read_all([item])
    assert len(messages) == 1
    written = write(messages)
    assert written.items[0] is item
    assert written.losses == []
    assert m.from_json(json.loads(json.dumps(m.to_json(messages[0])))) == messages[0]


TEXTS = st.text(max_size=6)
UNKNOWN = st.dictionaries(st.sampled_from(["x", "future"]), st.none() | st.integers() | TEXTS, max_size=2)


@st.composite
def item(draw: st.DrawFn) -> dict[str, Any]:
    given: dict[str, Any] = copy.deepcopy(draw(st.sampled_from([*EVERYTHING, *FUTURE])))
    kind = given.get("type")
    if kind in ("function_call", "custom_tool_call"):
        field = "arguments" if kind == "function_call" else "input"
        given[field] = draw(st.sampled_from(["{}", "{broken", "", '{ "a" : "é" }']) | TEXTS)
    if kind in ("function_call_output", "custom_tool_call_output"):
        image = {"type": "input_image", "image_url": PNG, "detail": "auto"}
        part: st.SearchStrategy[Any] = st.builds(dict, type=st.just("input_text"), text=TEXTS) | st.just(
            image
        )
        part |= st.just({"type": "input_future", "v": 1})
        given["output"] = draw(st.just(NOT_STARTED_TEXT) | TEXTS | st.lists(part, max_size=3))
    fixed = (None, "item_reference", "mcp_approval_request", "local_shell_call_output")
    if "id" in given and kind not in fixed and draw(st.booleans()):
        given["id"] = draw(st.sampled_from(["a_1", "b_2"]))
    return {**given, **draw(UNKNOWN)}


ITEMS = st.lists(item(), max_size=8)


@given(ITEMS)
def test_what_was_read_is_written_as_the_same_objects(items: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(items)
    written = write(read_all(items), valid=False)
    assert len(written.items) == len(items)
    assert all(new is old for new, old in zip(written.items, items, strict=True))
    assert items == before
    assert written.losses == []
    assert written.starts == list(range(len(items)))


@given(ITEMS)
def test_the_log_keeps_what_was_read(items: list[dict[str, Any]]) -> None:
    messages = read_all(items)
    dumped = [json.dumps(m.to_json(message)) for message in messages]
    assert all(text.count("ENC") <= 2 for text in dumped)  # the item and the typed field, not once more
    back = [m.from_json(json.loads(text)) for text in dumped]
    assert back == messages
    assert write(back, valid=False).items == items


@given(ITEMS)
def test_a_message_that_says_it_was_changed_is_built_again_the_same(items: list[dict[str, Any]]) -> None:
    before = copy.deepcopy(items)
    written = write([message.evolve() for message in read_all(items)], valid=False)
    assert written.items == items == before
    assert written.losses == []


@given(ITEMS)
def test_typed_fields_and_unknown_ones_make_the_item_again(items: list[dict[str, Any]]) -> None:
    for given_item in items:
        (new,) = write([changed(message) for message in read_all([given_item])], valid=False).items
        old = dict(given_item)
        assert {key: value for key, value in new.items() if key in ("x", "future")} == {
            key: value for key, value in old.items() if key in ("x", "future")
        }
        assert {new.get(key) for key in ("type", "id", "call_id", "status", "phase", "role")} == {
            old.get(key) for key in ("type", "id", "call_id", "status", "phase", "role")
        }
        for key in (
            "arguments",
            "input",
            "name",
            "encrypted_content",
            "action",
            "operation",
            "tools",
            "approve",
        ):
            assert new.get(key) == old.get(key)
        if old.get("type") != "shell_call_output" and "output" in old:
            empty: tuple[Any, ...] = ("", [])
            assert new["output"] == old["output"] or (old["output"] in empty and new["output"] in empty)


# --- reading -------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "answered"), PAIRS, ids=[asked["type"] for asked, _ in PAIRS])
def test_calls_and_outputs_are_paired_by_id_and_kind(asked: dict[str, Any], answered: dict[str, Any]) -> None:
    before, after = read_all([asked, answered])
    (one,) = before.calls
    (result,) = after.results
    assert one.id == result.call_id != ""
    assert one.kind == result.kind
    assert (before.role, after.role) == ("assistant", "tool")
    assert one.name
    assert one.arguments == "print(1)" if one.kind == "custom" else type(json.loads(one.arguments)) is dict


def test_what_the_typed_view_says() -> None:
    kinds = {asked["type"]: read_all([asked])[0].calls[0] for asked, _ in PAIRS}
    assert kinds["function_call"].kind == "function"
    assert kinds["custom_tool_call"].kind == "custom"
    assert (kinds["shell_call"].name, kinds["shell_call"].arguments) == ("shell", '{"commands":["ls"]}')
    assert kinds["mcp_approval_request"].name == "mcp_approval"
    assert "repo.search" in kinds["mcp_approval_request"].arguments
    results = {answered["type"]: read_all([answered])[0].results[0] for _, answered in PAIRS}
    assert m.texts(results["shell_call_output"].content) == "a\nb"
    assert results["apply_patch_call_output"].is_error is True
    (shot,) = results["computer_call_output"].content
    assert isinstance(shot, m.Image)
    assert shot.media_type == "image/png"
    assert m.texts(results["mcp_approval_response"].content) == "approved"


def test_reasoning() -> None:
    (message,) = read_all([thought()], m.Origin(provider="openai", model="gpt"))
    assert message.id == "rs_1"
    (part,) = message.parts
    assert isinstance(part, m.Reasoning)
    assert (part.text, part.encrypted, part.origin.model) == ("thinking", "ENC", "gpt")
    (open_one,) = read_all([REASONING[1]])
    assert isinstance(open_one.parts[0], m.Reasoning)
    assert open_one.parts[0].text == "t"


def test_the_items_of_the_assistants_side_are_joined() -> None:
    messages = read_all([user(), thought(), said("a"), call(), output(), OPAQUE[0], said("b"), OPAQUE[13]])
    assert [message.role for message in messages] == [
        "user",
        "assistant",
        "assistant",
        "assistant",
        "tool",
        "assistant",
        "assistant",
        "user",
    ]
    assert all(message.joined == (message.role == "assistant") for message in messages)


def test_opaque_items_have_a_kind_and_an_origin() -> None:
    origin = m.Origin(provider="openai", platform="azure")
    (message,) = read_all([FUTURE[0]], origin)
    assert message.parts == (
        m.Opaque(
            kind="compaction_summary",
            origin=origin,
            native=m.Native(format="openai_responses", value=FUTURE[0]),
        ),
    )
    assert read_all([{"id": "msg_0"}])[0].parts[0].kind == "item_reference"  # type: ignore[attr-defined]
    assert [read_all([OPAQUE[number]])[0].role for number in (10, 11, 12, 13)] == [
        "developer",
        "developer",
        "assistant",
        "user",
    ]


def test_our_own_synthetic_results_are_known_again() -> None:
    for value in (NOT_STARTED_TEXT, [{"type": "input_text", "text": NOT_STARTED_TEXT}]):
        assert read_all([output(value=value)])[0].results[0].synthetic == "not_started"


def test_arguments_that_came_as_an_object_go_back_as_the_string_they_should_be() -> None:
    messages = read_all([call(arguments={"q": "茶"})])
    assert messages[0].calls[0].arguments == '{"q":"茶"}'
    assert write(messages).items == [call(arguments='{"q":"茶"}')]


@pytest.mark.parametrize(
    ("item", "says"),
    [
        ("text", "must be an object, not str"),
        ({}, "an item must have a type or a role"),
        ({"type": 3}, "an item must have a type or a role"),
        (
            {"role": "robot", "content": "x"},
            "unknown role 'robot'; one of developer, system, user, assistant",
        ),
        (user(3), "content must be a string or a list of parts, not int"),
        (user(["text"]), "must be an object, not str"),
        (user([{"type": "input_text", "text": 3}]), "text of a part must be a string"),
        (call(arguments=[1]), "arguments of a call must be a string, not list"),
        ({**CUSTOM, "input": {}}, "arguments of a call must be a string, not dict"),
        ({**SHELL_OUTPUT, "call_id": 3}, "call_id must be a string"),
    ],
)
def test_what_cannot_be_read_says_which_and_why(item: Any, says: str) -> None:
    with pytest.raises(InvalidMessage) as caught:
        openai_responses.read(item, index=7, origin=m.Origin())
    assert says in str(caught.value)
    assert caught.value.index == 7


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user"},
        {"type": "function_call"},
        {"type": "function_call_output"},
        {"type": "reasoning"},
        {"type": "shell_call"},
        {"type": "shell_call_output", "output": ["x"]},
        user([{}, {"type": "input_image"}, {"type": "input_file"}, {"type": "input_text"}]),
    ],
)
def test_what_is_merely_illegal_is_read(item: dict[str, Any]) -> None:
    messages = read_all([item])
    assert len(messages) == 1
    if item != {"type": "function_call"}:  # without arguments: gets empty ones
        assert write(messages, valid=False).items[0] is item


def test_system() -> None:
    assert openai_responses.read_system(None) == []
    assert openai_responses.read_system("be kind") == [m.system("be kind")]
    (message,) = openai_responses.read_system([{"role": "developer", "content": "x"}])
    assert message.role == "developer"


# --- writing what is new -------------------------------------------------------------------


def test_new_messages_have_the_plainest_shape() -> None:
    calls = (
        m.ToolCall(id="c1", name="f", arguments='{"a":1}'),
        m.ToolCall(id="c2", name="py", arguments="x", kind="custom"),
    )
    history = [
        m.system("s"),
        m.user("u", id="mine"),
        m.assistant("a", *calls),
        m.tool("c1", "r"),
        m.tool("c2", "r", kind="custom"),
    ]
    written = write(history)
    assert written.items == [
        {"type": "message", "role": "system", "content": "s"},
        {"type": "message", "role": "user", "content": "u"},
        {"type": "message", "role": "assistant", "content": "a"},
        {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a":1}'},
        {"type": "custom_tool_call", "call_id": "c2", "name": "py", "input": "x"},
        {"type": "function_call_output", "call_id": "c1", "output": "r"},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": "r"},
    ]
    assert written.starts == [0, 1, 2, 2, 2, 3, 4]
    assert written.losses == []


def test_a_refusal_is_a_part() -> None:
    message = m.Message(role="assistant", parts=(m.Text(text="well"), m.Refusal(text="no")))
    (item,) = write(
        [message], valid=False
    ).items  # the SDK's type asks for an id, which nobody but the API gives
    assert item["content"] == [
        {"type": "output_text", "text": "well", "annotations": []},
        {"type": "refusal", "refusal": "no"},
    ]


def test_media() -> None:
    media = (
        m.Image(data="AA", media_type="image/jpeg", detail="low"),
        m.Image(url="https://x.org/a.png"),
        m.Image(file_id="file-1"),
        m.File(data="CC", media_type="application/pdf", name="a.pdf"),
        m.File(url="https://x.org/a.pdf"),
        m.File(file_id="file-1"),
        m.File(text="words"),
    )
    written = write([m.Message(role="user", parts=media)])
    assert written.losses == []
    assert written.items[0]["content"] == [
        {"type": "input_image", "detail": "low", "image_url": "data:image/jpeg;base64,AA"},
        {"type": "input_image", "detail": "auto", "image_url": "https://x.org/a.png"},
        {"type": "input_image", "detail": "auto", "file_id": "file-1"},
        {"type": "input_file", "file_data": "data:application/pdf;base64,CC", "filename": "a.pdf"},
        {"type": "input_file", "file_url": "https://x.org/a.pdf"},
        {"type": "input_file", "file_id": "file-1"},
        {"type": "input_text", "text": "words"},
    ]


@pytest.mark.parametrize(
    ("part", "kind", "words"),
    [
        (m.Audio(data="BB", media_type="audio/wav"), "audio", "[audio left out]"),
        (m.Audio(data="BB", transcript="said"), "audio", "said"),
        (m.Image(file_id="files/1", native=m.Native(format="gemini", value={})), "image", "[image left out]"),
    ],
)
def test_media_without_a_form_is_reported_and_words_stand_in_its_place(
    part: m.Part, kind: str, words: str
) -> None:
    written = write([m.Message(role="user", parts=(part,))])
    assert written.items == [user(words)]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(0, kind)]


def test_a_result_holds_media() -> None:
    result = m.ToolResult(
        call_id="c1", content=(m.Text(text="see"), m.Image(data="AA", media_type="image/png"))
    )
    written = write([m.Message(role="tool", parts=(result,))])
    assert written.items[0]["output"] == [
        {"type": "input_text", "text": "see"},
        {"type": "input_image", "detail": "auto", "image_url": "data:image/png;base64,AA"},
    ]
    assert written.losses == []


def test_media_moves_where_results_hold_none() -> None:
    shot = output(
        value=[
            {"type": "input_text", "text": "see"},
            {"type": "input_image", "image_url": PNG, "detail": "low"},
        ]
    )
    written = write(read_all([call(), shot, user("b")]), TARGET.but(tool_content="string"))
    assert written.items[1]["output"] == "see\n[image: see the next user message]"
    assert [part["type"] for part in written.items[2]["content"]] == ["input_image", "input_text"]
    strict = write(read_all([call(), shot]), TARGET.but(tool_content="text", user_after_tool=False))
    assert strict.items[2] == {"role": "assistant", "content": NO_ANSWER_TEXT}
    assert strict.items[3]["role"] == "user"


def test_every_kind_of_call_gets_an_answer_of_its_own_shape() -> None:
    """As `repair` makes one up for a call that has none."""
    for asked, answered in PAIRS:
        one = read_all([asked])[0].calls[0]
        made_up = m.ToolResult(
            call_id=one.id, kind=one.kind, content=(m.Text(text=NOT_STARTED_TEXT),), synthetic="not_started"
        )
        (item,) = write([m.Message(role="tool", parts=(made_up,))]).items
        assert item["type"] == answered["type"]
        assert read_all([item])[0].results[0].call_id == one.id
        if answered["type"] == "mcp_approval_response":
            assert item["approve"] is False
        if answered["type"] not in ("computer_call_output", "tool_search_output"):
            assert NOT_STARTED_TEXT in json.dumps(item)
            assert read_all([item])[0].results[0].synthetic == "not_started"


@pytest.mark.parametrize(("asked", "answered"), PAIRS, ids=[asked["type"] for asked, _ in PAIRS])
def test_a_renamed_call_and_its_result_stay_a_pair(asked: dict[str, Any], answered: dict[str, Any]) -> None:
    before, after = read_all([asked, answered])
    messages = [
        before.evolve(parts=(m.evolve(before.calls[0], id="new"),)),
        after.evolve(parts=(m.evolve(after.results[0], call_id="new"),)),
    ]
    one, other = write(messages).items
    again = read_all([one, other])
    assert again[0].calls[0].id == again[1].results[0].call_id == "new"
    assert {key: value for key, value in one.items() if key not in ("call_id", "id")} == {
        key: value for key, value in asked.items() if key not in ("call_id", "id")
    }


def test_a_condensed_result_keeps_its_shape() -> None:
    for _, answered in PAIRS:
        (message,) = read_all([answered])
        preview = m.evolve(message.results[0], content=(m.Text(text="preview"),))
        written = write([message.evolve(parts=(preview,))])
        assert written.items[0]["type"] == answered["type"]
        if "output" in answered and answered["type"] != "computer_call_output":
            assert "preview" in json.dumps(written.items[0])
            assert written.losses == []
    assert [
        loss.kind
        for loss in write(
            [
                m.Message(
                    role="tool",
                    parts=(m.ToolResult(call_id="c", kind="computer_call", content=(m.Text(text="x"),)),),
                )
            ]
        ).losses
    ] == ["text"]


def test_a_changed_action_is_written_and_a_broken_one_is_not() -> None:
    (message,) = read_all([SHELL])
    one = message.calls[0]
    for arguments, action in (('{"commands":["pwd"]}', {"commands": ["pwd"]}), ("{bad", SHELL["action"])):
        (item,) = write([message.evolve(parts=(m.evolve(one, arguments=arguments),))]).items
        assert item == {**SHELL, "action": action}


def test_calls_of_another_provider_become_functions() -> None:
    new = m.assistant("", m.ToolCall(id="c1", name="bash", kind="bash_call", signature="SIG"))
    written = write([new])
    assert written.items == [{"type": "function_call", "call_id": "c1", "name": "bash", "arguments": "{}"}]
    assert sorted(loss.kind for loss in written.losses) == ["call", "signature"]
    custom = write(read_all([CUSTOM]), TARGET.but(custom_calls=False))
    assert custom.items == [
        {"type": "function_call", "call_id": "c7", "name": "py", "arguments": '{"input":"print(1)"}'}
    ]
    assert [loss.kind for loss in custom.losses] == ["call"]


def test_the_name_of_a_speaker_has_no_field() -> None:
    written = write([m.user("u", name="ann")])
    assert written.items == [user("u")]
    assert [loss.kind for loss in written.losses] == ["name"]


def test_developer_becomes_system() -> None:
    written = write(read_all([MESSAGES[2]]), TARGET.but(developer=False))
    assert written.items == [{"role": "system", "content": "be terse"}]


def test_from_chat_and_back() -> None:
    chat: list[dict[str, Any]] = [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": PNG, "detail": "high"}}]},
        {
            "role": "assistant",
            "content": "let me",
            "reasoning_content": "hm",
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": "{broken"}}
            ],
        },
        {"role": "tool", "tool_call_id": "c1", "content": "r"},
    ]
    messages = [openai_chat.read(item, index=0, origin=m.Origin())[0] for item in chat]
    written = write(messages)
    assert [item["type"] for item in written.items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
    ]
    assert written.items[0]["content"] == [{"type": "input_image", "detail": "high", "image_url": PNG}]
    assert written.items[2]["arguments"] == "{broken"
    assert written.starts == [0, 1, 1, 2]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "reasoning")]
    back = openai_chat.write(read_all(written.items), Target.of("openai"))
    assert back.items == [chat[0], {key: chat[1][key] for key in ("role", "content", "tool_calls")}, chat[2]]
    assert back.losses == []


# --- reasoning and what belongs to it ------------------------------------------------------


@pytest.mark.parametrize("how", [{"reasoning": "never"}, {"origin": m.Origin(provider="other")}])
def test_without_their_reasoning_items_lose_their_id_not_their_place(how: dict[str, Any]) -> None:
    items = [user(), thought(), said("a"), call(), output(), said("b", "msg_2")]
    before = copy.deepcopy(items)
    written = write(read_all(items), TARGET.but(**how), valid=False)
    assert [item["type"] for item in written.items] == [
        "message",
        "message",
        "function_call",
        "function_call_output",
        "message",
    ]
    assert [item.get("id") for item in written.items] == [None, None, None, None, "msg_2"]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "reasoning")]
    assert items == before


def test_reasoning_of_an_earlier_turn_expires_where_the_target_says_so() -> None:
    items = [user(), thought(), said("a"), user("b"), thought("rs_2"), said("c", "msg_2")]
    written = write(read_all(items), TARGET.but(reasoning="turn"), valid=False)
    assert [item.get("id") for item in written.items] == [None, None, None, "rs_2", "msg_2"]
    assert [(loss.index, loss.kind) for loss in written.losses] == [(1, "reasoning_expired")]


def test_an_id_that_was_dropped_stays_dropped() -> None:
    (message,) = read_all([call()])
    (item,) = write([message.evolve(id=None)]).items
    # The part's own item is intact, so the caller says it of the part as well.
    assert item == call()
    (item,) = write([changed(message).evolve(id=None)]).items
    assert item == {key: value for key, value in call().items() if key != "id"}


@pytest.mark.parametrize("item", [OPAQUE[12], OPAQUE[0], thought()])
def test_opaque_items_go_back_only_to_who_made_them(item: dict[str, Any]) -> None:
    messages = read_all([item], m.Origin(provider="openai", model="a"))
    assert write(messages).items == [item]
    other = write(messages, TARGET.but(origin=m.Origin(provider="openai", model="b")))
    assert other.items == []
    assert len(other.losses) == 1


def test_changed_reasoning_keeps_what_it_can() -> None:
    for item in REASONING:
        (message,) = read_all([item])
        new = message.evolve(parts=(m.evolve(message.parts[0], text="less"),))
        (written,) = write([new]).items
        assert written["id"] == item["id"]
        assert written.get("encrypted_content") == item.get("encrypted_content")
        assert "less" in json.dumps(written)


def test_opaque_content_parts_stay_in_their_message() -> None:
    item = user([{"type": "input_text", "text": "a"}, {"type": "future_part", "v": 1}])
    assert write([message.evolve() for message in read_all([item])], valid=False).items == [item]


def test_parts_of_several_items_in_one_message_are_items_again() -> None:
    """As where neighbours were merged."""
    items = [thought(), said("a"), call(), OPAQUE[0]]
    parts = tuple(part for message in read_all(items) for part in message.parts)
    written = write([m.Message(role="assistant", parts=parts)], valid=False)
    assert written.items[0] is items[0]
    assert written.items[1]["content"] == items[1]["content"]
    assert written.items[2] is items[2]
    assert written.items[3] is items[3]


def test_nothing_that_has_no_place_goes_in_silence() -> None:
    strays = [
        m.Message(role="user", parts=(m.ToolCall(id="c", name="f"),)),
        m.Message(role="tool", parts=(m.Text(text="stray"),)),
        m.Message(role="assistant", parts=(m.ToolResult(call_id="c"), m.Image(url="https://x.org/a"))),
        m.Message(role="assistant", parts=(m.Opaque(kind="blob"), m.Reasoning(text="hm"))),
        m.Message(role="assistant", parts=()),
    ]
    written = write(strays)
    assert written.items == [
        user("[message left out]"),
        {"type": "message", "role": "assistant", "content": "[image left out: https://x.org/a]"},
        {"type": "message", "role": "assistant", "content": ""},
    ]
    assert [(loss.index, loss.kind) for loss in written.losses] == [
        (0, "toolcall"),
        (1, "text"),
        (2, "toolresult"),
        (2, "image"),
        (3, "opaque"),
        (3, "reasoning"),
    ]


@settings(max_examples=30)
@given(
    items=ITEMS,
    reasoning=st.sampled_from(["never", "turn", "always"]),
    tool_content=st.sampled_from(["string", "text"]),
)
def test_every_target_takes_anything_and_leaves_it_alone(
    items: list[dict[str, Any]], reasoning: Any, tool_content: Any
) -> None:
    before = copy.deepcopy(items)
    target = dataclasses.replace(
        TARGET,
        reasoning=reasoning,
        tool_content=tool_content,
        developer=False,
        custom_calls=False,
        media=frozenset(),
    )
    written = write(read_all(items), target, valid=False)
    assert items == before
    json.dumps(written.items)
    for each in written.items:
        assert each.get("type") != "custom_tool_call"
        assert "role" not in each or each["role"] != "developer" or each["type"] == "additional_tools"
    chat = openai_chat.write(read_all(items), Target.of("openai_chat"))
    assert items == before
    assert all(each["role"] in ("system", "user", "assistant", "tool", "developer") for each in chat.items)
