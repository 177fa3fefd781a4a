"""Where a store lies, as messages may say it: without the password."""

from __future__ import annotations

from urllib.parse import urlsplit


def shown(url: str) -> str:
    """Scheme, host, port and path of a URL; nothing of its user, password or parameters."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return "the server"
    if not parts.scheme:
        return "the server"
    return f"{parts.scheme}://{host}{f':{port}' if port else ''}{parts.path}"
