"""Slash commands: what they do to a session, and that none of it reaches the model."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

import backstory
from backstory.agent.backstory import Backstory
from backstory.agent.commands import COMMANDS, parse
from backstory.errors import InvalidInput, LeaseHeld, SessionBusy, SessionError
from backstory.models import Play, ScriptedModel, calls
from backstory.stores.in_memory import InMemoryStore
from backstory.stores.values import LeaseRequest, SessionId

KEY = "cli:direct"
ID = SessionId(key=KEY)


@backstory.tool
def look(place: str) -> str:
    """What there is to see."""
    return f"rain in {place}"


def opened(*steps: Any, **settings: Any) -> tuple[Backstory, ScriptedModel]:
    model = ScriptedModel(list(steps))
    return backstory.open(
        InMemoryStore(), model=model, **{"budget": 20_000, "compaction": False, **settings}
    ), model


def words(model: ScriptedModel) -> str:
    return str(model.requests[-1]["messages"])


@pytest.mark.parametrize(
    ("text", "name", "rest"),
    [
        ("/new", "new", ""),
        ("/undo 2", "undo", "2"),
        ("/UNDO", "undo", ""),
        ("/fork my copy ", "fork", "my copy"),
        ("/compact\nall about Rome", "compact", "all about Rome"),
    ],
)
def test_what_is_a_command(text: str, name: str, rest: str):
    found = parse(text)
    assert found is not None
    assert (found[0].name, found[1]) == (name, rest)


@pytest.mark.parametrize(
    "text", ["hello", "", " /new", "/etc/passwd is a file", "/", "//new", "1/2", "/ new", "/new: what is it?"]
)
def test_what_is_none(text: str):
    assert parse(text) is None


@pytest.mark.parametrize("text", ["/nwe", "/bla bla", "/undoo 2"])
def test_what_looks_like_one(text: str):
    with pytest.raises(InvalidInput, match="/help"):
        parse(text)


async def test_undo_and_redo():
    bs, model = opened(
        "Hello Ada.", calls(("look", {"place": "Rome"})), "Rain.", "Who?", "Ada.", tools=[look]
    )
    async with bs:
        await bs.say(KEY, "I am Ada.")
        await bs.say(KEY, "How is Rome?")
        done = await bs.command(KEY, "/undo")
        assert "turn 2, which began with “How is Rome?”" in done.text
        assert "stays done: look" in done.text
        assert (done.name, done.session, done.reason, str(done)) == ("undo", KEY, "command", done.text)
        await bs.command(KEY, "/redo")
        with pytest.raises(SessionError):
            await bs.command(KEY, "/redo")
        assert "turns 1 to 2" in (await bs.command(KEY, "/undo 2")).text
        await bs.say(KEY, "Who am I?")
        assert "Ada" not in words(model)
        with pytest.raises(SessionError):
            await bs.command(KEY, "/undo 5")
        for wrong in ("/undo x", "/undo 0", "/undo -1", "/undo ²"):
            with pytest.raises(InvalidInput, match="number"):
                await bs.command(KEY, wrong)


async def test_new_begins_anew_and_the_log_keeps_all():
    bs, model = opened("Hello Ada.", "Who?")
    async with bs:
        await bs.say(KEY, "I am Ada.")
        await bs.command(KEY, "/new")
        await bs.say(KEY, "Who am I?")
        assert "Ada" not in words(model)
        assert any("I am Ada." in r.line.decode() for r in await bs.store.read(ID))
        assert "sent from" in (await bs.command(KEY, "/status")).text


async def test_a_command_is_no_message():
    bs, model = opened("Hello.", "Yes?")
    async with bs:
        await bs.say(KEY, "Hi")
        for name in COMMANDS:
            if name not in ("undo", "redo", "fork"):
                await bs.command(KEY, f"/{name}")
        await bs.say(KEY, "/help is what a program may say")
        said = words(model)
        assert "/help is what a program may say" in said
        assert "/status" not in said
        with pytest.raises(InvalidInput):
            await bs.command(KEY, "hello")


async def test_fork_goes_on_elsewhere():
    bs, model = opened("Hello Ada.", "Ada.", "Ada.")
    async with bs:
        await bs.say(KEY, "I am Ada.")
        assert (await bs.command(KEY, "/fork")).session == f"{KEY}-2"
        assert (await bs.command(KEY, "/fork")).session == f"{KEY}-3"
        done = await bs.command(KEY, "/fork other one")
        assert done.session == "other one"
        await bs.say(done.session, "Who am I?")
        assert "I am Ada." in words(model)
        with pytest.raises(SessionError):
            await bs.command(KEY, "/fork other one")
        assert "forked from" in (await bs.command("other one", "/status")).text


async def test_status_tells_of_a_session():
    bs, _ = opened("Hello.")
    async with bs:
        assert "nothing said yet" in (await bs.command(KEY, "/status")).text
        await bs.say(KEY, "Hi")
        text = (await bs.command(KEY, "/status")).text
        assert "turns        1" in text
        assert "scripted" in text
        assert "of 20,000" in text


async def test_with_compaction_off_compact_cuts_to_half_and_says_so():
    bs, model = opened(*["Yes."] * 12, budget=2_000, runtime=False)
    async with bs:
        assert "nothing to cut" in (await bs.command(KEY, "/compact")).text
        for number in range(6):
            await bs.say(KEY, f"fact {number} " * 60)
        before = len(model.requests[-1]["messages"])
        done = await bs.command(KEY, "/compact the facts")
        assert "fewer will be sent" in done.text
        assert "no summary stands for them" in done.text
        await bs.say(KEY, "And?")
        assert len(model.requests[-1]["messages"]) < before
        assert "nothing to cut" in (await bs.command(KEY, "/compact")).text
        await bs.say(KEY, "More")
        assert (
            model.requests[-1]["messages"][: len(model.requests[-2]["messages"])]
            == model.requests[-2]["messages"]
        )
    unlimited = backstory.open(InMemoryStore(), target="openai_chat")
    async with unlimited:
        assert "nothing to compact" in (await unlimited.command(KEY, "/compact")).text


async def test_memory_shows_the_files_of_the_scope(tmp_path: Path):
    (tmp_path / "memory").mkdir()
    (tmp_path / "memory" / "MEMORY.md").write_text("Ada likes tea.")
    async with backstory.open(tmp_path, model=ScriptedModel([])) as bs:
        assert "Ada likes tea." in (await bs.command(KEY, "/memory")).text
        assert "Ada likes tea." not in (await bs.command(KEY, "/memory", scope="other")).text
    bs, _ = opened()
    async with bs:
        assert "no workspace" in (await bs.command(KEY, "/memory")).text


async def test_stop_and_status_need_no_lease_and_the_others_wait():
    bs, _ = opened(Play(step="Slowly said.", between=0.05), "Done.")
    async with bs:
        running = asyncio.create_task(bs.say(KEY, "Go on"))
        await asyncio.sleep(0.05)
        assert "is under way" in (await bs.command(KEY, "/status")).text
        waiting = asyncio.create_task(bs.command(KEY, "/undo"))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        assert (await bs.command(KEY, "/stop")).text == "Stopped."
        assert (await running).reason == "stopped"
        assert "Undone: turn 1" in (await waiting).text
        assert (await bs.command(KEY, "/stop")).text == "No turn is under way."


async def test_what_another_process_holds_is_left_alone():
    bs, _ = opened("Hello.")
    async with bs:
        await bs.say(KEY, "Hi")
        await bs.store.acquire(ID, LeaseRequest(owner="somebody else", ttl=60))
        for name in ("/new", "/undo"):
            with pytest.raises((LeaseHeld, SessionBusy)):
                await bs.command(KEY, name)


async def test_help_has_every_command():
    bs, _ = opened()
    async with bs:
        text = (await bs.command(KEY, "/help")).text
        assert [line.split()[0] for line in text.splitlines()] == [f"/{name}" for name in COMMANDS]
        assert {"new", "undo", "redo", "fork", "status", "compact", "memory", "stop", "help"} | {
            "pin",
            "unpin",
        } == set(COMMANDS)
