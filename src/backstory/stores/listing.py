"""Which sessions and scopes a workspace folder holds, read from its names. Blocking; writes nothing.

A file's time of change is its session's last activity: the store sets it, from its own clock, with each append.
"""

from __future__ import annotations

import heapq
import json
import os

from backstory.errors import InvalidInput
from backstory.stores.disk import Disk
from backstory.stores.names import file_stem, key_of, scope_folder, scope_of
from backstory.stores.values import DEFAULT_SCOPE, SessionId, SessionInfo, SessionPage

_EXTENSION = ".jsonl"


def list_sessions(disk: Disk, root: str, scope: str, limit: int, cursor: str | None) -> SessionPage:
    """A page of a scope's sessions, newest activity first. Files that are none of ours are passed over."""
    folder = os.path.join(root, "sessions", scope_folder(scope))
    after = _position(cursor) if cursor is not None else None
    places: list[tuple[int, str]] = []
    for entry in disk.names(folder):
        if _is_log(entry.name):
            place = (-entry.stat().st_mtime_ns, entry.name)
            if after is None or place > after:
                places.append(place)
    limit = max(1, limit)
    found: list[SessionInfo] = []
    page = heapq.nsmallest(limit, places)
    for negative, name in page:
        key = _key(disk, os.path.join(folder, name))
        if key is not None:
            session = SessionId(scope=scope, key=key)
            found.append(SessionInfo(session=session, active=-negative / 1e9))
    more = len(places) > limit
    return SessionPage(sessions=tuple(found), cursor=_cursor(page[-1]) if more else None)


def list_scopes(disk: Disk, root: str) -> list[str]:
    """Every scope with at least one log."""
    folder = os.path.join(root, "sessions")
    found: set[str] = set()
    for entry in disk.names(folder):
        if _is_log(entry.name):
            found.add(DEFAULT_SCOPE)
        elif entry.name.startswith("@"):
            logs = [log.path for log in disk.names(entry.path) if _is_log(log.name)]
            if logs:
                scope = scope_of(entry.name) or _header(disk, logs[0]).get("scope")
                if isinstance(scope, str) and scope_folder(scope) == entry.name:
                    found.add(scope)
    return sorted(found)


def _is_log(name: str) -> bool:
    return name.endswith(_EXTENSION) and not name.startswith("@")  # which is a scope's folder


def _key(disk: Disk, path: str) -> str | None:
    stem = os.path.basename(path)[: -len(_EXTENSION)]
    key = key_of(stem)
    if key is None:
        named = _header(disk, path).get("key")
        key = named if isinstance(named, str) and named and file_stem(named) == stem else None
    return key


def _header(disk: Disk, path: str) -> dict[str, object]:
    try:
        fd = disk.open(path, os.O_RDONLY)
    except FileNotFoundError:
        return {}
    try:
        value = json.loads(disk.read_at(fd, 1 << 17, 0).split(b"\n", 1)[0].decode())
    except ValueError:
        return {}
    finally:
        disk.close(fd)
    return value if isinstance(value, dict) else {}


def _cursor(place: tuple[int, str]) -> str:
    return f"{-place[0]}-{os.fsencode(place[1]).hex()}"


def _position(cursor: str) -> tuple[int, str]:
    time, _, name = cursor.partition("-")
    try:
        return -int(time), os.fsdecode(bytes.fromhex(name))
    except ValueError as error:
        raise InvalidInput(f"not a cursor of this store: {cursor!r}") from error
