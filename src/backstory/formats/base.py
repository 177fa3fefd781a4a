"""What a wire format is: a reader and a writer between plain JSON values and messages.

A format is a module with the names of the `WireFormat` protocol below. It translates and decides nothing: what is
legal is `backstory.legality`'s business. Reading never loses anything (the item itself stays beside the typed
view) and writing reports what cannot be carried.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from backstory.errors import InvalidMessage
from backstory.messages import Message, Native, Origin
from backstory.targets import Target

Item = dict[str, Any]


@dataclass(frozen=True, kw_only=True, slots=True)
class Loss:
    """Something that the target's format or server cannot carry.

    `index` is the position of the message in the list that was written, `kind` names what (such as
    ``reasoning``, ``signature``, ``audio``), `what` says it in a sentence.
    """

    index: int
    kind: str
    what: str


@dataclass(kw_only=True, slots=True)
class Written:
    """What a writer gives.

    `items` is the list (messages, input, contents). `starts[k]` is the position in the given messages from
    which item k was written (the first, where one item came of several), so that an item can be traced.
    `system` is the value of the request's own system field where the format has one, else `None`.
    """

    items: list[Item] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)
    system: Any = None
    losses: list[Loss] = field(default_factory=list)


class WireFormat(Protocol):
    """The names that a module of `backstory.formats` has."""

    NAME: str
    ITEMS: str  # the field of a request body that holds the list
    SYSTEM: str | None  # the field that holds the system, where there is one
    ORIGIN: Origin  # who made the opaque items of this format, unless the caller knows better

    def read(self, item: Any, *, index: int, origin: Origin) -> list[Message]:
        """One wire item as messages: one, or two for results and the user's words in one.

        Raises `InvalidMessage` (with `index`) where the item cannot be read at all: not an object, a role
        that nobody knows, content of a wrong type. What is merely illegal is read as it is.
        """
        ...

    def read_system(self, value: Any) -> list[Message]:
        """The request's own system field as system messages; `None` gives none."""
        ...

    def write(self, messages: Sequence[Message], target: Target) -> Written:
        """The messages as wire items. An intact item of the same format comes back as the very same object."""
        ...


def verbatim(native: Native | None, format: str) -> Mapping[str, Any] | None:
    """The item as it was read, where it is of this format and nothing beside it was changed."""
    return native.value if native is not None and native.intact and native.format == format else None


def unknown_fields(native: Native | None, format: str, known: frozenset[str]) -> Item:
    """The fields of an item of this format that our types do not know; empty for another format's."""
    if native is None or native.format != format:
        return {}
    return {key: value for key, value in native.value.items() if key not in known}


def expect_object(item: Any, index: int) -> Mapping[str, Any]:
    if not isinstance(item, Mapping):
        raise InvalidMessage(f"must be an object, not {type(item).__name__}", index=index)
    return item
