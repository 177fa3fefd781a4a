"""How a session stands in Redis, and the commands that change it. Nothing here does I/O."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.records import Record, encode_json
from backstory.stores import rules
from backstory.stores.base import KNOWN_BATCHES
from backstory.stores.redis.keys import SessionKeys
from backstory.stores.remote.naming import digest
from backstory.stores.remote.rows import Change
from backstory.stores.values import Draft, Entry, Head, Lease, LeaseRequest, SessionId

META, LOG, BATCHES, INBOX, DRAFT, KEPT, INDEX, SCOPES, ATTEMPTS = range(1, 10)
"""The numbers of keys in `scripts.CHANGE`."""

_MOST = 2000
"""Arguments of one command: Lua cannot unpack more than some thousands."""
_REMEMBERED = "600"
"""Seconds for which an append without a batch id is recognised: far more than any retry takes."""


@dataclass(kw_only=True, slots=True)
class State:
    """What `scripts.LOOK` says of a session; `version` empty: nothing is known of it. `now` is the store's clock,
    `tick` the server's own time in microseconds: numbers that must never come again are taken from it.

    `born` tells a session from a later one of the same name.
    """

    session: SessionId
    now: float
    tick: int
    version: str = ""
    born: str = ""
    seq: int = 0
    generation: int = 0
    at: str | None = None
    owner: str | None = None
    fence: int = 0
    expires: float = 0.0
    position: int = 0

    @property
    def head(self) -> Head:
        return Head(seq=self.seq, generation=self.generation, at=self.at) if self.seq else Head()

    @property
    def lease(self) -> Lease | None:
        """The lease, expired or not; `None` where it was given back."""
        if self.owner is None:
            return None
        return Lease(session=self.session, owner=self.owner, fence=self.fence, expires=self.expires)

    def grant(self, request: LeaseRequest) -> Lease:
        """Take or extend the lease in this state. Raises `LeaseHeld`."""
        lease = rules.grant(self.session, self.lease, request, now=self.now, last_fence=self.fence)
        self.hold(lease)
        return lease

    def hold(self, lease: Lease) -> None:
        self.owner, self.fence, self.expires = lease.owner, lease.fence, lease.expires

    def check(self, fence: int | None) -> None:
        """Raises `StaleLease` or `LeaseHeld`."""
        rules.check_fence(self.session, self.lease, fence, now=self.now)

    def next_generation(self) -> int:
        """Larger than any before, also where a deleted session took its last one with it."""
        return max(self.generation + 1, self.tick)


def state_of(session: SessionId, found: Sequence[bytes], *, now: float, tick: int) -> State:
    """`found` as HGETALL has it: names and values in turn."""
    values = {found[place].decode(): found[place + 1] for place in range(0, len(found), 2)}

    def number(name: str) -> int:
        return int(values.get(name, b"0"))

    owner = values.get("owner", b"")
    return State(
        session=session,
        now=now,
        tick=tick,
        version=values.get("version", b"").decode(),
        born=values.get("born", b"").decode(),
        seq=number("seq"),
        generation=number("generation"),
        at=values["at"].decode() if values.get("at") else None,
        owner=owner[1:].decode("utf-8", "surrogatepass") if owner else None,
        fence=number("fence"),
        expires=float(values.get("expires", b"0")),
        position=number("position"),
    )


@dataclass(kw_only=True, slots=True)
class Commands:
    """What a change does, in order. `version` is the token of the state after it, empty where the state stays."""

    keys: SessionKeys
    version: str = ""
    news: bool = False
    sent: list[Any] = field(default_factory=list)

    def add(self, name: str, key: int, *args: Any) -> None:
        self.sent += (name, key, len(args), *args)

    def add_many(self, name: str, key: int, args: Sequence[Any], *, size: int = 1) -> None:
        """The same command over long lists of arguments that come `size` at a time."""
        step = _MOST // size * size
        for start in range(0, len(args), step):
            self.add(name, key, *args[start : start + step])

    def remember(self, state: State, *, active: float | None = None) -> None:
        """Write down the state, under a new version. `active` where records were appended just now."""
        self.version = uuid.uuid4().hex
        state.born = state.born or self.version
        session = state.session
        owner = b"=" + _bytes(state.owner) if state.owner is not None else b""
        values: dict[str, Any] = {
            "scope": _bytes(session.scope),
            "key": _bytes(session.key),
            "born": state.born,
            "seq": state.seq,
            "generation": state.generation,
            "at": state.at or "",
            "owner": owner,
            "fence": state.fence,
            "expires": repr(state.expires),
            "position": state.position,
        }
        self.add("HSET", META, *(part for item in values.items() for part in item))
        if active is not None:
            self.add("ZADD", INDEX, repr(active), _bytes(session.key))
            self.add("SADD", SCOPES, _bytes(session.scope))

    def append(self, records: Sequence[Record], mark: bytes, *, named: bool) -> None:
        """Put lines at the end, and remember by what mark they can be found; `named`: it stands for a batch id."""
        self.add_many("ZADD", LOG, [part for record in records for part in (record.seq, record.line)], size=2)
        span = f"{records[0].seq} {records[-1].seq}"
        if named:
            self.add("HSET", BATCHES, mark, span)
        else:
            self.add("ZADD", ATTEMPTS, records[-1].seq, mark + b" " + span.encode())
            self.add("ZREMRANGEBYRANK", ATTEMPTS, 0, -1 - KNOWN_BATCHES)
            self.add("EXPIRE", ATTEMPTS, _REMEMBERED)

    def rewrite(self, change: Change) -> None:
        for first, last in change.removed:
            self.add("ZREMRANGEBYSCORE", LOG, first, last)
        self.add_many("ZADD", LOG, [part for one in change.written for part in (one.seq, one.line)], size=2)

    def delete(self, session: SessionId) -> None:
        for key in (META, LOG, BATCHES, INBOX, DRAFT, KEPT, ATTEMPTS):
            self.add("UNLINK", key)
        self.add("ZREM", INDEX, _bytes(session.key))
        self.add("FORGET-SCOPE", INDEX, _bytes(session.scope))

    def tell(self, channel: str) -> None:
        """Wake whoever waits for this session."""
        self.news = True
        self.add("PUBLISH", 0, channel, self.keys.name)


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")


def entry_field(entry_id: str) -> bytes:
    """The field of the inbox where an entry of that id waits."""
    return digest(entry_id)[:16]


def entry_line(entry: Entry) -> bytes:
    return encode_json(
        {
            "id": entry.id,
            "position": entry.position,
            "at": entry.at,
            "kind": entry.kind,
            "data": entry.data,
        }
    )


def entry_of(line: bytes) -> Entry:
    value: Mapping[str, Any] = json.loads(line)
    return Entry(
        id=value["id"], position=value["position"], at=value["at"], kind=value["kind"], data=value["data"]
    )


def draft_of(line: bytes, head: int) -> Draft | None:
    """The draft, where it still follows the log's end."""
    value = json.loads(line)
    if value["after"] != head:
        return None
    return Draft(after=value["after"], fence=value["fence"], data=value["data"])
