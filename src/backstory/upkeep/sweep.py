"""Removes blobs that nothing names any more: by mark and sweep, and only what is older than a grace time.

Blobs are put before what names them is written, so a new one may be named by nobody yet; what is put again is as new.
So what is old and not named by any log of its scope is garbage: of deleted sessions, of a crash between the two, of
records that came back from the archive. Turns go on meanwhile.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import dataclass

from backstory.errors import ConfigurationError, StoreDamaged
from backstory.stores.base import Store
from backstory.stores.large_parts import long_of, plain
from backstory.stores.values import Head, SessionId
from backstory.upkeep.migrate import listed
from backstory.upkeep.named import handles, segments_of, within

GRACE = 3_600.0
"""Seconds. Between a blob and the record that names it lie milliseconds, or the sleep of a stopped process."""

_PAGE = 512


@dataclass(frozen=True, kw_only=True, slots=True)
class Swept:
    """A blob that nothing named."""

    scope: str
    handle: str


async def sweep(
    store: Store, *, scope: str | None = None, grace: float = GRACE, act: bool = True
) -> AsyncIterator[Swept]:
    """Remove the garbage of one scope or of all; as it is done with each. Without `act` name it only.

    Raises `ConfigurationError` for a grace time that is not above 0, or where a segment of the archive cannot be read
    for want of zstandard; `StoreDamaged` where one is missing or damaged, since what it named is not known: `doctor`
    says more. Then nothing of that scope was removed. Raises the store's other errors.
    """
    if not grace > 0:
        raise ConfigurationError(f"a grace time is above 0 s, not {grace!r}")
    store = plain(store)
    for each in [scope] if scope is not None else await store.blob_scopes():
        before = store.clock.now() - grace
        left = await _old(store, each, before)
        if left:
            left -= await _named(store, each)
        for handle in sorted(left):
            if not act or await store.delete_blob(each, handle, before=before):
                yield Swept(scope=each, handle=handle)


async def _old(store: Store, scope: str, before: float) -> set[str]:
    found: set[str] = set()
    after = ""
    while page := await store.old_blobs(scope, before=before, after=after, limit=_PAGE):
        found.update(page)
        after = page[-1]
    return found


async def _named(store: Store, scope: str) -> set[str]:
    """Every handle that the logs of a scope name, themselves or through blobs.

    Twice, the second time what was written since the first: a session that is deleted may hand down to its forks, which
    were looked at by then, what they refer to.
    """
    named: set[str] = set()
    seen: dict[SessionId, Head] = {}
    for _ in range(2):
        for session in await listed(store, scope):
            head = await store.head(session)
            known = seen.get(session, Head())
            if head != known:
                after = known.seq if head.generation == known.generation else 0
                await _mark(store, session, after, named)
                seen[session] = head
    return named


async def _mark(store: Store, session: SessionId, after: int, named: set[str]) -> None:
    while records := await store.read(session, after=after, limit=_PAGE):
        for record in records:
            found = handles(record.line)
            if record.kind == "message":  # a result that was offloaded names nothing, but a long text may
                texts = {one.blob for one in long_of(record) if one.form == "text"}
                named.update(handle for handle in found if handle not in texts)
                found = list(texts)
            archive = segments_of(record)
            while found:
                handle = found.pop()
                if handle not in named:
                    named.add(handle)
                    found += await _within(store, session.scope, handle, archive)
        after = records[-1].seq


async def _within(store: Store, scope: str, handle: str, archive: set[str]) -> list[str]:
    try:
        data = await store.get_blob(scope, handle)
    except StoreDamaged:
        if handle in archive:
            raise
        return []  # a blob that is gone names nothing
    return within(data, segment=handle in archive)
