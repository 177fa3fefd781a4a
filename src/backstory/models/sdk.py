"""What the clients of two SDKs have in common: one client an event loop, and failures read into a `Report`.

The official SDKs are made by one generator and agree in the names used here. They are never imported before use; what
they send and receive over is `httpx` or, in newer versions, `httpx2`.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import weakref
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import aclosing
from importlib.util import find_spec
from typing import Any

from backstory.errors import ConfigurationError, InvalidMessage, ModelError, ModelRefused, ModelUnavailable
from backstory.models.base import Answer, Event, drained
from backstory.models.failures import Failure, Report, understand
from backstory.models.retry import Retry, tried

Once = Callable[[dict[str, Any]], AsyncGenerator[Event, None]]


def require(package: str) -> None:
    """Raises `ConfigurationError` where an extra is not installed."""
    if find_spec(package) is None:
        raise ConfigurationError(
            f"the package {package!r} is not installed: pip install 'backstory[{package}]' adds it"
        )


class Connection:
    """An SDK's async client, made at its first use and anew for each event loop; a client that is given is kept.

    `make` makes one. `secret` is never shown in an error.
    """

    def __init__(
        self, make: Callable[[], Any], *, given: Any, secret: str | None, timeout: float, retry: Retry
    ) -> None:
        if not timeout > 0:
            raise ConfigurationError(f"timeout must be a number of seconds above 0, not {timeout!r}")
        if retry.retries < 0:
            raise ConfigurationError(f"retries must be 0 or more, not {retry.retries!r}")
        self._make = make
        self._given = given
        self._secret = secret
        self._made: Any = None
        self._loop: Callable[[], object] = lambda: None
        self.timeout = timeout
        self.retry = retry

    def client(self, sdk: Any) -> Any:
        """For one request: with our time-out, and without the SDK's own retries, which ours stand for."""
        client = self._given
        if client is None:
            loop = asyncio.get_running_loop()
            if self._made is None or self._loop() is not loop:
                self._made, self._loop = self._make(), weakref.ref(loop)
            client = self._made
        limits = sdk.Timeout(self.timeout, connect=min(self.timeout, 10.0))
        return client.with_options(max_retries=0, timeout=limits)

    async def close(self) -> None:
        """Close the client that was made here."""
        made, self._made = self._made, None
        if made is not None and self._loop() is asyncio.get_running_loop():
            await made.close()

    async def stream(
        self, once: Once, body: dict[str, Any], error: type[Exception]
    ) -> AsyncGenerator[Event, None]:
        """The events of `once`, tried again where nothing was handed out. `error` is the SDK's root of errors."""
        async with aclosing(self._tried(once, body, error, hand_out=True)) as events:
            async for event in events:
                yield event

    async def complete(self, once: Once, body: dict[str, Any], error: type[Exception]) -> Answer:
        """The answer of `once`, tried again wherever it broke."""
        async with aclosing(self._tried(once, body, error, hand_out=False)) as events:
            return await drained(events)

    def _tried(
        self, once: Once, body: dict[str, Any], error: type[Exception], *, hand_out: bool
    ) -> AsyncGenerator[Event, None]:
        caught = (
            error,
            *transport_errors(),
            json.JSONDecodeError,
            UnicodeDecodeError,
            InvalidMessage,
            ModelError,
        )
        return tried(lambda: once(body), self._understand, caught, self.retry, hand_out=hand_out)

    def _understand(self, error: Exception) -> Failure:
        if isinstance(error, ModelError):
            return Failure(error=error, retry=isinstance(error, ModelUnavailable))
        if isinstance(error, InvalidMessage):
            return Failure(error=ModelRefused(f"the server's answer cannot be read: {error}"))
        return understand(report_of(error, self._secret))


def transport_errors() -> tuple[type[Exception], ...]:
    """What the SDKs let through when a connection breaks inside a stream."""
    found = [getattr(sys.modules.get(name), "HTTPError", None) for name in ("httpx", "httpx2")]
    return tuple(error for error in found if error is not None)


def report_of(error: Exception, secret: str | None = None) -> Report:
    """An SDK's exception, read. `secret` is struck out of its words."""
    body = getattr(error, "body", None)
    inner = body.get("error", body) if isinstance(body, Mapping) else None
    if isinstance(inner, str):
        inner = {"message": inner}  # Ollama's own API, and some proxies
    if not isinstance(inner, Mapping):
        inner = {}
    message = inner.get("message")
    if not isinstance(message, str) or not message:
        message = f"{type(error).__name__}: {error}"
    if secret:
        message = message.replace(secret, "***")
    response = getattr(error, "response", None)
    status = getattr(error, "status_code", None)
    return Report(
        message=message,
        status=status if isinstance(status, int) else None,
        code=_word(inner.get("code")),
        kind=_word(inner.get("type")),
        body=inner,
        headers=getattr(response, "headers", None),
    )


def _word(value: Any) -> str:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) else ""


def fields(create: Callable[..., Any], body: Mapping[str, Any]) -> dict[str, Any]:
    """The body as arguments of an SDK's method: fields that it does not know go as they are, in `extra_body`."""
    known = inspect.signature(create).parameters
    extra = {key: value for key, value in body.items() if key not in known}
    found = {key: value for key, value in body.items() if key in known}
    if extra:
        found["extra_body"] = {**extra, **(body.get("extra_body") or {})}
    return found


def plain(value: Any, what: str) -> dict[str, Any]:
    """An SDK's object as the JSON that the server sent; `ModelRefused` where that was none."""
    if isinstance(value, str):
        raise ModelRefused(f"{what} is no JSON but {value[:200]!r}: does the base URL lead to an API?")
    found = value.to_dict(mode="json", use_api_names=True, exclude_unset=True, warnings=False)
    if not isinstance(found, dict):
        raise ModelRefused(f"{what} is {type(found).__name__}, not an object")
    return found
