"""langgraph: a graph over `MessagesState` with `AsyncSqliteSaver`, one run a turn, trimmed by `trim_messages`.

Within a budget its counter is exact; else it is its own, which divides characters by four.
"""

from child import Peer, measure
from counting import HOW, tokens
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage, trim_messages
from langchain_core.messages.utils import count_tokens_approximately
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.graph import END, START, MessagesState, StateGraph
from talk import BUDGET


def call(number, row):
    return AIMessage("", tool_calls=[{"id": f"c{number}", "name": "look", "args": {"q": row[1]}}])


def exactly(messages):
    """Tokens of messages, as a `token_counter`; an answer's text or its calls' arguments."""
    return sum(
        tokens(m.content) + sum(tokens(c["args"]["q"]) for c in getattr(m, "tool_calls", ()))
        for m in messages
    )


class LangGraph(Peer):
    async def open(self):
        self.context = AsyncSqliteSaver.from_conn_string(str(self.folder / "graph.db"))
        self.saver = await self.context.__aenter__()
        self.given = {}

        def model(state, config):
            return {"messages": [self.given[config["configurable"]["thread_id"]].pop(0)]}

        graph = StateGraph(MessagesState)
        for name in ("model", "tools", "answer"):
            graph.add_node(name, model)
        graph.add_edge(START, "model")
        graph.add_edge("model", "tools")
        graph.add_edge("tools", "answer")
        graph.add_edge("answer", END)
        self.graph = graph.compile(checkpointer=self.saver)

    def config(self, session):
        return {"configurable": {"thread_id": f"s{session}"}}

    async def fill(self, given):
        messages = []
        for number, row in enumerate(given):
            messages += [
                HumanMessage(row[0]),
                call(number, row),
                ToolMessage(row[2], tool_call_id=f"c{number}"),
                AIMessage(row[3]),
            ]
        if messages:
            await self.graph.aupdate_state(self.config(0), {"messages": messages}, as_node="answer")

    async def turn(self, session, number, row):
        self.given[f"s{session}"] = [
            call(number, row),
            ToolMessage(row[2], tool_call_id=f"c{number}"),
            AIMessage(row[3]),
        ]
        await self.graph.ainvoke({"messages": [HumanMessage(row[0])]}, self.config(session))

    async def request(self):
        state = await self.graph.aget_state(self.config(0))
        kept = trim_messages(
            state.values["messages"],
            max_tokens=BUDGET,
            token_counter=exactly if HOW else count_tokens_approximately,
            start_on="human",
        )
        return len(kept)

    async def close(self):
        await self.context.__aexit__(None, None, None)


measure(LangGraph)
