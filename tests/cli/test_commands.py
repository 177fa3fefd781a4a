"""check, fit and convert: what they print, their JSON, their codes."""

import json

import pytest


def test_check_legal_is_0(command, write, chat):
    done = command("check", write(chat))
    assert (done.code, done.err) == (0, "")
    assert "6 messages, openai_chat: legal" in done.out


def test_check_problems_is_1_and_says_how_to_mend(command, write, broken):
    done = command("check", write(broken))
    assert done.code == 1
    for word in ("result.missing", "message 2", "weather", "mend: "):
        assert word in done.out


def test_check_json(command, write, broken):
    found = command("check", write(broken), "--json").json
    assert set(found) == {"line", "source", "target", "messages", "problems"}
    assert set(found["problems"][0]) == {"rule", "index", "what", "mend"}
    assert (found["source"], found["target"], found["messages"]) == ("openai_chat", "openai_chat", 4)


def test_check_of_many_checks_all(command, write, chat, broken):
    path = write(chat, broken, name="many.jsonl")
    done = command("check", path)
    assert done.code == 1
    assert "line 1: 6 messages, openai_chat: legal" in done.out
    assert "line 2: 4 messages" in done.out
    assert [each["line"] for each in command("check", path, "--json").json] == [1, 2]
    assert command("check", path, "--line", 1).code == 0


def test_check_ready(command, write, chat):
    assert command("check", write(chat[:-1])).code == 0
    assert command("check", write(chat[:-1]), "--ready").code == 1


def test_check_for_another_target_and_source(command, write, claude):
    done = command("check", write(claude), "--target", "openai")
    assert "anthropic for openai" in done.out
    assert command("check", write(claude), "--source", "nonsense").code == 2
    assert "unknown target" in command("check", write(claude), "--target", "nonsense").err


def test_fit_writes_the_body_alone_to_standard_output(command, write, chat):
    done = command("fit", write(chat))
    assert done.code == 0
    assert done.json == {"messages": chat}
    assert "o200k_base, exact" in done.err


def test_fit_json(command, write, broken):
    found = command("fit", write(broken), "--budget", 500, "--json").json
    assert set(found) == {"line", "body", "ledger", "repairs", "losses", "state"}
    assert found["ledger"]["budget"] == 500
    assert "result.missing" in {repair["rule"] for repair in found["repairs"]}


def test_fit_says_what_it_healed(command, write, broken):
    assert "message 2 healed (result.missing)" in command("fit", write(broken)).err


def test_fit_to_another_target_takes_system_and_tools_along(command, write, claude):
    body = command("fit", write(claude), "--target", "openai").json
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}
    assert body["tools"][0]["function"]["name"] == "weather"


def test_fit_tools_from_a_file(command, write, chat):
    tools = [{"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}]
    for given in (tools, {"tools": tools}):
        path = write(given, name="tools.json")
        assert command("fit", write(chat), "--tools", path).json["tools"] == tools
    path = write("7", name="tools.json")
    assert "tools must be a list" in command("fit", write(chat), "--tools", path).err


def test_fit_that_does_not_fit_is_1(command, write, chat):
    done = command("fit", write(chat), "--budget", 5)
    assert (done.code, done.out) == (1, "")
    assert "may take 5" in done.err
    found = command("fit", write(chat), "--budget", 5, "--json").json
    assert set(found) == {"line", "error", "ledger"}
    assert found["ledger"]["budget"] == 5


def test_fit_with_nothing_to_send_is_1(command, write, chat):
    done = command("fit", write(chat[:-1]), "--json")
    assert done.code == 1
    assert done.json["ledger"] is None
    assert command("fit", write("[]")).code == 1


def test_fit_goes_on_from_its_state(command, write, chat, tmp_path):
    state = tmp_path / "state.json"
    first = command("fit", write(chat), "--budget", 200, "--state", state, "--json").json
    assert json.loads(state.read_text()) == first["state"]
    more = [*chat, {"role": "assistant", "content": "Sun."}, {"role": "user", "content": "Good."}]
    second = command("fit", write(more), "--budget", 200, "--state", state, "--json").json
    assert second["ledger"]["why"] == "goes on"
    assert second["ledger"]["shared"] > 0
    assert [path.name for path in tmp_path.iterdir() if "new" in path.name] == []


def test_fit_state_that_is_none(command, write, chat, tmp_path):
    state = tmp_path / "state.json"
    state.write_text("[")
    assert "(state): no JSON" in command("fit", write(chat), "--state", state).err
    state.write_text("[]")
    assert "state must be" in command("fit", write(chat), "--state", state).err
    many = write(chat, chat, name="many.jsonl")
    assert "--state belongs to one" in command("fit", many, "--line", "all", "--state", state).err
    done = command("fit", write(chat), "--state", tmp_path / "none" / "state.json")
    assert done.code == 2
    assert "No such file" in done.err


@pytest.mark.parametrize(
    ("options", "what"),
    [
        (("--budget", "1", "--window", "2"), "not both"),
        (("--reserve", "1"), "give window="),
        (("--budget", "0"), "1 or more"),
        (("--budget", "x"), "invalid int value"),
        (("--max-turns", "0"), "max_turns"),
        (("--encoding", "nonsense"), "nothing counts as 'nonsense'"),
        (("--encoding", "o200k_base", "--model", "gpt-5"), "not both"),
        (("--nonsense",), "unrecognized arguments"),
    ],
)
def test_options_that_make_no_sense(command, write, chat, options, what):
    for word in ("fit", "replay"):
        done = command(word, write(chat), *options)
        assert (done.code, done.out) == (2, "")
        assert what in done.err
        assert done.err.count("\n") == 1


def test_convert(command, write, chat, claude):
    done = command("convert", write(chat), "--target", "anthropic")
    assert done.code == 0
    assert done.json["messages"][1]["content"][0]["type"] == "tool_use"
    back = command("convert", write(claude), "--target", "openai_chat").json
    assert back["messages"][0] == {"role": "system", "content": "Be brief."}
    assert back["tools"][0]["function"]["name"] == "weather"


def test_convert_says_what_is_lost(command, write, claude):
    claude["messages"][1]["content"].insert(0, {"type": "thinking", "thinking": "fog?", "signature": "c2ln"})
    done = command("convert", write(claude), "--target", "openai")
    assert "message 1 lost" in done.err
    found = command("convert", write(claude), "--target", "openai", "--json").json
    assert set(found) == {"line", "source", "target", "body", "losses"}
    assert set(found["losses"][0]) == {"index", "kind", "what"}


def test_convert_needs_a_target(command, write, chat):
    done = command("convert", write(chat))
    assert done.code == 2
    assert "--target" in done.err


def test_convert_of_a_message_that_cannot_be_read(command, write):
    done = command("convert", write([{"role": "nobody", "content": "x"}]), "--target", "anthropic")
    assert done.code == 2
    assert "message 0" in done.err


def test_what_json_cannot_hold(command, write, chat):
    chat[1]["content"] = "a\ud800b"
    path = write(json.dumps(chat))
    assert "\\ud800" in command("convert", path, "--target", "openai_chat").out
    assert command("fit", path).code == 0
    nan = write('[{"role": "user", "content": "x", "weight": NaN}]')
    done = command("convert", nan, "--target", "openai_chat")
    assert done.code == 2
    assert "NaN" in done.err


def test_deep_nesting_is_no_traceback(command, write):
    deep = '{"a": ' * 900 + "1" + "}" * 900
    path = write('[{"role": "user", "content": "x", "extra": ' + deep + "}]")
    for words in (("check",), ("fit",), ("convert", "--target", "anthropic"), ("replay",)):
        done = command(words[0], path, *words[1:])
        assert done.code in (0, 1, 2)
        assert "Traceback" not in done.err


def test_no_command_and_unknown_command(command):
    assert command().code == 2
    assert "invalid choice" in command("nonsense").err
    assert command("--version").out.startswith("backstory ")
    assert command("--help").code == 0
