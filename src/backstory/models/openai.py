"""OpenAI, and everybody who speaks its protocol: vLLM, Ollama, llama.cpp, DeepSeek, Qwen and many more.

Chat Completions by default, Responses with ``api="responses"``. The official SDK does the talking; it comes with
``pip install backstory[openai]`` and is imported at the first request.
"""

from __future__ import annotations

import os
import re
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any, Literal

from backstory.errors import ConfigurationError
from backstory.models.base import Answer, Event, merged
from backstory.models.chat_answers import ChatStream
from backstory.models.chat_answers import whole as whole_completion
from backstory.models.responses_answers import ResponseStream
from backstory.models.responses_answers import whole as whole_response
from backstory.models.retry import Retry
from backstory.models.sdk import Connection, Once, fields, plain, require
from backstory.models.servers import is_official, shown, target_for
from backstory.models.windows import Size, size_of
from backstory.targets import Target

# https://platform.openai.com/docs/api-reference/chat/create: `max_tokens` is deprecated, and reasoning models refuse
# it; compatible servers know nothing else.
_MAX_OUTPUT = ("max_completion_tokens", "max_tokens", "max_output_tokens")
# https://platform.openai.com/docs/guides/reasoning: encrypted content is refused for models that do not reason.
_REASONS = re.compile(r"(o\d|gpt-[5-9]|codex)(?!.*-chat)")
_OFFICIAL = "https://api.openai.com/v1"
_HOSTED = ("openai", "deepseek", "qwen", "openai_responses")


class OpenAIModel:
    """A model behind OpenAI's protocol. See `backstory.models.Model`.

    `base_url` and `api_key` default to ``OPENAI_BASE_URL`` and ``OPENAI_API_KEY``. `target` is a preset's name or
    a `Target`; else it is guessed from the URL (see `servers`). `window` and `max_output` are known for hosted
    models; `max_output`, where given, is sent. `timeout` is the longest silence in seconds, `retries` how often a
    request that may be is tried again. `client` is an `AsyncOpenAI` of your own. `settings` go into every request
    that does not have them itself: ``temperature=0``, ``reasoning_effort="low"``, …
    """

    def __init__(
        self,
        model: str = "gpt-5-mini",
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        target: Target | str | None = None,
        window: int | None = None,
        max_output: int | None = None,
        timeout: float = 120.0,
        retries: int | Retry = 2,
        client: Any = None,
        api: Literal["chat", "responses"] = "chat",
        **settings: Any,
    ) -> None:
        if client is None:
            require("openai")
            base_url = base_url or os.environ.get("OPENAI_BASE_URL") or None
            api_key = api_key or os.environ.get("OPENAI_API_KEY") or None
        else:
            base_url, api_key = str(client.base_url), client.api_key or None
        self.name = model
        self.base_url = base_url
        guessed = target_for(base_url, model, api)
        self.target = guessed if target is None else Target.of(target)
        self.api = "responses" if self.target.format == "openai_responses" else "chat"
        if self.target.format not in ("openai_chat", "openai_responses"):
            raise ConfigurationError(f"the target {self.target.name!r} is none of OpenAI's formats")
        if client is None and api_key is None:
            if is_official(base_url):
                raise ConfigurationError("no API key: set OPENAI_API_KEY, or pass api_key=")
            api_key = "none"  # the SDK insists on one; a server of one's own ignores it
        hosted = self.target.name in _HOSTED and (base_url is None or guessed.name in _HOSTED)
        size = size_of(model) if hosted else Size()
        self.window = window or self.target.window or size.window
        self.settings: dict[str, Any] = self._defaults(base_url)
        if max_output is not None:
            self.settings[self._max_field(base_url)] = max_output
        self.settings |= settings
        given = next((self.settings[field] for field in _MAX_OUTPUT if field in self.settings), None)
        self.max_output: int | None = given or size.max_output
        retry = retries if isinstance(retries, Retry) else Retry(retries=retries)
        secret = api_key if api_key != "none" else None
        self._connection = Connection(
            lambda: _client(base_url, api_key), given=client, secret=secret, timeout=timeout, retry=retry
        )
        self._usage_in_stream = True

    def __repr__(self) -> str:
        where = "" if self.base_url is None else f", base_url={shown(self.base_url)!r}"
        return f"OpenAIModel({self.name!r}{where}, target={self.target.name!r})"

    def _defaults(self, base_url: str | None) -> dict[str, Any]:
        """We hold the state, the server need not; what it hides of the reasoning comes along encrypted."""
        if self.api != "responses":
            return {}
        found: dict[str, Any] = {"store": False}
        if is_official(base_url) and _REASONS.match(self.name):
            found["include"] = ["reasoning.encrypted_content"]
        return found

    def _max_field(self, base_url: str | None) -> str:
        if self.api == "responses":
            return "max_output_tokens"
        return "max_completion_tokens" if is_official(base_url) else "max_tokens"

    def _body(self, body: Mapping[str, Any]) -> dict[str, Any]:
        found = merged(self.name, self.settings, body, aliases=_MAX_OUTPUT)
        for field in ("stream", "stream_options"):
            found.pop(field, None)
        return found

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        """The answer, whole. See `Model`."""
        import openai

        once = self._completion if self.api == "chat" else self._response
        return await self._connection.complete(once, self._body(body), openai.OpenAIError)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """The answer as it is written. See `Model`."""
        import openai

        once: Once = self._completion_stream if self.api == "chat" else self._response_stream
        async with aclosing(self._connection.stream(once, self._body(body), openai.OpenAIError)) as events:
            async for event in events:
                yield event

    async def aclose(self) -> None:
        """Close the connections that are kept open between requests."""
        await self._connection.close()

    # --- one try ---------------------------------------------------------------------------

    async def _completion(self, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
        import openai

        create = self._connection.client(openai).chat.completions.create
        completion = plain(await create(**fields(create, body)), "the completion")
        yield whole_completion(completion, self.target)

    async def _response(self, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
        import openai

        create = self._connection.client(openai).responses.create
        response = plain(await create(**fields(create, body)), "the response")
        yield whole_response(response, self.target)

    async def _completion_stream(self, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
        import openai

        create = self._connection.client(openai).chat.completions.create
        usage = {"stream_options": {"include_usage": True}} if self._usage_in_stream else {}
        try:
            chunks = await create(**fields(create, body), stream=True, **usage)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            # Servers that do not know the field, and say so: they are asked without it from now on.
            if not usage or "stream_options" not in str(error):
                raise
            self._usage_in_stream = False
            chunks = await create(**fields(create, body), stream=True)
        pieces = ChatStream(self.target)
        try:
            async for chunk in chunks:
                for delta in pieces.feed(plain(chunk, "a piece of the stream")):
                    yield delta
        finally:
            await chunks.close()
        yield pieces.answer()

    async def _response_stream(self, body: dict[str, Any]) -> AsyncGenerator[Event, None]:
        import openai

        create = self._connection.client(openai).responses.create
        events = await create(**fields(create, body), stream=True)
        pieces = ResponseStream(self.target)
        try:
            async for event in events:
                for delta in pieces.feed(plain(event, "an event of the stream")):
                    yield delta
        finally:
            await events.close()
        yield pieces.answer()


def _client(base_url: str | None, api_key: str | None) -> Any:
    import openai

    return openai.AsyncOpenAI(base_url=base_url or _OFFICIAL, api_key=api_key)
