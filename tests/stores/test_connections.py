"""What happens to connections: cut, frozen, refused, a server restarted, a loop that ends. Real servers throughout."""

import asyncio
import gc
import sys
import threading

import pytest

from backstory.errors import InvalidInput, StoreUnavailable
from backstory.records import NewRecord
from backstory.stores import LeaseRequest, NewEntry, Replacement, SessionId
from backstory.stores.conformance import note, places, texts
from tests.servers import ROOT, Proxy
from tests.stores.kinds import clients, connections

S = SessionId(scope="tenant", key="telegram:12345")


async def settled(server, wanted=0):
    """Servers notice a closed socket a little later. What another test of this process forgot is none of ours."""
    for attempt in range(2_000):
        if connections(server) <= wanted:
            break
        if attempt % 50 == 49:
            gc.collect()
        await asyncio.sleep(0.02)
    return connections(server)


async def test_no_connection_is_left_behind(kind):
    before = await settled(kind.server)
    store = kind.store()
    await asyncio.gather(*(store.append(SessionId(key=f"s{n}"), [note("x")]) for n in range(20)))
    waiting = asyncio.ensure_future(store.wait(S, mail_after=0, within=20))
    await asyncio.sleep(0.1)
    await store.post(S, NewEntry(kind="message"))
    assert await waiting
    assert connections(kind.server) > before
    await store.close()
    assert await settled(kind.server, before) == before, clients(kind.server)


def test_a_store_serves_one_event_loop_after_another(kind):
    store = kind.store()

    async def use(text):
        await store.append(S, [note(text)])
        assert not await store.wait(S, mail_after=0, within=0.05)
        return texts(await store.read(S))

    assert asyncio.run(use("a")) == ["a"]
    assert asyncio.run(use("b")) == ["a", "b"]

    async def end():
        text = await use("c")
        await store.close()
        return text, await settled(kind.server)

    assert asyncio.run(end()) == (["a", "b", "c"], 0)
    gc.collect()  # a socket that was left open would be a warning, and so an error


async def test_a_store_is_closed_while_another_loop_uses_it(kind):
    store = kind.store()
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    elsewhere = asyncio.run_coroutine_threadsafe(store.append(S, [note("there")]), loop)
    assert (await asyncio.wrap_future(elsewhere)).head.seq == 1
    assert texts(await store.read(S)) == ["there"]
    await store.close()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()
    assert await settled(kind.server) == 0


async def test_many_writers_of_one_session_do_not_hold_up_others(kind):
    store = kind.store(max_size=2)
    calm = SessionId(key="calm")
    await store.append(calm, [note("x")])
    many = [asyncio.ensure_future(store.append(S, [note(f"{n}")])) for n in range(200)]
    await asyncio.sleep(0)
    await store.append(calm, [note("y")])
    assert not all(one.done() for one in many)
    await asyncio.gather(*many)
    assert texts(await store.read(S)) == [f"{n}" for n in range(200)]  # first come, first served
    await store.close()


async def test_a_long_span_is_rewritten_at_once(kind):
    store = kind.store()
    for start in range(0, 3000, 500):
        await store.append(S, [note(f"r{start + n}") for n in range(1, 501)], batch=f"b{start}")
    archived = NewRecord(kind="archived")
    await store.rewrite(S, [Replacement(first=1, last=2990, record=archived)], expected=3000)
    records = await store.read(S)
    assert [(record.first, record.seq) for record in records[:2]] == [(1, 2990), (2991, 2991)]
    assert len(records) == 11
    assert not (await store.append(S, [note("r1")], batch="b0")).repeated  # nothing of that one is left
    with pytest.raises(InvalidInput):  # of this one something is
        await store.append(S, [note("r1")], batch="b2500")
    assert (await store.verify(S)).sound
    await store.close()


async def test_a_cut_connection_is_made_again(kind):
    async with Proxy(kind.server.port) as proxy:
        store = kind.store(proxy.port)
        await store.append(S, [note("0")])
        for number in range(1, 4):
            proxy.cut()
            await store.append(S, [note(f"{number}")], expected=number)
            proxy.cut()
            assert (await store.head(S)).seq == number + 1
        assert texts(await store.read(S)) == ["0", "1", "2", "3"]
        await store.close()


@pytest.mark.parametrize("lets", [0, 1, 2])
@pytest.mark.parametrize("given", [{"batch": "b"}, {"expected": 1}, {}])
async def test_an_append_whose_answer_was_lost_is_there_once(kind, given, lets):
    """The server did it, and the answer vanished: the retry finds it by its mark."""
    async with Proxy(kind.server.port) as proxy:
        store = kind.store(proxy.port)
        await store.append(S, [note("0")])
        done = await proxy.lose_answer(store.append(S, [note("1"), note("and")], **given), lets)
        assert not done.repeated
        assert places(list(done.records)) == [2, 3]
        assert done.head == await store.head(S)
        assert list(done.records) == await store.read(S, after=1)
        await store.close()


@pytest.mark.parametrize("lets", [0, 1, 2])
async def test_whatever_is_retried_takes_effect_once(kind, lets):
    async with Proxy(kind.server.port) as proxy:
        store = kind.store(proxy.port)
        await store.append(S, [note("0"), note("1")])

        def lost(call):
            return proxy.lose_answer(call, lets)

        lease = await lost(store.acquire(S, LeaseRequest(owner="o", ttl=60)))
        assert await store.lease(S) == lease
        renewed = await lost(store.renew(lease, 90))
        assert renewed.fence == lease.fence
        posted = await lost(store.post(S, NewEntry(kind="message", data={"n": 1})))
        assert (await store.inbox(S), posted.repeated) == ([posted.entry], False)
        await lost(store.take(S, [posted.entry.id], fence=lease.fence))
        assert await store.inbox(S) == []
        await lost(store.put_draft(S, {"text": "so far"}, after=2, fence=lease.fence))
        assert (await store.draft(S)).data == {"text": "so far"}
        erased = Replacement(first=1, last=1, record=NewRecord(kind="erased"))
        head = await lost(store.rewrite(S, [erased], expected=2, fence=lease.fence))
        assert head == await store.head(S)
        assert [record.kind for record in await store.read(S)] == ["erased", "meta"]
        await lost(store.append(S, [], fence=lease.fence, release=True))
        assert await store.lease(S) is None
        handle = await lost(store.put_blob("tenant", b"bytes"))
        assert await lost(store.get_blob("tenant", handle)) == b"bytes"
        assert await lost(store.delete(S))
        assert await store.read(S) == []
        await store.close()


@pytest.mark.slow
async def test_a_frozen_network_is_a_typed_error_in_time(kind):
    async with Proxy(kind.server.port) as proxy:
        store = kind.store(proxy.port, quick=True)
        await store.append(S, [note("0")])
        proxy.freeze()
        calls = [
            store.append(S, [note("1")], batch="one"),
            store.read(S),
            store.post(S, NewEntry(kind="message", id="m")),
            store.acquire(SessionId(key="other"), LeaseRequest(owner="o", ttl=1)),
            store.wait(S, mail_after=99, within=3600),
        ]
        results = await asyncio.gather(*calls, return_exceptions=True)
        assert [type(result) for result in results] == [StoreUnavailable] * len(calls)
        assert "safe to repeat" in str(results[0])
        proxy.thaw()
        await store.append(S, [note("1")], batch="one")
        assert texts(await store.read(S)) == ["0", "1"]
        await store.close()


@pytest.mark.slow
async def test_a_frozen_caller_can_be_cancelled_and_the_store_closed(kind):
    async with Proxy(kind.server.port) as proxy:
        store = kind.store(proxy.port, quick=True)
        await store.append(S, [note("0")])
        proxy.freeze()
        task = asyncio.ensure_future(store.append(S, [note("1")]))
        await asyncio.sleep(0.2)
        task.cancel()
        ended = await asyncio.gather(task, return_exceptions=True)
        assert isinstance(ended[0], asyncio.CancelledError | StoreUnavailable)
        await store.close()
        with pytest.raises(StoreUnavailable, match="closed"):
            await store.head(S)


async def test_a_slow_network_only_takes_longer(kind):
    async with Proxy(kind.server.port) as proxy:
        store = kind.store(proxy.port)
        proxy.delay = 0.02
        done = await asyncio.gather(*(store.append(S, [note(f"{n}")]) for n in range(10)))
        assert sorted(one.head.seq for one in done) == list(range(1, 11))
        await store.close()


@pytest.mark.slow
async def test_a_server_that_is_away_is_a_typed_error_and_comes_back(kind):
    async with Proxy(kind.server.port) as proxy:
        store = kind.store(proxy.port, quick=True)
        proxy.refuses = True
        with pytest.raises(StoreUnavailable):
            await store.head(S)
        proxy.refuses = False
        assert (await store.append(S, [note("0")])).head.seq == 1
        proxy.refuses = True
        proxy.cut()
        for _ in range(2):
            with pytest.raises(StoreUnavailable):
                await store.append(S, [note("never")])
        proxy.refuses = False
        assert (await store.append(S, [note("1")])).head.seq == 2
        await store.close()


async def test_a_wait_survives_its_connection(kind):
    async with Proxy(kind.server.port) as proxy:
        store, other = kind.store(proxy.port), kind.store()
        await other.append(S, [note("0")])
        waiting = asyncio.ensure_future(store.wait(S, mail_after=0, within=30))
        await asyncio.sleep(0.2)
        proxy.cut()
        await asyncio.sleep(0.2)
        assert not waiting.done()
        await other.post(S, NewEntry(kind="message"))
        assert await asyncio.wait_for(waiting, 60)
        await store.close()
        await other.close()


@pytest.mark.slow
async def test_the_server_restarts_in_the_middle(own):
    """Writers go on over two restarts, one of them a crash: nothing acknowledged is lost, nothing is there twice."""
    store = own.store(timeout=30.0)
    await store.append(S, [note("first")])
    ended = asyncio.Event()
    acknowledged: dict[str, list[str]] = {}

    async def write(name):
        session, count = SessionId(key=name), 0
        while not ended.is_set():
            await store.append(session, [note(f"{name}.{count}")], batch=f"{count}")
            acknowledged.setdefault(name, []).append(f"{name}.{count}")
            count += 1

    writers = [asyncio.ensure_future(write(f"w{number}")) for number in range(4)]
    loop = asyncio.get_running_loop()
    for stop in (own.server.stop, own.server.crash):
        await asyncio.sleep(0.3)
        await loop.run_in_executor(None, stop)
        await asyncio.sleep(0.2)
        await loop.run_in_executor(None, own.server.start)
    await asyncio.sleep(0.3)
    ended.set()
    await asyncio.gather(*writers)
    for name, names in acknowledged.items():
        assert texts(await store.read(SessionId(key=name))) == names
        assert len(names) > 2
    assert texts(await store.read(S)) == ["first"]
    await store.close()


@pytest.mark.slow
async def test_many_processes_write_one_session(kind):
    children = [
        await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "tests.stores.server_child",
            kind.server.url(),
            kind.prefix,
            f"p{number}",
            stdout=asyncio.subprocess.PIPE,
            cwd=ROOT,
        )
        for number in range(3)
    ]
    outputs = await asyncio.gather(*(child.communicate() for child in children))
    assert [child.returncode for child in children] == [0, 0, 0]
    acknowledged = [line for output, _ in outputs for line in output.decode().split()]
    store = kind.store()
    records = await store.read(SessionId(key="s"))
    assert places(records) == list(range(1, len(records) + 1))
    assert sorted(acknowledged) == sorted(texts(records))
    turns = [record.data["turn"] for record in records]  # no turn interleaves with another
    assert [turn for turn, before in zip(turns, [None, *turns], strict=False) if turn != before] == list(
        dict.fromkeys(turns)
    )
    await store.close()
