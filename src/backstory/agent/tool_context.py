"""What a running tool may know and use of the turn that called it.

A tool gets it by declaring a parameter of this type; the model never sees that parameter:

    @backstory.tool
    def remember(fact: str, context: ToolContext) -> str: ...

It refuses to know sessions and stores: whoever runs the tools fills it in.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

from backstory.messages import ToolCall

MAX_SO_FAR = 2_000
"""Characters of what a call tells of its work so far; of more, the end."""

Heard: TypeAlias = Callable[[ToolCall, str], None]

Offload: TypeAlias = Callable[[str | bytes], str | Awaitable[str]]
"""Keeps a big result somewhere and gives its handle, by which `read_result` finds it again."""

DEFAULT_TIMEOUT = 120.0
"""Seconds. Long enough for a slow web page or a test run, short enough that a hung tool does not hang the turn."""

DEFAULT_MAX_RESULT = 24_000
"""Characters, about 6,000 tokens of English: more is kept aside, and the model gets a preview and a handle."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ToolContext:
    """Whose turn it is, which call, and what the runner lends to tools.

    `timeout` (seconds) and `max_result` (characters) hold for tools that set none of their own; `timeout=None`
    means no limit. Without `offload` results stay whole, however long: cutting would lose them. `extras` are
    the application's own values.
    """

    scope: str = "default"
    session: str | None = None
    turn: int | None = None
    call: ToolCall | None = None
    offload: Offload | None = field(default=None, repr=False)
    timeout: float | None = DEFAULT_TIMEOUT
    max_result: int = DEFAULT_MAX_RESULT
    extras: Mapping[str, Any] = field(default_factory=dict, repr=False)
    heard: Heard = field(default=lambda call, text: None, repr=False)

    def so_far(self, text: str) -> None:
        """Say what the call has done so far, from any thread; each word takes the place of the one before.

        It is for a call that gets no result: interrupted, out of time, or its process killed. The model then learns
        what was done and does not do it twice.
        """
        if self.call is not None:
            self.heard(self.call, text[-MAX_SO_FAR:])
