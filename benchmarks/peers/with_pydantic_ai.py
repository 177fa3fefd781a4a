"""pydantic-ai, as its documentation shows: the new messages of each run as a row of JSON; all rows are read.

Within a budget they are counted from the newest back, as a history processor does that is given all messages.
"""

import sqlite3

from child import Peer, measure
from counting import HOW, within
from pydantic_ai.messages import (
    ModelMessagesTypeAdapter,
    ModelRequest,
    ModelResponse,
    TextPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from talk import WINDOW


def messages(number, row):
    user, arguments, result, answer = row
    return [
        ModelRequest(parts=[UserPromptPart(user)]),
        ModelResponse(parts=[ToolCallPart("look", arguments, f"c{number}")]),
        ModelRequest(parts=[ToolReturnPart("look", result, f"c{number}")]),
        ModelResponse(parts=[TextPart(answer)]),
    ]


def words(message):
    for part in message.parts:
        yield part.args if isinstance(part, ToolCallPart) else part.content


class PydanticAI(Peer):
    async def open(self):
        self.db = sqlite3.connect(self.folder / "runs.db")
        self.db.execute("PRAGMA journal_mode=WAL")
        self.db.execute("PRAGMA synchronous=FULL")
        self.db.execute(
            "CREATE TABLE IF NOT EXISTS runs (id INTEGER PRIMARY KEY, session INT, messages BLOB)"
        )

    def add(self, session, number, row):
        self.db.execute(
            "INSERT INTO runs (session, messages) VALUES (?, ?)",
            (session, ModelMessagesTypeAdapter.dump_json(messages(number, row))),
        )

    async def fill(self, given):
        for number, row in enumerate(given):
            self.add(0, number, row)
        self.db.commit()

    async def turn(self, session, number, row):
        self.add(session, number, row)
        self.db.commit()

    async def request(self):
        found = []
        for (row,) in self.db.execute("SELECT messages FROM runs WHERE session = 0 ORDER BY id"):
            found += ModelMessagesTypeAdapter.validate_json(row)
        return len(within(found, words) if HOW else found[-WINDOW:])

    async def close(self):
        self.db.close()


measure(PydanticAI)
