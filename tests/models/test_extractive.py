"""The offline stand-in: it answers from its request alone, in two languages, and calls the tools that are asked for."""

import json
from typing import Any

import pytest

from backstory import errors
from backstory.compaction.words import sentences, stem, terms, words_of
from backstory.formats import synthetic, wire_format
from backstory.formats.request import request_body
from backstory.messages import Message, assistant, system, tool, user
from backstory.models import Answer, ExtractiveModel, Model, ScriptedModel
from backstory.models.extract_calls import asked, paths_in
from backstory.models.request import Tool
from backstory.targets import Target


def declared(name: str, required: list[str] | None = None, **properties: str) -> dict[str, Any]:
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in properties.items()},
        "required": list(properties) if required is None else required,
    }
    return {"type": "function", "function": {"name": name, "description": name, "parameters": schema}}


TOOLS = [
    declared("read_file", path="string", offset="integer", required=["path"]),
    declared("list_files", path="string", required=[]),
    declared("search_files", query="string", path="string", required=["query"]),
    declared("terminal", command="string"),
    declared("add", a="integer", b="integer"),
]
PYPROJECT = """\
[project]
name = "rag-demo"
version = "0.4.2"
requires-python = ">=3.11"
dependencies = ["httpx>=0.27"]

[tool.ruff]
line-length = 110
"""


def body(*messages: Message, target: str = "openai", tools: list | None = None) -> dict[str, Any]:
    found = Target.of(target)
    return request_body(found, wire_format(found.format).write(messages, found), tools)


def talk(*texts: str) -> list[Message]:
    """User and assistant in turns, the user first and last."""
    return [user(text) if n % 2 == 0 else assistant(text) for n, text in enumerate(texts)]


async def reply(*messages: Message, target: str = "openai", tools: list | None = None) -> Answer:
    return await ExtractiveModel(target=target).complete(body(*messages, target=target, tools=tools))


async def ask(*texts: str) -> str:
    return (await reply(*talk(*texts))).text


FACTS = [
    (["My name is Alice.", "Noted.", "What is my name?"], "Alice"),
    (["Hi, I'm Alice Moreau and I build a RAG project.", "Noted.", "who am I?"], "Alice Moreau"),
    (["My name is Alice", "Noted.", "Call me Al from now on.", "Noted.", "what's my name"], "Al"),
    (["My name is Alice.", "ok", "My dog's name is Rex.", "ok", "What is my name?"], "Alice"),
    (["My name is Alice.", "ok", "My dog's name is Rex.", "ok", "What is my dog's name?"], "Rex"),
    (["My name is Alice.", "ok", "My dog's name is Rex.", "ok", "What's the name of my dog?"], "Rex"),
    (["我叫小张,我在做 RAG 项目", "好的", "我叫什么名字?"], "小张"),
    (["我叫小张,我在做 RAG 项目", "好的", "What is my name?"], "小张"),
    (["My name is Alice.", "ok", "我叫什么?"], "Alice"),
    (["我叫小张,我在做 RAG 项目", "好的", "我在做什么项目?"], "RAG"),
    (["我的名字是李雷。", "好的", "请叫我老李吧", "好的", "我是谁?"], "老李"),
    (["我的猫叫咪咪。", "好的", "我的猫叫什么?"], "咪咪"),
    (["我的预算是 500 元", "好的", "我的预算是多少?"], "500"),
    (["我的预算是 500 元", "好的", "我的预算改成 800 元", "好的", "我的预算是多少?"], "800"),
    (["My budget is 500 euros.", "ok", "My budget is now 800 euros.", "ok", "What is my budget?"], "800"),
    (
        ["The deadline is Friday.", "ok", "The deadline moved to Monday.", "ok", "When is the deadline?"],
        "Monday",
    ),
    (
        [
            "We decided to use PostgreSQL as the database.",
            "ok",
            "The weather is nice.",
            "ok",
            "Which database do we use?",
        ],
        "PostgreSQL",
    ),
    (["数据库我们用 PostgreSQL", "好的", "今天天气不错", "是的", "我们用哪个数据库?"], "PostgreSQL"),
    (
        [
            "The service listens on port 8421.",
            "ok",
            "There are 3 workers.",
            "ok",
            "On which port does the service listen?",
        ],
        "8421",
    ),
    (["服务端口是 8421", "好的", "有 3 个进程", "好的", "服务的端口是多少?"], "8421"),
    (["I live in Lisbon.", "ok", "I work at Acme.", "ok", "Where do I live?"], "Lisbon"),
    (["我住在上海，在一家创业公司工作。", "好的", "我住在哪里?"], "上海"),
    (["Bob reviews the code, Carol writes the docs.", "ok", "Who writes the docs?"], "Carol"),
    (["My favourite color is green.", "ok", "What's my favorite colour?"], "green"),
    (
        ["Remember that the API key rotates every 90 days.", "ok", "How often does the API key rotate?"],
        "90 days",
    ),
    (["I prefer short answers.", "ok", "It rains.", "ok", "What kind of answers do I like?"], "short"),
    (
        ["My name is Alice and my email is al@x.org.", "ok", "What is my name, and what is my email?"],
        "al@x.org",
    ),
    (
        ["the meeting is at 14:30 on 2026-03-04", "ok", "we have 12 guests", "ok", "when is the meeting?"],
        "14:30",
    ),
    (["会议在3月4日下午两点", "好的", "一共有12个人", "好的", "会议是什么时候?"], "3月4日"),
    (["We chose Redis because it is fast.", "ok", "Why did we choose Redis?"], "because it is fast"),
]


@pytest.mark.parametrize(
    ("texts", "expected"), FACTS, ids=[texts[-1] + expected for texts, expected in FACTS]
)
async def test_it_finds_what_was_said(texts: list[str], expected: str):
    assert expected in await ask(*texts)
    # An answer proves that the context was right: without the facts there is none.
    assert expected not in await ask(texts[-1])


@pytest.mark.parametrize(
    "question", ["What is my name?", "我叫什么名字?", "When is the deadline?", "预算是多少?"]
)
async def test_what_nobody_said_it_does_not_know(question: str):
    answer = await ask("I like tea.", "ok", question)
    assert answer.startswith(("I do not know", "我不知道"))
    # Not even after having said so.
    assert (await ask("I like tea.", "ok", question, answer, question)) == answer


@pytest.mark.parametrize(
    ("said", "language"),
    [
        ("My name is Alice.", "Noted"),
        ("我叫小张", "记下了"),
        ("Hello!", "Hello"),
        ("你好", "你好"),
        ("thank you", "welcome"),
        ("谢谢", "不客气"),
    ],
)
async def test_statements_are_acknowledged(said: str, language: str):
    assert language in await ask(said)


async def test_what_was_said_last_and_first():
    history = ["Plan a trip to Rome.", "ok", "Make it three days.", "ok"]
    assert await ask(*history, "What did I just say?") == "Make it three days."
    assert await ask(*history, "what was my first message?") == "Plan a trip to Rome."


async def test_two_questions_get_two_answers():
    text = await ask("我叫小张，我们的服务端口是 8421", "好的", "我叫什么名字?服务端口是多少?")
    assert "小张" in text
    assert "8421" in text


async def test_it_says_what_it_is_and_has():
    assert "no LLM" in await ask("Who are you?")
    assert "不是大模型" in await ask("你是谁？")
    answer = await reply(user("What tools do you have?"), tools=TOOLS)
    assert answer.text == "read_file, list_files, search_files, terminal, add"


async def test_memory_and_summary_in_the_system_block_count():
    notes = system("You are helpful.\n\n## Memory\n\n- Name: 小张\n- The project's deadline is 2026-05-01.")
    assert "小张" in (await reply(notes, user("我叫什么名字？"))).text
    assert "2026-05-01" in (await reply(notes, user("When is the deadline of the project?"))).text


async def test_blocks_beside_the_words_are_evidence_and_no_question():
    retrieved = "<retrieved>\n[telegram:1, 2026-01-01]\nThe city I like is Oslo.\n</retrieved>"
    text = f"Which city do I like?\n{retrieved}\n<runtime>\ntime: 2026-03-01 14:02\nchannel: cli\n</runtime>"
    assert words_of(text) == "Which city do I like?"
    assert "Oslo" in await ask(text)
    assert "14:02" in await ask(text.replace("Which city do I like?", "What time is it?"))


# --- tools ---------------------------------------------------------------------------------

WISHES: list[tuple[str, list[tuple[str, dict]]]] = [
    ("Read pyproject.toml", [("read_file", {"path": "pyproject.toml"})]),
    (
        "read pyproject.toml and tell me which Python version it needs",
        [("read_file", {"path": "pyproject.toml"})],
    ),
    ("读取 pyproject.toml", [("read_file", {"path": "pyproject.toml"})]),
    ("请读一下pyproject.toml，然后告诉我需要哪个Python版本", [("read_file", {"path": "pyproject.toml"})]),
    ("What's in src/app/main.py?", [("read_file", {"path": "src/app/main.py"})]),
    ("Which Python version does pyproject.toml ask for?", [("read_file", {"path": "pyproject.toml"})]),
    ("list the files", [("list_files", {})]),
    ("List the files in the src folder.", [("list_files", {"path": "src"})]),
    ("列出所有文件", [("list_files", {})]),
    ("目录里有哪些文件？", [("list_files", {})]),
    ("search for TODO in the files", [("search_files", {"query": "TODO"})]),
    ('Search the code for "def main"', [("search_files", {"query": "def main"})]),
    ("搜索 TODO", [("search_files", {"query": "TODO"})]),
    ("run `git status`", [("terminal", {"command": "git status"})]),
    ("use the terminal to run ls", [("terminal", {"command": "ls"})]),
    ("搜索一下文件里的 TODO", [("search_files", {"query": "TODO"})]),
    ("read_file a.txt", [("read_file", {"path": "a.txt"})]),
    ("运行 `ls -la`", [("terminal", {"command": "ls -la"})]),
    ("use add with a=2 and b=3", [("add", {"a": 2, "b": 3})]),
    ("use add with a=2, b=3", [("add", {"a": 2, "b": 3})]),
    ("call add(2, 3)", [("add", {"a": 2, "b": 3})]),
    ("use the tool add on 2 3", [("add", {"a": 2, "b": 3})]),
    (
        "Read a.txt, b/c.md and Makefile",
        [("read_file", {"path": path}) for path in ("a.txt", "b/c.md", "Makefile")],
    ),
    (
        "List the files, read README.md and search for license",
        [("list_files", {}), ("read_file", {"path": "README.md"}), ("search_files", {"query": "license"})],
    ),
    (
        "列出文件，读取 README.md，再搜索 license",
        [("list_files", {})],  # one after the other: this is the first
    ),
    ("My name is Alice.", []),
    ("I read a lot, e.g. novels, since 3.11 came out.", []),
    ("What is my name?", []),
    ("I want to search my soul some day", []),
    ("Tell me about Node.js", []),
    ("Find out what my name is.", []),
]


@pytest.mark.parametrize(("words", "expected"), WISHES, ids=[words for words, _ in WISHES])
async def test_it_calls_what_is_plainly_asked_for(words: str, expected: list):
    answer = await reply(user(words), tools=TOOLS)
    assert [(call.name, json.loads(call.arguments)) for call in answer.calls] == expected
    assert not (await reply(user(words))).calls


async def finish(
    words: str, results: dict[str, str], *, target: str = "openai"
) -> tuple[list[list[str]], str]:
    """Play the tool loop to its end: the calls of each step, and the answer."""
    messages = [user(words)]
    steps: list[list[str]] = []
    while True:
        answer = await reply(*messages, target=target, tools=TOOLS)
        if not answer.calls:
            return steps, answer.text
        steps.append(
            [
                f"{call.name} {' '.join(map(str, json.loads(call.arguments).values()))}".strip()
                for call in answer.calls
            ]
        )
        assert len(steps) < 6
        messages += answer.messages
        messages += [
            tool(call.id, results[said], name=call.name)
            for call, said in zip(answer.calls, steps[-1], strict=True)
        ]


RESULTS = {
    "read_file pyproject.toml": PYPROJECT,
    "list_files": "README.md\npyproject.toml\nsrc/app.py",
    "search_files TODO": "src/app.py:3: # TODO: name it",
}


@pytest.mark.parametrize(
    "target", ["openai", "openai_responses", "anthropic", "gemini", "vllm", "llama_cpp", "deepseek"]
)
async def test_it_answers_from_what_the_tools_said(target: str):
    words = "Read pyproject.toml and tell me: which Python version does it need?"
    steps, text = await finish(words, RESULTS, target=target)
    assert steps == [["read_file pyproject.toml"]]
    assert text == 'requires-python = ">=3.11" (pyproject.toml)'


@pytest.mark.parametrize(
    ("words", "steps", "said"),
    [
        ("Which Python version does pyproject.toml ask for?", [["read_file pyproject.toml"]], "3.11"),
        ("读取 pyproject.toml，需要哪个 Python 版本？", [["read_file pyproject.toml"]], "3.11"),
        ("read pyproject.toml. what is the name of the project?", [["read_file pyproject.toml"]], "rag-demo"),
        ("Read pyproject.toml", [["read_file pyproject.toml"]], "rag-demo"),
        (
            "List the files, read pyproject.toml and search for TODO",
            [["list_files", "read_file pyproject.toml", "search_files TODO"]],
            "TODO: name it",
        ),
        (
            "List the files, then read pyproject.toml, then search for TODO",
            [["list_files"], ["read_file pyproject.toml"], ["search_files TODO"]],
            "src/app.py",
        ),
    ],
)
async def test_several_tools_in_one_step_or_one_after_the_other(words: str, steps: list, said: str):
    made, text = await finish(words, RESULTS)
    assert made == steps
    assert said in text


async def test_a_later_turn_answers_from_an_earlier_turns_result():
    first = await reply(user("Read pyproject.toml"), tools=TOOLS)
    history = [user("My name is Alice."), assistant("Noted."), user("Read pyproject.toml"), *first.messages]
    history += [tool(first.calls[0].id, PYPROJECT), assistant("I read it.")]
    for question, expected in [
        ("Which Python version?", ">=3.11"),
        ("哪个 Python 版本？", ">=3.11"),
        ("What is the line length in pyproject.toml?", "110"),
        ("What is my name, and which Python version does the project need?", "Alice"),
        ("What is my name, and which Python version does the project need?", ">=3.11"),
    ]:
        answer = await reply(*history, user(question), tools=TOOLS)
        assert expected in answer.text
    again = await reply(*history, user("Read pyproject.toml"), tools=TOOLS)
    assert [call.name for call in again.calls] == ["read_file"]


async def test_after_a_crash_it_makes_again_what_never_started():
    asked_for = user("List the files, read pyproject.toml and run `make deploy`")
    first = await reply(asked_for, tools=TOOLS)
    calls = first.calls
    assert len(calls) == 3
    not_started = synthetic.NOT_STARTED_TEXT
    unknown = synthetic.OUTCOME_UNKNOWN_TEXT
    open_ = [tool(calls[0].id, "README.md"), tool(calls[1].id, not_started), tool(calls[2].id, unknown)]
    second = await reply(asked_for, *first.messages, *open_, tools=TOOLS)
    assert [call.arguments for call in second.calls] == [calls[1].arguments]
    again = tool(second.calls[0].id, not_started)
    third = await reply(asked_for, *first.messages, *open_, *second.messages, again, tools=TOOLS)
    assert not third.calls  # twice is enough


async def test_tools_are_left_alone_where_the_request_says_so():
    request = body(user("list the files and read a.txt"), tools=TOOLS)
    model = ExtractiveModel(target="openai")
    assert not (await model.complete({**request, "tool_choice": "none"})).calls
    assert len((await model.complete({**request, "parallel_tool_calls": False})).calls) == 1
    assert len((await model.complete(request)).calls) == 2


async def test_a_tool_that_wants_more_than_was_said_is_not_called():
    tools = [declared("read_file", path="string", encoding="string")]
    assert not (await reply(user("read a.txt"), tools=tools)).calls
    assert not (await reply(user("use add with a=2"), tools=TOOLS)).calls


def test_a_tool_without_a_schema_gets_the_usual_argument():
    (ask_,) = asked("read a.txt", [Tool(name="read_file", description="", schema={})])
    assert ask_.arguments == {"path": "a.txt"}


async def test_it_is_deterministic_and_honest():
    request = body(*talk("My name is Alice.", "ok", "What is my name?"), tools=TOOLS)
    model = ExtractiveModel(target="openai")
    assert isinstance(model, Model)
    assert [await model.complete(request) for _ in range(2)] == [
        await ExtractiveModel(target="openai").complete(request)
    ] * 2
    events = [event async for event in model.stream(request)]
    assert events[-1] == await model.complete(request)
    assert "no-llm" in model.name
    assert "no-llm" in repr(model)


async def test_it_refuses_what_an_api_would_refuse():
    with pytest.raises(errors.ModelRefused):
        await ExtractiveModel().complete({"messages": [{"role": "assistant", "content": "Hi"}]})


async def test_its_answers_are_legal_to_go_on_with():
    """What it says goes back to a server that judges."""
    judge = ScriptedModel(lambda body: "ok", target="openai_chat")
    first = await reply(user("list the files and read a.txt"), target="openai_chat", tools=TOOLS)
    results = [tool(call.id, "x") for call in first.calls]
    await judge.complete(
        body(user("list the files and read a.txt"), *first.messages, *results, target="openai_chat")
    )


# --- words ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("read pyproject.toml, src/a_b/c-d.py and ./x.md.", ["pyproject.toml", "src/a_b/c-d.py", "./x.md"]),
        ("读取pyproject.toml和README.zh-CN.md", ["pyproject.toml", "README.zh-CN.md"]),
        ("see https://example.org/a.html, version 3.11, e.g. this; mail al@x.org", []),
        ("../../etc/passwd.txt and .gitignore", ["../../etc/passwd.txt"]),
    ],
)
def test_paths(text: str, paths: list[str]):
    assert paths_in(text) == paths


def test_sentences_keep_numbers_and_names_whole():
    text = "Use Python 3.11. See a.txt!  好的。再见\nlast"
    assert sentences(text) == ["Use Python 3.11.", "See a.txt!", "好的。", "再见", "last"]


def test_stems_and_terms():
    assert {stem(word) for word in ("listen", "listens", "listening", "listened")} == {"listen"}
    assert {stem(word) for word in ("require", "requires", "required", "needs")} == {"requir"}
    assert {"requires-python", "python"} <= terms('requires-python = ">=3.11"') | {"requires-python"}
    assert terms("我们用哪个数据库?") & terms("the database is PostgreSQL")
    assert not terms("what is the of")
