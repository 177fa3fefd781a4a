"""Pages of a scope's sessions, by last activity."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from backstory.errors import InvalidInput
from backstory.stores.values import SessionId, SessionInfo, SessionPage

_SPARE = 16
"""So many sessions of the very same time are passed over at once."""


async def page(
    command: Callable[..., Awaitable[Any]], index: str, scope: str, *, limit: int, cursor: str | None
) -> SessionPage:
    """See `Log.sessions`. Redis orders members of one score by their bytes, and so does the cursor."""
    place = _position(cursor) if cursor is not None else None
    high = repr(place[0]) if place is not None else "+inf"
    wanted = limit + 1 + (_SPARE if place is not None else 0)
    while True:
        found = _pairs(
            await command("ZREVRANGEBYSCORE", index, high, "-inf", "WITHSCORES", "LIMIT", 0, wanted)
        )
        rest = [pair for pair in found if place is None or (pair[1], pair[0]) < place]
        if len(rest) > limit or len(found) < wanted:
            break
        wanted *= 4
    shown = rest[:limit]
    return SessionPage(
        sessions=tuple(
            SessionInfo(
                session=SessionId(scope=scope, key=key.decode("utf-8", "surrogatepass")), active=score
            )
            for key, score in shown
        ),
        cursor=f"{shown[-1][1]!r}-{shown[-1][0].hex()}" if len(rest) > limit else None,
    )


def _pairs(found: list[Any]) -> list[tuple[bytes, float]]:
    """Members and scores, as either version of the protocol gives them."""
    if found and isinstance(found[0], (list, tuple)):
        return [(member, float(score)) for member, score in found]
    return [(found[place], float(found[place + 1])) for place in range(0, len(found), 2)]


def _position(cursor: str) -> tuple[float, bytes]:
    time, _, name = cursor.rpartition("-")
    try:
        return float(time), bytes.fromhex(name)
    except ValueError as error:
        raise InvalidInput(f"not a cursor of this store: {cursor!r}") from error
