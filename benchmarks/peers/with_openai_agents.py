"""openai-agents: `SQLiteSession`, four `add_items` a turn, the newest items by `get_items(limit=…)`."""

from agents import SQLiteSession
from child import Peer, measure
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
        return len(await self.session(0).get_items(limit=WINDOW))

    async def close(self):
        for session in self.held.values():
            session.close()


measure(Agents)
