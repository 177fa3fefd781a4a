"""A trace of requests: what was sent, to the byte, and what came back, for whoever wants to see it. Off by default.

A JSONL file of limited size: when it is full it becomes ``NAME.1``, the one before ``NAME.2``, and so on; the oldest
goes. Each line is written at once, under a lock among processes. Nothing depends on a trace, so it is not synced, and
no failure reaches a turn: it is reported once, in the log.

Secrets are taken out (`backstory.agent.redaction`); the text of conversations is not. So the files are for their owner
alone, and `forget` takes a session's or a scope's lines out of them.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import os
import stat
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, TypeVar

from backstory.agent.redaction import Redactor, secrets_of
from backstory.errors import ConfigurationError, InvalidInput
from backstory.records import encode_json
from backstory.stores.clock import Clock, SystemClock, timestamp
from backstory.stores.disk import FILE_MODE, Disk

T = TypeVar("T")
logger = logging.getLogger("backstory.agent")

LIMIT = 16 * 1024 * 1024
"""Bytes of one file: a hundred requests of a long conversation."""
LEAST = 4096

_TRIES, _PAUSE = 200, 0.005
"""Times that the lock is tried, and seconds between: others hold it for milliseconds."""


class RequestTrace:
    """The trace in `path`, of at most `limit_bytes` a file, with `keep` older files beside it.

    `secrets` are values to be taken out wherever they stand; by default those of the environment whose names say
    so (``OPENAI_API_KEY``). Raises `ConfigurationError` for numbers that make no sense, and later nothing.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        limit_bytes: int = LIMIT,
        keep: int = 1,
        secrets: Iterable[str] | None = None,
        clock: Clock | None = None,
        disk: Disk | None = None,
    ) -> None:
        if limit_bytes < LEAST:
            raise ConfigurationError(f"a trace has at least {LEAST:,} bytes a file, not {limit_bytes:,}")
        if keep < 0:
            raise ConfigurationError(f"a trace keeps 0 older files or more, not {keep}")
        self.path = os.path.abspath(path)
        self.limit_bytes = limit_bytes
        self.keep = keep
        self._redactor = Redactor(secrets_of(os.environ) if secrets is None else secrets)
        self._clock = clock or SystemClock()
        self._disk = disk or Disk(durable=False)
        self._lock = threading.Lock()
        self._numbers = itertools.count(1)
        self._origin = os.urandom(4).hex()
        self._reported: set[str] = set()

    # --- writing

    async def sent(self, body: bytes | str | Mapping[str, Any], **facts: Any) -> str:
        """A request is about to be sent; returns the id by which `answered` refers to it.

        `body` is what goes over the wire, or the values that become its JSON. `facts` (scope, session, turn, target, …)
        are JSON values, kept beside it. A body too large for a whole file is left out, and the line says so.
        """
        name = f"{self._origin}-{next(self._numbers)}"
        await self._write(lambda: self._request(name, body, facts))
        return name

    async def answered(self, request: str, *, usage: Mapping[str, Any] | None = None, **facts: Any) -> None:
        """What came back for a request: `usage` as billed; `facts` (finish, error, seconds, scope, session, …)."""
        await self._write(
            lambda: self._line(request, "answer", {**({"usage": dict(usage)} if usage else {}), **facts})
        )

    async def forget(self, *, scope: str, session: str | None = None) -> int:
        """Take out the lines of a session, or of a whole scope; says how many. Raises `OSError`: an erasure that
        failed must be known.
        """
        return await asyncio.to_thread(self._forget, scope, session)

    async def _write(self, make: Callable[[], bytes]) -> None:
        await asyncio.to_thread(self._append, make)

    def _append(self, make: Callable[[], bytes]) -> None:
        try:
            line = make()
            self._locked(lambda: self._put(line))
        except (OSError, InvalidInput) as error:
            what = f"{type(error).__name__}: {getattr(error, 'strerror', None) or error}"
            if what not in self._reported:
                self._reported.add(what)
                logger.warning("the request trace %s cannot be written: %s", self.path, what)

    def _request(self, name: str, body: bytes | str | Mapping[str, Any], facts: Mapping[str, Any]) -> bytes:
        data = _bytes(body)
        text = self._redactor.redact(data.decode("utf-8", "backslashreplace"))  # a body is UTF-8, as JSON is
        line = self._line(name, "request", {**facts, "bytes": len(data)}, body=text)
        if len(line) > self.limit_bytes:
            note = "left out: longer than a file of this trace"
            line = self._line(name, "request", {**facts, "bytes": len(data), "body_note": note})
        return line

    def _line(self, name: str, kind: str, facts: Mapping[str, Any], body: str | None = None) -> bytes:
        shown = json.loads(self._redactor.redact(encode_json(dict(facts)).decode()))
        fields = {"at": timestamp(self._clock.now()), "id": name, "kind": kind, **shown}
        line = encode_json(fields if body is None else {**fields, "body": body}) + b"\n"
        if body is None and len(line) > self.limit_bytes:
            raise InvalidInput(f"a line of {len(line):,} bytes is longer than a file of the trace")
        return line

    def _put(self, line: bytes) -> None:
        try:
            size = self._disk.stat(self.path).st_size
        except FileNotFoundError:
            size = 0
        if size and size + len(line) + 1 > self.limit_bytes:
            self._rotate()
            size = 0
        fd = self._open(self.path, os.O_RDWR | os.O_APPEND | os.O_CREAT)
        try:
            if size and self._disk.read_at(fd, 1, size - 1) != b"\n":  # somebody died while writing
                line = b"\n" + line
            self._disk.write_all(fd, line)
        finally:
            self._disk.close(fd)

    def _rotate(self) -> None:
        for number in range(self.keep, 0, -1):
            if os.path.lexists(source := self._older(number - 1)):
                self._disk.replace(source, self._older(number))
        if not self.keep:
            self._disk.unlink(self.path)

    def _older(self, number: int) -> str:
        return f"{self.path}.{number}" if number else self.path

    def _locked(self, work: Callable[[], T]) -> T:
        """Do something with the files, which no thread and no process writes or renames meanwhile.

        The lock is on a file of its own, since a file that is open cannot be renamed on Windows.
        """
        with self._lock:
            self._disk.make_folder(os.path.dirname(self.path))
            fd = self._open(f"{self.path}.lock", os.O_RDWR | os.O_CREAT)
            try:
                for _ in range(_TRIES):
                    if self._disk.lock(fd):
                        return work()
                    time.sleep(_PAUSE)
            finally:
                self._disk.close(fd)
        raise OSError(f"another process holds its lock for more than {_TRIES * _PAUSE:g} s")

    def _open(self, path: str, flags: int) -> int:
        """A regular file, for its owner alone."""
        fd = self._disk.open(path, flags | getattr(os, "O_NONBLOCK", 0))
        info = self._disk.fstat(fd)
        if not stat.S_ISREG(info.st_mode):
            self._disk.close(fd)
            raise OSError(f"{path} is no regular file")
        if os.name != "nt" and stat.S_IMODE(info.st_mode) != FILE_MODE:
            os.fchmod(fd, FILE_MODE)
        return fd

    # --- forgetting

    def _forget(self, scope: str, session: str | None) -> int:
        files = [self._older(number) for number in range(self.keep + 1)]
        if not any(map(os.path.lexists, files)):
            return 0
        whose = self._redactor.redact(scope), None if session is None else self._redactor.redact(session)
        return self._locked(lambda: sum(self._without(path, *whose) for path in files))

    def _without(self, path: str, scope: str, session: str | None) -> int:
        try:
            with open(path, "rb") as file:
                lines = file.read().splitlines(keepends=True)
        except FileNotFoundError:
            return 0
        kept = [line for line in lines if not _belongs(line, scope, session)]
        if len(kept) == len(lines):
            return 0
        fresh = f"{path}.tmp"
        fd = self._open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        try:
            self._disk.write_all(fd, b"".join(kept))
            os.fsync(fd)
        finally:
            self._disk.close(fd)
        self._disk.replace(fresh, path)
        return len(lines) - len(kept)


def _bytes(body: bytes | str | Mapping[str, Any]) -> bytes:
    if isinstance(body, bytes):
        return body
    return body.encode("utf-8", "surrogatepass") if isinstance(body, str) else encode_json(body)


def _belongs(line: bytes, scope: str, session: str | None) -> bool:
    """Whether a line is of a scope or session, or may be: one that is torn, or does not say whose it is."""
    try:
        entry = json.loads(line)
    except ValueError:
        return True
    if not isinstance(entry, dict) or entry.get("scope", scope) != scope:
        return not isinstance(entry, dict)
    return session is None or entry.get("session", session) == session


def read_trace(path: str | os.PathLike[str]) -> Iterator[dict[str, Any]]:
    """The lines of a trace, oldest first, older files included; torn ones are passed over."""
    base = os.path.abspath(path)
    number = 0
    while os.path.exists(f"{base}.{number + 1}"):
        number += 1
    for name in [f"{base}.{one}" for one in range(number, 0, -1)] + [base]:
        if not os.path.exists(name):
            continue
        with open(name, "rb") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue
                if isinstance(entry, dict):
                    yield entry
