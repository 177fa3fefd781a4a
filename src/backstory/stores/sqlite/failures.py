"""What SQLite's errors mean for whoever called us. Result codes: https://www.sqlite.org/rescode.html

Pure: an error goes in, one of ours comes out.
"""

from __future__ import annotations

import sqlite3

from backstory.errors import BackstoryError, InvalidInput, StoreDamaged, StoreUnavailable

BUSY, LOCKED, TOO_BIG = 5, 6, 18
_DAMAGED = {
    11: "a page of the file is not what was written; `repair` saves what can be read, and keeps the original",
    26: "the file is no SQLite database, or its first page was overwritten; put a backup in its place",
    24: "the file has a format that this SQLite does not know",
    19: "the tables contradict each other; `repair` the session",
    1: "the tables are not those that Backstory made",
    17: "the tables are not those that Backstory made",
    20: "a table holds a value of another type than Backstory wrote",
}
_UNAVAILABLE = {
    BUSY: "another process is writing to it and does not finish; try again",
    LOCKED: "another connection of this process holds a table; try again",
    3: "permission denied",
    7: "there is no memory left",
    8: "the file or its folder is read-only",
    9: "the call was interrupted",
    10: "the disk reports an error",
    13: "the disk is full; free some space and try again",
    14: "the file cannot be opened: its folder is gone, or permission is denied",
    15: "its lock file is in disorder; try again",
    22: "the file is larger than this system can hold",
    23: "permission denied",
}


def code(error: sqlite3.Error) -> int:
    """The primary result code; 0 where the error did not come from SQLite itself."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF


def is_busy(error: sqlite3.Error) -> bool:
    return code(error) in (BUSY, LOCKED)


def is_damage(error: sqlite3.Error) -> bool:
    """A page or the whole file is damaged."""
    return code(error) in (11, 26)


def explained(error: sqlite3.Error, path: str) -> BackstoryError:
    """The error of ours that says what happened, and what to do about it."""
    number = code(error)
    if number == TOO_BIG:
        return InvalidInput(f"SQLite takes no value of this size: {error}")
    if number in _DAMAGED:
        return StoreDamaged(f"{path} is damaged: {_DAMAGED[number]} ({error})")
    cause = _UNAVAILABLE.get(number, "SQLite refuses")
    return StoreUnavailable(f"{path} cannot be read or written: {cause} ({error})")
