"""Budget, shares, window, sections, passages, previews, passes, prefix and markers, each by itself; and `build`."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backstory
from backstory.context.budget import GROUPS, SHARES, Budget, allocate
from backstory.context.builder import build, compose, is_sticky
from backstory.context.history import History
from backstory.context.markers import count as count_markers
from backstory.context.passes import cap_results, condense, condense_old, level, numbered
from backstory.context.prefix import canonical, common, digest, same_order
from backstory.context.preview import LEAST, preview
from backstory.context.sections import (
    OPTIONAL,
    SYSTEM_ORDER,
    Passage,
    Section,
    choose_passages,
    in_order,
    render,
    retrieved_block,
    runtime_block,
    shrink,
)
from backstory.context.window import Limits, choose
from backstory.errors import ConfigurationError
from backstory.legality.steps import cut_points
from backstory.messages import Message, Text, ToolCall, assistant, texts, tool, user
from backstory.targets import Target
from backstory.tokens import Counter, count_text

COUNTER, TARGET = Counter(name="o200k_base"), Target.of("openai_chat")
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), st.integers(), st.text(st.characters(exclude_categories=["Cs"]))),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.text(st.characters(exclude_categories=["Cs"]), max_size=4), inner, max_size=3),
    ),
    max_leaves=8,
)

# --- budget --------------------------------------------------------------------------------


@given(
    asks=st.dictionaries(st.sampled_from([*GROUPS, "other"]), st.integers(0, 5_000), max_size=6),
    total=st.integers(0, 10_000),
    use=st.sampled_from(sorted(SHARES)),
)
def test_shares_bind_only_when_more_is_asked_for_than_there_is(
    asks: dict[str, int], total: int, use: str
) -> None:
    granted = allocate(asks, total, SHARES[use])
    assert set(granted) == set(asks)
    assert all(0 <= granted[group] <= ask for group, ask in asks.items())
    assert sum(granted.values()) == min(total, sum(asks.values()))
    scarce = sum(asks.values()) > total
    for group, ask in asks.items():
        assert granted[group] == ask or (scarce and granted[group] >= int(total * SHARES[use].get(group, 0)))


def test_what_is_negative_cannot_be_shared() -> None:
    with pytest.raises(ConfigurationError):
        allocate({"system": -1}, 10, SHARES["default"])


@given(window=st.integers(1, 300_000), reserve=st.integers(0, 300_000), margin=st.floats(0, 0.5))
def test_input_output_and_margin_fit_the_window(window: int, reserve: int, margin: float) -> None:
    if reserve >= window:
        with pytest.raises(ConfigurationError):
            Budget.of(window=window, reserve=reserve)
        return
    budget = Budget.of(window=window, reserve=reserve, margin=margin)
    assert budget.tokens is not None
    assert budget.tokens == 1 or budget.tokens * (1 + margin) + budget.reserve <= window + 1


@pytest.mark.parametrize("use", sorted(SHARES))
def test_shares_are_the_whole(use: str) -> None:
    assert sum(SHARES[use].values()) == pytest.approx(1)
    assert set(SHARES[use]) == set(GROUPS)
    with pytest.raises(ConfigurationError):
        Budget.of(budget=10, preset="nobody")


# --- window --------------------------------------------------------------------------------


@st.composite
def talks(draw: st.DrawFn) -> tuple[list[Message], list[int]]:
    found: list[Message] = []
    for turn in range(draw(st.integers(1, 5))):
        found.append(user(f"q{turn}"))
        for step in range(draw(st.integers(0, 4))):
            name = f"c{turn}{step}"
            found += [assistant("", ToolCall(id=name, name="f")), tool(name, "r")]
        found.append(assistant(f"a{turn}"))
    return found, [draw(st.integers(1, 50)) for _ in found]


@given(
    talk=talks(),
    high=st.integers(1, 400),
    mark=st.floats(0.1, 1),
    most=st.one_of(st.none(), st.integers(1, 9)),
)
def test_a_window_begins_at_a_cut_point_and_is_as_long_as_fits(
    talk: tuple[list[Message], list[int]], high: int, mark: float, most: int | None
) -> None:
    messages, tokens = talk
    limits = Limits(tokens=high, messages=most)
    low = limits.low(mark)
    choice = choose(messages, tokens, limits, low)
    points = {cut.index: cut.kind for cut in cut_points(messages)}
    assert choice.start in points
    assert (choice.kept is not None) == (points[choice.start] == "step")
    kept = range(*choice.kept) if choice.kept else range(0)
    sent = [*kept, *range(choice.start, len(messages))]
    assert all(messages[i].role == "user" for i in kept)
    if choice.fits:
        assert limits.hold(tokens=sum(tokens[i] for i in sent), messages=len(sent), turns=99)
    older = [start for start, kind in points.items() if kind == "turn" and start < choice.start]
    if older and choice.kept is None and choice.fits:
        more = sum(tokens[older[-1] :])
        assert not low.hold(tokens=more, messages=len(messages) - older[-1], turns=99)


@pytest.mark.parametrize(("limit", "name"), [(3, "max_turns"), (9, "max_messages")])
def test_limits_of_turns_and_messages_step_as_well(limit: int, name: str) -> None:
    whole: list[dict[str, Any]] = [{"role": "system", "content": "s"}]
    state, cuts = None, []
    for number in range(30):
        whole += [{"role": "user", "content": f"q{number}"}]
        fitted = backstory.fit(whole, state=state, budget=10_000, **{name: limit})  # type: ignore[arg-type]
        assert sum(m["role"] == "user" for m in fitted.messages) <= limit
        assert len(fitted.messages) - 1 <= max(limit, 2 * limit - 1)
        cuts.append(fitted.state["cut"])
        state = fitted.state
        whole += [{"role": "assistant", "content": f"a{number}"}]
    assert len(set(cuts)) < 25


def test_the_tightest_limit_holds() -> None:
    whole = [{"role": role, "content": "word " * 20} for _ in range(40) for role in ("user", "assistant")][
        :-1
    ]
    for settings, sent in (
        ({"max_turns": 2}, 3),
        ({"max_turns": 9, "max_messages": 5}, 5),
        ({"max_turns": 9, "max_messages": 9, "budget": 90}, 3),
    ):
        assert len(backstory.fit(whole, **settings).messages) == sent  # type: ignore[arg-type]


# --- sections and passages -----------------------------------------------------------------


def test_sections_stand_in_their_order_and_the_callers_own_before_the_entries() -> None:
    given = [Section(name=name, text=name) for name in ("mine", *reversed(SYSTEM_ORDER))]
    names = [section.name for section in in_order(given)]
    assert names.index("mine") == names.index("entries") - 1
    assert [name for name in names if name != "mine"] == list(SYSTEM_ORDER)
    assert in_order([Section(name="x", text="  ")]) == []
    with pytest.raises(ConfigurationError, match="two sections"):
        in_order([Section(name="x", text="1"), Section(name="x", text="2")])


lines = st.lists(st.sampled_from(["a line of words", "一行字", "x"]), min_size=1, max_size=12).map("\n".join)


@given(
    given=st.dictionaries(st.sampled_from(["identity", *OPTIONAL, "summary"]), lines, min_size=1),
    tokens=st.integers(0, 200),
    least=st.integers(0, 20),
)
def test_only_optional_sections_give_way_and_only_where_there_is_need(
    given: dict[str, str], tokens: int, least: int
) -> None:
    sections = in_order(
        Section(
            name=name,
            text=text,
            title=name,
            optional=name in OPTIONAL,
            least=least if name == "memory" else 0,
        )
        for name, text in given.items()
    )
    kept, gone = shrink(sections, tokens, count_text)
    if count_text(render(sections)) <= tokens:
        assert (kept, gone) == (sections, {})
    for section in sections:
        if section.name not in gone:
            assert section in kept
    assert set(gone) <= set(OPTIONAL)
    assert all(after <= before for before, after in gone.values())
    fixed = [section for section in sections if not section.optional]
    if count_text(render(kept)) > tokens:
        assert {s.name for s in kept} <= {s.name for s in fixed} | {"memory"}


@given(
    scores=st.lists(st.tuples(st.integers(0, 3), st.integers(1, 30), st.integers(0, 9)), max_size=8),
    tokens=st.integers(0, 120),
)
def test_the_best_passages_that_fit_are_chosen(scores: list[tuple[int, int, int]], tokens: int) -> None:
    given = [
        Passage(text=f"{n} " + "word " * size, score=score, at=str(at))
        for n, (score, size, at) in enumerate(scores)
    ]
    kept, left = choose_passages(given, tokens, count_text)
    assert sorted(map(repr, kept + left)) == sorted(map(repr, given))
    assert sum(count_text(passage.rendered) + 2 for passage in kept) <= tokens
    assert [p.score for p in kept] == sorted((p.score for p in kept), reverse=True)
    room = tokens - sum(count_text(passage.rendered) + 2 for passage in kept)
    assert all(count_text(passage.rendered) + 2 > room for passage in left)


def test_blocks_at_the_end_of_the_users_message() -> None:
    parts = compose(
        (Text(text="hi"),), passages=[Passage(text="P", source="notes")], runtime={"time": "9:00", "x": ""}
    )
    assert [texts([part]) for part in parts] == [
        "hi",
        "<retrieved>\n[notes]\nP\n</retrieved>",
        "<runtime>\ntime: 9:00\n</runtime>",
    ]
    assert compose((Text(text="hi"),)) == (Text(text="hi"),)
    assert (retrieved_block([]), runtime_block({})) == ("", "")
    assert is_sticky([Passage(text="short")], 8_000, COUNTER)
    assert not is_sticky([Passage(text="word " * 500)], 8_000, COUNTER)


# --- build ---------------------------------------------------------------------------------


def _history(turns: int) -> History:
    given = [
        m
        for n in range(turns)
        for m in ({"role": "user", "content": f"q{n}"}, {"role": "assistant", "content": "a" * 60})
    ]
    return History(given[:-1])


def test_the_system_block_is_the_same_however_long_the_history_is() -> None:
    sections = [
        Section(name="identity", text="You run a tea shop. " * 40),
        Section(
            name="skills", text="\n".join(f"skill {n}: does something" for n in range(80)), optional=True
        ),
    ]
    blocks = {
        build(_history(turns), sections, TARGET, COUNTER, Budget(tokens=1_000), passages=passages).system
        for turns in (1, 5, 60)
        for passages in ([], [Passage(text="word " * 90)])
    }
    assert len(blocks) == 1
    built = build(_history(5), sections, TARGET, COUNTER, Budget(tokens=1_000))
    assert set(built.shrunk) == {"skills"}
    assert built.fitted.ledger.line("system").used <= 750


def test_loose_passages_go_with_their_message_once() -> None:
    sections = [Section(name="identity", text="Be brief.")]
    passages = [Passage(text="word " * 100, score=1), Passage(text="word " * 900)]
    history, more = _history(3), _history(4)
    built = build(history, sections, TARGET, COUNTER, Budget(tokens=600), passages=passages)
    assert built.passages_left == (passages[1],)
    assert "<retrieved>" in built.fitted.messages[-1]["content"][-1]["text"]
    assert history.at(4)[0].parts == (Text(text="q2"),)
    after = build(more, sections, TARGET, COUNTER, Budget(tokens=600), state=built.fitted.state)
    assert after.fitted.ledger.why.startswith("passages_dropped")
    assert after.fitted.ledger.shared > 0


# --- previews and passes -------------------------------------------------------------------


@given(
    text=st.text(st.characters(exclude_categories=["Cs"])),
    repeat=st.integers(1, 400),
    tokens=st.integers(0, 300),
)
def test_a_preview_is_short_enough_and_keeps_both_ends(text: str, repeat: int, tokens: int) -> None:
    whole = text * repeat
    short = preview(whole, tokens, count_text)
    if short == whole:
        assert count_text(whole) <= max(tokens, LEAST)
    else:
        assert count_text(short) <= max(tokens, LEAST)
        assert "left out" in short or "[… cut …]" in short


@given(sizes=st.lists(st.integers(0, 500), max_size=9), room=st.integers(0, 2_000))
def test_a_level_is_the_highest_cap_that_fits(sizes: list[int], room: int) -> None:
    cap = level(sizes, room)
    assert sum(min(size, cap) for size in sizes) <= room or not sizes
    if sizes and cap < max(sizes):
        assert sum(min(size, cap + 1) for size in sizes) > room


def _entries() -> list[tuple[int, Message]]:
    found: list[Message] = [user("go")]
    for number in range(6):
        found += [
            assistant("", ToolCall(id=f"c{number}", name="f")),
            tool(f"c{number}", f"{number} word " * 600),
        ]
    return list(enumerate(found))


def _size(part: Any) -> int:
    return count_text(texts([part]))


def test_old_results_are_condensed_and_new_ones_left_alone() -> None:
    entries = _entries()
    decided = condense_old(entries, _size)
    assert decided == {"2.0": 400, "4.0": 400, "6.0": 400}
    shown = condense(entries, decided, count_text)
    assert [m is n for (_, m), (_, n) in zip(shown, entries, strict=True)].count(False) == 3
    assert all(_size(part) <= 400 for place, part in numbered(shown) if place in decided)
    assert condense_old(shown, _size) == {}
    assert condense(entries, {}, count_text) is entries
    assert len(condense_old(entries, _size, keep=0)) == 6


def test_the_biggest_results_give_way_first() -> None:
    entries = _entries()
    assert cap_results(entries, _size, room=100_000) == {}
    decided = cap_results(entries, _size, room=3_000)
    shown = condense(entries, decided, count_text)
    assert sum(_size(part) for place, part in numbered(shown) if place in decided) <= 3_000


# --- prefix and markers --------------------------------------------------------------------


@given(value=JSON)
def test_canonical_bytes_depend_on_the_meaning_alone(value: Any) -> None:
    turned = {"b": value, "a": copy.deepcopy(value)}
    assert canonical(turned) == canonical(dict(reversed(turned.items())))
    assert digest([value]) == digest([copy.deepcopy(value)])


def test_cache_markers_are_not_counted() -> None:
    plain = {"role": "user", "content": [{"type": "text", "text": "hi"}]}
    marked = {
        "role": "user",
        "content": [{"type": "text", "text": "hi", "cache_control": {"type": "ephemeral"}}],
    }
    assert digest(plain) == digest(marked)
    argument = {"type": "tool_use", "input": {"cache_control": 1}}
    assert digest(argument) != digest({"type": "tool_use", "input": {}})


@given(first=st.lists(st.sampled_from("abc")), second=st.lists(st.sampled_from("abc")))
def test_a_common_prefix(first: list[str], second: list[str]) -> None:
    shared = common(first, second)
    assert first[:shared] == second[:shared]
    assert first[shared : shared + 1] != second[shared : shared + 1] or shared in (len(first), len(second))


@given(tools=st.lists(st.sampled_from("abcd"), max_size=5), rng=st.randoms())
def test_the_same_tools_come_in_the_known_order(tools: list[str], rng: Any) -> None:
    given = [{"name": name} for name in tools]
    shuffled = rng.sample(given, len(given))
    assert same_order([digest(tool) for tool in given], shuffled) == given
    assert same_order([digest({"name": "x"})], shuffled) == shuffled


def test_markers_stand_after_tools_system_the_replayed_and_the_newest() -> None:
    given = [
        {"role": "user", "content": "q1"},
        {"role": "assistant", "content": "a1"},
        {"role": "user", "content": "q2"},
    ]
    tools = [{"name": "look", "input_schema": {"type": "object"}}]
    first = backstory.fit(given[:1], target="anthropic", source="anthropic", system="Be brief.", tools=tools)
    second = backstory.fit(
        given, target="anthropic", source="anthropic", system="Be brief.", tools=tools, state=first.state
    )
    body = second.body
    assert count_markers(body) == 4
    assert [count_markers(body[field]) for field in ("tools", "system")] == [1, 1]
    assert [count_markers(item) for item in body["messages"]] == [1, 0, 1]
    assert count_markers(second.messages) == 0
    own = [{"type": "text", "text": "q1", "cache_control": {"type": "ephemeral"}}] * 4
    kept = backstory.fit(
        [{"role": "user", "content": own}], target="anthropic", source="anthropic", system="s"
    )
    assert count_markers(kept.body) == 4
    assert count_markers(kept.body["system"]) == 0
