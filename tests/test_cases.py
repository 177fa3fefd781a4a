"""The cases of `../shared/cases`: failures that users of other systems reported, each run through what we have.

`RUN` is the interpreter: a case's id, and a function of its input (placeholders expanded) that asserts what the case
expects. A case that needs a store is another test's.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

import backstory
from backstory import Target, check, convert, fit, repair
from backstory.formats.request import read_all
from backstory.formats.synthetic import OUTCOME_UNKNOWN_TEXT
from backstory.legality.steps import cut_points, pair
from backstory.messages import Origin
from backstory.tokens import count_text
from tests.conftest import SHARED

KINDS = ("tool_pairing", "wire_format", "reasoning_state")
ALL = ("openai_chat", "openai_responses", "anthropic", "gemini")

Item = dict[str, Any]
Case = dict[str, Any]


def cases() -> list[Case]:
    path = SHARED / "cases" / "cases.jsonl"
    if not path.is_file():
        return []
    lines = path.read_text(encoding="utf-8").split(
        "\n"
    )  # one holds U+2028, at which `splitlines` would cut it
    return [json.loads(line) for line in lines if line]


def expanded(value: Any) -> Any:
    """The input with its placeholders written out."""
    if isinstance(value, list):
        return [expanded(inner) for inner in value]
    if not isinstance(value, dict):
        return value
    match value:
        case {"$repeat": [str(text), int(times)]}:
            return text * times
        case {"$codepoints": [*points]}:
            return "".join(map(chr, points))
        case {"$data_url": [str(mime), int(size)]}:
            return f"data:{mime};base64,{'A' * (4 * (size // 3))}"
    return {key: expanded(inner) for key, inner in value.items()}


def legal(items: list[Item], target: Any, **options: Any) -> list[Item]:
    """The repaired list, which our own rules find nothing wrong with."""
    goal = Target.of(target)
    repaired = repair(items, target=goal, **options)
    assert check(repaired.messages, source=goal.format, target=goal) == []
    again = repair(repaired.messages, source=goal.format, target=goal)
    assert again.messages == repaired.messages, "repairing twice changes something"
    return repaired.messages


def text_of(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


# --- calls and results ---------------------------------------------------------------------


def cut_to_a_budget(given: Case) -> None:
    """TP-01: what is left begins with the system and a user, never with a result nobody asked for."""
    items = given["messages"]
    for target in ALL:
        fitted = fit(items, budget=given["budget_tokens"], target=target)
        assert check(fitted.messages, source=target, target=target, ready=True) == []
        assert fitted.ledger.total <= given["budget_tokens"]
    chat = fit(items, budget=given["budget_tokens"]).messages
    assert [item["role"] for item in chat][:2] == ["system", "user"]
    assert chat[-1] is items[-1]


def cut_between_steps(given: Case) -> None:
    """TP-02: wherever the tail begins, no call is without its results, and no result without its call."""
    items = given["messages"]
    read, _ = read_all(items, "openai_chat")
    points = {cut.index for cut in cut_points(read)}
    assert points == {0, 1, 7, 8}
    for index in points:
        assert not pair(read[index:]).orphans
        assert not pair(read[index:]).unanswered
    for keep in range(len(items) + 1):
        for target in ALL:
            kept = text_of(legal(items[len(items) - keep :], target))
            assert OUTCOME_UNKNOWN_TEXT not in kept


def cancelled(given: Case) -> None:
    """TP-03: every open call of any kind gets exactly one result, of its own kind."""
    items = [op["append"] for op in given["ops"] if "append" in op]
    before = json.dumps(items)
    messages = legal(items, "openai_responses", source="openai_responses")
    outputs = [
        (item["type"], item["call_id"]) for item in messages if item.get("type", "").endswith("_output")
    ]
    assert outputs == [("function_call_output", "k1"), ("custom_tool_call_output", "k2")]
    assert all(
        item["output"] == OUTCOME_UNKNOWN_TEXT
        for item in messages
        if item.get("type", "").endswith("_output")
    )
    assert messages[-1] is items[-1]
    assert json.dumps(items) == before


def last_step_stays(given: Case) -> None:
    """TP-07: the newest call, its result (shrunk at most) and the user's words stay together, or a typed error."""
    items = given["messages"]
    with pytest.raises(backstory.errors.BudgetExceeded) as caught:
        fit(items, budget=5)
    assert caught.value.needed > 5
    for budget in range(95, 160, 5):
        fitted = fit(items, budget=budget)
        kept = fitted.messages
        assert kept[1] is items[1]
        assert kept[-2] is items[-2]
        assert kept[-1]["tool_call_id"] == "c2"
        assert check(kept, ready=True) == []
        assert fitted.ledger.total <= budget


def nothing_inside_a_pair(given: Case) -> None:
    """TP-08: what stands between a call and its result is no reason to make one up."""
    items = [op["append"] for op in given["ops"] if "append" in op]
    for target in ALL:
        for marker in (
            {"role": "system", "content": "earlier: greeting"},
            {"role": "user", "content": "earlier: greeting"},
        ):
            messages = text_of(legal([items[0], marker, *items[1:]], target))
            assert OUTCOME_UNKNOWN_TEXT not in messages
            assert "ok" in messages


def in_call_order(given: Case) -> None:
    """TP-11: results in the order of their calls; for Anthropic all in one message, before any text."""
    items = given["messages"]
    chat = legal(items, "openai_chat")
    assert [item["content"] for item in chat if item["role"] == "tool"] == ["first", "second"]
    parts = [
        part for content in legal(items, "gemini") for part in content["parts"] if "functionResponse" in part
    ]
    assert [part["functionResponse"]["response"]["output"] for part in parts] == ["first", "second"]
    blocks = [block for item in legal(items, "anthropic")[2:] for block in item["content"]]
    assert [block["content"] for block in blocks[:2]] == ["first", "second"]
    assert legal(items, "anthropic")[2]["content"][:2] == blocks[:2]


def one_result(given: Case) -> None:
    """TP-12: exactly one of two, the first real one."""
    for target in ALL:
        messages = text_of(legal(given["messages"], target))
        assert "error: timeout" in messages
        assert "12 boxes" not in messages


def reused_ids(given: Case) -> None:
    """TP-13: all three results are there, each under its own call; only ids that collide are changed."""
    items = given["messages"]
    for target in ALL:
        messages = legal(items, target)
        assert all(f'"{result}"' in text_of(messages) for result in ("A", "B1", "B2"))
        shorter = legal(items[:6], target)[:3]
        assert messages[: len(shorter)] == shorter
    chat = legal(items, "openai_chat")
    first, second = chat[5]["tool_calls"]
    assert (chat[1]["tool_calls"][0]["id"], first["id"]) == ("call_0", "call_0")
    assert second["id"] != "call_0"
    assert [(item["tool_call_id"], item["content"]) for item in chat[6:8]] == [
        ("call_0", "B1"),
        (second["id"], "B2"),
    ]


def fewer_answers_than_calls(given: Case) -> None:
    """TP-17: as many responses as calls, the missing one made up, ids given by place."""
    items = given["contents"]
    for keep in range(1, len(items) + 1):
        for content in (contents := legal(items[-keep:], "gemini", source="gemini")):
            calls = sum("functionCall" in part for part in content["parts"])
            if calls:
                after = contents[contents.index(content) + 1]["parts"]
                assert sum("functionResponse" in part for part in after) == calls
    chat = legal(items, "openai_chat", source="gemini")
    ids = [call["id"] for call in chat[1]["tool_calls"]]
    assert len(set(ids)) == 2
    assert [item["tool_call_id"] for item in chat[2:4]] == ids


# --- wire formats --------------------------------------------------------------------------


def summary_before_a_user(given: Case) -> None:
    """CP-09: a summary as a user's block before the user's words is merged with them where that is asked for."""
    block = {"role": "user", "content": f"<summary>\n{given['summary']}\n</summary>"}
    for target in given["targets"]:
        messages = legal([block, *given["messages"]], target)
        assert given["summary"] in text_of(messages[0])
        assert messages[0]["role"] == "user"
    assert len(legal([block, *given["messages"]], "openai_chat")) == 3
    late = [given["messages"][0], {"role": "system", "content": given["summary"]}, *given["messages"][1:]]
    for target in given["targets"]:
        legal(late, target)


def content_as_parts(given: Case) -> None:
    """TB-10: a budget counts text wherever it stands; parts nobody knows pass through."""
    items = given["messages"]
    budget = given["budget_tokens"]
    total = sum(
        count_text(part["text"], "o200k_base")
        for item in items
        for part in item["content"] or ()
        if "text" in part
    )
    assert total > budget
    with pytest.raises(backstory.errors.BudgetExceeded) as caught:  # its last message alone is longer
        fit(items, budget=budget)
    assert caught.value.needed > budget
    everything = fit(items, ready=False)
    assert everything.messages == legal(items, "openai_chat")
    mystery = {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "mystery", "x": 1}]}
    assert legal([mystery], "openai_chat") == [mystery]


def ends_with_the_assistant(given: Case) -> None:
    """WF-03: an empty residue goes, a complete answer stays, and there is nothing to send."""
    items = given["messages"]
    for target in ALL:
        whole = legal(items, target)
        assert "complete answer" in text_of(whole)
        assert check(items, target=target, source="openai_chat", ready=True) != []
        with pytest.raises(backstory.errors.NothingToSend):
            fit(items, target=target)
        residue = legal([*items, given["variants"][0]["last"]], target)
        assert residue == whole
        partial = legal([items[0], given["variants"][1]["last"]], target)
        assert "partial ans" in text_of(partial)


def newer_instruction_role(given: Case) -> None:
    """WF-04: developer and system are one kind, by the name that the target has for it."""
    items = given["messages"]
    assert legal(items, "openai_chat") == items
    assert legal(items, "vllm")[0] == {"role": "system", "content": "Answer in verse."}
    assert repair(items, target="anthropic").body["system"] == "Answer in verse."
    assert repair(items, target="gemini").body["systemInstruction"] == {
        "parts": [{"text": "Answer in verse."}]
    }
    late = [items[1], {"role": "assistant", "content": "x"}, items[0], items[1]]
    for target in ALL:
        assert "Answer in verse." in text_of(repair(late, target=target).body)


def only_a_refusal(given: Case) -> None:
    """WF-06: a refusal is text elsewhere, and not an empty message."""
    for target in ALL:
        messages = legal(given["messages"], target)
        assert "I can't help with that." in text_of(messages[1])


def results_as_parts(given: Case) -> None:
    """WF-07: text as one string where results hold a string, its image in a user message after the batch."""
    strings = Target.of("openai_chat").but(tool_content="string")
    messages = legal(given["messages"], strings)
    result = next(item for item in messages if item["role"] == "tool")
    assert result["content"].startswith("one\ntwo")
    image = next(i for i, item in enumerate(messages) if "image_url" in text_of(item))
    assert messages[image]["role"] == "user"
    assert image > messages.index(result)
    parts = legal(given["messages"], Target.of("openai").but(tool_content="media"))
    assert parts == given["messages"]


def speakers(given: Case) -> None:
    """WF-10: an alias that the target takes, the same for the same, distinct ones distinctly."""
    items = given["messages"]
    names = [item["name"] for item in legal(items, "openai_chat")]
    assert len(set(names)) == 3
    assert all(name.isascii() and 0 < len(name) <= 64 and " " not in name for name in names)
    assert names == [item["name"] for item in legal(items, "openai_chat")]
    assert items[0]["name"] == "Tea Keeper"


def ids_for_a_target(given: Case) -> None:
    """TP-14: nine letters and digits, call and result together, and the list keeps its own."""
    length = given["target"]["max_call_id"]
    nine = Target.of("openai_chat").but(id_pattern=f"[A-Za-z0-9]{{{length}}}", id_length=length)
    items = given["messages"]
    messages = legal(items, nine)
    call_id = messages[1]["tool_calls"][0]["id"]
    assert messages[2]["tool_call_id"] == call_id
    assert len(call_id) <= length
    assert call_id.isalnum()
    assert messages == legal(items, nine)
    assert len(items[1]["tool_calls"][0]["id"]) > 60


# --- reasoning -----------------------------------------------------------------------------


def signed_thinking(given: Case) -> None:
    """RS-02: the turn in progress goes back block for block, the very same objects; elsewhere no signed block goes."""
    items = given["messages"]
    messages = legal(items, "anthropic", source="anthropic")
    assert all(new is old for new, old in zip(messages, items, strict=True))
    fitted = fit(items, target="anthropic", source="anthropic", budget=10_000)
    assert [item["content"] for item in fitted.messages] == [item["content"] for item in items]
    for target in ("openai_chat", "openai_responses", "gemini"):
        repaired = repair(items, source="anthropic", target=target)
        assert "SIG1" not in text_of(repaired.body)
        assert "BLOB" not in text_of(repaired.body)
        assert "reasoning" in {loss.kind for loss in repaired.losses}


def encrypted_by_another(given: Case) -> None:
    """RS-03: encrypted reasoning goes back only to who made it."""
    items = given["input"]
    target = Target.of("openai_responses").but(origin=Origin(provider="B"))
    repaired = repair(items, source="openai_responses", target=target, origin=Origin(provider="A"))
    assert "OPAQUE_FROM_A" not in text_of(repaired.messages)
    assert [item["type"] for item in repaired.messages] == ["message", "message", "message"]
    assert [loss.kind for loss in repaired.losses] == ["reasoning"]
    kept = repair(items, source="openai_responses", target=target, origin=Origin(provider="B"))
    assert all(new is old for new, old in zip(kept.messages, items, strict=True))


def signatures_on_any_part(given: Case) -> None:
    """RS-04: a signature comes back to its part, also through another format; where there is none, the placeholder."""
    items = given["contents"]
    assert convert(items, source="gemini", target="gemini").messages == items
    there = convert(items, source="gemini", target=given["via"])
    back = convert(there.messages, source=given["via"], target="gemini").messages
    calls = [part for part in back[1]["parts"] if "functionCall" in part]
    assert [part.get("thoughtSignature") for part in calls] == ["SIG", None]
    assert legal(items, "gemini-3", source="gemini") == items
    bare = json.loads(json.dumps(items).replace(', "thoughtSignature": "SIG"', ""))
    assert "skip_thought_signature_validator" in text_of(legal(bare, "gemini-3", source="gemini"))


def reasoning_text(given: Case) -> None:
    """RS-05: kept as it came, sent to who asks for it, left out and reported where it is refused."""
    items = given["messages"]
    assert legal(items, "openai_chat") == items
    needs = Target.of("deepseek")
    turn = items[:3]
    assert legal(turn, needs)[1]["reasoning_content"] == "think"
    assert "reasoning_content" not in legal(items, needs)[1]
    forbids = repair(items, target=Target.of("openai_chat").but(reasoning="never"))
    assert "think" not in text_of(forbids.messages)
    assert [loss.kind for loss in forbids.losses] == ["reasoning"]
    missing = [items[0], {k: v for k, v in items[1].items() if k != "reasoning_content"}, *items[2:]]
    legal(missing, needs)


def shortened_arguments(given: Case) -> None:
    """CP-12: a call's arguments that are too long are a shorter object, and never a torn text."""
    budget = given["budget_tokens"]
    for items in (given["messages"], given["messages"][:3]):
        fitted = fit(items, budget=budget)
        assert fitted.ledger.total <= budget
        for call in (call for item in fitted.messages for call in item.get("tool_calls", ())):
            assert json.loads(call["function"]["arguments"])["path"] == "notes.txt"
            assert "left out" in json.loads(call["function"]["arguments"])["body"]
    assert [item["role"] for item in fitted.messages] == ["user", "assistant", "tool"]


RUN: dict[str, Callable[[Case], None]] = {
    "CP-09": summary_before_a_user,
    "CP-12": shortened_arguments,
    "RS-02": signed_thinking,
    "RS-03": encrypted_by_another,
    "RS-04": signatures_on_any_part,
    "RS-05": reasoning_text,
    "TB-10": content_as_parts,
    "TP-01": cut_to_a_budget,
    "TP-02": cut_between_steps,
    "TP-03": cancelled,
    "TP-07": last_step_stays,
    "TP-08": nothing_inside_a_pair,
    "TP-11": in_call_order,
    "TP-12": one_result,
    "TP-13": reused_ids,
    "TP-14": ids_for_a_target,
    "TP-17": fewer_answers_than_calls,
    "WF-03": ends_with_the_assistant,
    "WF-04": newer_instruction_role,
    "WF-06": only_a_refusal,
    "WF-07": results_as_parts,
    "WF-10": speakers,
}


@pytest.mark.parametrize("name", list(RUN))
def test_case(name: str, shared: object):
    case = next(each for each in cases() if each["id"] == name)
    RUN[name](expanded(case["input"]))


def test_every_case_of_these_kinds_is_run(shared: object):
    assert {case["id"] for case in cases() if case["category"] in KINDS} <= set(RUN)
