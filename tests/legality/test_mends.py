"""Each mend by example: the list before, the list after, what is reported."""

from __future__ import annotations

import json
from typing import Any

import pytest

from backstory import repair
from backstory.formats.synthetic import NO_ANSWER_TEXT, NOT_STARTED_TEXT, OUTCOME_UNKNOWN_TEXT
from backstory.legality.arguments import UNREADABLE, clean, clean_text, mended
from backstory.legality.bench import CallPlace
from backstory.legality.mend_order import BEGINS, EMPTY, INTERRUPTED
from backstory.legality.naming import new_name
from backstory.legality.repair import mend
from backstory.messages import ToolCall, assistant, tool, user
from backstory.targets import PRESETS, Target

Item = dict[str, Any]


def said(text: str) -> Item:
    return {"role": "user", "content": text}


def told(text: str) -> Item:
    return {"role": "assistant", "content": text}


def asked(*ids: str, name: str = "f", arguments: str = "{}") -> Item:
    calls = [
        {"id": each, "type": "function", "function": {"name": name, "arguments": arguments}} for each in ids
    ]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def given(call_id: str, text: str) -> Item:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


def rules(repaired: Any) -> list[str]:
    return [each.rule for each in repaired.repairs]


# --- calls and results ---------------------------------------------------------------------


def test_a_late_result_moves_to_its_call():
    items = [said("a"), asked("1", "2"), given("2", "B"), told("…"), said("b"), given("1", "A"), told("c")]
    repaired = repair(items)
    assert repaired.messages == [*items[:2], items[5], items[2], items[3], items[4], items[6]]
    assert all(any(item is old for old in items) for item in repaired.messages)
    assert [(r.rule, r.index) for r in repaired.repairs] == [("result.misplaced", 5)]


def test_only_the_orphan_is_dropped():
    items = [said("a"), given("gone", "?"), asked("1"), given("1", "A"), given("gone", "?"), told("b")]
    assert repair(items).messages == [items[0], items[2], items[3], items[5]]


def test_of_two_results_the_first_real_one_stays():
    items = [
        said("a"),
        asked("1"),
        given("1", OUTCOME_UNKNOWN_TEXT),
        given("1", "A"),
        given("1", "B"),
        told("b"),
    ]
    repaired = repair(items)
    assert repaired.messages == [items[0], items[1], items[3], items[5]]
    assert rules(repaired) == ["result.duplicate", "result.duplicate"]


def test_a_missing_result_says_what_is_known_of_its_call():
    items = [said("a"), asked("1", "2"), said("b")]
    repaired = repair(items, target="openai", not_started=["2"])
    assert repaired.messages[2:4] == [given("1", OUTCOME_UNKNOWN_TEXT), given("2", NOT_STARTED_TEXT)]
    assert repaired.messages[0] is items[0]
    anthropic = repair(items, target="anthropic").messages[2]["content"]
    assert [block["is_error"] for block in anthropic[:2]] == [True, True]


def test_the_whole_list_is_looked_through_before_anything_is_made_up():
    items = [said("a"), asked("1"), *[said("b"), told("c")] * 50, given("1", "A")]
    assert rules(repair(items, target="openai")) == ["result.misplaced"]


def test_a_reused_id_stays_where_it_is_unique_in_its_step():
    items = [
        said("a"),
        asked("0"),
        given("0", "A"),
        told("A"),
        said("b"),
        asked("0"),
        given("0", "B"),
        told("B"),
    ]
    assert repair(items).messages == items
    blocks = repair(items, target="anthropic").messages
    first, second = blocks[1]["content"][0]["id"], blocks[5]["content"][0]["id"]
    assert first == "0" != second
    assert blocks[6]["content"][0]["tool_use_id"] == second


def test_one_call_at_a_time():
    items = [said("a"), asked("1", "2"), given("1", "A"), given("2", "B"), told("c")]
    repaired = repair(items, target="llama_cpp")
    assert [item["role"] for item in repaired.messages] == [
        "user",
        "assistant",
        "tool",
        "assistant",
        "tool",
        "assistant",
    ]
    assert [item["content"] for item in repaired.messages if item["role"] == "tool"] == ["A", "B"]
    assert rules(repaired) == ["call.parallel"]


def test_results_in_the_order_of_their_calls_where_their_place_tells():
    items = [said("a"), asked("1", "2"), given("2", "B"), given("1", "A")]
    parts = repair(items, target="gemini").messages[2]["parts"]
    assert [part["functionResponse"]["response"] for part in parts] == [{"output": "A"}, {"output": "B"}]
    assert repair(items).messages == [items[0], items[1], items[3], items[2]]
    outputs = [
        item["output"] for item in repair(items, target="openai_responses").messages if "output" in item
    ]
    assert outputs == ["B", "A"]


def test_a_result_in_the_assistants_own_message_becomes_its_own():
    use = {"type": "tool_use", "id": "1", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": "1", "content": "A"}
    items = [said("a"), {"role": "assistant", "content": [use, result]}]
    messages = repair(items, source="anthropic", target="anthropic").messages
    assert messages[1:] == [{"role": "assistant", "content": [use]}, {"role": "user", "content": [result]}]


def test_the_old_function_role_becomes_a_tool():
    call = {"name": "f", "arguments": "{}"}
    items = [said("a"), {"role": "assistant", "content": None, "function_call": call},
             {"role": "function", "name": "f", "content": "A"}]  # fmt: skip
    _, ask, answer = repair(items).messages
    assert ask["tool_calls"][0]["function"] == call
    assert answer["role"] == "tool"
    assert answer["tool_call_id"] == ask["tool_calls"][0]["id"]


def test_outputs_are_of_their_calls_kind():
    items = [
        {"type": "message", "role": "user", "content": "a"},
        {"type": "custom_tool_call", "call_id": "1", "name": "sh", "input": "ls"},
        {"type": "function_call_output", "call_id": "1", "output": "A"},
    ]
    messages = repair(items, source="openai_responses", target="openai_responses").messages
    assert messages[2]["type"] == "custom_tool_call_output"


def test_a_functions_output_becomes_what_a_shell_prints():
    call = {"type": "shell_call", "call_id": "1", "action": {"commands": ["ls"]}, "status": "completed"}
    output = {"type": "function_call_output", "call_id": "1", "output": [{"type": "input_text", "text": "A"}]}
    repaired = repair([call, output], source="openai_responses", target="openai_responses")
    chunk = {"stdout": "A", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
    assert repaired.messages[1] == {"type": "shell_call_output", "call_id": "1", "output": [chunk]}


def test_what_the_server_holds_may_be_answered():
    items = [
        {"type": "item_reference", "id": "fc_1"},
        {"type": "function_call_output", "call_id": "1", "output": "A"},
    ]
    repaired = repair(items, source="openai_responses", target="openai_responses")
    assert repaired.messages == items


# --- sent: the repair adds and does not change ---------------------------------------------


def test_a_late_result_is_told_as_a_note_where_its_stand_in_was_sent():
    messages = [user("a"), assistant("", ToolCall(id="1", name="f")), assistant("I gave up."), user("b")]
    target = Target.of("openai")
    before = mend(messages, target)
    assert before.made == (CallPlace(1, 0),)
    after = mend([*messages, tool("1", "A")], target, sent=before.made)
    assert after.messages[: len(before.messages)] == before.messages
    assert after.messages[-1].text == "[The result of f (1) came late:]\nA"


def test_neighbours_are_not_merged_across_a_seal():
    target = Target.of("openai_chat")
    merged = mend([user("a"), user("b")], target).messages
    assert [message.text for message in merged] == ["a\n\nb"]
    parted = mend([user("a"), user("b"), user("c")], target, seals=[1]).messages
    assert [message.text for message in parted] == ["a", NO_ANSWER_TEXT, "b\n\nc"]


# --- order ---------------------------------------------------------------------------------


def test_neighbours_of_one_role_are_merged():
    parts = [
        {"type": "text", "text": "b"},
        {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}},
    ]
    repaired = repair(
        [said("a"), {"role": "user", "content": parts}, told("c"), told("d"), asked("1"), given("1", "A")]
    )
    assert repaired.messages[0] == {"role": "user", "content": [{"type": "text", "text": "a"}, *parts]}
    assert repaired.messages[1]["content"] == "c\n\nd"
    assert repaired.messages[1]["tool_calls"] == asked("1")["tool_calls"]


def test_merged_speakers_stay_apart():
    items = [{**said("hi"), "name": "ann"}, {**said("yo"), "name": "bob"}]
    assert repair(items).messages == [said("ann: hi\n\nbob: yo")]


def test_a_mark_parts_a_result_from_the_users_words():
    items = [said("a"), asked("1"), given("1", "A"), said("b")]
    assert repair(items).messages == [*items[:3], told(INTERRUPTED), items[3]]
    assert repair(items, target="openai").messages == items


def test_late_and_several_system_messages():
    items = [{"role": "system", "content": "x"}, {"role": "developer", "content": "y"}, said("a"), told("b"),
             {"role": "system", "content": "z"}, said("c")]  # fmt: skip
    messages = repair(items).messages
    assert messages[0] == {"role": "system", "content": "x\n\ny"}
    assert messages[-1] == said("<system>\nz\n</system>\n\nc")
    assert repair(items, target="openai").messages == items
    assert repair(items, target="anthropic").body["system"] == [
        {"type": "text", "text": "x"}, {"type": "text", "text": "y"}
    ]  # fmt: skip


def test_the_user_comes_first():
    assert repair([told("hi"), said("a")]).messages == [said(BEGINS), told("hi"), said("a")]


@pytest.mark.parametrize("target", ["openai_chat", "openai", "anthropic", "gemini", "openai_responses"])
def test_empty_messages(target: str):
    items = [said("a"), told(""), said(""), told("b"), said("c"), told("")]
    repaired = repair(items, target=target)
    again = repair(repaired.messages, source=Target.of(target).format, target=target)
    assert again.repairs == ()
    words = json.dumps(repaired.messages)
    assert NO_ANSWER_TEXT in words
    assert EMPTY in words
    assert [r.index for r in repaired.repairs if r.rule == "content.empty"] == [1, 2, 5]


def test_an_answer_is_never_dropped():
    items = [said("a"), told("complete answer")]
    assert repair(items).messages == items
    assert repair([*items, told("")]).messages == items


def test_an_empty_message_beside_an_answer_leaves_no_mark():
    assert repair([said("a"), told(""), told("b")]).messages == [said("a"), told("b")]


@pytest.mark.parametrize("target", list(PRESETS))
@pytest.mark.parametrize(
    "items",
    [[given("1", "12 boxes")], [told("")], [said("")], [{"role": "system", "content": ""}], [given("1", "")]],
)
def test_a_history_is_never_emptied(items: list[Item], target: str):
    messages = repair(items, target=target).messages
    assert messages
    if items[0]["content"] == "12 boxes":
        assert "12 boxes" in json.dumps(messages)


def test_reasoning_of_anothers_alone_leaves_a_mark():
    items = [{"role": "assistant", "content": [{"type": "thinking", "thinking": "x", "signature": "S"}]}]
    for target in PRESETS:
        assert repair(items, source="anthropic", target=target).messages


# --- single values -------------------------------------------------------------------------


def test_what_json_cannot_hold_is_replaced():
    items = [
        {**said("half \ud83d"), "x": float("nan")},
        told("whole \ud83d\ude00"),
        asked("\ud800"),
        given("\ud800", "A"),
    ]
    repaired = repair(items)
    text = json.dumps(repaired.body, allow_nan=False, ensure_ascii=False).encode()
    assert "half \N{REPLACEMENT CHARACTER}".encode() in text
    assert "whole \N{GRINNING FACE}".encode() in text
    assert repaired.messages[0]["x"] is None
    assert repaired.messages[-1]["tool_call_id"] == "ud800"


def test_ids_are_made_fit_for_their_target():
    long = "call_" + "z" * 80
    items = [said("a"), asked(long, "call:1"), given(long, "A"), given("call:1", "B"), told("c")]
    nine = Target.of("openai_chat").but(id_pattern="[A-Za-z0-9]{9}", id_length=9)
    messages = repair(items, target=nine).messages
    ids = [call["id"] for call in messages[1]["tool_calls"]]
    assert [message["tool_call_id"] for message in messages[2:4]] == ids
    assert all(len(each) == 9 and each.isalnum() for each in ids)
    assert ids[0] != ids[1]
    assert repair(items, target="anthropic").messages[1]["content"][1]["id"] == "call_1"


def test_names_are_made_fit_and_stay_distinct():
    items = [said("a"), asked("1", name="look up stock"), given("1", "A"), told("b")]
    name = repair(items).messages[1]["tool_calls"][0]["function"]["name"]
    assert name.startswith("look_up_stock_")
    assert name == new_name("look up stock", r"[A-Za-z0-9_-]{1,64}", instead="tool")
    assert name != new_name("look.up.stock", r"[A-Za-z0-9_-]{1,64}", instead="tool")


def test_custom_calls_become_functions_where_they_are_unknown():
    call = {"id": "1", "type": "custom", "custom": {"name": "sh", "input": "ls -l"}}
    items = [
        said("a"),
        {"role": "assistant", "content": None, "tool_calls": [call]},
        given("1", "A"),
        told("b"),
    ]
    assert repair(items).messages == items
    block = repair(items, target="anthropic").messages[1]["content"][0]
    assert block == {"type": "tool_use", "id": "1", "name": "sh", "input": {"input": "ls -l"}}


def test_nothing_but_the_oldest_cache_markers_goes():
    def marked(text: str, role: str = "user") -> Item:
        return {
            "role": role,
            "content": [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}],
        }

    items = [
        marked("a"),
        marked("b", "assistant"),
        marked("c"),
        marked("d", "assistant"),
        marked("e"),
        marked("f", "assistant"),
    ]
    repaired = repair(items, source="anthropic", target="anthropic")
    assert [("cache_control" in item["content"][0]) for item in repaired.messages] == [
        False,
        False,
        True,
        True,
        True,
        True,
    ]
    assert repaired.messages[2] is items[2]
    assert "cache_control" in items[0]["content"][0]


def test_unsigned_thinking_is_left_out_of_its_own_api():
    signed = {"type": "thinking", "thinking": "x", "signature": "S"}
    items = [
        said("a"),
        {
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "y"}, signed, {"type": "text", "text": "b"}],
        },
    ]
    repaired = repair(items, source="anthropic", target="anthropic")
    assert repaired.messages[1]["content"] == items[1]["content"][1:]


def test_a_final_answer_does_not_end_with_white_space():
    repaired = repair([said("a"), told("partial ans ")], source="anthropic", target="anthropic")
    assert repaired.messages[1] == told("partial ans")
    assert rules(repaired) == ["content.trailing_space"]


@pytest.mark.parametrize(
    ("arguments", "expected"),
    [
        ("", {}),
        ('{"item": "tea', {"item": "tea"}),
        ('{"item": "tea", "n": [1, 2', {"item": "tea", "n": [1, 2]}),
        ('{"item": "tea", "n": tru', {"item": "tea"}),
        ('{"item": "tea",', {"item": "tea"}),
        ("{'item': 'tea', 'n': None, 'ok': True,}", {"item": "tea", "n": None, "ok": True}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('{"a": "raw\nline"}', {"a": "raw\nline"}),
        ('{"a": NaN, "b": 1e999}', {"a": None, "b": None}),
        ('"{\\"a\\": 1}"', {"a": 1}),
        ("[1, 2]", {UNREADABLE: "[1, 2]"}),
        ("rm -rf /", {UNREADABLE: "rm -rf /"}),
        ('{"a": tru', {UNREADABLE: '{"a": tru'}),
        ("{" * 100_000, {UNREADABLE: "{" * 100_000}),
    ],
)
def test_arguments_are_mended(arguments: str, expected: Any):
    assert json.loads(mended(arguments)) == expected


def test_an_object_keeps_its_bytes():
    arguments = '{ "b" : 1.0,\n "a":"\\u4e2d" }'
    items = [
        said("a"),
        asked("1", arguments=arguments),
        given("1", "A"),
        asked("2", arguments="{"),
        given("2", "B"),
    ]
    messages = repair(items).messages
    assert messages[1] is items[1]
    assert messages[3]["tool_calls"][0]["function"]["arguments"] != "{"


def test_clean_leaves_the_good_alone():
    value = {"a": [1, 2.5, None, True, "中文 😀"], "b": {"c": []}}
    assert clean(value) == value
    assert clean({1: {2: object}, "t": (1,)}) == {"1": {"2": "<class 'object'>"}, "t": [1]}
    assert clean_text("\ud83d\ude00") == "😀"
