"""What every store decides in the same way: leases, heads, repeated batches, spans. Pure functions.

A store fetches the state, asks here, and writes the answer down. No I/O and no clock in this module: times are passed
in, in seconds since 1970.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from hashlib import sha256

from backstory.errors import HeadMoved, InvalidInput, LeaseHeld, MessageConflict, StaleLease, StoreDamaged
from backstory.records import NewRecord, Record, encode_json, stamp
from backstory.stores.values import Entry, Lease, LeaseRequest, NewEntry, Replacement, SessionId

# --- leases ---------------------------------------------------------------------------------


def in_force(lease: Lease | None, now: float) -> bool:
    """Whether somebody holds it and has not let it expire."""
    return lease is not None and lease.expires > now


def grant(
    session: SessionId, lease: Lease | None, request: LeaseRequest, *, now: float, last_fence: int = 0
) -> Lease:
    """The lease after `request`. Raises `LeaseHeld`.

    `last_fence` is the largest one given so far. A new fence is at least the time in microseconds, so that it
    grows even where a deleted session took its last fence with it.
    """
    expires = now + request.ttl
    if lease is not None and lease.owner == request.owner:
        return replace(lease, expires=expires)
    if lease is not None and in_force(lease, now):
        raise held(session, lease, now)
    fence = max(last_fence + 1, lease.fence + 1 if lease is not None else 0, int(now * 1_000_000))
    return Lease(session=session, owner=request.owner, fence=fence, expires=expires)


def held(session: SessionId, lease: Lease, now: float) -> LeaseHeld:
    seconds = max(0.0, lease.expires - now)
    return LeaseHeld(
        f"session {str(session)!r} is held by {lease.owner!r} for another {seconds:.1f} s; "
        "wait for it, or post to its inbox",
        owner=lease.owner,
        expires_in=seconds,
    )


def check_fence(session: SessionId, lease: Lease | None, fence: int | None, *, now: float) -> None:
    """Raises `StaleLease` where `fence` is not in force, `LeaseHeld` where none is shown and somebody holds it."""
    if fence is None:
        if lease is not None and in_force(lease, now):
            raise held(session, lease, now)
    elif lease is None:
        raise StaleLease(f"lease {fence} of session {str(session)!r} was given back or never given")
    elif lease.fence != fence:
        raise StaleLease(
            f"lease {fence} of session {str(session)!r} was taken over by {lease.owner!r} (lease {lease.fence})"
        )


def extend(lease: Lease, current: Lease | None, ttl: float, *, now: float) -> Lease:
    """The lease renewed. Raises `StaleLease`."""
    request = LeaseRequest(owner=lease.owner, ttl=ttl)
    check_fence(lease.session, current, lease.fence, now=now)
    return replace(lease, expires=now + request.ttl)


# --- appends --------------------------------------------------------------------------------


def check_request(
    records: Sequence[NewRecord], *, fence: int | None, acquire: LeaseRequest | None, release: bool
) -> None:
    """Raises `InvalidInput` for an append that makes no sense, before anything is looked at."""
    if fence is not None and acquire is not None:
        raise InvalidInput("an append either takes a lease (acquire) or shows one (fence), not both")
    if release and fence is None and acquire is None:
        raise InvalidInput("release=True needs the fence of the lease that is to be given back")
    if not records and acquire is None and not release:
        raise InvalidInput("an append without records is only for taking or giving back a lease")
    for record in records:
        record.body  # noqa: B018 - encodes, and raises for what is not JSON


def check_head(session: SessionId, expected: int | None, actual: int) -> None:
    """Raises `HeadMoved`."""
    if expected is not None and expected != actual:
        raise head_moved(session, expected, actual)


def head_moved(session: SessionId, expected: int, actual: int) -> HeadMoved:
    end = f"it ends at {actual}" if actual else "it is not there"
    return HeadMoved(
        f"session {str(session)!r} was expected to end at {expected}, and {end}: read on from there and try again",
        expected=expected,
        actual=actual,
    )


def check_repeat(batch: str, found: Sequence[Record], records: Sequence[NewRecord]) -> None:
    """Raises `InvalidInput` where a known batch comes with other content."""
    same = len(found) == len(records) and all(
        record.body in earlier.line or not earlier.intact
        for earlier, record in zip(found, records, strict=True)
    )
    if not same:
        raise InvalidInput(f"batch id {batch!r} was used before for other records; an id names one batch")


# --- rewrites -------------------------------------------------------------------------------


def replaced(
    records: Iterable[Record], replacements: Sequence[Replacement], *, head: int, at: str
) -> Iterator[Record]:
    """The log after a rewrite, record by record.

    Raises `InvalidInput` for spans that are empty, overlap, go beyond `head`, or cut through older ones.
    """
    spans = sorted(replacements, key=lambda span: span.first)
    ends = [0, *(span.last for span in spans)]
    for span, end in zip(spans, ends, strict=False):
        if not 1 <= span.first <= span.last <= head:
            raise InvalidInput(f"a span lies within 1 … {head}, not {span.first} … {span.last}")
        if span.first <= end:
            raise InvalidInput(f"the span {span.first} … {span.last} overlaps another")
        places = [span.first - 1, *(record.seq for record in span.records)]
        dense = all(r.first == place + 1 for r, place in zip(span.records, places, strict=False))
        if span.records and not (dense and places[-1] == span.last):
            raise InvalidInput(
                f"the records that come back are not those of the span {span.first} … {span.last}"
            )
    return _replaced(records, spans, at=at)


def _replaced(records: Iterable[Record], spans: list[Replacement], *, at: str) -> Iterator[Record]:
    waiting = iter(spans)
    span = next(waiting, None)
    for record in records:
        if span is None or record.seq < span.first:
            yield record
        elif record.first < span.first or record.seq > span.last:
            raise InvalidInput(f"the span {span.first} … {span.last} cuts through an older replacement")
        elif record.seq == span.last:
            yield from span.records or stamp([span.record], seq=span.last, at=at, first=span.first)
            span = next(waiting, None)


# --- the inbox ------------------------------------------------------------------------------


def posted_before(waiting: Sequence[Entry], entry: NewEntry) -> Entry | None:
    """The waiting entry of the same id. Raises `MessageConflict` where its content differs."""
    encoded = encode_json(entry.data)
    for other in waiting:
        if other.id == entry.id:
            if other.kind != entry.kind or encode_json(other.data) != encoded:
                raise MessageConflict(f"a message of id {entry.id!r} waits already, with other content")
            return other
    return None


# --- blobs ----------------------------------------------------------------------------------

SHA256 = "sha256:"
_HANDLE = re.compile(SHA256 + r"([0-9a-f]{64})")


def blob_handle(data: bytes) -> str:
    return SHA256 + sha256(data).hexdigest()


def blob_digest(handle: str) -> str:
    """The hexadecimal digits of a handle. Raises `InvalidInput`."""
    found = _HANDLE.fullmatch(handle)
    if found is None:
        raise InvalidInput(f"a blob's handle is 'sha256:' and 64 hexadecimal digits, not {handle[:80]!r}")
    return found[1]


def check_blob(handle: str, data: bytes) -> None:
    """Raises `StoreDamaged` where the bytes are not those that the handle names."""
    if blob_handle(data) != handle:
        raise StoreDamaged(f"blob {handle} is not what was put there")
