"""A store whose lines stay small: what is long in a message lies in blobs, and its line says which, how long, and what.

    store = with_large_parts(FilesStore("."))

A picture of a megabyte in a log would be read with every line around it, and be written again with every copy. So each
string over `LARGE` anywhere in a message (results, base64 of media, long texts; our part and the provider's item alike)
is put into a blob *before* the line that names it, and what is read comes back whole: whoever is above knows nothing of
it. The same picture is one blob of a scope however often it is sent, as base64 or as a data URL, and one string here.

A line stays what it is in the log (`Record.line`); only its data is whole. A blob that is gone costs its part, for
which a text stands that says so, and never the session. Lines that were written whole read as they are.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from dataclasses import replace
from typing import Any, cast

from backstory.errors import StoreDamaged
from backstory.records import NewRecord, Placed, Record, from_line, restored, with_data
from backstory.stores.base import Store
from backstory.stores.long_strings import Long, degraded, filled, of_data, taken_out, told
from backstory.stores.values import Appended, LeaseRequest, SessionId

logger = logging.getLogger("backstory.stores")

LARGE = 64 * 1024
"""Bytes of UTF-8. A line below is read at once with its neighbours; a file or row of its own would cost more."""

_KEPT = 32_000_000
"""Characters of strings that are kept for the next record that names them."""


class LargeParts:
    """See the module. All but `append` and `read` is `plain`'s, the store underneath."""

    def __init__(self, plain: Store) -> None:
        self.plain = plain
        self._strings = _Strings()
        self._missed: set[tuple[str, str]] = set()

    def __getattr__(self, name: str) -> Any:
        if name == "plain":  # asked for before it is there: by copying, and by unpickling
            raise AttributeError(name)
        return getattr(self.plain, name)

    def append(
        self,
        session: SessionId,
        records: Sequence[NewRecord],
        *,
        expected: int | None = None,
        fence: int | None = None,
        batch: str | None = None,
        acquire: LeaseRequest | None = None,
        release: bool = False,
    ) -> Awaitable[Appended]:
        """As `Log.append`. Where nothing is long, and so mostly, it is the store's own."""
        for record in records:
            if len(record.body) > LARGE and _is_large(record):
                return self._append(session, records, expected, fence, batch, acquire, release)
        return self.plain.append(
            session, records, expected=expected, fence=fence, batch=batch, acquire=acquire, release=release
        )

    async def _append(
        self,
        session: SessionId,
        records: Sequence[NewRecord],
        expected: int | None,
        fence: int | None,
        batch: str | None,
        acquire: LeaseRequest | None,
        release: bool,
    ) -> Appended:
        small = [await self._small(session.scope, one) if _is_large(one) else one for one in records]
        done = await self.plain.append(
            session, small, expected=expected, fence=fence, batch=batch, acquire=acquire, release=release
        )
        return replace(done, records=tuple(await self._whole(session.scope, done.records)))

    async def _small(self, scope: str, record: NewRecord) -> NewRecord:
        """The record without its long strings, which are in blobs by now."""
        data, long = taken_out(record.data, LARGE)
        if not long:  # many short ones
            return record
        put: set[str] = set()
        for one, raw in long:
            if one.blob not in put:  # a picture stands in our part and in the provider's item
                await self.plain.put_blob(scope, raw)
                put.add(one.blob)
            self._strings.put(scope, one, one.text(raw))
        return NewRecord(kind=record.kind, data=data, turn=record.turn)

    async def read(
        self,
        session: SessionId,
        *,
        after: int = 0,
        before: int | None = None,
        limit: int | None = None,
        newest_first: bool = False,
    ) -> list[Record]:
        """As `Log.read`, whole."""
        found = await self.plain.read(
            session, after=after, before=before, limit=limit, newest_first=newest_first
        )
        return await self._whole(session.scope, found)

    async def _whole(self, scope: str, records: Sequence[Record]) -> list[Record]:
        return [await self.whole(scope, one) if names_large(one) else one for one in records]

    async def whole(self, scope: str, record: Record) -> Record:
        """A record with what its line names in its place."""
        named = of_data(record.data)
        strings: dict[int, str] = {}
        for number, one in enumerate(named):
            try:
                strings[number] = await self._string(scope, one)
            except StoreDamaged as error:
                self._miss(scope, record.seq, one, error)
        put_back = filled if len(strings) == len(named) else degraded
        return with_data(record, put_back(record.data, strings))

    def _miss(self, scope: str, seq: int, one: Long, error: StoreDamaged) -> None:
        """Tell of each blob once."""
        if (scope, one.blob) not in self._missed and len(self._missed) < 10_000:
            self._missed.add((scope, one.blob))
            logger.warning("record %d, and perhaps more, lacks %s: %s", seq, told(one), error)

    async def _string(self, scope: str, one: Long) -> str:
        known = self._strings.get(scope, one)
        if known is None:
            known = one.text(await self.plain.get_blob(scope, one.blob))
            self._strings.put(scope, one, known)
        return known


class _Strings:
    """Strings that were put or read lately: equal ones are one, as long as they are kept."""

    def __init__(self) -> None:
        self._held: OrderedDict[tuple[str, str, str, str], str] = OrderedDict()
        self._size = 0

    def get(self, scope: str, one: Long) -> str | None:
        key = (scope, one.blob, one.form, one.before)
        found = self._held.get(key)
        if found is not None:
            self._held.move_to_end(key)
        return found

    def put(self, scope: str, one: Long, text: str) -> None:
        key = (scope, one.blob, one.form, one.before)
        if key in self._held:
            return
        self._held[key] = text
        self._size += len(text)
        while self._size > _KEPT:
            _, oldest = self._held.popitem(last=False)
            self._size -= len(oldest)


def with_large_parts(store: Store) -> Store:
    """The store with its large parts in blobs; itself where it does so already."""
    return store if isinstance(store, LargeParts) else cast(Store, LargeParts(store))


def plain(store: Store) -> Store:
    """The store underneath, whose records are as their lines: for who copies or moves lines, and reads no message."""
    return store.plain if isinstance(store, LargeParts) else store


async def made_whole(store: Store, scope: str, records: Sequence[Record]) -> list[Record]:
    """Records that did not come from `read` (from a segment of the archive, say), as it would give them."""
    if not any(map(names_large, records)):
        return list(records)
    whole = store if isinstance(store, LargeParts) else LargeParts(store)
    return [await whole.whole(scope, one) if names_large(one) else one for one in records]


def names_large(record: Record) -> bool:
    """Whether the record lacks parts of its message, which are in blobs that it names."""
    return _may_name(record) and bool(record.data.get("large"))


def long_of(record: Record) -> list[Long]:
    """What the line of a record names, whole or not."""
    return of_data(from_line(record.line).data) if _may_name(record) else []


def spelled_out(record: Record) -> Record:
    """The record with a line that says all of it: for who takes lines away from their store."""
    return restored(record) if _may_name(record) else record


def _may_name(record: Record) -> bool:
    return record.kind == "message" and b'"large":[' in record.line


def _is_large(record: NewRecord) -> bool:
    return record.kind == "message" and not isinstance(record, Placed) and len(record.body) > LARGE
