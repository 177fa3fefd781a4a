"""A small HTTP server for tests: it plays replies in order, keeps the requests, and can stall and break off.

Plain asyncio, so that the official SDKs are tested over a real socket and nothing else is needed.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any


@dataclass(kw_only=True)
class Reply:
    """`json` as one object, or `events` as server-sent ones (a str is sent as it is).

    `delay` in seconds before anything, `between` before each event. `cut` breaks the connection at the end;
    `hang` keeps it open and says no more.
    """

    status: int = 200
    json: Any = None
    text: str | None = None
    events: list[Any] | None = None
    named: bool = False
    headers: dict[str, str] = field(default_factory=dict)
    delay: float = 0.0
    between: float = 0.0
    cut: bool = False
    hang: bool = False


class Server:
    """`requests` holds path, headers and body of each; `closed` counts connections that a client gave up."""

    def __init__(self) -> None:
        self.replies: list[Reply] = []
        self.requests: list[tuple[str, dict[str, str], dict[str, Any]]] = []
        self.closed = asyncio.Event()
        self.url = ""

    def plays(self, *replies: Reply) -> None:
        self.replies += replies

    @property
    def bodies(self) -> list[dict[str, Any]]:
        return [body for _, _, body in self.requests]

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await self._one(reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            self.closed.set()
        except asyncio.CancelledError:
            pass  # the test is over, and its event loop ends
        finally:
            writer.close()

    async def _one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers = {
            name.lower(): value for name, _, value in (line.partition(": ") for line in head[1:] if line)
        }
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        self.requests.append((head[0].split()[1], headers, json.loads(body)))
        reply = (
            self.replies.pop(0) if self.replies else Reply(status=500, json={"error": {"message": "no more"}})
        )
        if reply.delay:
            await self._wait(reader, reply.delay)
        content = "text/event-stream" if reply.events is not None else "application/json"
        extra = {"content-type": "text/html" if reply.text is not None else content, **reply.headers}
        extra["transfer-encoding"] = "chunked"
        lines = [f"HTTP/1.1 {reply.status} X", *(f"{name}: {value}" for name, value in extra.items())]
        writer.write(("\r\n".join(lines) + "\r\n\r\n").encode())
        if reply.events is None:
            self._chunk(writer, reply.text if reply.text is not None else json.dumps(reply.json))
        for event in reply.events or ():
            if reply.between:
                await self._wait(reader, reply.between)
            name = f"event: {event['type']}\n" if reply.named and isinstance(event, dict) else ""
            self._chunk(writer, f"{name}data: {event if isinstance(event, str) else json.dumps(event)}\n\n")
            await writer.drain()
        if reply.hang:
            await self._wait(reader, 30)
        if reply.cut:
            writer.transport.abort()
            return False
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        return True

    @staticmethod
    def _chunk(writer: asyncio.StreamWriter, text: str) -> None:
        data = text.encode()
        writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    async def _wait(self, reader: asyncio.StreamReader, seconds: float) -> None:
        """Wait, and see a client that goes away meanwhile."""
        try:
            async with asyncio.timeout(seconds):
                if not await reader.read(1):
                    raise ConnectionResetError
        except TimeoutError:
            pass


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A server on a free port of this machine."""
    server = Server()
    listener = await asyncio.start_server(server.handle, "127.0.0.1", 0)
    server.url = f"http://127.0.0.1:{listener.sockets[0].getsockname()[1]}"
    try:
        yield server
    finally:
        listener.close()
