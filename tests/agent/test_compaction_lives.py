"""Whole lives of sessions under compaction: turns of any size, tools, undos, and summarisers that do as they like.

Laws 4, 5, 8 and 9: between two epochs each request extends the one before; every message is in the view or covered
once, and each summary was told of what the one before kept; every request fits; a bad summariser costs nothing.
"""

import asyncio
import os
import random

import pytest

import backstory
from backstory.errors import BudgetExceeded, ModelRefused, ModelUnavailable, SessionError
from backstory.models.scripted import ScriptedModel, calls
from backstory.sessions import operations
from backstory.sessions.view import fold
from backstory.stores.in_memory import InMemoryStore
from backstory.upkeep.summarise import Compaction
from tests.sessions.support import S, check_log, check_prefix, coverage, legal, records_of, view_of

WORDS = (
    "the",
    "boxes",
    "stand",
    "in",
    "a",
    "row",
    "by",
    "the",
    "harbour;",
    "nobody",
    "has",
    "counted",
    "them",
)


TURNS = int(os.environ.get("BACKSTORY_TEST_TURNS", "250"))
"""Of each long life; some thousands by hand."""


class Life:
    """A session, a main model that is always well, and a summariser that is not."""

    def __init__(self, seed, *, budget, bad=0.5, tools=True):
        self.rng = random.Random(seed)
        self.budget = budget
        self.bad = bad
        self.asked = 0
        self.refused = 0
        self.tools = [backstory.tool(self.look)] if tools else []
        self.model = ScriptedModel(self.answer, name="main")
        self.summariser = ScriptedModel(self.summary, name="cheap", legal=False)
        self.store = InMemoryStore()
        self.bs = self.open()

    def open(self):
        compaction = Compaction(model=self.summariser, timeout=0.02, failures=10_000)
        return backstory.open(
            self.store, model=self.model, tools=self.tools, budget=self.budget, compaction=compaction
        )

    def words(self, most):
        return " ".join(self.rng.choices(WORDS, k=self.rng.randint(1, most)))

    async def look(self, what: str) -> str:
        """Look at something."""
        return f"saw {what}: {self.words(200)}"

    def answer(self, body):
        if self.tools and self.rng.random() < 0.3:
            return calls(*(("look", {"what": str(n)}) for n in range(self.rng.randint(1, 3))), text="looking")
        return self.words(40)

    async def summary(self, body):
        self.asked += 1
        if self.rng.random() >= self.bad:
            return "## Facts\n- They count boxes.\n\n## To do\n- Count on."
        how = self.rng.choice(["fails", "refuses", "empty", "lies", "too much", "stalls", "calls"])
        if how == "fails":
            raise ModelUnavailable("overloaded")
        if how == "refuses":
            raise ModelRefused("no")
        if how == "stalls":
            await asyncio.Event().wait()
        if how == "calls":
            return calls(("look", {"what": "x"}))
        return {"empty": " ", "lies": "All is well.", "too much": "word " * 9_000}[how]

    async def turn(self):
        length = self.rng.choice([5, 20, 60, 60, 200, self.budget // 4])
        try:
            await self.bs.say("s", self.words(length))
        except BudgetExceeded:  # one that is too big by itself: refused, kept, and the session goes on
            self.refused += 1
        if self.rng.random() < 0.3:
            await self.settled()

    async def settled(self):
        tasks = list(self.bs.compactor._tasks.values())
        if tasks:
            await asyncio.wait(tasks)

    async def other(self):
        session, _ = self.bs.sessions.peek(S)
        what = self.rng.choice(["undo", "redo", "compact", "lift", "reopen", "pin", "new", "edit"])
        try:
            if what == "undo":
                await operations.undo(session, self.rng.randint(1, 4))
            elif what == "redo":
                await operations.redo(session)
            elif what == "compact":
                await self.bs.compact("s")
            elif what == "lift":
                await operations.lift(session)
            elif what == "pin":
                await operations.pin(session, self.words(5))
            elif what == "new" and self.rng.random() < 0.2:
                await operations.begin_anew(session)
            elif what == "edit":
                await operations.undo(session, 1)
                await self.turn()
            elif what == "reopen":
                await self.bs.compactor.close()
                self.bs = self.open()
        except SessionError:
            return

    async def laws(self):
        records = await records_of(self.store)
        check_log(records)
        view = fold(records)
        covered = coverage(records)
        assert {seq: view.coverage(seq)[0] for seq in covered} == covered
        for record in records:
            if record.kind == "request":
                assert record.data["ledger"]["total"] <= self.budget
            if record.kind == "summary":
                assert record.data["tokens"][1] < record.data["tokens"][0], "law 9: it gained"
        check_prefix(records, self.model.requests)

    async def live(self, turns, *, others=0.1):
        for number in range(turns):
            await self.turn()
            if self.rng.random() < others:
                await self.other()
            if number % 50 == 49:
                await self.laws()
        await self.settled()
        await self.laws()
        legal(self.model)
        await self.bs.compactor.close()
        return [r for r in await records_of(self.store) if r.kind == "summary"]


@pytest.mark.parametrize("seed", range(4))
async def test_a_life_with_a_summariser_that_does_what_it_likes(seed):
    life = Life(seed, budget=3_000)
    summaries = await life.live(60)
    assert summaries
    assert life.asked


@pytest.mark.slow
@pytest.mark.parametrize(("seed", "bad"), [(11, 0.0), (12, 0.5), (13, 1.0)])
async def test_a_long_life(seed, bad):
    life = Life(seed, budget=4_000, bad=bad)
    summaries = await life.live(TURNS)
    assert len(summaries) > TURNS / 25
    by = {record.data["summary"]["by"] for record in summaries}
    assert "cheap" in by or bad == 1
    assert "extract" in by or bad == 0


async def test_without_undos_no_message_is_lost_between_two_summaries():
    """Each summary is told of every message from where the one before ended to its own cut, and of nothing twice."""
    life = Life(5, budget=3_000, tools=True)
    summaries = await life.live(80, others=0.0)
    assert len(summaries) > 3
    told: set[int] = set()
    for record in summaries:
        places = {seq for first, last in record.data["spans"] for seq in range(first, last + 1)}
        assert not places & told
        told |= places
    view = await view_of(life.store)
    messages = {r.seq for r in await records_of(life.store) if r.kind == "message"}
    by = {seq: view.coverage(seq)[0] for seq in messages}
    assert {seq for seq in messages if by[seq] == "summary"} == told & messages
    assert set(by.values()) <= {"view", "summary", "cut"}
