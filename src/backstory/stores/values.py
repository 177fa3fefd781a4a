"""The values that a store takes and gives: who a session is, where its log ends, who may write to it.

Plain frozen data, checked where it is made; nothing here does I/O or knows of any store.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from backstory.errors import InvalidInput
from backstory.quick import quick
from backstory.records import NewRecord, Record

DEFAULT_SCOPE = "default"
MAX_ID_BYTES = 8192
"""Of a scope or a key in UTF-8: far beyond any id in use. (A store whose index takes less keeps a hash in it.)"""


@dataclass(frozen=True, kw_only=True, slots=True, order=True)
class SessionId:
    """One conversation: whose it is, and its key, such as ``telegram:12345``.

    Both may hold any characters at all, path separators and NUL included: a store must keep apart whatever
    differs, and must never let an id reach outside its place. Raises `InvalidInput` for an empty or overlong one.
    """

    scope: str = DEFAULT_SCOPE
    key: str

    def __post_init__(self) -> None:
        for what, value in (("scope", self.scope), ("session key", self.key)):
            if not value:
                raise InvalidInput(f"a {what} is a string that is not empty, not {value!r}")
            if len(value) * 4 > MAX_ID_BYTES and len(value.encode("utf-8", "surrogatepass")) > MAX_ID_BYTES:
                raise InvalidInput(f"a {what} has at most {MAX_ID_BYTES} bytes in UTF-8: {value[:40]!r}…")

    def __str__(self) -> str:
        return self.key if self.scope == DEFAULT_SCOPE else f"{self.scope}/{self.key}"


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Head:
    """Where a log ends. `seq` 0: there is no such session. `at` is the stamp of the last record.

    `generation` grows with every rewrite: what was folded or cached from records is still good when both
    numbers are as they were, and may be extended by reading after `seq` when only `seq` grew.
    """

    seq: int = 0
    generation: int = 0
    at: str | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Lease:
    """The right to run a turn. `fence` grows with every new holder; `expires` is on the store's clock."""

    session: SessionId
    owner: str
    fence: int
    expires: float


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class LeaseRequest:
    """Who asks for a lease, and for how many seconds. `owner` names one holder, never two (process and turn)."""

    owner: str
    ttl: float

    def __post_init__(self) -> None:
        if not self.owner:
            raise InvalidInput("the owner of a lease needs a name")
        if not self.ttl > 0:
            raise InvalidInput(f"a lease lasts a positive number of seconds, not {self.ttl}")


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Appended:
    """What an append did: the head after it, the records as they stand in the log, the lease if one was asked.

    `repeated`: the batch had been appended before, and nothing was written now; `records` are those of then.
    """

    head: Head
    records: tuple[Record, ...]
    lease: Lease | None = None
    repeated: bool = False


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Replacement:
    """For a rewrite: one record that takes the place of the span `first` … `last`.

    It keeps the place `last`; places are never given again. The span may cover older replacements whole. With
    `records` these come back instead, with their own places, which are those of the span, and lines.
    """

    first: int
    last: int
    record: NewRecord
    records: tuple[Record, ...] = ()


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class NewEntry:
    """Something for whoever holds the session: a message, an interrupt, a late result, a stop.

    `id` is the client's message id where there is one; without it the store gives one. `kind` and `data` are
    between the writer and the reader; `data` holds JSON values.
    """

    kind: str
    data: Mapping[str, Any] = field(default_factory=dict)
    id: str | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Entry:
    """An entry of an inbox. `position` grows from entry to entry and is never given twice in a session's life."""

    id: str
    position: int
    at: str
    kind: str
    data: Mapping[str, Any]


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Posted:
    """`repeated`: an entry of that id was waiting already, and this is it."""

    entry: Entry
    repeated: bool = False


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Draft:
    """Text that is being streamed: `after` is the head that it follows, `fence` the writer's.

    `data` holds JSON values. A draft is in force only while the log still ends at `after`.
    """

    after: int
    fence: int
    data: Mapping[str, Any]


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class SessionInfo:
    """One line of a list of sessions. `active` is when it was last written to, on the store's clock."""

    session: SessionId
    active: float


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class SessionPage:
    """A part of a list, newest activity first; `cursor` fetches the next one, `None` where there is none."""

    sessions: tuple[SessionInfo, ...]
    cursor: str | None = None


DamageKind = Literal["torn", "zeros", "encoding", "json", "checksum", "order", "gap", "header"]


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Damage:
    """A place where a log is not what was written.

    `torn`: the end of a batch that was never acknowledged · `zeros`, `encoding`, `json`: a line that is not
    one · `checksum`: a record that loads but is not what was written (edited by hand, or bits flipped) ·
    `order`: a record whose place is taken · `gap`: places that are missing · `header`: the first line.

    `offset` and `length` are in bytes; `after` is the last good place before it. `kept` says where the bytes
    were put aside, `None` where they still stand in the log itself.
    """

    kind: DamageKind
    offset: int
    length: int
    after: int
    detail: str
    kept: str | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a check of one whole log found. `kept` names copies of what stood there before a repair."""

    session: SessionId
    head: Head
    records: int
    damage: tuple[Damage, ...] = ()
    kept: tuple[str, ...] = ()

    @property
    def sound(self) -> bool:
        return not self.damage
