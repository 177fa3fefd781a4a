"""When a model is told of `read_result`: from when on it has something to read by it.

A declaration is paid for with every request, and most sessions never have a long result. So the tool is declared from
the first request on that shows a preview with a handle. Where that is in mid-epoch, the request opens an epoch, since
the tools stand before everything else; this happens once in a session's life. Afterwards the tool stays declared,
whatever is cut or undone: a handle may stand in a summary, and taking the tool away would be another prefix again.

It can be run at any time. This is about what the model is told.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from backstory.agent.requests import Frozen, Request
from backstory.agent.results import READ_RESULT, handles_in
from backstory.agent.tools import AnyTool
from backstory.context.prefix import canonical, digest
from backstory.messages import ToolResult, texts
from backstory.records import Record
from backstory.sessions.view import View

WHY = f"the tools changed: there is something to read with {READ_RESULT}"
"""Why an epoch begins where the tool is declared."""

_DECLARED = f'"name":"{READ_RESULT}"'.encode()


class Reading:
    """Whether the model is told of the reader, in one run of turns. `told` says so.

    `makers` are names of tools of which this process has seen a long result: a session that has one of them is told
    with its first request, which costs less than a second prefix later on.
    """

    def __init__(self, makers: set[str]) -> None:
        self.told = False
        self._makers = makers
        self._since: int | None = None  # the first place that was not looked at

    def begin(
        self, view: View, frozen: Frozen | None, tools: Mapping[str, AnyTool], own: Sequence[Any]
    ) -> None:
        """Take up what the newest epoch says, once. `own` are the declarations of `tools` without the reader's."""
        if self._since is not None:
            return
        self._since = 0
        if frozen is None:
            self.told = not self._makers.isdisjoint(tools)
        elif is_declared(frozen.tools):
            self.told = True
        elif sorted(map(digest, frozen.tools)) == sorted(map(digest, own)):
            # Each request of that epoch was looked at when it was made.
            self._since = view.request.get("state", {}).get("length", 0)

    def finds(self, view: View, made: Request) -> bool:
        """Whether a request that was made without the reader shows something to read. Looks at what is new in it."""
        since, self._since = self._since or 0, view.head + 1
        first = bisect.bisect_left(view.messages, since, key=lambda record: record.seq)
        found = long_results(record for record in view.messages[first:] if view.replayed(record.seq))
        self._makers |= found
        self.told = bool(found) or shows_handles(made.state)
        return self.told


def is_declared(tools: Sequence[Any]) -> bool:
    """Whether a tool of that name is among declarations, whatever their format."""
    return _DECLARED in canonical(list(tools))


def long_results(records: Iterable[Record]) -> set[str]:
    """The names of the tools whose results are logged as a preview with a handle."""
    return {
        part.name or ""
        for record in records
        for part in record.message.parts
        if isinstance(part, ToolResult) and handles_in(texts(part.content))
    }


def shows_handles(state: Mapping[str, Any]) -> bool:
    """Whether a request's state decides on a preview that says how to read the whole."""
    return any(bool(told and told[0]) for _, _, *told in state.get("condensed", {}).values())
