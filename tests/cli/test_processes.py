"""What only a process of its own can show: pipes, signals, locales, terminals."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest

from tests.cli.conftest import start


@pytest.mark.parametrize("words", [("check",), ("fit",), ("convert", "--target", "anthropic"), ("replay",)])
def test_each_command_on_standard_input(process, chat, words):
    done = process(words[0], "-", *words[1:], stdin=json.dumps(chat).encode())
    assert done.code == 0
    assert done.out


def test_a_reader_that_goes_away(chat):
    many = [chat[0], *chat[1:5] * 3000, chat[5]]
    child = start("convert", "-", "--target", "openai")
    assert child.stdin
    assert child.stdout
    assert child.stderr
    child.stdin.write(json.dumps(many).encode())
    child.stdin.close()
    child.stdout.read(10)
    child.stdout.close()
    error = child.stderr.read()
    child.stderr.close()
    assert (child.wait(60), error) == (141, b"")


@pytest.mark.skipif(sys.platform == "win32", reason="signals")
def test_interrupted():
    child = start("check", "-")
    assert child.stdin
    time.sleep(1.0)  # it waits for its input
    child.send_signal(signal.SIGINT)
    _, error = child.communicate(timeout=60)
    assert (child.returncode, error) == (130, b"backstory: interrupted\n")


@pytest.mark.parametrize(
    "env",
    [
        {"LC_ALL": "C"},
        {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "ascii"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
)
def test_poor_locales(process, chat, broken, env):
    done = process("convert", "-", "--target", "openai_chat", stdin=json.dumps(chat).encode(), env=env)
    assert done.code == 0
    assert json.loads(done.out) == {"messages": chat}
    broken[2]["tool_calls"][0]["function"]["name"] = "天气·“now”…"
    done = process("check", "-", stdin=json.dumps(broken).encode(), env=env)
    assert (done.code, done.err) == (1, "")
    assert "\\x" not in done.out


def test_replay_where_blocks_cannot_be_drawn(process, chat):
    done = process(
        "replay", "-", "--budget", 100, stdin=json.dumps(chat).encode(), env={"PYTHONIOENCODING": "ascii"}
    )
    assert done.code == 0
    assert "#" in done.out


def test_no_colours_in_a_pipe_and_colours_where_forced(process, broken):
    data = json.dumps(broken).encode()
    assert "\x1b[" not in process("check", "-", stdin=data).out
    forced = {"FORCE_COLOR": "1"}
    assert "\x1b[" in process("check", "-", stdin=data, env=forced).out
    assert "\x1b[" not in process("check", "-", "--no-color", stdin=data, env=forced).out
    assert "\x1b[" not in process("check", "-", stdin=data, env={**forced, "NO_COLOR": "1"}).out


@pytest.mark.skipif(not hasattr(os, "openpty"), reason="no terminals here")
def test_colours_on_a_terminal(broken):
    main, terminal = os.openpty()
    child = subprocess.Popen(
        [sys.executable, "-m", "backstory", "check", "-"],
        stdin=subprocess.PIPE,
        stdout=terminal,
        env={**os.environ, "TERM": "xterm"},
    )
    os.close(terminal)
    child.communicate(json.dumps(broken).encode(), timeout=60)
    assert b"\x1b[" in os.read(main, 10_000)
    os.close(main)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk(broken):
    with open("/dev/full", "wb") as full:
        child = subprocess.Popen(
            [sys.executable, "-m", "backstory", "check", "-"],
            stdin=subprocess.PIPE,
            stdout=full,
            stderr=subprocess.PIPE,
        )
        _, error = child.communicate(json.dumps(broken).encode(), timeout=60)
    assert child.returncode == 2
    assert b"No space left" in error
    assert b"Traceback" not in error


def test_the_installed_script(chat):
    script = os.path.join(os.path.dirname(sys.executable), "backstory")
    if not os.path.exists(script):
        pytest.skip("the script is not installed beside this interpreter")
    done = subprocess.run(
        [script, "check", "-"], input=json.dumps(chat).encode(), capture_output=True, check=False
    )
    assert done.returncode == 0
