"""The entries of a session's log, and the one way in which each is written as a line.

A log is made of records. This module knows their shape, their kinds and their bytes; it refuses to know where
the bytes lie (that is `stores/`) and what a sequence of records means (that is `sessions/view`).

A record is written as one line of compact UTF-8 JSON, the same bytes in every store::

    {"seq":7,"at":"2025-11-30T09:15:02.113Z","part":[1,2],"batch":"b-1","turn":3,"kind":"message","data":{…},"crc":"1f0a93c2"}

- `seq` and `at` are the store's, the rest is the writer's. Fields that say nothing are left out.
- `part` is ``[i, n]``: record *i* of the *n* that were appended together. A log ends with a whole batch, so
  a reader can tell a batch that a crash cut short from one that is complete.
- `first` is there when a record stands for a span of older ones (a tombstone): it covers `first` … `seq`.
- `crc` is the CRC-32 of the line before it. A line whose checksum holds needs no parsing to be trusted,
  so that opening a session parses what it uses and nothing else. A line that was edited by hand still loads,
  as long as it is JSON; `intact` is then false.

Encoding happens once: a `NewRecord` encodes what the writer knows, the store puts its own fields in front
(`stamp`), and the record keeps the line. A lone surrogate, which UTF-8 cannot hold, is written as its JSON
escape.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, get_args
from zlib import crc32

from backstory import messages
from backstory.errors import InvalidInput, StoreDamaged
from backstory.messages import Message
from backstory.quick import quick

SCHEMA_VERSION = 1
"""Of records and their lines; stores write it into what they make, and refuse a newer one."""

Kind = Literal[
    "message",
    "turn_started",
    "call_started",
    "turn_ended",
    "epoch",
    "request",
    "summary",
    "cut",
    "condense",
    "pin",
    "unpin",
    "variable",
    "meta",
    "history_entry",
    "fork",
    "undo",
    "archived",
    "erased",
    "snapshot",
]
KINDS: frozenset[str] = frozenset(get_args(Kind))

_encode = json.JSONEncoder(
    ensure_ascii=False, allow_nan=False, check_circular=False, separators=(",", ":")
).encode
_SURROGATES = re.compile("[\ud800-\udfff]")
_HEAD = re.compile(
    rb'\{"seq":(\d+)(?:,"first":(\d+))?,"at":"([^"\\]*)"(?:,"part":\[(\d+),(\d+)\])?'
    rb'(?:,"batch":("(?:[^"\\]|\\.)*"))?(?:,"turn":(\d+))?,"kind":"([a-z_]+)","data":'
)
_CRC = b',"crc":"%08x"}'
_CRC_LENGTH = len(_CRC % 0)


def encode_json(value: Any) -> bytes:
    """Compact UTF-8 JSON; lone surrogates escaped. Raises `InvalidInput` for what JSON cannot hold."""
    try:
        text = _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidInput(f"not a JSON value: {error}") from error
    try:
        return text.encode()
    except UnicodeEncodeError:
        return _SURROGATES.sub(lambda found: f"\\u{ord(found[0]):04x}", text).encode()


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class NewRecord:
    """A record that no store has taken yet: it has no `seq` and no `at`.

    `turn` is the number of the turn that it belongs to, 0 where it belongs to none. `data` holds JSON values;
    do not change it after the record was made. Raises `InvalidInput` for an unknown kind.
    """

    kind: Kind
    data: Mapping[str, Any] = field(default_factory=dict)
    turn: int = 0
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise InvalidInput(f"unknown kind of record {self.kind!r}; one of {', '.join(sorted(KINDS))}")
        if self.turn < 0:
            raise InvalidInput(f"a turn is numbered from 1, or 0 for none, not {self.turn}")

    @property
    def body(self) -> bytes:
        """The writer's part of the line, encoded once: from the turn to the end of the data."""
        body: bytes | None = self._cache.get("body")
        if body is None:
            body = _body(self.turn, self.kind, self.data)
            self._cache["body"] = body
        return body


def new_message(
    message: Message,
    *,
    turn: int = 0,
    tokens: Mapping[str, int] | None = None,
    message_id: str | None = None,
    **extra: Any,
) -> NewRecord:
    """A record of kind ``message``.

    `tokens` are counts by the name of the counter; `message_id` is the client's own id, by which a repeated
    message is recognised; `extra` are further JSON fields of the data (never ``message``, ``tokens``, ``id``, or
    ``large``, which names what a store keeps elsewhere).
    """
    data: dict[str, Any] = {"message": messages.to_json(message)}
    if tokens:
        data["tokens"] = dict(tokens)
    if message_id is not None:
        data["id"] = message_id
    record = NewRecord(kind="message", data={**extra, **data}, turn=turn)
    record._cache["message"] = message
    return record


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Record:
    """One entry of a log, as a store gave it back. Make one with `stamp` or `from_line`.

    `seq` is its place, dense from 1; `first` equals it except where the record stands for the span
    `first` … `seq`. `at` is a UTC time stamp for people (never an order). `part` is its place in the batch that
    it was appended with, and the size of that batch. `line` are its bytes, without the line break. `intact` is false
    where the checksum no longer fits. Two records are equal when their lines are.
    """

    seq: int = field(compare=False)
    at: str = field(compare=False)
    turn: int = field(compare=False)
    kind: str = field(compare=False)
    first: int = field(compare=False)
    batch: str | None = field(compare=False, repr=False)
    part: tuple[int, int] = field(compare=False, repr=False)
    line: bytes = field(repr=False)
    intact: bool = field(default=True, compare=False, repr=False)
    _cache: dict[str, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def data(self) -> Mapping[str, Any]:
        """What the record says, parsed when it is first asked for. Do not change it."""
        data: Mapping[str, Any] | None = self._cache.get("data")
        if data is None:
            data = _parse(self.line)["data"]
            self._cache["data"] = data
        return data

    @property
    def message(self) -> Message:
        """The message of a record of kind ``message``, read when it is first asked for, and only once.

        Raises `StoreDamaged` where the record holds none that can be read.
        """
        message: Message | None = self._cache.get("message")
        if message is None:
            if self.kind != "message":
                raise StoreDamaged(f"record {self.seq} is of kind {self.kind!r} and holds no message")
            try:
                message = messages.from_json(self.data["message"])
            except (InvalidInput, KeyError) as error:
                raise StoreDamaged(f"record {self.seq} holds no readable message ({error})") from error
            self._cache["message"] = message
        return message

    @property
    def tokens(self) -> Mapping[str, int]:
        """Token counts of a message by the name of the counter, as they were when it was written."""
        return self.data.get("tokens") or {}

    @property
    def message_id(self) -> str | None:
        """The client's own id of a message, where it gave one."""
        return self.data.get("id")


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Placed(NewRecord):
    """A record that keeps its line, its place and its time: for copying a log to another store, byte for byte.

    Appended, it must come right after the record before it; `copied` makes one.
    """

    record: Record

    @property
    def body(self) -> bytes:
        return self.record.line


def copied(record: Record) -> Placed:
    """The same record for another store. Raises `InvalidInput` for one of a kind that this version does not know."""
    return Placed(kind=record.kind, turn=record.turn, record=record)  # type: ignore[arg-type]


def stamp(
    records: Sequence[NewRecord], *, seq: int, at: str, batch: str | None = None, first: int | None = None
) -> list[Record]:
    """Give places to the records of one batch: the first gets `seq`, and so on. For stores.

    `first` makes a single record stand for the span `first` … `seq`. `Placed` records have their places already; raises
    `InvalidInput` where these are others.
    """
    size = len(records)
    encoded_batch = b',"batch":' + encode_json(batch) if batch is not None else b""
    stamped: list[Record] = []
    for index, record in enumerate(records):
        place = stamped[-1].seq + 1 if stamped else seq
        if isinstance(record, Placed):
            if record.record.first != place:
                raise InvalidInput(
                    f"a record of place {record.record.first} was to be copied to place {place}"
                )
            stamped.append(record.record)
            continue
        part = (index + 1, size)
        begin = place if first is None else first
        made = Record(
            seq=place,
            at=at,
            turn=record.turn,
            kind=record.kind,
            first=begin,
            batch=batch,
            part=part,
            line=_line(place, begin, at, part, encoded_batch, record.body),
        )
        made._cache["data"] = record.data
        if "message" in record._cache:
            made._cache["message"] = record._cache["message"]
        stamped.append(made)
    return stamped


def _line(seq: int, first: int, at: str, part: tuple[int, int], batch: bytes, body: bytes) -> bytes:
    span = b',"first":%d' % first if first != seq else b""
    place = b',"part":[%d,%d]' % part if part[1] > 1 else b""
    checked = b'{"seq":%d%b,"at":"%b"%b%b%b' % (seq, span, at.encode(), place, batch, body)
    return checked + _CRC % crc32(checked)


def restored(record: Record) -> Record:
    """The same record with a sound line: for one that is not `intact`."""
    batch = b',"batch":' + encode_json(record.batch) if record.batch is not None else b""
    body = _body(record.turn, record.kind, record.data)
    return from_line(_line(record.seq, record.first, record.at, record.part, batch, body))


def _body(turn: int, kind: str, data: Mapping[str, Any]) -> bytes:
    placed = f',"turn":{turn}' if turn else ""
    return f'{placed},"kind":"{kind}","data":'.encode() + encode_json(data)


def with_data(record: Record, data: Mapping[str, Any]) -> Record:
    """The same line, read as saying `data`: for a store that keeps parts of it elsewhere."""
    made = replace(record)
    made._cache["data"] = data
    return made


def to_line(record: Record) -> bytes:
    """The record's canonical bytes, without a line break; nothing is encoded again."""
    return record.line


def from_line(line: bytes) -> Record:
    """Read one line, without its line break. Raises `StoreDamaged` for anything that is no record.

    A line with its checksum is trusted and its data parsed later; any other is parsed whole here, and is
    accepted, as not `intact`, if it is a record all the same.
    """
    head = _HEAD.match(line)
    if head is not None and line.endswith(_CRC % crc32(line[:-_CRC_LENGTH])):
        seq, first, at, index, size, batch, turn, kind = head.groups()
        place = int(seq)
        return Record(
            seq=place,
            at=at.decode(),
            turn=int(turn) if turn else 0,
            kind=kind.decode(),
            first=int(first) if first else place,
            batch=_batch_of(batch) if batch else None,
            part=(int(index), int(size)) if index else (1, 1),
            line=bytes(line),
        )
    return _from_edited(bytes(line))


def _batch_of(encoded: bytes) -> str:
    """A batch id, which is a plain word in all but foreign hands."""
    return str(json.loads(encoded)) if b"\\" in encoded else encoded[1:-1].decode()


def _parse(line: bytes) -> dict[str, Any]:
    """The JSON object of a line. Raises `StoreDamaged`."""
    try:
        value = json.loads(line.decode())
    except (ValueError, RecursionError) as error:
        raise StoreDamaged(f"a line of the log is not JSON in UTF-8 ({error})") from error
    if not isinstance(value, dict):
        raise StoreDamaged("a line of the log is no JSON object")
    return value


def _from_edited(line: bytes) -> Record:
    """A line whose checksum does not fit, or that was written in another order or with blanks."""
    value = _parse(line)
    seq: Any
    first: Any
    seq, at, data, kind = (value.get(name) for name in ("seq", "at", "data", "kind"))
    first, turn, batch, part = (
        value.get("first", seq),
        value.get("turn", 0),
        value.get("batch"),
        value.get("part"),
    )
    numbers = [seq, first, turn, *(part if isinstance(part, list) else ())]
    if (
        any(type(number) is not int or number < 0 for number in numbers)
        or not (isinstance(at, str) and isinstance(kind, str) and isinstance(data, dict))
        or not (batch is None or isinstance(batch, str))
        or not (part is None or (isinstance(part, list) and len(part) == 2 and 1 <= part[0] <= part[1]))
        or not 1 <= first <= seq
    ):
        raise StoreDamaged("a line of the log is JSON, but no record")
    record = Record(
        seq=seq,
        at=at,
        turn=turn,
        kind=kind,
        first=first,
        batch=batch,
        part=(part[0], part[1]) if part else (1, 1),
        line=line,
        intact=False,
    )
    record._cache["data"] = data
    return record
