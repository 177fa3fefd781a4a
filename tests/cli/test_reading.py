"""What a file may hold, and that whatever else it holds becomes one line and the code 2."""

import codecs
import json
import os
import sys

import pytest

from backstory.cli.reading import read_conversations
from backstory.errors import InvalidInput


def test_a_list_a_body_and_lines_are_one_conversation(write, chat):
    for path in (write(chat), write({"messages": chat, "model": "m"}), write(*chat, name="lines.jsonl")):
        (found,) = read_conversations(str(path))
        assert found.items == chat
        assert found.line is None


def test_a_body_gives_its_system_tools_and_format(write, claude):
    (found,) = read_conversations(str(write(claude)))
    assert (found.system, found.tools, found.format) == ("Be brief.", claude["tools"], "anthropic")


def test_lines_of_conversations(write, chat, claude):
    batch = {"custom_id": "1", "method": "POST", "body": {"model": "m", "messages": chat}}
    path = write(chat, {"messages": chat}, claude, batch, name="many.jsonl")
    found = read_conversations(str(path))
    assert [each.line for each in found] == [1, 2, 3, 4]
    assert [len(each.items) for each in found] == [6, 6, 3, 6]


def test_a_list_of_bodies_is_many(write, chat, claude):
    assert [each.line for each in read_conversations(str(write([{"messages": chat}, claude])))] == [1, 2]


def test_one_message_in_one_line(write):
    (found,) = read_conversations(str(write({"role": "user", "content": "Hi"})))
    assert found.items == [{"role": "user", "content": "Hi"}]


def test_items_of_responses_with_an_input_of_their_own_are_messages(write):
    items = [
        {"type": "message", "role": "user", "content": "Hi"},
        {"type": "custom_tool_call", "call_id": "1", "name": "sh", "input": "ls"},
        {"type": "custom_tool_call_output", "call_id": "1", "output": "x"},
    ]
    (found,) = read_conversations(str(write(*items, name="r.jsonl")))
    assert found.items == items


def test_blank_lines_and_line_separators_inside_strings(write):
    lines = '{"role": "user", "content": "a\u2028b"}\r\n\n  \n{"role": "assistant", "content": "c"}\n'
    (found,) = read_conversations(str(write(lines)))
    assert [item["content"] for item in found.items] == ["a\u2028b", "c"]


@pytest.mark.parametrize(
    ("mark", "encoding"),
    [
        (codecs.BOM_UTF8, "utf-8"),
        (codecs.BOM_UTF16_LE, "utf-16-le"),
        (codecs.BOM_UTF16_BE, "utf-16-be"),
        (codecs.BOM_UTF32_LE, "utf-32-le"),
    ],
)
def test_marks_of_other_encodings(write, chat, mark, encoding):
    (found,) = read_conversations(str(write(mark + json.dumps(chat).encode(encoding))))
    assert found.items == chat


BAD = {
    "empty": (b"", "is empty"),
    "blank": (b" \n \n", "is empty"),
    "no JSON": (b"hello", "no JSON"),
    "torn": (b'[{"role": "user"', "no JSON"),
    "bad second line": (b'{"role": "user", "content": "a"}\n{"role": ', "line 2: no JSON"),
    "binary": (bytes(range(256)), "no UTF-8 text (byte 0x80 at offset 128)"),
    "latin": ("[{'content': 'Zürich'}]".encode("latin-1"), "no UTF-8 text (byte 0xfc"),
    "zero bytes": (b'[{"role"\0}]', "zero byte at offset 8"),
    "a number": (b"7", "must be a list of messages or a request body, not int"),
    "a string": (b'"hi"', "not str"),
    "null": (b"null", "not NoneType"),
    "no messages": (b'{"model": "x"}', "no request body"),
    "messages of a wrong type": (b'{"messages": 7}', "messages must be a list, not int"),
    "a number in a line": (
        b'{"role": "user", "content": "a"}\n7',
        "line 2: expected a message, not a number",
    ),
    "mixed lines": (
        b'{"role": "user", "content": "a"}\n{"messages": []}',
        "line 1 holds a message and line 2 a",
    ),
    "deep": (b"[" * 200_000, "nested too deeply"),
    "a huge number": (b"[" + b"9" * 5000 + b"]", "no JSON that can be read"),
}


@pytest.mark.parametrize("name", list(BAD))
@pytest.mark.parametrize("word", ["check", "fit", "convert", "replay"])
def test_bad_input_is_one_line_and_code_2(command, write, word, name):
    data, what = BAD[name]
    more = ("--target", "anthropic") if word == "convert" else ()
    done = command(word, write(data), *more)
    assert (done.code, done.out) == (2, "")
    assert what in done.err
    assert done.err.startswith("backstory: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err


def test_no_file_a_folder_and_a_strange_name(command, tmp_path):
    assert "there is no such file" in command("check", tmp_path / "none.json").err
    assert "is a folder" in command("check", tmp_path).err
    done = command("check", "a\0b")
    assert done.code == 2
    assert "cannot be read" in done.err


@pytest.mark.skipif(sys.platform == "win32" or os.geteuid() == 0, reason="root may read everything")
def test_a_file_that_may_not_be_read(command, write):
    path = write("[]")
    path.chmod(0)
    assert "Permission denied" in command("check", path).err


def test_read_conversations_raises_nothing_else(write):
    for data, _ in BAD.values():
        with pytest.raises(InvalidInput):
            read_conversations(str(write(data)))


def test_line_chooses(command, write, chat):
    many = write(chat, chat[:2], name="many.jsonl")
    for word in ("fit", "replay"):
        done = command(word, many)
        assert done.code == 2
        assert "2 conversations: choose one with --line 1 to --line 2, or --line all" in done.err
    assert len(command("fit", many, "--line", 2).json["messages"]) == 2
    assert [
        len(json.loads(line)["messages"]) for line in command("fit", many, "--line", "all").out.splitlines()
    ] == [6, 2]
    assert "no conversation in line 3; there are 2, from line 1 to 2" in command("fit", many, "--line", 3).err
    assert "--line takes a number or all" in command("fit", many, "--line", "x").err


def test_standard_input(command, chat):
    data = json.dumps(chat).encode()
    assert command("fit", "-", stdin=data).json["messages"] == chat
    done = command("check", "-", stdin=b"nonsense")
    assert (done.code, done.err) == (
        2,
        "backstory: standard input: no JSON: expecting value (line 1, column 1)\n",
    )
