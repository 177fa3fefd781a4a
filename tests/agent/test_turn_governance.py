"""The governance of a session's requests: old bulky results are condensed in batches, and can be read again."""

import itertools
import json
import re

import backstory
from backstory.models.scripted import calls
from backstory.stores import InMemoryStore, SessionId
from tests.agent.turns import opened, play, records, scripted
from tests.sessions.support import check_prefix, legal


@backstory.tool
async def page(n: int) -> str:
    """A long page."""
    return json.dumps({"page": n, "title": f"Page {n}", "text": f"{n} " + "word " * 1_200})


def condensed(log):
    return [sorted(r.data["state"]["condensed"]) for r in log if r.kind == "request"]


async def walked(store, turns, *, budget, steps=4):
    bodies: list = []
    for number in range(turns):
        model = play(*(calls(("page", {"n": number * steps + n})) for n in range(steps)), "done")
        bs = opened(model, store=store, tools=[page], budget=budget)
        await bs.say("s", f"read on, {number}")
        bodies += model.requests
    return bs, bodies


async def test_old_results_are_condensed_at_a_new_epoch_and_stay_so():
    store = InMemoryStore()
    bs, bodies = await walked(store, 5, budget=12_000)
    log = await records(bs)
    check_prefix(log, bodies)
    legal(scripted(bs))
    decided = condensed(log)
    assert any(decided)
    changes = sum(set(before) != set(after) for before, after in itertools.pairwise(decided))
    epochs = [r for r in log if r.kind == "epoch"]
    assert changes <= len(epochs), "in batches, and not call by call"
    for body in bodies:
        assert all(
            json.loads(c["function"]["arguments"]) for i in body["messages"] for c in i.get("tool_calls", ())
        )
    old = [i["content"] for i in bodies[-1]["messages"] if i["role"] == "tool" and "Preview" in i["content"]]
    assert old
    for text in old:
        value = json.loads(text.split("\n", 1)[1])
        assert value["title"] == f"Page {value['page']}"


async def test_a_condensed_result_can_be_read_again_from_its_own_session_alone():
    store = InMemoryStore()
    _, bodies = await walked(store, 5, budget=12_000)
    handles = re.findall(r'handle="(result:[\d.]+)"', json.dumps(bodies[-1]["messages"]).replace('\\"', '"'))
    assert handles
    model = play(calls(("read_result", {"handle": handles[0], "offset": 0, "limit": 40})), "read")
    bs = opened(model, store=store, tools=[page], budget=12_000)
    await bs.say("s", "show me that page again")
    results = [i["content"] for i in model.requests[-1]["messages"] if i["role"] == "tool"]
    assert results[-1].startswith('{"page":')
    assert "characters 0 to 40 of" in results[-1]
    for handle in (handles[0], "result:1.0", "result:999999.0", "result:x", "result:1.99", "result:../1"):
        model = play(calls(("read_result", {"handle": handle})), "no")
        bs = opened(model, store=store, tools=[page])
        await bs.say("other", "may I?")
        assert "there is no result" in model.requests[-1]["messages"][-1]["content"]
    assert (await store.head(SessionId(key="other"))).seq


async def test_where_everything_fits_nothing_is_condensed():
    bs, _ = await walked(InMemoryStore(), 3, budget=60_000)
    assert not any(condensed(await records(bs)))


async def test_a_giant_turn_keeps_its_user_message_and_its_newest_step():
    model = play(*(calls(("page", {"n": n})) for n in range(14)), "done")
    bs = opened(model, tools=[page], budget=8_000)
    await bs.say("s", "read all fourteen pages, and mind the dragons")
    legal(model)
    check_prefix(await records(bs), model.requests)
    for number, body in enumerate(model.requests[1:]):
        said = [i for i in body["messages"] if i["role"] != "system"]
        assert "mind the dragons" in said[0]["content"]
        assert json.loads(said[-1]["content"].split("\n")[-1])["page"] == number
