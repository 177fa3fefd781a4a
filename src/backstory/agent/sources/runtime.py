"""What holds at this moment: the facts of the runtime block, and a message as people see it, without the block.

The block goes to the end of the user's message (`backstory.context.builder.compose`), stays there in the log, and is
not shown. Nothing in it may pass for something else: each value stands on lines of its own, and cannot end the block.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from datetime import datetime, tzinfo
from zoneinfo import ZoneInfo

from backstory.errors import ConfigurationError
from backstory.legality.arguments import clean_text
from backstory.messages import Message, Part, Text
from backstory.stores.clock import Clock, SystemClock

DAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")

NOTE_LIMIT = 2_000
"""Characters of one note: it says that something changed; the next epoch has the whole."""
_FACT_LIMIT = 300

_TITLES = {"memory": "new in memory", "skills": "new skills", "entries": "new in the history"}
_TAGS = re.compile(r"<(?=\s*/?\s*(?:runtime|retrieved)\b)", re.IGNORECASE)


def runtime_facts(
    *,
    session: str = "",
    clock: Clock | None = None,
    zone: tzinfo | str | None = None,
    tools: Mapping[str, str] | None = None,
    mcp: Mapping[str, str] | None = None,
    pending: Mapping[str, str] | None = None,
    late: Sequence[str] = (),
    notes: Sequence[str] = (),
    more: Mapping[str, object] | None = None,
) -> dict[str, str]:
    """The facts of the runtime block by name, in a fixed order; what there is nothing to say of is left out.

    `zone` is the user's time zone, by its IANA name or as `tzinfo`; the machine's own where it is not said. `session`
    is the key, from which channel and chat id come. `tools` and `mcp` map a tool or server to its status, ``""``
    meaning that it is ready. `pending` is what changed since the epoch froze it (section → new lines), `late` are
    results that came after their call was closed, `notes` is what went wrong, `more` are the application's own facts.

    Raises `ConfigurationError` for an unknown zone.
    """
    channel, chat = channel_and_chat(session)
    facts: dict[str, str] = {
        "time": told_time((clock or SystemClock()).now(), zone),
        "channel": _fact(channel),
        "chat id": _fact(chat),
        "tools": _status(tools),
        "mcp": _status(mcp),
    }
    for name, value in (more or {}).items():
        facts.setdefault(_fact(str(name)).replace(":", " "), _fact(str(value)))
    for name, text in (pending or {}).items():
        facts[_fact(_TITLES.get(name, f"new in {name}"))] = _block(text)
    facts["late results"] = _block("\n".join(late))
    facts["notes"] = _block("\n".join(notes))
    return {name: value for name, value in facts.items() if value}


def told_time(seconds: float, zone: tzinfo | str | None = None) -> str:
    """A time with its zone, as ``2025-06-15 23:06:40 +08:00 Asia/Shanghai, Sunday``."""
    at = (
        datetime.fromtimestamp(seconds, zone_of(zone))
        if zone
        else datetime.fromtimestamp(seconds).astimezone()
    )
    offset = at.strftime("%z")
    name = getattr(at.tzinfo, "key", None) or at.tzname() or ""
    told = f" {name}" if name and not name.startswith(("+", "-", "UTC+", "UTC-")) else ""
    return f"{at:%Y-%m-%d %H:%M:%S} {offset[:3]}:{offset[3:5]}{told}, {DAYS[at.weekday()]}"


def zone_of(zone: tzinfo | str) -> tzinfo:
    """A time zone by its name, or itself. Raises `ConfigurationError`."""
    if not isinstance(zone, str):
        return zone
    try:
        return ZoneInfo(zone)
    except (OSError, ValueError, LookupError) as error:
        hint = " (Windows has no list of time zones: install tzdata)" if os.name == "nt" else ""
        raise ConfigurationError(f"there is no time zone {zone!r}, such as Asia/Shanghai{hint}") from error


def channel_and_chat(key: str) -> tuple[str, str]:
    """``telegram`` and ``12345`` of ``telegram:12345``; a key without a channel is all chat id."""
    channel, colon, chat = key.partition(":")
    return (channel, chat) if colon else ("", key)


# --- for people ------------------------------------------------------------------------------


def without_runtime(message: Message) -> Message:
    """The message as its writer wrote it, for display: without the blocks that were put at its end.

    Only a user's message has them, each as a part of its own at its end, at most one of each, and never the first part.
    (A block that somebody typed as the last of several parts, where none was put on, is taken for one.)
    """
    if message.role != "user":
        return message
    parts = list(message.parts)
    for tag in ("runtime", "retrieved"):
        if len(parts) > 1 and _is_block(parts[-1], tag):
            parts.pop()
    return message if len(parts) == len(message.parts) else message.evolve(parts=tuple(parts))


def _is_block(part: Part, tag: str) -> bool:
    return isinstance(part, Text) and part.text.startswith(f"<{tag}>\n") and part.text.endswith(f"\n</{tag}>")


# --- values that cannot pass for anything else -----------------------------------------------


def _status(states: Mapping[str, str] | None) -> str:
    """Those that are not ready by name, the others as a number."""
    if not states:
        return ""
    ready = sum(not state for state in states.values())
    told = [f"{_fact(name)}: {_fact(state)}" for name, state in states.items() if state]
    return "; ".join(([f"{ready} ready"] if ready else []) + told)


def _fact(text: str) -> str:
    line = " ".join(clean_text(text).split())
    return _TAGS.sub("‹", line if len(line) <= _FACT_LIMIT else f"{line[:_FACT_LIMIT]}…")


def _block(text: str) -> str:
    """Several lines, indented below the fact's name; a single one beside it."""
    lines = [line.rstrip() for line in clean_text(text).splitlines() if line.strip()]
    whole = "\n".join(lines)
    if len(whole) > NOTE_LIMIT:
        lines = [*whole[:NOTE_LIMIT].splitlines(), "…"]
    lines = [_TAGS.sub("‹", line) for line in lines]
    return lines[0] if len(lines) == 1 else "".join(f"\n  {line}" for line in lines)
