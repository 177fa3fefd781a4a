"""The trace of requests: the very bytes, a ring of limited size, no secrets, and no failure that reaches a turn."""

import asyncio
import json
import logging
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from backstory.agent.redaction import REDACTED, Redactor, secrets_of
from backstory.agent.trace import LEAST, RequestTrace, read_trace
from backstory.errors import ConfigurationError
from backstory.stores.clock import ManualClock
from backstory.stores.disk import Disk

BODY = {"model": "gpt-5-mini", "messages": [{"role": "user", "content": "你好 👋"}]}


def trace_in(folder: Path, **options: Any) -> RequestTrace:
    options.setdefault("secrets", [])
    return RequestTrace(folder / "trace.jsonl", clock=ManualClock(), **options)


def lines(folder: Path) -> list[dict[str, Any]]:
    return list(read_trace(folder / "trace.jsonl"))


def files_in(folder: Path) -> list[Path]:
    return sorted(folder.iterdir())


def redacted(text: str, *secrets: str) -> str:
    return Redactor(secrets).redact(text)


# --- what is written


async def test_a_request_and_its_answer(tmp_path: Path):
    trace = trace_in(tmp_path)
    name = await trace.sent(BODY, scope="default", session="cli:direct", turn=3)
    await trace.answered(name, usage={"input": 12, "output": 3}, finish="stop", session="cli:direct")
    sent, answered = lines(tmp_path)
    assert sent == {
        "at": "2025-06-15T15:06:40.000Z",
        "id": name,
        "kind": "request",
        "scope": "default",
        "session": "cli:direct",
        "turn": 3,
        "bytes": len(sent["body"].encode()),
        "body": json.dumps(BODY, ensure_ascii=False, separators=(",", ":")),
    }
    assert answered == {
        "at": "2025-06-15T15:06:40.000Z",
        "id": name,
        "kind": "answer",
        "usage": {"input": 12, "output": 3},
        "finish": "stop",
        "session": "cli:direct",
    }


@pytest.mark.parametrize("body", ['{ "a" : 1.0,\n"b":"\\u4f60" }', '{"a":"\\ud800"}', "not JSON at all", ""])
async def test_the_very_bytes_are_kept(tmp_path: Path, body: str):
    trace = trace_in(tmp_path)
    await trace.sent(body.encode())
    await trace.sent(body)
    assert [line["body"] for line in lines(tmp_path)] == [body, body]


async def test_it_is_for_its_owner_alone(tmp_path: Path):
    trace = trace_in(tmp_path / "new" / "folder", limit_bytes=LEAST)
    for _ in range(60):
        await trace.sent(BODY)
    written = files_in(tmp_path / "new/folder")
    assert [path.name for path in written] == ["trace.jsonl", "trace.jsonl.1", "trace.jsonl.lock"]
    if os.name != "nt":
        assert {stat.S_IMODE(path.stat().st_mode) for path in written} == {0o600}
        (tmp_path / "new/folder/trace.jsonl").chmod(0o644)
        await trace.sent(BODY)
        assert stat.S_IMODE((tmp_path / "new/folder/trace.jsonl").stat().st_mode) == 0o600


async def test_ids_differ_between_traces(tmp_path: Path):
    names = {await trace_in(tmp_path).sent(BODY) for _ in range(5)}
    assert len(names) == 5


def test_numbers_without_sense_are_refused(tmp_path: Path):
    with pytest.raises(ConfigurationError, match="at least 4,096 bytes"):
        trace_in(tmp_path, limit_bytes=10)
    with pytest.raises(ConfigurationError, match="keeps 0 older files or more, not -1"):
        trace_in(tmp_path, keep=-1)


def test_making_one_writes_nothing(tmp_path: Path):
    trace_in(tmp_path)
    assert files_in(tmp_path) == []


# --- the ring


@pytest.mark.parametrize("keep", [0, 1, 3])
async def test_the_ring_never_grows_over_its_size(tmp_path: Path, keep: int):
    trace = trace_in(tmp_path, limit_bytes=LEAST, keep=keep)
    for number in range(150):
        await trace.sent({"n": number, "x": "x" * (number % 7 * 100)})
        sizes = {path.name: path.stat().st_size for path in files_in(tmp_path)}
        assert max(sizes.values()) <= LEAST
        assert len(sizes) <= keep + 2  # the lock's file is empty
    numbers = [json.loads(line["body"])["n"] for line in lines(tmp_path)]
    assert numbers == list(range(numbers[0], 150))
    assert numbers[0] > 0


async def test_a_body_larger_than_a_file_is_left_out_and_said_so(tmp_path: Path):
    trace = trace_in(tmp_path, limit_bytes=LEAST)
    await trace.sent({"x": "x" * 10_000}, turn=1)
    (line,) = lines(tmp_path)
    assert "body" not in line
    assert line["body_note"] == "left out: longer than a file of this trace"
    assert line["bytes"] == 10_008
    assert line["turn"] == 1


async def test_a_torn_line_is_passed_over_and_the_next_is_whole(tmp_path: Path):
    trace = trace_in(tmp_path)
    await trace.sent({"n": 1})
    with (tmp_path / "trace.jsonl").open("ab") as file:
        file.write(b'{"at":"2025')
    await trace.sent({"n": 2})
    assert [line["body"] for line in lines(tmp_path)] == ['{"n":1}', '{"n":2}']


async def test_many_at_once_write_whole_lines(tmp_path: Path):
    traces = [trace_in(tmp_path, limit_bytes=200_000) for _ in range(3)]
    await asyncio.gather(*(traces[n % 3].sent({"n": n, "x": "x" * 500}) for n in range(90)))
    assert sorted(json.loads(line["body"])["n"] for line in lines(tmp_path)) == list(range(90))


def test_processes_share_a_ring(tmp_path: Path):
    program = (
        "import asyncio, sys\n"
        "from backstory.agent.trace import RequestTrace\n"
        "async def main():\n"
        "    trace = RequestTrace(sys.argv[1], limit_bytes=8192, keep=40)\n"
        "    for n in range(40): await trace.sent({'n': n, 'who': sys.argv[2], 'x': 'x' * 400})\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-c", program, str(tmp_path / "trace.jsonl")]
    running = [subprocess.Popen([*command, str(number)]) for number in range(3)]
    assert [process.wait(60) for process in running] == [0, 0, 0]
    found = [json.loads(line["body"]) for line in lines(tmp_path)]
    for number in range(3):
        assert [body["n"] for body in found if body["who"] == str(number)] == list(range(40))
    assert max(path.stat().st_size for path in tmp_path.iterdir()) <= 8192


# --- failures


class FullDisk(Disk):
    def write(self, fd: int, data: bytes | memoryview) -> int:
        raise OSError(28, "No space left on device")


async def test_a_full_disk_is_reported_once_and_costs_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    trace = trace_in(tmp_path, disk=FullDisk(durable=False))
    with caplog.at_level(logging.WARNING, logger="backstory.agent"):
        for _ in range(3):
            name = await trace.sent(BODY)
            await trace.answered(name)
    (record,) = caplog.records
    assert "cannot be written: OSError: No space left on device" in record.getMessage()


@pytest.mark.parametrize("what", ["folder", "link", "file above"])
async def test_a_place_that_cannot_be_written_is_reported(
    tmp_path: Path, what: str, caplog: pytest.LogCaptureFixture
):
    path = tmp_path / "trace.jsonl"
    if what == "folder":
        path.mkdir()
    elif what == "link":
        if not hasattr(os, "O_NOFOLLOW"):
            pytest.skip("this system opens links")
        (tmp_path / "elsewhere").write_text("mine")
        path.symlink_to("elsewhere")
    else:
        (tmp_path / "above").write_text("")
        path = tmp_path / "above" / "trace.jsonl"
    trace = RequestTrace(path, secrets=[])
    await trace.sent(BODY)
    await trace.sent(BODY)
    assert len(caplog.records) == 1
    if what == "link":
        assert (tmp_path / "elsewhere").read_text() == "mine"


async def test_what_is_no_json_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    trace = trace_in(tmp_path)
    await trace.sent({"x": object()})
    await trace.sent(BODY, odd=float("nan"))
    await trace.sent(BODY)
    assert len(caplog.records) == 2
    assert len(lines(tmp_path)) == 1


# --- forgetting


async def test_a_session_is_forgotten_in_every_file(tmp_path: Path):
    trace = trace_in(tmp_path, limit_bytes=LEAST, keep=5)
    for number in range(60):
        name = await trace.sent(BODY, scope="acme", session=f"s{number % 3}")
        await trace.answered(name, scope="acme", session=f"s{number % 3}")
    await trace.sent({"x": "other"}, scope="other", session="s1")
    before = len(lines(tmp_path))
    gone = await trace.forget(scope="acme", session="s1")
    kept = lines(tmp_path)
    assert gone == 40
    assert len(kept) == before - gone
    assert {(line["scope"], line["session"]) for line in kept} == {
        ("acme", "s0"),
        ("acme", "s2"),
        ("other", "s1"),
    }
    assert await trace.forget(scope="acme") == 80
    assert [line["scope"] for line in lines(tmp_path)] == ["other"]
    if os.name != "nt":
        assert {stat.S_IMODE(path.stat().st_mode) for path in files_in(tmp_path)} == {0o600}
    await trace.sent(BODY)
    assert len(lines(tmp_path)) == 2


async def test_what_may_be_the_sessions_goes_too(tmp_path: Path):
    trace = trace_in(tmp_path)
    await trace.sent(BODY)  # does not say whose it is
    await trace.sent(BODY, scope="acme", session="token:12345")  # a key that is taken for a secret
    with (tmp_path / "trace.jsonl").open("ab") as file:
        file.write(b'{"body":"torn')
    await trace.sent(BODY, scope="other")
    assert await trace.forget(scope="acme", session="token:12345") == 3
    assert [line["scope"] for line in lines(tmp_path)] == ["other"]


async def test_forgetting_what_was_never_written(tmp_path: Path):
    assert await trace_in(tmp_path).forget(scope="acme") == 0
    assert files_in(tmp_path) == []


async def test_a_failed_erasure_is_known(tmp_path: Path):
    await trace_in(tmp_path).sent(BODY, scope="acme")
    await trace_in(tmp_path).sent(BODY, scope="other")
    with pytest.raises(OSError, match="No space"):
        await trace_in(tmp_path, disk=FullDisk(durable=False)).forget(scope="acme")
    assert len(lines(tmp_path)) == 2


# --- secrets

KEYS = [
    "sk-abcdefghijklmnopqrstuvwx",
    "sk-ant-api03-AbC_dEf-0123456789",
    "sk-proj-0123456789abcdefABCDEF",
    "AIzaSyA0123456789abcdefghijklmnopqrstuv",
    "ghp_0123456789abcdefghijABCDEFGHIJ012345",
    "xoxb-1234567890-abcdef",
    "AKIAIOSFODNN7EXAMPLE",
    "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dozjgNryP4J3jVmN",
    "hf_abcdefghijklmnopqrstuvwxyz",
]


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize(
    "around", ["{}", "use {} now", "密钥是{}。", "({}),", "https://example.org/?k={}&x=1"]
)
def test_keys_are_known_by_their_looks(key: str, around: str):
    assert redacted(around.format(key)) == around.format(REDACTED)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Authorization: Bearer abc.def\nAccept: x", "Authorization: [redacted]\nAccept: x"),
        ("Cookie: a=1; b=2", "Cookie: [redacted]"),
        ("the bearer QWxhZGRpbjpv came", "the bearer [redacted] came"),
        ("OPENAI_API_KEY=abc def", "OPENAI_API_KEY=[redacted] def"),
        ("api-key : abc", "api-key : [redacted]"),
        ("password == 'a b' x", "password == '[redacted]' x"),
        ('{"password": "a', '{"password": "[redacted]'),
        (r"x = {\"secret\": \"a\"} y", r"x = {\"secret\": \"[redacted]\"} y"),
        ("?token=a&b=1", "?token=[redacted]"),
        ("postgres://me:geheim@db/x", "postgres://me:[redacted]@db/x"),
        ("client_secret => abc", "client_secret => [redacted]"),
        (
            "-----BEGIN RSA PRIVATE KEY-----\nMIIE\n-----END RSA PRIVATE KEY-----",
            "[redacted]-----END RSA PRIVATE KEY-----",
        ),
        ('{"api_key":"abc","n":1}', '{"api_key":"[redacted]","n":1}'),
        ('{"X-Api-Key" : "abc"}', '{"X-Api-Key" : "[redacted]"}'),
        ('{"Authorization":"Basic abc"}', '{"Authorization":"[redacted]"}'),
        ('{"password": 1234567890}', '{"password": "[redacted]"}'),
        (r'{"arguments":"{\"password\":\"a\\\"b\"}"}', r'{"arguments":"{\"password\":\"[redacted]\"}"}'),
    ],
)
def test_what_stands_under_a_secrets_name_goes(text: str, expected: str):
    assert redacted(text) == expected
    assert redacted(expected) == expected


@pytest.mark.parametrize(
    "text",
    [
        '{"max_tokens":4096,"stop":null,"token":12}',
        '{"content":"token:"}',
        '{"properties":{"password":{"type":"string"}},"required":["api_key"]}',
        '{"usage":{"prompt_tokens":12345678,"cached_tokens":0}}',
        "max_tokens: 5, tokens=3",
        "a task-force of risk-averse desk-workers",
        "https://example.org:8080/a@b",
        "the basic idea; the bearer of news",
        "我的密码学课程:第一章",
    ],
)
def test_what_is_no_secret_stays(text: str):
    assert redacted(text) == text


def test_known_values_go_wherever_they_stand():
    secret = 'ge"heim\\nis 密'
    for text in (secret, json.dumps({"a": secret}), json.dumps({"a": json.dumps([secret])}), f"'{secret}'"):
        shown = redacted(text, secret)
        assert "heim" not in shown
        assert REDACTED in shown
    assert redacted("short", "short") == "short"  # too short to be looked for


def test_the_environments_secrets_are_known_by_name():
    environment = {
        "OPENAI_API_KEY": "v1",
        "GITHUB_TOKEN": "v2",
        "DB_PASSWORD": "v3",
        "aws_secret_access_key": "v4",
        "API_KEY_2": "v5",
        "PWD": "/home/me",
        "SSH_AUTH_SOCK": "/tmp/x",
        "TOKENIZERS_PARALLELISM": "false",
        "EMPTY_TOKEN": "",
        "PATH": "/bin",
    }
    assert secrets_of(environment) == ["v1", "v2", "v3", "v4", "v5"]


async def test_the_file_holds_no_secret_of_the_environment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SOME_API_KEY", "quite-plain-value")
    trace = RequestTrace(tmp_path / "trace.jsonl")
    await trace.sent({"content": "my key is quite-plain-value", "k": KEYS[0]}, url="https://me:pw@host/")
    await trace.answered("1", error="401: quite-plain-value is not valid")
    text = (tmp_path / "trace.jsonl").read_text()
    assert "quite-plain-value" not in text
    assert KEYS[0] not in text
    assert ":pw@" not in text


words = st.text(st.characters(exclude_categories=["Cs"]), max_size=30)
secrets = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=8, max_size=30).filter(
    lambda text: len(set(text)) > 4 and text not in REDACTED
)
names = st.sampled_from(
    ["api_key", "X-API-Key", "password", "client_secret", "Authorization", "token", "DB_PASSWORD"]
)
values: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | words,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=6,
)


def nested(value: Any, depth: int, ascii_only: bool) -> str:
    text = json.dumps(value, ensure_ascii=ascii_only)
    for _ in range(depth):
        text = json.dumps({"arguments": text, "n": 1}, ensure_ascii=ascii_only)
    return text


def strings(value: Any) -> list[str]:
    """All strings in a JSON value, and in the JSON that they hold."""
    if isinstance(value, dict):
        return [text for pair in value.items() for inner in pair for text in strings(inner)]
    if isinstance(value, list):
        return [text for inner in value for text in strings(inner)]
    if not isinstance(value, str):
        return []
    try:
        inner = json.loads(value)
    except ValueError:
        return [value]
    return [value, *(strings(inner) if isinstance(inner, dict | list) else [])]


@given(names, secrets, values, st.integers(0, 3), st.booleans())
def test_no_named_value_survives_and_json_stays_json(
    name: str, secret: str, around: Any, depth: int, ascii_only: bool
):
    text = nested({"before": around, name: secret, "after": around}, depth, ascii_only)
    shown = json.loads(redacted(text))
    for _ in range(depth):
        assert shown["n"] == 1
        shown = json.loads(shown["arguments"])
    assert list(shown) == ["before", name, "after"]
    assert shown[name] == REDACTED


@given(secrets, values, words, words, st.integers(0, 3), st.booleans())
def test_no_known_value_survives(
    secret: str, around: Any, before: str, after: str, depth: int, ascii_only: bool
):
    text = nested([around, before + secret + after, {secret: 1}], depth, ascii_only)
    shown = redacted(text, secret)
    assert not [found for found in strings(json.loads(shown)) if secret in found]


@given(st.sampled_from(KEYS), words, words, st.integers(0, 3))
def test_no_key_survives(key: str, before: str, after: str, depth: int):
    text = nested([f"{before} {key} {after}"], depth, False)
    assert key not in redacted(text)
    assert key not in redacted(f"{before} {key} {after}")


@given(values, st.integers(0, 2), st.booleans())
def test_json_without_secrets_is_untouched(value: Any, depth: int, ascii_only: bool):
    text = nested(value, depth, ascii_only)
    plain = [found for found in strings(json.loads(text)) if not any(mark in found for mark in ":=")]
    if len(plain) == len(strings(json.loads(text))):
        assert redacted(text) == text


@given(words, st.lists(secrets, max_size=2))
def test_redacting_twice_changes_nothing_more(text: str, known: list[str]):
    redactor = Redactor(known)
    once = redactor.redact(text)
    assert redactor.redact(once) == once


@pytest.mark.parametrize(
    "evil",
    [
        "token" * 40_000,
        "token\\" * 40_000,
        "eyJ" * 60_000,
        "://" * 60_000,
        'password="' * 20_000,
        "key=" * 50_000,
    ],
)
def test_no_text_takes_long(evil: str):
    assert isinstance(redacted(evil), str)  # a quadratic pattern would take minutes: the time limit of tests


def test_long_texts_that_are_clean_are_remembered(monkeypatch: pytest.MonkeyPatch):
    redactor = Redactor()
    long = json.dumps({"content": "a plain sentence. " * 50})
    searched: list[str] = []
    search = Redactor._searched

    def watched(self: Redactor, text: str) -> str:
        searched.append(text)
        return search(self, text)

    monkeypatch.setattr(Redactor, "_searched", watched)
    for _ in range(3):
        assert redactor.redact(long) == long
    assert sum(len(text) > 200 for text in searched) == 1
