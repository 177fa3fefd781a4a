"""google-adk: `DatabaseSessionService` over SQLite, four `append_event` a turn, the newest events by its config."""

import logging
import warnings

from child import Peer, measure
from google.adk.events import Event
from google.adk.sessions import DatabaseSessionService
from google.adk.sessions.base_session_service import GetSessionConfig
from google.genai import types
from talk import WINDOW

warnings.simplefilter("ignore")
logging.disable(logging.CRITICAL)


def events(number, row):
    user, arguments, result, answer = row
    call = types.FunctionCall(id=f"c{number}", name="look", args={"q": arguments})
    response = types.FunctionResponse(id=f"c{number}", name="look", response={"result": result})
    for author, role, part in (
        ("user", "user", types.Part(text=user)),
        ("agent", "model", types.Part(function_call=call)),
        ("agent", "user", types.Part(function_response=response)),
        ("agent", "model", types.Part(text=answer)),
    ):
        yield Event(author=author, invocation_id=f"i{number}", content=types.Content(role=role, parts=[part]))


class ADK(Peer):
    async def open(self):
        self.service = DatabaseSessionService(f"sqlite+aiosqlite:///{self.folder}/adk.db")
        self.held = {}

    async def session(self, number):
        if number not in self.held:
            place = {"app_name": "bench", "user_id": "u", "session_id": f"s{number}"}
            found = await self.service.get_session(**place, config=GetSessionConfig(num_recent_events=1))
            self.held[number] = found or await self.service.create_session(**place)
        return self.held[number]

    async def turn(self, session, number, row):
        held = await self.session(session)
        for event in events(number, row):
            await self.service.append_event(held, event)

    async def request(self):
        found = await self.service.get_session(
            app_name="bench", user_id="u", session_id="s0", config=GetSessionConfig(num_recent_events=WINDOW)
        )
        return len(found.events)


measure(ADK)
