"""What a server's settings mean for what was acknowledged. See "Redis" in docs/stores.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from backstory.stores.base import Durability

_WAITS_SINCE = (7, 2)


@dataclass(frozen=True, kw_only=True, slots=True)
class Persistence:
    """`waits`: each write must be followed by WAITAOF to be as durable as was asked. `warnings`: what is not so."""

    waits: bool = False
    warnings: tuple[str, ...] = ()


async def persistence(client: Any, durability: Durability) -> Persistence:
    """Ask the server. Where it keeps its settings to itself, that is a warning too."""
    from redis.exceptions import ResponseError

    settings: dict[str, str] | None
    try:
        found = {**await client.config_get("append*"), **await client.config_get("maxmemory*")}
        settings = {_text(name): _text(value) for name, value in found.items()}
    except ResponseError:  # renamed, or forbidden by an ACL, as hosted servers do
        settings = None
    try:
        version = _version(_text((await client.info("server")).get("redis_version", "0")))
    except ResponseError:
        version = (0, 0)
    return judged(settings, version, durability)


def judged(settings: dict[str, str] | None, version: tuple[int, int], durability: Durability) -> Persistence:
    """The meaning of CONFIG's `settings` (`None`: forbidden) on a server of that version."""
    if settings is None:
        unknown = (
            "CONFIG GET is forbidden, so that nothing is known of its persistence: acknowledged messages last only "
            "with appendonly yes, and over a loss of power only with appendfsync always"
        )
        return Persistence(warnings=(unknown,))
    warnings = []
    waits = False
    policy = settings.get("maxmemory-policy", "noeviction")
    if policy != "noeviction" and settings.get("maxmemory", "0") != "0":
        warnings.append(f"maxmemory-policy {policy} throws data away when memory is short; set noeviction")
    sync = settings.get("appendfsync", "everysec")
    if settings.get("appendonly") != "yes":
        warnings.append(
            "appendonly is off: when the server stops, acknowledged messages since its last snapshot are lost; "
            "set appendonly yes and appendfsync always"
        )
    elif durability == "power" and sync == "everysec" and version >= _WAITS_SINCE:
        waits = True
        warnings.append(
            "appendfsync everysec: each write waits for the next sync (WAITAOF), up to a second; set appendfsync "
            "always, or durability='process'"
        )
    elif durability == "power" and sync != "always":
        lost = "the last second or two" if sync == "everysec" else "whatever the system had not written yet"
        warnings.append(
            f"appendfsync {sync}: a loss of power loses {lost} of acknowledged messages; set appendfsync always, "
            "or say durability='process' if that is meant"
        )
    return Persistence(waits=waits, warnings=tuple(warnings))


def _version(text: str) -> tuple[int, int]:
    parts = text.split(".")
    try:
        return int(parts[0]), int(parts[1])
    except (ValueError, IndexError):
        return 0, 0


def _text(value: Any) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else str(value)
