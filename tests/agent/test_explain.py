"""Any past request can be shown again to the byte, and what is wrong with it has a name."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

import backstory
from backstory.agent.backstory import Backstory
from backstory.agent.diagnosis import SYMPTOMS
from backstory.agent.explain import Explanation, difference, explain
from backstory.agent.loop_guard import LoopGuard
from backstory.agent.sources.base import as_source
from backstory.context.sections import Passage
from backstory.errors import InvalidInput, ModelUnavailable, SessionError, SessionNotFound
from backstory.messages import ToolCall, assistant, user
from backstory.models import Play, ScriptedModel, Usage, calls
from backstory.records import NewRecord
from backstory.sessions.transfer import import_messages
from backstory.stores.in_memory import InMemoryStore
from backstory.stores.values import Replacement, SessionId
from backstory.tokens import counter_for

ID = SessionId(key="cli:direct")
ROOT = Path(__file__).resolve().parents[2]


@backstory.tool
def look(place: str) -> str:
    """What there is to see.

    Args:
        place: where
    """
    return f"In {place} it rains. " * 400 if place == "long" else f"In {place} it rains."


def opened(*steps: Any, target: str = "openai_chat", **settings: Any) -> tuple[Backstory, ScriptedModel]:
    model = ScriptedModel(steps, target=target)
    return backstory.open(
        InMemoryStore(), model=model, **{"budget": 20_000, "compaction": False, **settings}
    ), model


async def told(bs: Backstory, call: int | None = None) -> Explanation:
    return await explain(bs.store, ID, call)


def names(explanation: Explanation) -> list[str]:
    return [finding.name for finding in explanation.findings]


def said(explanation: Explanation, name: str) -> str:
    return next(finding.said for finding in explanation.findings if finding.name == name)


def without_markers(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: without_markers(inner) for key, inner in value.items() if key != "cache_control"}
    return [without_markers(inner) for inner in value] if isinstance(value, list) else value


def shown(body: dict[str, Any]) -> Any:
    return without_markers(
        {**body, "max_tokens": None, "model": None, "stream": None, "stream_options": None}
    )


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic", "gemini"])
async def test_every_request_again_to_the_byte(target: str):
    bs, model = opened(
        "Hello Ada.",
        calls(("look", {"place": "Rome"}), ("look", {"place": "Oslo"})),
        "Rain, twice.",
        "Undone soon.",
        calls(("look", {"place": "long"})),
        "Much rain.",
        *["So it is."] * 8,
        target=target,
        budget=3_000,
        compaction=False,
        tools=[look],
    )
    async with bs:
        await bs.say("cli:direct", "I am Ada.")
        await bs.say("cli:direct", "How is it in Rome and Oslo?")
        await bs.say("cli:direct", "Forget this.")
        await bs.command("cli:direct", "/undo")
        await bs.say("cli:direct", "And a long look?")
        for number in range(6):
            await bs.say("cli:direct", f"Word number {number}. " * 60)
        await bs.command("cli:direct", "/new")
        await bs.say("cli:direct", "Anything left?")
        bs.model = ScriptedModel(["Another."], target=target, name="other")
        await bs.say("cli:direct", "Who are you?")
        sent = [*model.requests, *bs.model.requests]
        last = await told(bs)
        assert last.calls == len(sent)
        for number, body in enumerate(sent, 1):
            found = await told(bs, number)
            assert found.proven, (number, found.doubt)
            assert shown(dict(found.body)) == shown(body), number
            assert sum(message.tokens for message in found.sent) <= found.ledger["total"]


async def test_what_it_says_of_a_request():
    bs, _ = opened("Hello.", calls(("look", {"place": "Rome"})), "Rain.", tools=[look])
    async with bs:
        await bs.say("cli:direct", "I am Ada.")
        await bs.say("cli:direct", "How is it in Rome?")
        found = await told(bs)
        assert (found.call, found.calls, found.turn) == (3, 3, 2)
        assert found.roles == ("system", "user", "assistant", "user", "assistant", "tool")
        assert found.sent[-2].calls == found.sent[-1].answers == ("look",)
        assert found.sent[1].said == "I am Ada."  # without the runtime block
        assert dict(found.sections).keys() == {"identity", "tool_contract"}
        assert found.left_out == ()
        assert found.usage["input"] > 0
        json.dumps(found.to_json())
        first = await told(bs, 1)
        assert first == await told(bs, -3)
        assert first.why == "first request"


async def test_numbers_that_are_not_there():
    bs, _ = opened("Hello.")
    async with bs:
        with pytest.raises(SessionNotFound):
            await told(bs)
        await bs.store.append(ID, [NewRecord(kind="meta", data={})], expected=0)
        with pytest.raises(SessionError, match="no request yet"):
            await told(bs)
        await bs.say("cli:direct", "Hi")
        for number in (0, 2, -2):
            with pytest.raises(InvalidInput, match="requests 1 to 1"):
                await told(bs, number)


async def test_what_changed_between_two(tmp_path: Path):
    model = ScriptedModel(["One.", "Two.", "Three."])
    async with backstory.open(tmp_path, model=model, budget=9_000, compaction=False) as bs:
        await bs.say("cli:direct", "First")
        await bs.say("cli:direct", "Second")
        (tmp_path / "AGENTS.md").write_text("Speak Latin.\n")
        bs._tools = {"look": look}
        await bs.say("cli:direct", "Third")
        same = await difference(bs.store, ID, 1, 2)
        assert (same.sections, same.tools, same.settings, same.gone) == ((), (), (), ())
        assert [message.role for message in same.new] == ["assistant", "user"]
        changed = await difference(bs.store, ID, 2, 3)
        assert "+ Speak Latin." in changed.sections
        assert changed.tools[0] == "+ look"
        found = await told(bs)
        assert said(found, "cache_missed").endswith(
            "AGENTS.md came or went in the middle of the conversation"
        )


async def test_a_log_that_was_changed_is_not_claimed_to_be_the_request():
    bs, _ = opened("Hello.", "Again.")
    async with bs:
        await bs.say("cli:direct", "I am Ada.")
        await bs.say("cli:direct", "And you?")
        records = await bs.store.read(ID)
        user = next(r for r in records if r.kind == "message")
        other = {**user.data, "message": {"role": "user", "parts": [{"part": "text", "text": "I am Bob."}]}}
        await bs.store.rewrite(
            ID,
            [
                Replacement(
                    first=user.seq, last=user.seq, record=NewRecord(kind="message", data=other, turn=1)
                )
            ],
            expected=records[-1].seq,
        )
        found = await told(bs)
        assert not found.proven
        assert "digest" in found.doubt
        assert "unproven" in names(found)


# --- symptoms ----------------------------------------------------------------------------------


async def test_the_second_turn_knows_nothing_of_the_first():
    bs, _ = opened("Hello.", "Who?", "Hm.", "Hm.")
    async with bs:
        await bs.say("cli:direct", "I am Ada.")
        await bs.command("cli:direct", "/undo")
        await bs.say("cli:direct", "Who am I?")
        found = await told(bs)
        assert said(found, "no_history").startswith(
            "turn 2 knows nothing of the 1 before it: no history was sent"
        )
        assert "undone" in said(found, "no_history")
        assert found.left_out == ("2 messages of turn 1: undone",)
        await bs.command("cli:direct", "/new")
        await bs.say("cli:direct", "Who am I?")
        found = await told(bs)
        assert "/new" in said(found, "no_history")
        assert said(found, "cache_missed").endswith("/new began anew")
        assert any("/new" in line for line in found.left_out)


async def test_a_key_that_changes():
    bs, _ = opened("Hello.", "Who?")
    async with bs:
        await bs.say("cli:yesterday", "I am Ada.")
        await bs.say("cli:direct", "Who am I?")
        assert "another conversation" in said(await told(bs), "first_turn")


async def test_a_full_window_and_what_lies_before_the_cut():
    bs, _ = opened(*["Yes."] * 30, budget=1_500)
    async with bs:
        full = cut = False
        for number in range(20):
            await bs.say("cli:direct", f"This is fact number {number}. " * 20)
            found = await told(bs)
            full = full or "window_full" in names(found)
            if "left_out" in names(found):
                cut = True
                assert re.search(r"up to turn \d+ is not sent", said(found, "left_out"))
                assert any("before the cut (the window was full)" in line for line in found.left_out)
        assert full
        assert cut


async def test_one_result_that_fills_the_request():
    bs, _ = opened(calls(("look", {"place": "long"})), "Much rain.", tools=[look])
    async with bs:
        await bs.say("cli:direct", "Look long.")
        assert re.match(
            r"a tool result takes [6-9]\d% of the request: [\d,]+ tokens from look",
            said(await told(bs), "big_result"),
        )


async def test_the_same_call_again_and_again():
    again = calls(("look", {"place": "Rome"}))
    bs, _ = opened(again, again, again, "Rain.", "Yes.", tools=[look])
    async with bs:
        await bs.say("cli:direct", "Look.")
        assert "look 3 times" in said(await told(bs), "loop")


async def test_calls_that_recovery_closed():
    bs, _ = opened("Fine.")
    async with bs:
        async with bs.turn("cli:direct", "Look.") as turn:
            await turn.request()
            answer = {"role": "assistant", "content": None, "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]}  # fmt: skip
            await turn.record({"choices": [{"message": answer, "finish_reason": "tool_calls"}]})
        await bs.say("cli:direct", "And?")
        found = await told(bs)
        assert said(found, "closed") == "1 call was closed by recovery (1 outcome unknown)"
        assert "turn 1 (interrupted)" in said(found, "unanswered")


async def test_an_answer_cut_off_and_a_bill_that_differs():
    bs, _ = opened(Play(step="Half a", finish="length", usage=Usage(input=9_000, output=3)))
    async with bs:
        await bs.say("cli:direct", "Tell all.")
        found = await told(bs)
        assert {"length", "miscounted"} <= set(names(found))
        assert "billed 9,000" in said(found, "miscounted")


async def test_a_section_that_changes_with_every_turn():
    count = iter(range(100))
    bs, _ = opened(*["Yes."] * 6, sources=[as_source("clock", lambda context: f"Tick {next(count)}")])
    async with bs:
        for _ in range(5):
            await bs.say("cli:direct", "And?")
        assert "clock changed again and again" in said(await told(bs), "volatile")


async def test_instructions_and_tools_that_take_it_all(tmp_path: Path):
    (tmp_path / "AGENTS.md").write_text("\n".join(f"Rule {number}: be kind." for number in range(90)))
    async with backstory.open(tmp_path, model=ScriptedModel(["Yes."]), budget=1_400, runtime=False) as bs:
        await bs.say("cli:direct", "Hi")
        assert said(await told(bs), "system_big").endswith("most of it AGENTS.md")


async def test_tools_that_take_it_all():
    async def told_at_length() -> str:
        return "yes"

    told_at_length.__doc__ = "Tell it at great length, and then some. " * 80
    bs, _ = opened("Yes.", budget=2_000, tools=[backstory.tool(told_at_length)])
    async with bs:
        await bs.say("cli:direct", "Hi")
        assert re.search(
            r"tools take [\d,]+ tokens, [3-6]\d% of the window", said(await told(bs), "tools_big")
        )


async def test_a_cache_that_went_cold():
    warm, cold = Usage(input=3_000, output=3, cached=2_000), Usage(input=3_000, output=3)
    bs, _ = opened(*[Play(step="Yes.", usage=usage) for usage in (cold, warm, cold)])
    async with bs:
        for number in range(3):
            await bs.say("cli:direct", f"Fact number {number}. " * 250)
        assert "not_cached" not in names(await told(bs, 2))
        assert said(await told(bs, 3), "not_cached").startswith("the provider served nothing from its cache")


async def test_a_preview_and_a_turn_that_is_too_big():
    bs, _ = opened(calls(("look", {"place": "long"})), "Much rain.", tools=[look], budget=1_200)
    async with bs:
        await bs.say("cli:direct", "Look long.")
        found = await told(bs)
        assert "preview of 1 tool result" in said(found, "condensed")
        assert any(line.startswith("most of a result of look") for line in found.left_out)
        assert found.proven
    steps = [calls(("look", {"place": f"town {number} " * 40})) for number in range(12)]
    bs, _ = opened(*steps, "Rain.", tools=[look], budget=1_500)
    async with bs:
        await bs.say("cli:direct", "Look everywhere.")
        found = await told(bs)
        assert said(found, "cut_in_turn").startswith("turn 1 alone is too big")
        assert found.proven


async def test_passages_that_do_not_fit_and_are_not_in_the_log():
    def find(query: str, context: object) -> list[Passage]:
        return [Passage(text=f"Passage {number}. " * 80, score=number) for number in range(6)]

    bs, _ = opened("Yes.", budget=2_000, retrievers=[find])
    async with bs:
        await bs.say("cli:direct", "What do you know?")
        found = await told(bs)
        assert re.match(r"\d passages? found for the message did not fit", said(found, "passages"))
        assert any("passages that were found" in line for line in found.left_out)
        assert not found.proven
        assert "for this once" in said(found, "unproven")


async def test_memory_that_was_shortened(tmp_path: Path):
    (tmp_path / "skills").mkdir()
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "MEMORY.md").write_text(
        "\n".join(f"Fact {n} is worth a line." for n in range(600))
    )
    async with backstory.open(tmp_path, model=ScriptedModel(["Yes."]), budget=3_500, runtime=False) as bs:
        await bs.say("cli:direct", "Hi")
        found = await told(bs)
        assert "memory/MEMORY.md" in said(found, "shrunk")
        assert any("a part of memory/MEMORY.md" in line for line in found.left_out)
        assert found.proven


async def test_how_turns_end_without_an_answer():
    bs, _ = opened(calls(("look", {"place": "Rome"})), ModelUnavailable("gone"), tools=[look])
    async with bs:
        with pytest.raises(ModelUnavailable):
            await bs.say("cli:direct", "Look.")
        assert "failed" in names(await told(bs))
    bs, _ = opened("", "")
    async with bs:
        await bs.say("cli:direct", "Hi")
        assert "empty" in names(await told(bs))
    bs, _ = opened(
        *[calls(("look", {"place": f"town {n}"})) for n in range(9)],
        tools=[look],
        guard=LoopGuard(max_iterations=3),
    )
    async with bs:
        await bs.say("cli:direct", "Look.")
        assert "limit" in names(await told(bs))


async def test_a_history_that_was_healed():
    bs, _ = opened("Yes.")
    async with bs:
        talk = [user("Look."), assistant("", ToolCall(id="a", name="look")), user("Never mind."), user("Hi")]
        await import_messages(
            bs.store, ID, talk, source="test", counter=counter_for(None, "openai_chat"), format="openai_chat"
        )
        await bs.say("cli:direct", "And?")
        found = await told(bs)
        assert "result.missing" in said(found, "healed")
        assert found.proven


async def test_a_request_that_is_as_it_should_be_has_no_symptom():
    bs, _ = opened("Hello.", "Fine.")
    async with bs:
        await bs.say("cli:direct", "I am Ada.")
        await bs.say("cli:direct", "How are you?")
        assert names(await told(bs)) == []


def test_the_table_is_the_one_in_the_documentation():
    page = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
    table = page.split("## What a model knows")[1].split("\n## ")[0]
    rows = [
        tuple(cell.strip() for cell in line.strip("|").split("|"))
        for line in table.splitlines()
        if line.startswith("| ")
    ]
    assert rows[2:] == [(row.symptom, row.cause, row.remedy) for row in SYMPTOMS]
    assert len({row.name for row in SYMPTOMS}) == len(SYMPTOMS)
