"""Backstory itself, the public way: a turn with the model's part given, four durable points."""

import sys

from child import Peer, measure
from talk import BUDGET, rows

import backstory

STORE = sys.argv[2]


class Ours(Peer):
    async def open(self):
        place = {
            "files": str(self.folder),
            "sqlite": f"sqlite:///{self.folder}/chat.db",
            "memory": "memory:",
        }[STORE]
        self.entered = None
        self.bs = backstory.open(place, target="openai_chat", budget=BUDGET, runtime=False, compaction=False)

    async def fill(self, given):
        place = {"files": str(self.folder), "sqlite": f"sqlite:///{self.folder}/chat.db"}.get(STORE)
        if place is None:
            await super().fill(given)
            return
        real, self.bs = (
            self.bs,
            backstory.open(
                place,
                target="openai_chat",
                budget=BUDGET,
                runtime=False,
                compaction=False,
                durability="process",
            ),
        )
        for number, row in enumerate(given):
            await self.turn(0, number, row, asks=number > len(given) - 60)
        await self.bs.close()
        self.bs = real

    async def turn(self, session, number, row, *, asks=False):
        user, arguments, result, answer = row
        function = {"name": "look", "arguments": arguments}
        async with self.bs.turn(f"s{session}", user) as turn:
            if asks:
                await turn.request()
            call = {"id": f"c{number}", "type": "function", "function": function}
            await turn.record({"role": "assistant", "content": None, "tool_calls": [call]})
            for waiting in turn.open_calls:
                await turn.result(waiting, result)
            if asks:
                await turn.request()
            await turn.record({"role": "assistant", "content": answer})

    async def settle(self):
        for number, row in enumerate(rows(20, seed=77)):
            await self.turn(0, 1_000_000 + number, row, asks=True)

    async def ready(self):
        self.entered = self.bs.turn("s0", "How many boxes are left?")
        self.asked = await self.entered.__aenter__()

    async def request(self):
        return len((await self.asked.request()).body["messages"])

    async def close(self):
        if self.entered is not None:
            await self.entered.__aexit__(None, None, None)
        await self.bs.close()


measure(Ours)
