"""The failures that users of other systems reported, as far as a store alone can have them.

Reads ``../shared/cases/cases.jsonl`` and skips where that is not at hand.
"""

import asyncio
import base64
import errno
import json
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from backstory.errors import HeadMoved, StoreUnavailable
from backstory.formats import openai_chat
from backstory.messages import Image, Message, Origin, user
from backstory.records import new_message
from backstory.stores import FilesStore, NewEntry, SessionId
from backstory.stores.conformance import note, places, texts
from backstory.stores.large_parts import with_large_parts
from tests.stores.faults import FaultyDisk
from tests.stores.test_files_crash import environment, run_child

S = SessionId(key="s1")


@pytest.fixture(scope="session")
def cases(shared):
    lines = (shared / "cases" / "cases.jsonl").read_bytes().splitlines()  # a text may hold U+2028
    return {case["id"]: case["input"] for case in map(json.loads, lines)}


def turn(name: str) -> list:
    return [new_message(user(f"{name}: question 茶")), new_message(user(f"{name}: answer"))]


def said(records) -> list[str]:
    return [record.message.text for record in records]


def appended(ops, name):
    return [op[name] for op in ops if name in op]


@pytest.mark.parametrize("variant", ["as reported", "cut_inside_utf8", "every_byte_offset_of_last_record"])
async def test_st_01_killed_during_an_append(cases, tmp_path, variant):
    case = cases["ST-01"]
    (names,) = appended(case["ops"], "append_turns")
    (cut,) = appended(case["ops"], "truncate_file_bytes")
    (after,) = appended(case["ops"], "append")
    store = FilesStore(tmp_path, durability="process")
    for name in names:
        for record in turn(name):
            await store.append(S, [record])
    await store.close()
    log = tmp_path / "sessions" / "s1.jsonl"
    whole = log.read_bytes()
    begin = whole[:-1].rindex(b"\n") + 1
    if variant == "as reported":
        ends = [len(whole) + cut]
    elif variant == "cut_inside_utf8":
        begin = whole[: begin - 1].rindex(b"\n") + 1
        ends = [whole.index("茶".encode(), begin) + 1]
    else:
        assert {variant: True} in case["variants"]
        ends = list(range(begin, len(whole)))
    everything = [text for name in names for text in said_of(turn(name))]
    for end in ends:
        log.write_bytes(whole[:end])
        damage: list = []
        store = FilesStore(tmp_path, on_damage=lambda _, one: damage.append(one))  # noqa: B023
        kept = whole[:end].count(b"\n") - 1
        assert said(await store.read(S)) == everything[:kept]
        await store.append(S, [new_message(user(after["content"]))])
        await store.close()
        store = FilesStore(tmp_path)
        assert said(await store.read(S)) == [*everything[:kept], after["content"]]
        if end > begin or variant != "every_byte_offset_of_last_record":
            assert damage
            assert content(damage[0].kept) == whole[:end][whole[:end].rindex(b"\n") + 1 :]
        await store.close()


def said_of(records) -> list[str]:
    return [record.data["message"]["parts"][0]["text"] for record in records]


def content(path) -> bytes:
    return Path(path).read_bytes()


async def test_st_02_one_unreadable_line_hides_nothing(cases, tmp_path):
    store = FilesStore(tmp_path)
    for number in range(1, 4):
        await store.append(S, [note(f"record {number}")])
    await store.close()
    log = tmp_path / "sessions" / "s1.jsonl"
    header, *records = log.read_bytes().splitlines()
    lines = [header]
    for line in cases["ST-02"]["file_lines"]:
        if isinstance(line, dict):
            byte, _, times = line["$bytes"].partition("*")
            lines.append(bytes.fromhex(byte) * int(times))
        elif line.startswith("$record:"):
            lines.append(records[int(line.partition(":")[2]) - 1])
        else:
            lines.append(line.encode())
    log.write_bytes(b"\n".join(lines) + b"\n")
    damage: list = []
    store = FilesStore(tmp_path, on_damage=lambda _, one: damage.append(one))
    assert texts(await store.read(S)) == ["record 1", "record 2", "record 3"]
    assert [one.kind for one in damage] == ["zeros", "json"]
    assert damage[0].offset == len(b"\n".join(lines[:3])) + 1
    assert len((await store.verify(S)).damage) == 2
    await store.repair(S)
    assert (await store.verify(S)).sound
    assert texts(await store.read(S)) == ["record 1", "record 2", "record 3"]
    await store.append(S, [note("a line\nbreak\r is escaped")])
    assert len(log.read_bytes().splitlines()) == 5
    await store.close()


async def test_st_04_a_reader_during_a_rewrite(cases, tmp_path):
    times = min(500, next(op["reader_loop"]["times"] for op in cases["ST-04"]["ops"] if "reader_loop" in op))
    writer, reader = FilesStore(tmp_path), FilesStore(tmp_path)
    await writer.append(S, [note("first")])
    done = False

    async def rewrite():
        while not done:
            head = await writer.head(S)
            await writer.rewrite(S, [], expected=head.seq)
            await asyncio.sleep(0)

    writing = asyncio.ensure_future(rewrite())
    for _ in range(times):
        assert (await reader.head(S)).seq == 1
        assert texts(await reader.read(S)) == ["first"]
        await asyncio.sleep(0)
    done = True
    await writing
    await writer.close()
    await reader.close()


async def test_st_05_processes_at_once_and_life_after_a_failure(cases, tmp_path):
    start = next(op for op in cases["ST-05"]["ops"] if "processes" in op)
    children = [run_child(tmp_path, f"free{number}") for number in range(start["processes"])]
    await asyncio.gather(*(asyncio.to_thread(child.communicate, None, 60) for child in children))
    assert [child.returncode for child in children] == [0] * start["processes"]
    disk = FaultyDisk()
    store = FilesStore(tmp_path, disk=disk)
    session = SessionId(key="s")
    head = (await store.head(session)).seq
    assert head == start["processes"] * 50
    disk.fail("replace", error=errno.EIO)
    with pytest.raises(StoreUnavailable):
        await store.rewrite(session, [], expected=head)
    await store.append(session, [note("still works?")], expected=head)
    await store.close()


async def test_st_06_a_full_disk(cases, tmp_path):
    disk = FaultyDisk()
    store = FilesStore(tmp_path, disk=disk)
    refused = []
    for op in cases["ST-06"]["ops"]:
        if "inject" in op:
            disk.fail(
                "write",
                error=getattr(errno, op["inject"]["errno"]),
                times=op["inject"]["for_appends"],
                partial=30,
            )
        elif "append" in op:
            call = store.append(S, [new_message(user(op["append"]["content"]))])
            if disk.times:
                with pytest.raises(StoreUnavailable, match="full"):
                    await call
                refused.append(op["append"]["content"])
            else:
                await call
        elif "read_all" in op:
            assert said(await store.read(S)) == ["one", "four"]
    assert refused == ["two", "three"]
    assert (await store.verify(S)).sound
    await store.close()


async def test_st_11_ids_never_lead_outside(cases, tmp_path):
    root = tmp_path / "in" / "ws"
    store = FilesStore(root)
    ids = cases["ST-11"]["ids"]
    for key in ids:
        for session in (SessionId(key=key), SessionId(scope=key, key=key)):
            await store.append(session, [note(key)], expected=0)
            await store.post(session, NewEntry(kind="message"))
            lease_owner = key
            assert texts(await store.read(session)) == [lease_owner]
        handle = await store.put_blob(key, key.encode())
        assert await store.get_blob(key, handle) == key.encode()
    inside = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert all(root in path.parents for path in inside)
    assert list(tmp_path.iterdir()) == [tmp_path / "in"]
    assert list((tmp_path / "in").iterdir()) == [root]
    names = [str(path.relative_to(root)).lower() for path in inside]
    assert len(names) == len(set(names))
    for key in ids:
        assert await store.delete(SessionId(key=key))
        assert await store.delete(SessionId(scope=key, key=key))
        assert await store.delete_blob(key, await store.put_blob(key, key.encode()))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    await store.close()


def test_st_12_a_machine_whose_default_is_not_utf_8(cases, tmp_path):
    case = cases["ST-12"]
    (message,) = appended(case["ops"], "append")
    code = f"""
import asyncio, sys
from backstory.messages import user
from backstory.records import new_message
from backstory.stores import FilesStore, SessionId
async def main():
    store = FilesStore(sys.argv[1])
    await store.append(SessionId(key={message["content"]!a}), [new_message(user({message["content"]!a}))])
    await store.close()
asyncio.run(main())
"""
    env = {**environment(), **case["env"], "PYTHONCOERCECLOCALE": "0"}
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], env=env, check=True)

    async def read():
        store = FilesStore(tmp_path)
        found = said(await store.read(SessionId(key=message["content"])))
        await store.close()
        return found

    assert asyncio.run(read()) == [message["content"]]


async def test_st_14_raw_reads_are_exact(cases, tmp_path):
    case = cases["ST-14"]
    store = FilesStore(tmp_path)
    for index, item in enumerate(case["messages"]):
        (message,) = openai_chat.read(item, index=index, origin=Origin())
        await store.append(S, [new_message(message)])
    records = await store.read(S, newest_first=True, limit=case["limit_items"])
    assert places(records) == [8, 7, 6]
    assert [record.message.role for record in records] == ["assistant", "tool", "assistant"]
    await store.close()


async def test_st_16_an_append_does_not_create_in_silence(cases, tmp_path):
    """Expiry is above the store; a writer that knows its head is never given another session."""
    first, second = appended(cases["ST-16"]["ops"], "append")
    store = FilesStore(tmp_path)
    await store.append(S, [new_message(user(first["content"]))], expected=0)
    await FilesStore(tmp_path).delete(S)
    for _ in range(2):
        with pytest.raises(HeadMoved):
            await store.append(S, [new_message(user(second["content"]))], expected=1)
    assert (await store.sessions("default")).sessions == ()
    assert not os.listdir(tmp_path / "sessions")
    await store.close()


async def test_st_09_pictures_do_not_swell_the_log(cases, tmp_path):
    given = appended(cases["ST-09"]["ops"], "append_images")[0]
    count, size, distinct = given["count"], given["bytes_each"], given["distinct"]
    pictures = [base64.b64encode(random.Random(seed).randbytes(size)).decode() for seed in range(distinct)]
    store = with_large_parts(FilesStore(tmp_path, durability="process"))
    for number in range(count):
        image = Image(data=pictures[number % distinct], media_type="image/png")
        await store.append(S, [new_message(Message(role="user", parts=(image,)))])
    await store.close()
    blobs = [path for path in (tmp_path / "blobs").rglob("*.bin") if path.is_file()]
    assert len(blobs) == distinct
    assert sorted(path.stat().st_size for path in blobs) == [size] * distinct
    assert (tmp_path / "sessions" / "s1.jsonl").stat().st_size < count * 1_000
    again = with_large_parts(FilesStore(tmp_path))
    records = await again.read(S)
    parts = [record.message.parts[0] for record in records]
    assert [part.data for part in parts if isinstance(part, Image)] == [
        pictures[number % distinct] for number in range(count)
    ]
    assert len({id(part.data) for part in parts if isinstance(part, Image)}) == distinct, (
        "equal pictures are one string in memory"
    )
    await again.close()
