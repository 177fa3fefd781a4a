"""Real servers for tests: PostgreSQL and Redis from installed binaries, on loopback, in temporary folders.

Nothing that runs on the machine already is used or touched. Where a server is not installed, its tests are skipped and
say what to install; `scripts/install-servers` does it where it can.
"""

import asyncio
import contextlib
import os
import pwd
import random
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Coroutine, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

T = TypeVar("T")
ROOT = Path(__file__).resolve().parent.parent
MISSING_POSTGRES = "PostgreSQL is not installed: run scripts/install-servers, or apt install postgresql"
MISSING_REDIS = "Redis is not installed: run scripts/install-servers, or apt install redis-server"


def free_port() -> int:
    """Below the range from which systems take the ports of clients, so that it is still free after a restart."""
    while True:
        port = random.SystemRandom().randrange(20_000, 32_000)
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def postgres_bin() -> Path | None:
    """The folder of the newest PostgreSQL that has a server."""
    found = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"),
        key=lambda path: int(path.parts[4].partition(".")[0]),
    )
    on_path = shutil.which("initdb")
    places = [*([Path(on_path)] if on_path else []), *found]
    return places[-1].parent if places else None


class PostgresServer:
    """One cluster with one superuser. `fsync` is off: what is tested is not the disk."""

    def __init__(self, binaries: Path, root: Path) -> None:
        self._bin = binaries
        self._data = root / "data"
        self.port = free_port()
        # The server refuses to run as root.
        self._as = (
            ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"] if os.getuid() == 0 else []
        )
        if self._as:
            user = pwd.getpwnam("postgres")
            os.chown(root, user.pw_uid, user.pw_gid)
        self._log = root / "server.log"
        self._root = root
        self._run("initdb", "-D", self._data, "-U", "tester", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        self.start()

    def _run(self, program: str, *args: object) -> None:
        subprocess.run(
            [*self._as, str(self._bin / program), *map(str, args)],
            check=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self._root,
        )

    def start(self) -> None:
        options = (
            f"-c port={self.port} -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off "
            "-c shared_buffers=16MB -c max_connections=60 -c autovacuum=off -c max_wal_size=128MB"
        )
        self._run("pg_ctl", "-D", self._data, "-l", self._log, "-o", options, "-w", "-t", "60", "start")

    def stop(self, mode: str = "fast") -> None:
        """`mode` as pg_ctl has it: immediate is a crash."""
        self._run("pg_ctl", "-D", self._data, "-m", mode, "-w", "stop")

    def crash(self) -> None:
        self.stop("immediate")

    def url(self, port: int | None = None) -> str:
        return f"postgresql://tester@127.0.0.1:{port or self.port}/postgres"


class RedisServer:
    """One server with an append-only file."""

    def __init__(self, program: str, root: Path, *options: str) -> None:
        self._program = program
        self._root = root
        self._options = options or ("--appendonly", "yes", "--appendfsync", "always")
        self.port = free_port()
        self._process: subprocess.Popen[bytes] | None = None
        self.start()

    def start(self) -> None:
        network = ("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._root), "--save", "")
        self._process = subprocess.Popen(
            [self._program, *network, *self._options],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", self.port), 1) as asked:
                asked.sendall(b"PING\r\n")
                if asked.recv(64).startswith(b"+PONG"):
                    return
            time.sleep(0.05)
        raise AssertionError("Redis did not start")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        assert self._process is not None
        self._process.send_signal(how)
        self._process.wait(30)

    def crash(self) -> None:
        self.stop(signal.SIGKILL)

    def url(self, port: int | None = None) -> str:
        return f"redis://127.0.0.1:{port or self.port}/0"


class Proxy:
    """A TCP proxy that can be told to cut, to refuse, to delay, to freeze, or to swallow the server's answers."""

    def __init__(self, port: int) -> None:
        self._target = port
        self.port = 0
        self.delay = 0.0
        self.refuses = False
        self._lets: int | None = None
        self._swallowed = asyncio.Event()
        self._flowing = asyncio.Event()
        self._flowing.set()
        self._pairs: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> "Proxy":
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *_: object) -> None:
        self._server.close()
        self.cut()
        for task in tuple(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def cut(self) -> None:
        """Reset every connection that there is."""
        for writer in tuple(self._pairs):
            writer.transport.abort()
        self._pairs.clear()

    async def lose_answer(self, call: Coroutine[Any, Any, T], lets: int) -> T:
        """The result of a call whose connection is cut when the server has answered, so that the caller never hears.

        `lets`: so many answers get through before. Where fewer come, nothing is cut.
        """
        self._lets = lets
        self._swallowed.clear()
        task = asyncio.ensure_future(call)
        lost = asyncio.ensure_future(self._swallowed.wait())
        await asyncio.wait([task, lost], return_when=asyncio.FIRST_COMPLETED)
        lost.cancel()
        self._lets = None
        if not task.done():
            self.cut()
        return await task

    def freeze(self) -> None:
        """From now on nothing gets through, and nobody is told."""
        self._flowing.clear()

    def thaw(self) -> None:
        self._flowing.set()

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refuses:
            writer.transport.abort()
            return
        try:
            there, back = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:
            writer.transport.abort()
            return
        self._pairs |= {writer, back}
        for source, sink in ((reader, back), (there, writer)):
            task = asyncio.ensure_future(self._pump(source, sink, sink is writer))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _pump(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, answers: bool) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(1 << 16):
                if self.delay:
                    await asyncio.sleep(self.delay)
                await self._flowing.wait()
                if answers and self._lets is not None:
                    if self._lets == 0:
                        self._swallowed.set()
                        continue
                    self._lets -= 1
                sink.write(data)
                await sink.drain()
        self._pairs.discard(sink)
        sink.transport.abort()


@contextlib.contextmanager
def _folder(name: str) -> Iterator[Path]:
    root = Path(tempfile.mkdtemp(prefix=f"backstory-{name}-"))
    try:
        yield root
    finally:
        shutil.rmtree(root, ignore_errors=True)


@contextlib.contextmanager
def running_postgres() -> Iterator[PostgresServer]:
    binaries = postgres_bin()
    if binaries is None:
        pytest.skip(MISSING_POSTGRES)
    pytest.importorskip("psycopg", reason="needs the extra: pip install 'backstory[postgres]'")
    pytest.importorskip("psycopg_pool", reason="needs the extra: pip install 'backstory[postgres]'")
    with _folder("postgres") as root:
        server = PostgresServer(binaries, root)
        try:
            yield server
        finally:
            server.stop("immediate")


@contextlib.contextmanager
def running_redis(*options: str) -> Iterator[RedisServer]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip(MISSING_REDIS)
    pytest.importorskip("redis", reason="needs the extra: pip install 'backstory[redis]'")
    with _folder("redis") as root:
        server = RedisServer(program, root, *options)
        try:
            yield server
        finally:
            server.stop(signal.SIGKILL)


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    with running_postgres() as server:
        yield server


@pytest.fixture(scope="session")
def redis_server() -> Iterator[RedisServer]:
    with running_redis() as server:
        yield server
