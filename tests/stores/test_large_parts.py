"""What is long lies in blobs, and comes back whole: the strings, the store around a store, and what is gone."""

import base64
import copy
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

import backstory
from backstory.messages import (
    File,
    Image,
    Message,
    Native,
    Text,
    ToolCall,
    ToolResult,
    assistant,
    to_json,
    tool,
    user,
)
from backstory.records import new_message
from backstory.sessions.operations import fork
from backstory.sessions.session import Session
from backstory.sessions.transfer import export_records, import_records
from backstory.stores import FilesStore, InMemoryStore, SessionId
from backstory.stores.large_parts import LARGE, long_of, plain, with_large_parts
from backstory.stores.long_strings import degraded, filled, of_data, taken_out
from backstory.stores.sqlite import SqliteStore
from backstory.upkeep.archive import Cap, archive, restore
from backstory.upkeep.doctor import examine
from tests.context.judging import judge

S = SessionId(key="s")


def picture(seed: int, size: int = 100_000) -> str:
    return base64.b64encode(random.Random(seed).randbytes(size)).decode()


# --- strings ------------------------------------------------------------------------------------

words = st.text(max_size=60) | st.binary(max_size=40).map(lambda raw: base64.b64encode(raw).decode())
strings = words | words.map("data:image/png;base64,".__add__) | st.just('{"large": [{"at": ["message"]}]}')
values = st.recursive(
    strings | st.none() | st.booleans() | st.integers(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=8) | st.just("large"), inner, max_size=4)
    ),
    max_leaves=12,
)


@given(
    message=st.dictionaries(st.text(max_size=8) | st.just("large"), values, max_size=4),
    longest=st.integers(1, 30),
)
def test_what_is_taken_out_is_put_back_the_same(message, longest):
    data = {"message": message, "tokens": {"x": 3}}
    before = copy.deepcopy(data)
    slim, long = taken_out(data, longest)
    assert data == before, "the caller's own value was changed"
    blobs = {one.blob: raw for one, raw in long}
    named = of_data(json.loads(json.dumps(slim)))
    assert [one for one, _ in long] == named
    assert filled(slim, {number: one.text(blobs[one.blob]) for number, one in enumerate(named)}) == data
    left = json.dumps(slim["message"])
    for one, _ in long:
        assert len(one.text(blobs[one.blob]).encode("utf-8", "surrogatepass")) > longest
    assert not long or taken_out(slim, longest)[1] == [], left


def test_a_picture_is_one_blob_in_every_spelling():
    raw = picture(1)
    value = {
        "role": "user",
        "content": [{"type": "image_url", "image_url": {"url": f"data:image/png;base64,{raw}"}}],
    }
    message = Message(
        role="user",
        parts=(Image(data=raw, media_type="image/png"),),
        native=Native(format="openai_chat", value=value),
    )
    slim, long = taken_out({"message": to_json(message)}, LARGE)
    assert len(long) == 2
    assert {one.blob for one, _ in long} == {long[0][0].blob}
    assert {(one.type, one.size) for one, _ in long} == {("image/png", 100_000)}
    assert len(json.dumps(slim)) < 1_000


# --- the store around a store -------------------------------------------------------------------


@pytest.fixture(params=["memory", "files", "sqlite", "postgres", "redis"])
async def store(request, tmp_path):
    if request.param in ("postgres", "redis"):
        from tests.stores.kinds import MAKERS, names

        server = request.getfixturevalue(f"{request.param}_server")
        made = MAKERS[request.param][0](server.url(), f"large{next(names)}")
    else:
        made = InMemoryStore()
        if request.param == "files":
            made = FilesStore(tmp_path / "w", durability="process")
        elif request.param == "sqlite":
            made = SqliteStore(f"sqlite:///{tmp_path}/s.db", durability="process")
    yield with_large_parts(made)
    await made.close()


LONG = "茶 and more. " * 20_000


async def test_long_parts_lie_in_blobs_and_come_back(store):
    said = [
        user("short"),
        Message(role="user", parts=(Text(text="look"), Image(data=picture(1), media_type="image/png"))),
        tool("c1", LONG, name="read"),
        Message(
            role="user", parts=(File(text=LONG, name="a.txt"), Image(data=picture(1), media_type="image/png"))
        ),
        assistant("", ToolCall(id="c1", name="write", arguments=json.dumps({"text": LONG}))),
    ]
    done = await store.append(
        S, [new_message(one, tokens={"o": 1}, message_id="m") for one in said], batch="b"
    )
    again = await store.append(
        S, [new_message(one, tokens={"o": 1}, message_id="m") for one in said], batch="b"
    )
    assert again.repeated
    for records in (
        done.records,
        again.records,
        await store.read(S),
        (await store.read(S, newest_first=True))[::-1],
    ):
        assert [record.message for record in records] == said
        assert [record.tokens for record in records] == [{"o": 1}] * 5
        assert {record.message_id for record in records} == {"m"}
    lines = [record.line for record in await plain(store).read(S)]
    assert max(map(len, lines)) < 2_000
    assert lines == [record.line for record in await store.read(S)]
    named = {one.blob for record in await plain(store).read(S) for one in of_data(record.data)}
    assert len(named) == 3, "the picture, the text, and the arguments"
    assert base64.b64encode(
        await store.get_blob("default", of_data(json.loads(lines[1])["data"])[0].blob)
    ).decode() == picture(1)
    one, other = (records := await store.read(S))[1].message.parts[1], records[3].message.parts[1]
    assert one.data is other.data, "equal pictures are one string"


async def test_what_was_written_whole_reads_as_it_is(store):
    await plain(store).append(S, [new_message(tool("c", LONG))])
    assert [record.message.results[0].content for record in await store.read(S)] == [(Text(text=LONG),)]


async def test_a_text_that_looks_like_a_name_is_a_text(store):
    looks = json.dumps({"large": [{"at": ["message"], "blob": "sha256:" + "0" * 64, "size": 1, "type": "x"}]})
    item = {
        "role": "user",
        "content": looks,
        "large": [{"at": ["message", "role"], "blob": "sha256:" + "0" * 64}],
    }
    message = Message(role="user", parts=(Text(text=looks),), native=Native(format="openai_chat", value=item))
    await store.append(S, [new_message(message)])
    assert [record.message for record in await store.read(S)] == [message]


async def test_scopes_do_not_share(store):
    there = SessionId(scope="other", key="s")
    await store.append(S, [new_message(user(LONG))])
    (record,) = await plain(store).read(S)
    await plain(store).append(there, [new_message(user(""), large=record.data["large"])])
    fresh = with_large_parts(plain(store))
    (stolen,) = await fresh.read(there)
    assert "gone from the store" in stolen.message.text
    assert "茶" not in stolen.message.text


@pytest.mark.parametrize("target", ["openai_chat", "openai_responses", "anthropic", "gemini"])
async def test_what_is_gone_costs_its_part_and_not_the_session(target, tmp_path):
    options = {"target": target, "budget": 90_000, "runtime": False, "compaction": False}
    async with backstory.open(tmp_path, **options) as bs:
        parts = [Text(text="look"), Image(data=picture(1), media_type="image/png")]
        async with bs.turn("s", parts) as turn:
            call = ToolCall(id="c1", name="read", arguments=json.dumps({"text": LONG[:70_000]}))
            await turn.record(assistant("", call))
            await turn.result(
                call, ToolResult(call_id="c1", name="read", content=(Text(text=LONG[:80_000]),))
            )
            await turn.record(assistant("I see."))
        handles = {one.blob for record in await bs.store.read(S) for one in long_of(record)}
        assert len(handles) == 3
        for handle in handles:
            await bs.store.delete_blob("default", handle)
    async with (
        backstory.open(tmp_path, **options) as bs,
        bs.turn("s", "what did you see?") as turn,
    ):
        request = await turn.request()
        assert str(request.body).count("gone from the store") == 3
        second = judge()
        assert second is None or second(dict(request.body), target, ready=True) == []
        await turn.record(assistant("nothing any more"))
        found = [each.what for each in (await examine(bs.store, S)).findings if each.level == "broken"]
        assert len(found) == 3
        assert any("image/png" in what for what in found)


def test_where_only_the_item_of_a_provider_is_gone_its_words_stay():
    message = Message(
        role="assistant",
        parts=(Text(text="hello"),),
        native=Native(format="openai_chat", value={"role": "assistant", "content": "hello", "odd": "x" * 99}),
    )
    slim, long = taken_out({"message": to_json(message)}, 64)
    assert len(long) == 1
    left = degraded(slim, {})
    assert "large" not in left
    assert left["message"]["parts"][0]["text"] == "hello"
    assert "native" not in left["message"]


async def test_archive_fork_export_and_import_keep_what_is_long(tmp_path):
    store = with_large_parts(FilesStore(tmp_path, durability="process"))
    async with backstory.open(
        store, target="openai_chat", budget=2_000, runtime=False, compaction=False
    ) as bs:
        for number in range(60):
            parts = [
                Text(text=f"look {number}"),
                Image(data=picture(number % 3, 60_000), media_type="image/png"),
            ]
            async with bs.turn("s", parts) as turn:
                await turn.request()
                await turn.record(assistant("seen " * 60))
        whole = [record.line async for record in export_records(store, S)]
        lines = [record.line for record in await plain(store).read(S)]
        moved = await archive(Session(store, S), Cap(messages=50))
        assert moved is not None
        assert [record.line async for record in export_records(store, S)] == whole
        assert await restore(Session(store, S)) == moved.records
        assert [record.line for record in await plain(store).read(S)] == lines
        child = SessionId(key="child")
        await fork(Session(store, S), child)
        live = (await Session(store, child).refresh()).live()
        assert [r.message for r in live] == [r.message for r in (await Session(store, S).refresh()).live()]
        assert max(len(record.line) for record in await plain(store).read(child)) < 20_000
        ours = [record.message for record in await store.read(S) if record.kind == "message"]
    other = with_large_parts(InMemoryStore())
    await import_records(other, S, [json.loads(line) for line in whole])
    theirs = [record.message for record in await other.read(S) if record.kind == "message"]
    assert theirs == ours
    assert max(len(record.line) for record in await plain(other).read(S)) < 20_000
