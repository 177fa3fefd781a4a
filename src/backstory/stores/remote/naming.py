"""Ids as a server can hold them: any characters at all, told apart by every single one of them."""

from __future__ import annotations

import re
from hashlib import sha256

from backstory.records import encode_json
from backstory.stores.values import SessionId

_UNHOLDABLE = re.compile("[\0\\\\\ud800-\udfff]")
_ESCAPE = re.compile(r"\\u([0-9a-f]{4})")


def digest(text: str) -> bytes:
    """A name of fixed length for a text, the same in every process: 32 bytes."""
    return sha256(text.encode("utf-8", "surrogatepass")).digest()


def session_digest(session: SessionId) -> bytes:
    """The same for a session: what differs in scope or key differs here."""
    scope = session.scope.encode("utf-8", "surrogatepass")
    key = session.key.encode("utf-8", "surrogatepass")
    return sha256(b"%d:%b%b" % (len(scope), scope, key)).digest()


def holdable(text: str) -> str:
    """The text as UTF-8 without NUL can hold it: NUL, lone surrogates and backslashes are escaped. Reversible."""
    return _UNHOLDABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


def held(text: str) -> str:
    """What `holdable` was given."""
    return _ESCAPE.sub(lambda found: chr(int(found[1], 16)), text)


def batch_needle(batch: str) -> bytes:
    """How a batch id stands in the lines of its records."""
    return b',"batch":' + encode_json(batch)
