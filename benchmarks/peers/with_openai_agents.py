"""openai-agents: `SQLiteSession`, four `add_items` a turn, the newest items by `get_items(limit=…)`.

Within a budget they are counted after that; the limit is what is known, here, to be about 8,000 tokens.
"""

from agents import SQLiteSession
from child import Peer, measure
from counting import HOW, within
from talk import WINDOW


def item(number, kind, row):
    user, arguments, result, answer = row
    return {
        "user": {"role": "user", "content": user},
        "call": {"type": "function_call", "call_id": f"c{number}", "name": "look", "arguments": arguments},
        "result": {"type": "function_call_output", "call_id": f"c{number}", "output": result},
        "answer": {"role": "assistant", "content": answer},
    }[kind]


KINDS = ("user", "call", "result", "answer")


def words(found):
    yield found.get("content") or found.get("output") or found["arguments"]


class Agents(Peer):
    async def open(self):
        self.held = {}

    def session(self, number):
        if number not in self.held:
            self.held[number] = SQLiteSession(f"s{number}", str(self.folder / "agents.db"))
        return self.held[number]

    async def fill(self, given):
        items = [item(number, kind, row) for number, row in enumerate(given) for kind in KINDS]
        for start in range(0, len(items), 4_000):
            await self.session(0).add_items(items[start : start + 4_000])

    async def turn(self, session, number, row):
        for kind in KINDS:
            await self.session(session).add_items([item(number, kind, row)])

    async def request(self):
        found = await self.session(0).get_items(limit=WINDOW)
        return len(within(found, words) if HOW else found)

    async def close(self):
        for session in self.held.values():
            session.close()


measure(Agents)
