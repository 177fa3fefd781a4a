"""`backstory explain --compactions`: each summary, what it covers and cost."""

import asyncio
import json

import backstory
from backstory.agent.compactions import compactions
from backstory.models.scripted import ScriptedModel
from backstory.sessions import operations
from backstory.stores import FilesStore, SessionId
from backstory.upkeep.summarise import Compaction

S = SessionId(key="s")
GOOD = "## Facts\n- The user counts boxes in the harbour."


def talked(folder, *, summaries):
    """A conversation with so many compactions, the first refused by the check."""

    async def talk():
        answers = iter(["", *[GOOD] * 9])
        summariser = ScriptedModel(lambda body: next(answers), name="cheap")
        store = FilesStore(folder, durability="process")
        model = ScriptedModel(lambda body: "Noted.", name="main")
        async with backstory.open(
            store, model=model, budget=6_000, runtime=False, compaction=Compaction(model=summariser)
        ) as bs:
            for number in range(6 + 3 * (summaries - 1)):
                await bs.say("s", f"number {number}: " + "they stand in a row " * 115)
                if number >= 5 and number % 3 == 2:
                    assert await bs.compact("s")
            session, _ = bs.sessions.peek(S)
            if summaries > 2:
                await operations.lift(session)
            return await compactions(store, S)

    return asyncio.run(talk())


def test_each_compaction_is_told(command, tmp_path):
    told = talked(tmp_path, summaries=3)
    assert [one.state for one in told] == ["built upon", "in force", "undone"]
    assert told[0].refused == ("it is empty",)
    assert (told[0].summary.by, told[0].on) == ("extract", 0)
    assert (told[1].summary.by, told[1].on) == ("cheap", told[0].seq)
    assert told[1].usage["output"] > 0
    assert told[1].spans[0][0] == told[0].spans[-1][1] + 1, "without a gap, and nothing twice"
    assert all(one.after < one.before for one in told)
    done = command("explain", "s", "--compactions", "--workspace", str(tmp_path))
    assert done.code == 0
    for words in (
        "refused    it is empty",
        "none: no model" if not told[0].model else "(cheap)",
        "counts boxes",
    ):
        assert words in done.out
    found = json.loads(command("explain", "s", "--compactions", "--json", "--workspace", str(tmp_path)).out)
    assert [one["seq"] for one in found] == [one.seq for one in told]


def test_without_any_it_says_so(command, tmp_path):
    command("say", "hello", "--session", "s", "--workspace", str(tmp_path), "--model", "offline")
    assert "no compaction" in command("explain", "s", "--compactions", "--workspace", str(tmp_path)).out
