"""Asking sources: order, own ones, and failures that cost a section and never the turn."""

import asyncio
import logging
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from backstory.agent.results import READ_RESULT
from backstory.agent.sources import (
    Retriever,
    SectionSource,
    SourceContext,
    arrange,
    as_source,
    default_sources,
    gather,
    retrieve,
)
from backstory.agent.sources.identity import IDENTITY, IdentitySource
from backstory.agent.sources.tool_contract import RULES, ToolContractSource
from backstory.agent.tools import Tool
from backstory.context.sections import SYSTEM_ORDER, Passage, Section, in_order
from backstory.errors import ConfigurationError

PLAIN = SourceContext()


class Orders:
    """An application's own source, as an object."""

    name = "orders"

    async def section(self, context: SourceContext) -> Section | None:
        return Section(name="orders", text=f"orders of {context.scope}", title="Orders")


def tool_named(name: str) -> Tool[Any, Any]:
    return Tool(name=name, run=lambda: "")


async def texts(*sources: SectionSource, context: SourceContext = PLAIN) -> dict[str, str]:
    found = await gather(sources, context)
    return {section.name: section.text for section in found.sections}


# --- the standard sources


def full(root: Path) -> SourceContext:
    """A workspace in which every part of the system prompt has something to say."""
    for path, text in {
        "AGENTS.md": "a",
        "SOUL.md": "s",
        "USER.md": "u",
        "memory/MEMORY.md": "- m",
        "memory/history.jsonl": '{"text": "h"}\n',
        "skills/one/SKILL.md": "---\npinned: true\n---\nPinned.",
        "skills/two/SKILL.md": "---\ndescription: d\n---\nTwo.",
    }.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_text(text, encoding="utf-8")
    tools = [tool_named("weather")]
    return SourceContext(workspace=root, tools=tools, pinned=["p"], summary="So far.")


async def test_the_parts_come_in_designs_order(tmp_path: Path):
    found = await gather(default_sources(tmp_path), full(tmp_path))
    names = [section.name for section in found.sections]
    assert names == list(SYSTEM_ORDER)
    assert in_order(found.sections) == list(found.sections)
    assert found.notes == ()
    optional = {section.name for section in found.sections if section.optional}
    assert optional == {"memory", "skills", "entries"}


async def test_gathering_twice_gives_the_same_bytes(tmp_path: Path):
    context = full(tmp_path)
    first = await gather(default_sources(tmp_path), context)
    assert await gather(default_sources(tmp_path), context) == first
    assert context.noted == []


async def test_without_a_workspace_there_are_no_files():
    names = [source.name for source in default_sources()]
    assert names == ["identity", "tool_contract", "pinned", "entries", "summary"]
    found = await texts(*default_sources(), context=SourceContext(summary="So far.", entries=["met"]))
    assert list(found) == ["identity", "entries", "summary"]


async def test_identity_can_be_replaced_and_names_nothing_of_the_machine(tmp_path: Path):
    own = await texts(IdentitySource("You are Ada."), context=SourceContext(workspace=tmp_path))
    assert own["identity"].startswith("You are Ada.\n\nYou have a workspace")
    assert "<runtime>" in own["identity"]
    assert str(tmp_path) not in own["identity"]
    plain = await texts(*default_sources(identity=IDENTITY))
    assert "workspace" not in plain["identity"]


async def test_tools_are_explained_where_there_are_any():
    source = ToolContractSource()
    assert await texts(source) == {}
    few = await texts(source, context=SourceContext(tools=[tool_named("weather")]))
    assert few == {"tool_contract": RULES}
    both = await texts(source, context=SourceContext(tools=[tool_named("weather"), tool_named(READ_RESULT)]))
    assert both == few, "a preview says itself how to read on; the system block stays when the tool comes"


# --- own sources


async def test_functions_and_objects_are_sources():
    def plain(context: SourceContext) -> str:
        return f"in a thread: {threading.current_thread() is not threading.main_thread()}"

    async def waiting(context: SourceContext) -> str:
        await asyncio.sleep(0)
        return f"turn {context.turn}"

    found = await texts(*arrange([], [plain, waiting, Orders()]), context=SourceContext(turn=7, scope="acme"))
    assert found == {"plain": "in a thread: True", "waiting": "turn 7", "orders": "orders of acme"}


async def test_a_function_may_give_text_a_section_or_nothing():
    sources = [
        as_source("text", lambda _: "t", title="T", optional=True),
        as_source("section", lambda _: Section(name="another", text="s", title="S", least=3)),
        as_source("none", lambda _: None),
        as_source("blank", lambda _: " \n"),
        as_source("awaitable", lambda _: asyncio.sleep(0, "a")),
    ]
    assert (await gather(sources, PLAIN)).sections == (
        Section(name="text", text="t", title="T", optional=True),
        Section(name="section", text="s", title="S", least=3),  # the source's name, whatever it says
        Section(name="awaitable", text="a"),
    )


async def test_text_that_utf8_cannot_hold_is_mended():
    assert await texts(as_source("odd", lambda _: "a\ud800b")) == {"odd": "a\ufffdb"}


async def test_an_own_source_takes_the_place_of_a_standard_one():
    sources = arrange(default_sources(), [as_source("identity", lambda _: "I am Ada."), Orders()])
    assert [source.name for source in sources] == [
        "identity",
        "tool_contract",
        "pinned",
        "entries",
        "summary",
        "orders",
    ]
    found = await gather(sources, SourceContext(summary="So far."))
    assert [section.name for section in in_order(found.sections)] == ["identity", "orders", "summary"]
    assert found.sections[0].text == "I am Ada."


def test_what_is_no_source_is_refused():
    with pytest.raises(ConfigurationError, match="needs a name"):
        as_source("", lambda _: "")
    with pytest.raises(ConfigurationError, match="'x': a function is wanted, not str"):
        as_source("x", "text")  # type: ignore[arg-type]
    with pytest.raises(ConfigurationError, match="neither a source nor a function: 'text'"):
        arrange([], ["text"])  # type: ignore[list-item]
    with pytest.raises(ConfigurationError, match="two sources are named 'orders'"):
        arrange([], [Orders(), as_source("orders", lambda _: "")])


def test_objects_are_known_by_what_they_have():
    assert isinstance(Orders(), SectionSource)
    assert not isinstance(lambda _: "", SectionSource)
    assert all(isinstance(source, SectionSource) for source in default_sources())


# --- failures


@pytest.mark.parametrize(
    "error", [ValueError("boom"), OSError(), SystemExit(3), StopIteration(), RecursionError()]
)
@pytest.mark.parametrize("asynchronous", [True, False])
async def test_a_source_that_fails_is_left_out(
    error: BaseException, asynchronous: bool, caplog: pytest.LogCaptureFixture
):
    def fails(context: SourceContext) -> str:
        raise error

    async def fails_later(context: SourceContext) -> str:
        raise error

    source = as_source("bad", fails_later if asynchronous else fails)
    with caplog.at_level(logging.WARNING, logger="backstory.agent"):
        found = await gather([source, Orders()], PLAIN)
    assert [section.name for section in found.sections] == ["orders"]
    (note,) = found.notes
    assert note.startswith("the source 'bad' failed (")
    assert note.endswith(") and is left out of this request")
    assert "boom" not in note  # what it says is for the log: it may hold anything
    assert "'bad' failed" in caplog.text


async def test_one_that_gives_something_else_has_failed():
    class Wrong:
        name = "wrong"

        async def section(self, context: SourceContext) -> Any:
            return {"text": "a"}

    found = await gather([Wrong(), as_source("number", lambda _: 3)], PLAIN)  # type: ignore[arg-type, return-value]
    assert found.sections == ()
    assert len(found.notes) == 2


async def test_one_that_hangs_is_left_behind():
    async def hangs(context: SourceContext) -> str:
        await asyncio.sleep(60)
        return "late"

    wake = threading.Event()
    sources = arrange([], [hangs, as_source("thread", lambda _: str(wake.wait(60))), Orders()])
    found = await gather(sources, PLAIN, seconds=0.5)
    wake.set()
    assert [section.name for section in found.sections] == ["orders"]
    assert sorted(found.notes) == [
        f"the source {name!r} did not answer in time and is left out of this request"
        for name in ("hangs", "thread")
    ]


async def test_one_that_cancels_itself_does_not_cancel_the_turn():
    async def cancels(context: SourceContext) -> str:
        raise asyncio.CancelledError

    found = await gather(arrange([], [cancels, Orders()]), PLAIN)
    assert [section.name for section in found.sections] == ["orders"]
    assert found.notes == ("the source 'cancels' was cancelled from within and is left out of this request",)


async def test_cancelling_the_turn_cancels_the_sources():
    ended = asyncio.Event()

    async def slow(context: SourceContext) -> str:
        try:
            await asyncio.sleep(60)
        finally:
            ended.set()
        return ""

    task = asyncio.create_task(gather(arrange([], [slow]), PLAIN))
    await asyncio.sleep(0.01)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert ended.is_set()


async def test_sources_work_at_the_same_time():
    barrier = asyncio.Barrier(3)

    async def meets(context: SourceContext) -> str:
        await barrier.wait()
        return "met"

    sources = [as_source(f"s{number}", meets) for number in range(3)]
    assert len((await gather(sources, PLAIN, seconds=5)).sections) == 3


async def test_a_source_may_note_something_without_failing():
    def stale(context: SourceContext) -> str:
        context.note("the orders are a day old")
        context.note("the orders are a day old")
        return "orders"

    found = await gather(arrange([], [stale]), PLAIN)
    assert found.sections[0].text == "orders"
    assert found.notes == ("the orders are a day old",)
    assert PLAIN.noted == []


# --- retrievers


class Library:
    async def retrieve(self, query: str, context: SourceContext) -> Sequence[Passage]:
        return [Passage(text=f"about {query} for {context.scope}", score=0.5)]


async def test_passages_of_all_retrievers_come_together():
    def wiki(query: str, context: SourceContext) -> list[Passage]:
        return [Passage(text="from a wiki\ud800", score=0.7, source="wiki", at="2026-01-02")]

    assert isinstance(Library(), Retriever)
    passages, notes = await retrieve([Library(), wiki], "tea", SourceContext(scope="acme"))
    assert [passage.text for passage in passages] == ["about tea for acme", "from a wiki\ufffd"]
    assert passages[1].source == "wiki"
    assert notes == ()


async def test_a_retriever_that_fails_costs_its_passages_alone():
    async def down(query: str, context: SourceContext) -> list[Passage]:
        raise ConnectionError("refused")

    async def hangs(query: str, context: SourceContext) -> list[Passage]:
        await asyncio.sleep(60)
        return []

    def texts_only(query: str, context: SourceContext) -> Any:
        return ["text"]

    given: list[Any] = [down, hangs, texts_only, Library()]
    passages, notes = await retrieve(given, "tea", PLAIN, seconds=0.5)
    assert len(passages) == 1
    assert sorted(notes) == [
        "the source 'down' failed (ConnectionError) and is left out of this request",
        "the source 'hangs' did not answer in time and is left out of this request",
        "the source 'texts_only' failed (TypeError) and is left out of this request",
    ]
