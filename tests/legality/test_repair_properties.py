"""What holds of every repair, over histories with everything broken that breaks in the wild."""

from __future__ import annotations

import importlib.util
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from backstory import check, repair
from backstory.errors import InvalidMessage
from backstory.formats.request import read_all
from backstory.legality.bench import Bench, CallPlace, entries_of
from backstory.legality.repair import MENDS, Mended, mend
from backstory.legality.rules import is_ready, problems
from backstory.legality.steps import continues, cut_points, pair
from backstory.messages import Message, ToolResult, texts
from backstory.targets import PRESETS, Target
from tests.strategies import any_history, formats, legal_histories

Judge = Callable[..., list[str]]

ODD_TARGETS = [
    Target.of("openai_chat").but(
        name="nine", id_pattern=r"[A-Za-z0-9]{9}", id_length=9, tool_content="string"
    ),
    Target.of("openai_chat").but(name="one call", parallel_calls=False, ordered_results=True),
    Target.of("anthropic").but(name="strict", alternates=True, user_after_tool=False),
    Target.of("openai_responses").but(name="short ids", id_length=12, custom_calls=False),
    Target.of("gemini").but(name="ids", id_pattern=r"[a-z]+[0-9a-f_]+"),
]
TARGETS = [*PRESETS.values(), *ODD_TARGETS]


@pytest.fixture(scope="module")
def judge(shared: Path) -> Judge:
    spec = importlib.util.spec_from_file_location("judge", shared / "judge" / "judge.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found: Judge = module.judge
    return found


def canonical(value: Any) -> str:
    """JSON with sorted keys and without cache markers, which may move from request to request."""
    return json.dumps(_unmarked(value), sort_keys=True)


def _unmarked(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _unmarked(inner) for key, inner in value.items() if key != "cache_control"}
    return [_unmarked(inner) for inner in value] if isinstance(value, list) else value


def repaired(items: list[Any], source: str, target: Any) -> Any:
    """The repair; an item that no reader takes is no example."""
    try:
        return repair(items, source=source, target=target)
    except InvalidMessage:
        assume(False)


def same(a: list[Any], b: list[Any]) -> bool:
    return len(a) == len(b) and all(x is y for x, y in zip(a, b, strict=True))


# --- legality ------------------------------------------------------------------------------


@given(example=any_history(), target=formats)
def test_the_judge_finds_nothing(judge: Judge, example: tuple[str, list[Any]], target: str):
    source, items = example
    result = repaired(items, source, target)
    if items:
        assert judge(result.body, target, ready=False) == []
        assert judge(result.messages, target, ready=False) == []


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_what_repair_gives_passes_check(example: tuple[str, list[Any]], target: Target):
    source, items = example
    result = repaired(items, source, target)
    assert check(result.messages, source=target.format, target=target) == []


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_the_judge_finds_nothing_for_any_server(judge: Judge, example: tuple[str, list[Any]], target: Target):
    source, items = example
    result = repaired(items, source, target)
    strict = target.format == "openai_chat" and target.alternates
    if items:
        options = {"strict": strict, "ready": False, "signatures": target.signed_calls}
        assert judge(result.body, target.format, **options) == []


@given(example=any_history())
def test_what_the_judge_refuses_is_a_problem(judge: Judge, example: tuple[str, list[Any]]):
    source, items = example
    if items and judge(items, source, ready=False):
        assert check(items, source=source, target=source) != []


@given(example=any_history())
def test_what_is_ready_is_so_for_the_judge(judge: Judge, example: tuple[str, list[Any]]):
    source, items = example
    messages = repaired(items, source, source).messages
    if messages and not check(messages, source=source, target=source, ready=True):
        assert judge(messages, source) == []


# --- identity ------------------------------------------------------------------------------


@given(source=formats, data=st.data())
def test_legal_histories_are_left_alone(judge: Judge, source: str, data: st.DataObject):
    items = data.draw(legal_histories(source))
    assert judge(items, source, ready=False) == []
    assert check(items, source=source, target=source) == []
    result = repair(items, source=source, target=source)
    assert same(result.messages, items)
    assert (result.repairs, result.losses) == ((), ())


@given(example=any_history())
def test_what_has_no_problem_is_left_alone(example: tuple[str, list[Any]]):
    source, items = example
    if not check(items, source=source, target=source):
        result = repair(items, source=source, target=source)
        assert same(result.messages, items)
        assert result.repairs == ()


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_each_mend_leaves_alone_what_breaks_no_rule(example: tuple[str, list[Any]], target: Target):
    """Else a breach at one end of a list would decide what becomes of the other."""
    source, items = example
    try:
        read, _ = read_all(items, source)
    except InvalidMessage:
        assume(False)
    legal = mend(read, target).messages
    assert list(problems(legal, target)) == []
    bench = Bench(entries_of(legal, None), target)
    for step in MENDS:
        step(bench)
        assert bench.repairs == []
        assert same(bench.messages, legal)


@given(example=any_history())
def test_repairs_are_reported_if_and_only_if_something_changed(example: tuple[str, list[Any]]):
    source, items = example
    result = repaired(items, source, source)
    assert bool(result.repairs) == (not same(result.messages, items))


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_twice_is_once(example: tuple[str, list[Any]], target: Target):
    source, items = example
    first = repaired(items, source, target)
    second = repair(first.messages, source=target.format, target=target)
    assert same(second.messages, first.messages)
    assert second.repairs == ()


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_the_same_again(example: tuple[str, list[Any]], target: Target):
    source, items = example
    given_as = json.dumps(items)
    first = repaired(items, source, target)
    assert json.dumps(items) == given_as, "the caller's own list was changed"
    second = repair(json.loads(given_as), source=source, target=target)
    assert canonical(second.body) == canonical(first.body)
    assert second.repairs == first.repairs


# --- what is kept --------------------------------------------------------------------------


@given(example=any_history(), target=formats)
def test_a_history_is_never_emptied(example: tuple[str, list[Any]], target: str):
    source, items = example
    assert bool(repaired(items, source, target).messages) == bool(items)


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_real_results_are_kept_unless_orphan_or_further_answer(
    example: tuple[str, list[Any]], target: Target
):
    source, items = example
    try:
        read, _ = read_all(items, source)
    except InvalidMessage:
        assume(False)
    assume(not any(message.results for message in read if message.role == "assistant"))  # nobody's, by role
    pairs = pair(read)
    words = [texts(pairs.results[place].content) for place in pairs.question]
    markers = [found for word in words for found in re.findall(r"<r\d+>", word)]
    out = mend(read, target).messages
    said = [texts(result.content) for message in out for result in message.results]
    for marker in markers:
        assert sum(marker in words for words in said) >= 1, marker


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_calls_and_their_objects_are_preserved(example: tuple[str, list[Any]], target: Target):
    """Each call stays, in order; its arguments stay to the byte where they are an object already."""
    source, items = example
    try:
        read, _ = read_all(items, source)
    except InvalidMessage:
        assume(False)
    out = mend(read, target).messages
    before = [part for message in read if message.role == "assistant" for part in message.calls]
    after = [part for message in out if message.role == "assistant" for part in message.calls]
    assert len(before) == len(after)
    for old, new in zip(before, after, strict=True):
        if old.kind == new.kind and _is_plain_object(old.arguments):
            assert new.arguments == old.arguments


def _is_plain_object(arguments: str) -> bool:
    try:
        value = json.loads(arguments)
        if arguments.count("{") > 200:  # too deep for the formats that hold an object
            return False
        return isinstance(value, dict) and bool(
            json.dumps(value, allow_nan=False, ensure_ascii=False).encode()
        )
    except (ValueError, RecursionError):
        return False


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_order_is_kept(example: tuple[str, list[Any]], target: Target):
    """Results move to their calls; nothing else changes its place."""
    source, items = example
    try:
        read, _ = read_all(items, source)
    except InvalidMessage:
        assume(False)
    mended = mend(read, target)
    places = [p for p, m in zip(mended.positions, mended.messages, strict=True) if m.role != "tool"]
    assert places == sorted(places)


@given(example=any_history(), target=st.sampled_from(TARGETS))
def test_steps_stay_whole_wherever_the_list_is_cut(example: tuple[str, list[Any]], target: Target):
    """Law 1, for every cut point: what is replayed from there on has each call with its results, or neither."""
    source, items = example
    try:
        read, _ = read_all(items, source)
    except InvalidMessage:
        assume(False)
    whole = pair(read)
    for cut in cut_points(read):
        tail = pair(read[cut.index :])
        kept = {
            (c.message + cut.index, c.part): (r.message + cut.index, r.part) for c, r in tail.answer.items()
        }
        for call, result in whole.answer.items():
            if call.message >= cut.index:
                assert kept[call.message, call.part] == tuple(result)
            elif result.message >= cut.index:
                between = range(call.message + 1, result.message)
                late = any(read[i].role == "assistant" and not continues(read, i) for i in between)
                assert late, "a cut between a call and its result that stand together"


# --- monotonicity --------------------------------------------------------------------------


def sendable_prefixes(items: list[Any], source: str, target: Target) -> list[int]:
    """Lengths at which the list was sent as it stood: the model answered there, and nothing was open."""
    read, positions = read_all(items, source)
    whole = pair(read)
    found: list[int] = []
    for length in range(1, len(items)):
        stop = positions.index(length)
        head = read[:stop]
        if read[stop].role != "assistant" or head[-1].role not in ("user", "tool"):
            continue
        pairs = pair(head)
        replaced = [call for call in pairs.answer if whole.answer[call] != pairs.answer[call]]
        mended = mend(head, target)
        made_up = _made_up(mended)
        if not pairs.unanswered and not replaced and not made_up and is_ready(mended.messages, target):
            found.append(length)
    return found


@given(example=any_history(), target=formats)
def test_repair_is_monotonic(example: tuple[str, list[Any]], target: str):
    """Where a list was sent as it stood, the repair of a longer one begins with the very bytes of that request."""
    source, items = example
    whole = repaired(items, source, target).messages
    for length in sendable_prefixes(items, source, Target.of(target)):
        shorter = repair(items[:length], source=source, target=target).messages
        assert [canonical(item) for item in whole[: len(shorter)]] == [canonical(item) for item in shorter], (
            length
        )


@given(example=any_history(), target=formats, data=st.data())
def test_repair_is_monotonic_across_seals(example: tuple[str, list[Any]], target: str, data: st.DataObject):
    """With seals, and the calls whose synthetic result was sent, wherever the list was sent at all."""
    source, items = example
    try:
        read, positions = read_all(items, source)
    except InvalidMessage:
        assume(False)
    goal = Target.of(target)
    lengths = [n for n in range(1, len(items) + 1) if data.draw(st.booleans(), label=f"sent at {n}")]
    seals: list[int] = []
    sent: set[CallPlace] = set()
    before: list[str] = []
    for length in lengths:
        head = [m for m, position in zip(read, positions, strict=True) if position < length]
        if not head or head[-1].role not in ("user", "tool"):
            continue
        mended = mend(head, goal, seals=seals, sent=sent)
        if not is_ready(mended.messages, goal) or _made_up(mended):
            continue
        now = [_essence(message) for message in mended.messages]
        assert now[: len(before)] == before
        before = now
        seals.append(len(head))
        sent |= {*mended.made, *_stand_ins(head)}


def _made_up(mended: Mended) -> bool:
    """Nothing was left of what was said, so that a note had to stand for it: no model was asked on such ground."""
    return any(repair.what.startswith("put in a user message") for repair in mended.repairs)


def _stand_ins(head: list[Message]) -> set[CallPlace]:
    """Calls whose synthetic result stood in the list itself."""
    pairs = pair(head)
    numbers: dict[int, int] = {}
    found: set[CallPlace] = set()
    for place in pairs.calls:
        number = numbers.get(place.message, 0)
        numbers[place.message] = number + 1
        answer = pairs.answer.get(place)
        if answer is not None and pairs.results[answer].synthetic:
            found.add(CallPlace(place.message, number))
    return found


def _essence(message: Message) -> Any:
    """All that a writer would write, cache markers apart; of a synthetic result the words."""
    parts = [
        texts(part.content)
        if isinstance(part, ToolResult) and part.synthetic
        else repr({name: getattr(part, name) for name in part.__dataclass_fields__ if name != "native"})
        for part in message.parts
    ]
    return message.role, message.name, parts
