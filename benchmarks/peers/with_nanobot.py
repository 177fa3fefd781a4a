"""nanobot-ai: its SessionManager, one `save` a turn as its own loop does, history within 8,000 tokens. No fsync."""

import logging

from child import Peer, measure
from nanobot.session.manager import SessionManager
from talk import BUDGET

logging.disable(logging.CRITICAL)


class Nanobot(Peer):
    async def open(self):
        workspace = self.folder / "workspace"
        workspace.mkdir(exist_ok=True)
        self.manager = SessionManager(workspace, sessions_root=self.folder / "sessions")

    def add(self, session, number, row):
        user, arguments, result, answer = row
        call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": arguments}}
        session.add_message("user", user)
        session.add_message("assistant", "", tool_calls=[call])
        session.add_message("tool", result, tool_call_id=f"c{number}", name="look")
        session.add_message("assistant", answer)

    async def fill(self, given):
        session = self.manager.get_or_create("bench:0")
        for number, row in enumerate(given):
            self.add(session, number, row)
        self.manager.save(session)

    async def turn(self, session, number, row):
        held = self.manager.get_or_create(f"bench:{session}")
        self.add(held, number, row)
        self.manager.save(held)

    async def request(self):
        return len(self.manager.get_or_create("bench:0").get_history(max_tokens=BUDGET))


measure(Nanobot)
