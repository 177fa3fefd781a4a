"""llama-index-core: `Memory` with its SQLite store and a token limit of 8,000; four `aput` a turn."""

from child import Peer, measure
from llama_index.core.base.llms.types import ChatMessage
from llama_index.core.memory import Memory
from talk import BUDGET


def messages(number, row):
    user, arguments, result, answer = row
    call = {"id": f"c{number}", "type": "function", "function": {"name": "look", "arguments": arguments}}
    return [
        ChatMessage(role="user", content=user),
        ChatMessage(role="assistant", content="", additional_kwargs={"tool_calls": [call]}),
        ChatMessage(role="tool", content=result, additional_kwargs={"tool_call_id": f"c{number}"}),
        ChatMessage(role="assistant", content=answer),
    ]


class LlamaIndex(Peer):
    async def open(self):
        self.held = {}
        await self.memory(0).aget()  # makes the table, which two at once would trip over

    def memory(self, session):
        if session not in self.held:
            self.held[session] = Memory.from_defaults(
                session_id=f"s{session}",
                token_limit=BUDGET,
                chat_history_token_ratio=1.0,
                async_database_uri=f"sqlite+aiosqlite:///{self.folder}/memory.db",
            )
        return self.held[session]

    async def fill(self, given):
        for start in range(0, len(given), 250):
            rows = given[start : start + 250]
            await self.memory(0).sql_store.add_messages(
                "s0", [m for number, row in enumerate(rows, start) for m in messages(number, row)]
            )

    async def turn(self, session, number, row):
        for message in messages(number, row):
            await self.memory(session).aput(message)

    async def request(self):
        return len(await self.memory(0).aget())


measure(LlamaIndex)
