"""Anthropic's Claude, over the official SDK: ``pip install backstory[anthropic]``; imported at the first request."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from backstory.errors import ConfigurationError
from backstory.models.anthropic_answers import MessageStream
from backstory.models.base import Answer, Event, merged
from backstory.models.retry import Retry
from backstory.models.sdk import Connection, fields, plain, require
from backstory.models.servers import shown
from backstory.models.windows import size_of
from backstory.targets import Target

_MAX_TOKENS = 8_192
"""What an answer may have unless somebody says more: the field is required; models since Claude 3.5 take this."""


class AnthropicModel:
    """A model behind Anthropic's Messages API. See `backstory.models.Model`.

    `api_key` and `base_url` default to ``ANTHROPIC_API_KEY`` and ``ANTHROPIC_BASE_URL``. `max_output` is sent as
    ``max_tokens``, which the API requires. `timeout` is the longest silence in seconds, `retries` how often a
    request that may be is tried again. `client` is an `AsyncAnthropic` of your own (Bedrock's and Vertex's too).
    `settings` go into every request that does not have them itself: ``thinking={…}``, ``temperature=0``, …
    """

    def __init__(
        self,
        model: str = "claude-sonnet-4-5",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        target: Target | str = "anthropic",
        window: int | None = None,
        max_output: int | None = None,
        timeout: float = 120.0,
        retries: int | Retry = 2,
        client: Any = None,
        **settings: Any,
    ) -> None:
        if client is None:
            require("anthropic")
            base_url = base_url or os.environ.get("ANTHROPIC_BASE_URL") or None
            api_key = api_key or os.environ.get("ANTHROPIC_API_KEY") or None
            if api_key is None:
                raise ConfigurationError("no API key: set ANTHROPIC_API_KEY, or pass api_key=")
        else:
            api_key = getattr(client, "api_key", None)
        self.name = model
        self.base_url = base_url
        self.target = Target.of(target)
        if self.target.format != "anthropic":
            raise ConfigurationError(f"the target {self.target.name!r} is not of Anthropic's format")
        size = size_of(model)
        self.window = window or self.target.window or size.window
        self.settings: dict[str, Any] = {
            "max_tokens": max_output or self._default(size.max_output),
            **settings,
        }
        self.max_output: int | None = self.settings["max_tokens"]
        retry = retries if isinstance(retries, Retry) else Retry(retries=retries)
        self._connection = Connection(
            lambda: _client(base_url, api_key), given=client, secret=api_key, timeout=timeout, retry=retry
        )

    @staticmethod
    def _default(known: int | None) -> int:
        return min(known or _MAX_TOKENS, _MAX_TOKENS)

    def __repr__(self) -> str:
        where = "" if self.base_url is None else f", base_url={shown(self.base_url)!r}"
        return f"AnthropicModel({self.name!r}{where})"

    def _body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        found = merged(self.name, self.settings, body)
        found.pop("stream", None)
        return found

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        """The answer, whole. It is streamed underneath: the SDK refuses long answers in one piece."""
        import anthropic

        return await self._connection.complete(self._stream, self._body(body), anthropic.AnthropicError)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """The answer as it is written. See `Model`."""
        import anthropic

        events = self._connection.stream(self._stream, self._body(body), anthropic.AnthropicError)
        async with aclosing(events):
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Close the connections that are kept open between requests."""
        await self._connection.close()

    async def _stream(self, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
        import anthropic

        create = self._connection.client(anthropic).messages.create
        events = await create(**fields(create, body), stream=True)
        pieces = MessageStream(self.target)
        try:
            async for event in events:
                for delta in pieces.feed(plain(event, "an event of the stream")):
                    yield delta
        finally:
            await events.close()
        yield pieces.answer()


def _client(base_url: str | None, api_key: str | None) -> Any:
    import anthropic

    return anthropic.AsyncAnthropic(base_url=base_url, api_key=api_key)
