"""Your own loop, your own client: `fit` before each call, with the state of the call before. Runs offline.

The model here is a stand-in that knows a few towns. With a real one, `ask` is a line such as

    client.chat.completions.create(model="gpt-5-mini", **body).choices[0].message.model_dump(exclude_none=True)
"""

from __future__ import annotations

import json
from typing import Any

import backstory

BUDGET = 900  # tokens of input: small, so that something happens
WEATHER = {
    "Hangzhou": "18 °C, light rain",
    "Zürich": "4 °C, fog",
    "Lisboa": "21 °C, clear",
    "成都": "12 °C，阴",
}
TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "weather",
            "description": "The weather in a town, now and for the coming hours.",
            "parameters": {
                "type": "object",
                "properties": {"town": {"type": "string"}},
                "required": ["town"],
            },
        },
    }
]


def ask(body: dict[str, Any]) -> dict[str, Any]:
    """The stand-in: it asks for the weather once, then tells it."""
    last = body["messages"][-1]
    if last["role"] == "tool":
        return {"role": "assistant", "content": f"Just looked it up: {last['content'].split(';')[0]}."}
    town = next(town for town in WEATHER if town in last["content"])
    call = {"name": "weather", "arguments": json.dumps({"town": town}, ensure_ascii=False)}
    # Like some servers, it numbers its calls from zero each time.
    return {
        "role": "assistant",
        "content": None,
        "tool_calls": [{"id": "call_0", "type": "function", "function": call}],
    }


def weather(town: str) -> str:
    hours = ", ".join(f"{hour:02d}:00 {WEATHER[town]}" for hour in range(8, 20))
    return f"{town} {WEATHER[town]}; {hours}"


def main() -> None:
    history: list[dict[str, Any]] = [
        {"role": "system", "content": "You tell the weather. 用提问的语言回答。"}
    ]
    state = None
    sent = cached = 0
    for turn in range(8):
        town = list(WEATHER)[turn % len(WEATHER)]
        history.append({"role": "user", "content": f"How is the weather in {town}?"})
        while history[-1]["role"] != "assistant" or history[-1].get("tool_calls"):
            fitted = backstory.fit(history, budget=BUDGET, tools=TOOLS, state=state)
            state = fitted.state  # plain JSON: keep it with the conversation
            ledger = fitted.ledger
            sent, cached = sent + ledger.total, cached + ledger.shared
            print(
                f"{len(history):>3} messages, {ledger.total:>4} tokens sent, {ledger.shared:>4} as before · {ledger.why}"
            )
            answer = ask(fitted.body)
            history.append(answer)
            for call in answer.get("tool_calls", ()):
                arguments = json.loads(call["function"]["arguments"])
                history.append({"role": "tool", "tool_call_id": call["id"], "content": weather(**arguments)})
        print(f"    {history[-1]['content']}")
    print(
        f"{cached / sent:.0%} of all {sent:,} tokens stood there before: a provider's cache bills them at a tenth."
    )


if __name__ == "__main__":
    main()
