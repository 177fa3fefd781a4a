"""`make llm-test`: the same client against a real server that speaks OpenAI's protocol. See docs/models.md.

Skipped, with a word on how to run it, where OPENAI_BASE_URL is not set.
"""

import asyncio
import json
import os
import urllib.request
from typing import Any

import pytest

from backstory import errors
from backstory.formats import wire_format
from backstory.formats.request import request_body
from backstory.legality.repair import mend
from backstory.messages import Message, assistant, system, tool, user
from backstory.models import Answer, OpenAIModel, TextDelta

URL = os.environ.get("OPENAI_BASE_URL")
KEY = os.environ.get("OPENAI_API_KEY")
NAME = os.environ.get("OPENAI_MODEL")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not URL,
        reason="no server: set OPENAI_BASE_URL (and OPENAI_API_KEY, OPENAI_MODEL) to any that speaks OpenAI's protocol",
    ),
]

LOOK_UP = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Looks up the secret word that belongs to a number.",
        "parameters": {
            "type": "object",
            "properties": {"number": {"type": "integer", "description": "the number"}},
            "required": ["number"],
        },
    },
}


def first_model() -> str:
    """The first that the server offers."""
    request = urllib.request.Request(f"{URL}/models", headers={"Authorization": f"Bearer {KEY or 'none'}"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return str(json.load(answer)["data"][0]["id"])


def model(**settings: Any) -> OpenAIModel:
    return OpenAIModel(NAME or first_model(), base_url=URL, api_key=KEY, **settings)


def body(talker: OpenAIModel, *messages: Message, tools: list | None = None) -> dict[str, Any]:
    legal = mend(messages, talker.target).messages
    return request_body(talker.target, wire_format(talker.target.format).write(legal, talker.target), tools)


async def test_an_answer_and_its_usage():
    talker = model()
    answer = await talker.complete(
        body(talker, system("Answer in one short sentence."), user("What is 2 + 2?"))
    )
    print(f"\n{talker!r}: {answer.text!r} {answer.usage}")
    assert "4" in answer.text or "four" in answer.text.lower()
    assert answer.finish == "stop"
    assert answer.usage is None or answer.usage.input > 5
    await talker.aclose()


async def test_a_stream_says_the_same_as_its_answer():
    talker = model()
    events = [event async for event in talker.stream(body(talker, user("Count from 1 to 5.")))]
    answer = events[-1]
    assert isinstance(answer, Answer)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == answer.text
    assert "5" in answer.text
    await talker.aclose()


async def test_it_knows_what_was_said_before():
    talker = model()
    history = [user("My name is Zebulon. Just say ok."), assistant("ok"), user("What is my name? One word.")]
    assert "zebulon" in (await talker.complete(body(talker, *history))).text.lower()
    await talker.aclose()


async def test_a_tool_is_called_and_its_result_read():
    talker = model()
    messages = [user("Use the tool look_up to find the secret word of the number 7, then tell me that word.")]
    first = await talker.complete(body(talker, *messages, tools=[LOOK_UP]))
    if not first.calls:
        pytest.skip(f"{talker.name} did not call the tool: {first.text[:100]!r}")
    assert json.loads(first.calls[0].arguments)["number"] == 7
    results = [tool(call.id, "The secret word is 'marzipan'.", name=call.name) for call in first.calls]
    second = await talker.complete(body(talker, *messages, *first.messages, *results, tools=[LOOK_UP]))
    assert "marzipan" in second.text.lower()
    await talker.aclose()


async def test_a_short_limit_ends_an_answer():
    talker = model(max_output=5)
    answer = await talker.complete(body(talker, user("Tell a long story.")))
    assert answer.finish in ("length", "empty")
    await talker.aclose()


async def test_a_model_that_is_not_there_is_refused():
    talker = OpenAIModel("there-is-no-such-model", base_url=URL, api_key=KEY, retries=0)
    try:
        await talker.complete(body(talker, user("Hi")))
    except errors.ModelError as error:
        print(f"\n{type(error).__name__}: {error}")
    else:
        pytest.skip("the server answers to any model's name")
    finally:
        await talker.aclose()


async def test_a_stream_can_be_cancelled():
    talker = model()
    events = talker.stream(body(talker, user("Write a poem of forty lines.")))
    async with asyncio.timeout(120):
        await anext(events)
    await events.aclose()
    await talker.aclose()
