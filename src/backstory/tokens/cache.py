"""A bounded memory of counts, so that text which did not change is never tokenised again.

It knows keys, sizes and ages; it does not know what is counted.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from threading import Lock

from backstory.errors import ConfigurationError

#: Characters held in all. A character costs 1 to 4 bytes in CPython, so this is 16 to 64 MB at the very most.
CAPACITY = 16_000_000
#: Longer texts are not held: a digest of 16 bytes stands for them (two texts with one digest: odds 2^-128).
LONGEST_HELD = 65_536
#: What the bookkeeping of one entry costs, in characters: key, tuple and dict slots are about 250 bytes.
ENTRY_COST = 250

_Key = tuple[str, str] | tuple[str, int, bytes]


class CountCache:
    """Least recently used counts, keyed by who counted and the text; safe to share between threads.

    `capacity` is in characters, `longest_held` too.
    """

    def __init__(self, *, capacity: int = CAPACITY, longest_held: int = LONGEST_HELD) -> None:
        if capacity < 0 or longest_held < 0:
            raise ConfigurationError(f"a cache cannot hold less than nothing: {capacity}, {longest_held}")
        self._capacity = capacity
        self._longest_held = longest_held
        self._counts: OrderedDict[_Key, int] = OrderedDict()
        self._lock = Lock()
        self._held = 0

    def __len__(self) -> int:
        return len(self._counts)

    @property
    def held(self) -> int:
        """Characters held now, bookkeeping included; never above the capacity."""
        return self._held

    def key(self, counter: str, text: str) -> _Key:
        """What stands for this text; make it once and pass it to `get` and `put`."""
        if len(text) <= self._longest_held:
            return (counter, text)
        digest = hashlib.blake2b(text.encode("utf-8", "surrogatepass"), digest_size=16).digest()
        return (counter, len(text), digest)

    def get(self, key: _Key) -> int | None:
        """The count, or `None` where it is not known (any more)."""
        with self._lock:
            count = self._counts.get(key)
            if count is not None:
                self._counts.move_to_end(key)
            return count

    def put(self, key: _Key, count: int) -> None:
        """Remember a count; the least recently used ones make room."""
        cost = _cost(key)
        if cost > self._capacity:
            return
        with self._lock:
            if key not in self._counts:
                self._held += cost
            self._counts[key] = count
            self._counts.move_to_end(key)
            while self._held > self._capacity:
                oldest, _ = self._counts.popitem(last=False)
                self._held -= _cost(oldest)

    def clear(self) -> None:
        """Forget everything."""
        with self._lock:
            self._counts.clear()
            self._held = 0


def _cost(key: _Key) -> int:
    return ENTRY_COST + (len(key[1]) if isinstance(key[1], str) else 0)
