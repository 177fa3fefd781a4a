"""The synchronous face: the same sessions and turns for scripts and notebooks, without `async`.

    with backstory.open_sync("./workspace", model=OpenAIModel("gpt-5-mini")) as bs:
        print(bs.say("cli:direct", "My name is Ada."))
        for event in bs.stream("cli:direct", "What is my name?"): ...

One event loop in a thread of its own does the work; each method hands it over and waits. It decides nothing: what a
method means, and what it raises, stands at the method of `backstory.Backstory` of the same name. Several threads may
use one face. Ctrl-C while a method waits cancels what it waits for, as `asyncio` would, and then reaches the caller.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import os
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractAsyncContextManager, AbstractContextManager, aclosing
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from backstory.agent.active import Turn
from backstory.agent.backstory import Backstory, Policy, Reply
from backstory.agent.commands import Commanded
from backstory.agent.execute import Tools
from backstory.agent.open import open as open_backstory
from backstory.agent.requests import Request
from backstory.agent.runner import Event
from backstory.errors import ConfigurationError
from backstory.messages import Message, Part, ToolCall
from backstory.models.base import Answer, Model, Usage
from backstory.stores.base import Store
from backstory.stores.values import DEFAULT_SCOPE
from backstory.targets import Target

T = TypeVar("T")

_POLL = 0.2
"""Seconds that a wait lasts at most: where a signal does not end a wait (Windows), Ctrl-C is seen by then."""


def open_sync(location: str | os.PathLike[str] | Store = ".", **settings: Any) -> SyncBackstory:
    """`backstory.open` for code without `async`: the same arguments. Use it in a ``with``, or call `close`."""
    return SyncBackstory(lambda: open_backstory(location, **settings))


class SyncBackstory:
    """See the module. `bs` is the `Backstory` that does it; use it from its own loop only (`run`)."""

    def __init__(self, make: Callable[[], Backstory]) -> None:
        self.bs = make()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._serve, name="backstory-sync", daemon=True)
        self._lock = threading.Lock()
        self._closed = False
        self._thread.start()

    # --- turns -------------------------------------------------------------------------------

    def say(
        self,
        key: str,
        content: str | Sequence[Part],
        *,
        tools: Tools = (),
        message_id: str | None = None,
        scope: str = DEFAULT_SCOPE,
        policy: Policy = "queue",
        model: Model | None = None,
    ) -> Reply:
        """One turn: the user's message in, the answer out."""
        return self.run(
            self.bs.say(
                key, content, tools=tools, message_id=message_id, scope=scope, policy=policy, model=model
            )
        )

    def stream(
        self,
        key: str,
        content: str | Sequence[Part],
        *,
        tools: Tools = (),
        message_id: str | None = None,
        scope: str = DEFAULT_SCOPE,
        policy: Policy = "queue",
        model: Model | None = None,
    ) -> Iterator[Event]:
        """As `say`, as it happens. Leaving the iteration early ends the turn as interrupted."""
        return self._iterate(
            self.bs.stream(
                key, content, tools=tools, message_id=message_id, scope=scope, policy=policy, model=model
            )
        )

    def resume(
        self, key: str, *, tools: Tools = (), scope: str = DEFAULT_SCOPE, model: Model | None = None
    ) -> Reply:
        """Go on with the turn that a crash left open."""
        return self.run(self.bs.resume(key, tools=tools, scope=scope, model=model))

    def turn(
        self,
        key: str,
        content: str | Sequence[Part] | None,
        *,
        tools: Tools = (),
        message_id: str | None = None,
        scope: str = DEFAULT_SCOPE,
        policy: Policy = "queue",
        target: Target | str | None = None,
    ) -> AbstractContextManager[SyncTurn]:
        """A turn to run by yourself, with your own client."""
        context = self.bs.turn(
            key, content, tools=tools, message_id=message_id, scope=scope, policy=policy, target=target
        )
        return _Turns(self, context)

    # --- from outside a turn -----------------------------------------------------------------

    def command(self, key: str, text: str, *, scope: str = DEFAULT_SCOPE) -> Commanded:
        """A slash command, such as ``/undo 2``."""
        return self.run(self.bs.command(key, text, scope=scope))

    def stop(self, key: str, *, scope: str = DEFAULT_SCOPE) -> bool:
        """End the turn that is under way, from another thread. Whether there was one."""
        return self.run(self.bs.stop(key, scope=scope))

    def late_result(
        self, key: str, call_id: str, text: str, *, name: str | None = None, scope: str = DEFAULT_SCOPE
    ) -> None:
        """A tool's real answer that came after its call was closed."""
        self.run(self.bs.late_result(key, call_id, text, name=name, scope=scope))

    def retract(self, key: str, why: str = "", *, scope: str = DEFAULT_SCOPE) -> Message:
        """Take back the newest turn's answer: the log keeps it, and no request shows it."""
        return self.run(self.bs.retract(key, why, scope=scope))

    def close(self) -> None:
        """Let go of the store and end the thread. Closing twice is fine."""
        with self._lock:
            if self._closed:
                return
            self._closed = True
        try:
            _Work(self._loop, self._end()).result()
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # --- the other thread --------------------------------------------------------------------

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """What a coroutine of `bs` gives, or raises."""
        return self._begin(work).result()

    def _begin(self, work: Coroutine[Any, Any, T]) -> _Work[T]:
        wrong = ""
        if threading.current_thread() is self._thread:
            wrong = (
                "this is the event loop of open_sync itself, which would wait for itself: await .bs instead"
            )
        elif self._closed:
            wrong = "this was closed; open it again"
        if wrong:
            work.close()
            raise ConfigurationError(wrong)
        return _Work(self._loop, work)

    def _iterate(self, events: AsyncGenerator[Event, None]) -> Iterator[Event]:
        given: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        wanted = asyncio.Semaphore(0)
        work = self._begin(_pump(events, wanted, given))
        work.future.add_done_callback(lambda _: given.put(None))
        try:
            while True:
                self._loop.call_soon_threadsafe(wanted.release)
                event = _patiently(lambda seconds: given.get(timeout=seconds), queue.Empty)
                if event is None:
                    work.result()
                    return
                yield event
        finally:
            work.cancel()

    def _serve(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        finally:
            self._loop.close()

    async def _end(self) -> None:
        """Turns under way are ended as interrupted, then the store is let go of."""
        mine = asyncio.current_task()
        others = [task for task in asyncio.all_tasks() if task is not mine]
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
        await self.bs.close()
        await self._loop.shutdown_asyncgens()


class _Work(Generic[T]):
    """A coroutine that runs on the other thread, in a task of its own."""

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[Any] | None = None
        self._cancelled = False
        self.future = asyncio.run_coroutine_threadsafe(self._run(), loop)

    async def _run(self) -> T:
        self._task = asyncio.current_task()
        if self._cancelled:
            self._work.close()
            raise asyncio.CancelledError
        return await self._work

    def result(self) -> T:
        try:
            return _patiently(self.future.result, concurrent.futures.TimeoutError, done=self.future.done)
        except KeyboardInterrupt:
            self.cancel()
            raise

    def cancel(self) -> None:
        """Cancel it and wait until it has cleaned up; what it raises then is nobody's business."""
        if self.future.done():
            return
        self._loop.call_soon_threadsafe(self._cancel)
        while not concurrent.futures.wait([self.future], timeout=_POLL).done:
            pass

    def _cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()


def _patiently(
    wait: Callable[[float], T], late: type[Exception], *, done: Callable[[], bool] = lambda: False
) -> T:
    """What `wait(seconds)` gives, asked again as long as it raises `late`."""
    while True:
        try:
            return wait(_POLL)
        except late:
            if done():
                return wait(0)


async def _pump(
    events: AsyncGenerator[Event, None], wanted: asyncio.Semaphore, given: queue.SimpleQueue[Event | None]
) -> None:
    """Each event when it is wanted, all from one task."""
    async with aclosing(events):
        await wanted.acquire()
        async for event in events:
            given.put(event)
            await wanted.acquire()


class _Turns(AbstractContextManager["SyncTurn"]):
    """An asynchronous context of a turn, entered and left on the other thread."""

    def __init__(self, owner: SyncBackstory, context: AbstractAsyncContextManager[Turn]) -> None:
        self._owner = owner
        self._context = context

    def __enter__(self) -> SyncTurn:
        return SyncTurn(self._owner, self._owner.run(self._enter()))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return self._owner.run(self._leave(kind, error, trace))

    async def _enter(self) -> Turn:
        return await self._context.__aenter__()

    async def _leave(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        return bool(await self._context.__aexit__(kind, error, trace))


class SyncTurn:
    """A turn under way: `backstory.agent.active.Turn`, with methods that wait."""

    def __init__(self, owner: SyncBackstory, turn: Turn) -> None:
        self._owner = owner
        self.turn = turn

    @property
    def number(self) -> int:
        return self.turn.number

    @property
    def done(self) -> bool:
        return self.turn.done

    @property
    def reason(self) -> str:
        return self.turn.reason

    @property
    def text(self) -> str:
        return self.turn.text

    @property
    def answer(self) -> Message | None:
        return self.turn.answer

    @property
    def usage(self) -> Usage:
        return self.turn.usage

    @property
    def recovered(self) -> tuple[str, ...]:
        return self.turn.recovered

    @property
    def open_calls(self) -> tuple[ToolCall, ...]:
        return self.turn.open_calls

    @property
    def steps(self) -> list[tuple[ToolCall, ...]]:
        return self.turn.steps

    def request(self) -> Request:
        """What to send now."""
        return self._owner.run(self.turn.request())

    def record(self, response: Any, *, started: Sequence[ToolCall] | None = None) -> Answer:
        """The model's answer becomes durable."""
        return self._owner.run(self.turn.record(response, started=started))

    def result(self, call: ToolCall, value: Any, *, next_started: Sequence[ToolCall] = ()) -> None:
        """The result of one call becomes durable."""
        self._owner.run(self.turn.result(call, value, next_started=next_started))

    def start(self, call: ToolCall) -> None:
        """Record that a call begins now."""
        self._owner.run(self.turn.start(call))

    def end(self, reason: str = "interrupted") -> None:
        """End the turn without an answer."""
        self._owner.run(self.turn.end(reason))
