"""Every request of a turn leaves its trace, and skills that the workspace holds can be loaded."""

import json
from pathlib import Path

import pytest

import backstory
from backstory.agent.trace import RequestTrace, read_trace
from backstory.errors import ModelRefused
from backstory.models import ScriptedModel
from backstory.models.scripted import calls


@backstory.tool
def add(a: int, b: int) -> int:
    """Add."""
    return a + b


async def test_each_request_is_traced_as_it_was_sent_and_answered(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    model = ScriptedModel([calls(("add", {"a": 1, "b": 2})), "3"], window=32_000)
    async with backstory.open("memory:", model=model, tools=[add], trace=RequestTrace(path)) as bs:
        await bs.say("k", "What is 1 and 2?")
    lines = list(read_trace(path))
    sent = [line for line in lines if "body" in line]
    assert [json.loads(line["body"])["messages"] for line in sent] == [
        body["messages"] for body in model.requests
    ]
    assert all(line["session"] == "k" and line["scope"] == "default" and line["turn"] == 1 for line in lines)
    answers = [line for line in lines if "body" not in line]
    assert [line["finish"] for line in answers] == ["tool_calls", "stop"]
    assert all(line["usage"]["input"] > 0 for line in answers)


async def test_a_failure_is_traced_and_still_raised(tmp_path: Path):
    path = tmp_path / "trace.jsonl"
    model = ScriptedModel([ModelRefused("no such model")], window=32_000)
    async with backstory.open("memory:", model=model, trace=RequestTrace(path)) as bs:
        with pytest.raises(ModelRefused):
            await bs.say("k", "Hello")
    assert [line.get("error") for line in read_trace(path)][-1] == "no such model"


async def test_a_skill_of_the_workspace_can_be_loaded(tmp_path: Path):
    folder = tmp_path / "skills" / "brewing"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(
        "---\nname: brewing\ndescription: how to brew\n---\nEighty degrees for green tea.\n", encoding="utf-8"
    )
    model = ScriptedModel([calls(("load_skill", {"name": "brewing"})), "Eighty degrees."], window=32_000)
    async with backstory.open(tmp_path, model=model) as bs:
        assert str(await bs.say("k", "How hot?")) == "Eighty degrees."
    system, *_, result = model.requests[-1]["messages"]
    assert "how to brew" in system["content"]
    assert "Eighty degrees for green tea." in result["content"]


async def test_without_skills_there_is_no_tool_for_them(tmp_path: Path):
    model = ScriptedModel(["Hello."], window=32_000)
    async with backstory.open(tmp_path, model=model) as bs:
        await bs.say("k", "Hi")
    assert "tools" not in model.requests[0]
