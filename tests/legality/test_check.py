"""`check` and `repair` on plain lists: what they say, what they refuse, and what they cost."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest

import backstory
from backstory import Problem, check, repair
from backstory.errors import ConfigurationError, InvalidInput, InvalidMessage
from backstory.formats.request import read_all
from backstory.legality.repair import mend
from backstory.legality.rules import RULES, problems
from backstory.targets import PRESETS, Target

Item = dict[str, Any]
CALL: Item = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}


def rules(found: list[Problem]) -> list[tuple[int, str]]:
    return [(problem.index, problem.rule) for problem in found]


def test_problems_come_in_the_lists_order_with_how_to_mend_them():
    items = [
        {"role": "assistant", "content": "hi"},
        {"role": "user", "content": ""},
        {"role": "assistant", "content": None, "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "9", "content": "A"},
    ]
    found = check(items)
    assert rules(found) == [
        (0, "order.user_first"),
        (1, "content.empty"),
        (2, "result.missing"),
        (3, "result.orphan"),
    ]
    assert all(problem.what and problem.mend for problem in found)


def test_legality_is_a_function_of_the_target():
    items = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    assert rules(check(items)) == [(1, "order.alternation")]
    assert check(items, target="openai") == []
    assert check(items, target="anthropic") == []


def test_the_source_is_told_from_the_list():
    items = [
        {"role": "user", "parts": [{"text": "a"}]},
        {"role": "model", "parts": [{"functionCall": {"name": "f", "args": {}}}]},
    ]
    assert rules(check(items, target="gemini")) == [(1, "result.missing")]
    assert repair(items, target="openai_chat").messages[0] == {"role": "user", "content": "a"}


def test_an_item_that_cannot_be_read_is_a_problem_and_the_rest_is_read():
    good = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}]
    items = [{"role": "wizard", "content": "?"}, "not an object", {"role": "user", "content": 7}, *good]
    unreadable = "message.unreadable"
    assert rules(check(items)) == [
        (0, unreadable),
        (1, unreadable),
        (2, unreadable),
        (4, "order.alternation"),
    ]


@pytest.mark.parametrize("index", [0, 2])
def test_repair_says_which_item_cannot_be_read(index: int):
    items: list[Any] = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    items.insert(index, {"role": "wizard", "content": "?"})
    with pytest.raises(InvalidMessage, match="wizard") as caught:
        repair(items)
    assert caught.value.index == index


@pytest.mark.parametrize(
    "bad", [None, "text", 7, {"messages": []}, {"role": "user", "content": "a"}, iter([])]
)
@pytest.mark.parametrize("function", [check, repair])
def test_what_is_no_list(function: Any, bad: Any):
    with pytest.raises(InvalidInput, match="list") as caught:
        function(bad)
    assert not isinstance(caught.value, InvalidMessage)


def test_a_whole_request_is_told_what_to_pass():
    with pytest.raises(InvalidInput, match="'messages'"):
        check({"model": "x", "messages": []})


@pytest.mark.parametrize("function", [check, repair])
def test_unknown_names(function: Any):
    with pytest.raises(ConfigurationError, match="nonsense"):
        function([], target="nonsense")
    with pytest.raises(ConfigurationError, match="nonsense"):
        function([], source="nonsense")


@pytest.mark.parametrize("target", list(PRESETS))
def test_an_empty_list_is_legal_but_nothing_to_send(target: str):
    assert check([], target=target) == []
    assert repair([], target=target).messages == []
    assert rules(check([], target=target, ready=True)) == [(-1, "order.not_ready")]


def test_ready():
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]
    assert check(items) == []
    assert rules(check(items, ready=True)) == [(1, "order.not_ready")]
    assert check(items[:1], ready=True) == []


def test_a_turn_that_the_server_paused_is_ready():
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "tea"}}
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": [use]}]
    assert check(items, source="anthropic", target="anthropic", ready=True) == []


def test_the_system_beside_the_list():
    result = repair([{"role": "user", "content": "a"}], source="anthropic", target="openai_chat", system="s")
    assert result.messages[0] == {"role": "system", "content": "s"}
    bad = check([{"role": "user", "content": "a"}], source="anthropic", target="anthropic", system="\ud800")
    assert rules(bad) == [(-1, "json.strict")]


def test_what_a_server_does_not_take_is_a_problem_of_its_own_format():
    items = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b", "reasoning_content": "c"},
    ]
    assert rules(check(items, target="ollama")) == [(1, "target.reasoning")]
    repaired = repair(items, target="ollama")
    assert [each.rule for each in repaired.repairs] == ["target.reasoning"]
    assert [loss.kind for loss in repaired.losses] == ["reasoning"]
    assert repaired.messages == [items[0], {"role": "assistant", "content": "b"}]


def test_arguments_that_are_no_string_are_a_matter_of_shape():
    call = {**CALL, "function": {"name": "f", "arguments": {"a": 1}}}
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [call]},
             {"role": "tool", "tool_call_id": "1", "content": "A"}]  # fmt: skip
    assert rules(check(items)) == [(1, "message.shape")]
    repaired = repair(items)
    assert repaired.messages[1]["tool_calls"][0]["function"]["arguments"] == '{"a":1}'
    assert [(r.index, r.rule) for r in repaired.repairs] == [(1, "message.shape")]


@pytest.mark.parametrize(
    ("field", "value"), [("tool_calls", None), ("tool_calls", []), ("content", [{"type": "mystery"}])]
)
def test_shapes_that_a_reader_lets_pass(field: str, value: Any):
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b", field: value}]
    assert check(items) != []
    repaired = repair(items)
    assert check(repaired.messages) == []
    assert repaired.repairs != ()


def test_nulls_of_an_sdks_dump_that_the_api_takes_stay():
    item: Item = {"role": "assistant", "content": "b", "refusal": None, "audio": None, "annotations": []}
    items = [{"role": "user", "content": "a"}, item]
    assert check(items) == []
    assert repair(items).messages[1] is item


def test_the_losses_of_another_format_are_told_with_their_place():
    audio = {"type": "input_audio", "input_audio": {"data": "AAAA", "format": "wav"}}
    items = [
        {"role": "user", "content": "a"},
        {"role": "assistant", "content": "b"},
        {"role": "user", "content": [audio]},
    ]
    repaired = repair(items, target="anthropic")
    assert [(loss.index, loss.kind) for loss in repaired.losses] == [(2, "audio")]


def test_two_values_or_fields_by_name():
    messages, repairs = repair([{"role": "user", "content": "a"}])
    assert messages == [{"role": "user", "content": "a"}]
    assert repairs == ()
    assert backstory.repair([{"role": "user", "content": "a"}], target="gemini").body == {
        "contents": [{"role": "user", "parts": [{"text": "a"}]}]
    }


def test_every_rule_has_a_name_of_its_own_and_a_source():
    assert len({rule.name for rule in RULES}) == len(RULES)
    assert all(rule.source and rule.mend for rule in RULES)


# --- size ----------------------------------------------------------------------------------


def test_a_tool_result_of_10_mb():
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": None, "tool_calls": [CALL]},
             {"role": "tool", "tool_call_id": "1", "content": "茶" * 5_000_000 + "\ud800"}]  # fmt: skip
    assert rules(check(items)) == [(2, "json.strict")]
    assert len(repair(items).messages[2]["content"]) == 5_000_001


@pytest.mark.parametrize("target", list(PRESETS))
@pytest.mark.parametrize("depth", [300, 1_000, 100_000])
def test_bottomless_nesting(target: str, depth: int):
    deep: Any = "bottom"
    for _ in range(depth):
        deep = [deep]
    arguments = '{"a":' + "[" * depth + "]" * depth + "}"
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": arguments}}
    items = [
        {
            "role": "user",
            "content": [{"type": "text", "text": "a"}, {"type": "mystery", "x": deep}],
            "y": deep,
        },
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "1", "content": "A"},
    ]
    assert isinstance(check(items, target=target), list)
    json.dumps(repair(items, target=target).body)


def test_a_hundred_thousand_messages_cost_in_proportion():
    def long(turns: int) -> list[Item]:
        items: list[Item] = []
        for number in range(turns):
            items.append({"role": "user", "content": "What now?"})
            items.append({"role": "assistant", "content": None, "tool_calls": [CALL]})
            items.append({"role": "tool", "tool_call_id": "1", "content": f"result {number}"})
            items.append({"role": "assistant", "content": "That."})
        return items

    def cost(turns: int) -> float:
        items = long(turns)
        start = time.process_time()
        assert check(items) == []
        return time.process_time() - start

    small = max(min(cost(2_500) for _ in range(2)), 0.02)
    assert cost(25_000) < 25 * small


def test_sixty_messages_cost_next_to_nothing(shared: Path):
    """No more than to write and parse them as JSON; the test allows for a busy machine."""
    lines = (shared / "data" / "tau_airline_dev.jsonl").read_text(encoding="utf-8").splitlines()
    items = next(run for run in (json.loads(line)["messages"] for line in lines) if 58 <= len(run) <= 66)
    read, _ = read_all(items, "openai_chat")
    for name in ("openai_chat", "openai_responses", "anthropic", "gemini"):
        target = Target.of(name)
        costs, parsing = [], []
        for _ in range(20):
            start = time.process_time()
            list(problems(read, target))
            checked = time.process_time()
            json.loads(json.dumps(items))
            costs.append(checked - start)
            parsing.append(time.process_time() - checked)
        assert min(costs) < 5 * min(parsing)
    assert mend(read, Target.of("openai_chat")).repairs == ()
