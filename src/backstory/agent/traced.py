"""A model whose every call leaves a trace: the body as it is sent, and what came back for it."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from typing import Any

from backstory.agent.trace import RequestTrace
from backstory.errors import ModelError
from backstory.models.base import Answer, Event, Model, drained, merged
from backstory.models.billing import usage_json
from backstory.targets import Target


class Traced:
    """See the module. `facts` (scope, session, turn) stand beside each line, so that they can be forgotten."""

    def __init__(self, model: Model, trace: RequestTrace, **facts: Any) -> None:
        self._model = model
        self._trace = trace
        self._facts = facts

    @property
    def name(self) -> str:
        return self._model.name

    @property
    def target(self) -> Target:
        return self._model.target

    @property
    def window(self) -> int | None:
        return self._model.window

    @property
    def max_output(self) -> int | None:
        return self._model.max_output

    @property
    def settings(self) -> Mapping[str, Any]:
        return self._model.settings

    async def aclose(self) -> None:
        """Let go of the model's connections."""
        await self._model.aclose()

    async def complete(self, body: Mapping[str, Any]) -> Answer:
        """The answer, whole."""
        async with aclosing(self.stream(body)) as events:
            return await drained(events)

    async def stream(self, body: Mapping[str, Any]) -> AsyncGenerator[Event, None]:
        """The model's own events; the trace fails nothing (see `RequestTrace`)."""
        sent = merged(self._model.name, self._model.settings, body)
        request = await self._trace.sent(sent, **self._facts)
        try:
            events = self._model.stream(body)
            try:
                async for event in events:
                    if isinstance(event, Answer):
                        usage = usage_json(event.usage) if event.usage is not None else None
                        await self._trace.answered(request, usage=usage, finish=event.finish, **self._facts)
                    yield event
            finally:
                close = getattr(events, "aclose", None)  # an iterator need not be a generator
                if close is not None:
                    await close()
        except ModelError as error:
            await self._trace.answered(request, error=str(error), **self._facts)
            raise
