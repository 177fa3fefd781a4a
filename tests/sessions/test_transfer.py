"""Foreign conversations become sessions that go on as if they had been ours."""

import json

import pytest

import backstory
from backstory.errors import InvalidInput, SessionExists
from backstory.legality.rules import problems
from backstory.messages import Message, ToolCall, assistant, system, tool, user
from backstory.models import ScriptedModel
from backstory.sessions.session import Session
from backstory.sessions.transfer import Imported, export_records, import_messages, import_records
from backstory.stores.in_memory import InMemoryStore
from backstory.stores.values import SessionId
from backstory.targets import Target
from backstory.tokens import counter_for

ID = SessionId(key="import:x")
TALK = [system("Be brief."), user("I am Ada."), assistant("Hello."), user("Rain?"),
        assistant("", ToolCall(id="a", name="look")), tool("a", "rain"), assistant("Yes.")]  # fmt: skip


async def imported(store: InMemoryStore, messages: list[Message], to: SessionId = ID) -> Imported:
    return await import_messages(
        store, to, messages, source="test", counter=counter_for(None, "openai_chat"), format="openai_chat"
    )


async def test_it_goes_on():
    model = ScriptedModel(["Ada."])
    store = InMemoryStore()
    async with backstory.open(store, model=model) as bs:
        done = await imported(store, TALK)
        assert (done.messages, done.turns, done.system) == (6, 2, "Be brief.")
        reply = await bs.say(ID.key, "Who am I?")
        assert reply.turn == 3
        sent = model.requests[-1]["messages"]
        assert [m["role"] for m in sent] == [
            "system",
            "user",
            "assistant",
            "user",
            "assistant",
            "tool",
            "assistant",
            "user",
        ]
        assert "Be brief." not in str(sent)
        await bs.command(ID.key, "/undo 2")
        session = Session(store, ID)
        view = await session.refresh()
        assert [record.turn for record in view.live()] == [1, 1]


@pytest.mark.parametrize("cut", range(2, len(TALK) + 1))
async def test_wherever_it_ends_the_session_is_closed_and_legal(cut: int):
    store = InMemoryStore()
    await imported(store, TALK[:cut])
    session = Session(store, ID)
    view = await session.refresh()
    assert view.turn is None
    messages = [record.message for record in view.live()]
    assert messages[-1].role == "assistant"
    assert not list(problems(messages, Target.of("openai_chat")))
    assert await store.lease(ID) is None


async def test_nothing_to_import_and_a_key_that_is_taken():
    store = InMemoryStore()
    with pytest.raises(InvalidInput, match="nothing was said"):
        await imported(store, TALK[:1])
    await imported(store, TALK)
    with pytest.raises(SessionExists):
        await imported(store, TALK)
    with pytest.raises(SessionExists):
        await import_records(store, ID, [])


async def test_records_out_and_in_again():
    store, other = InMemoryStore(), InMemoryStore()
    async with backstory.open(store, model=ScriptedModel(["Hello.", "Hm.", "Ada."])) as bs:
        await bs.say(ID.key, "I am Ada.")
        await bs.say(ID.key, "Forget this.")
        await bs.command(ID.key, "/undo")
        lines = [json.loads(record.line) async for record in export_records(store, ID)]
        view = await Session(store, ID).refresh()
    async with backstory.open(other, model=ScriptedModel(["Ada."])) as bs:
        done = await import_records(other, ID, lines)
        assert (done.messages, done.turns) == (4, 2)
        again = await Session(other, ID).refresh()
        assert [r.data for r in again.live()] == [r.data for r in view.live()]
        assert (await bs.say(ID.key, "Who am I?")).text == "Ada."


@pytest.mark.parametrize(
    "lines",
    [
        [{}],
        [{"seq": "1", "kind": "message", "data": {}}],
        [{"seq": 1, "kind": "nonsense", "data": {}}],
        [{"seq": 1, "kind": "meta", "data": {}}],
        [{"seq": 2, "kind": "meta", "data": {}}, {"seq": 1, "kind": "meta", "data": {}}],
        [],
    ],
)
async def test_what_are_no_records(lines: list[dict[str, object]]):
    store = InMemoryStore()
    with pytest.raises(InvalidInput):
        await import_records(store, ID, lines)
    assert not (await store.head(ID)).seq


async def test_gaps_keep_their_places():
    store = InMemoryStore()
    said = {"message": {"role": "user", "parts": [{"part": "text", "text": "Hi"}]}}
    await import_records(store, ID, [{"seq": 3, "kind": "message", "data": said, "turn": 1}])
    assert [record.kind for record in await store.read(ID)] == ["erased", "erased", "message"]
