"""File names for session keys and scopes: readable where they can be, safe everywhere, and reversible.

A key becomes a name that is legal on Linux, macOS and Windows alike, that stays apart from every other name on
a file system that ignores case, and that cannot leave its folder:

- ``a``–``z``, digits, ``_``, inner ``-``, ``.`` and ``@``, and Chinese characters (which have neither case nor two
  spellings) stand for themselves; an inner ``:`` is written ``=``; a capital letter is ``+`` and the small one (as
  the Go module cache does with ``!``: https://go.dev/ref/mod#module-cache); all else is ``%`` and two hexadecimal
  digits a byte.
- Names that Windows reserves (https://learn.microsoft.com/windows/win32/fileio/naming-a-file) get their first
  letter escaped.
- A name longer than 200 bytes is cut and ended by ``~`` and a part of the key's SHA-256. Such a name is not
  reversible by itself: the first line of the file holds the key (``~`` stands in no other name).

The folder of a scope other than ``default`` begins with ``@``, which no file's name does. No I/O here.
"""

from __future__ import annotations

import os
from functools import lru_cache
from hashlib import sha256

from backstory.stores.values import DEFAULT_SCOPE

MAX_STEM = 200
"""Bytes. File systems allow 255; extensions and the marks of temporary files need the rest."""

_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyz0123456789_")
_INNER = frozenset(".@-")
_IDEOGRAPHS = ((0x3400, 0x4DB5), (0x4E00, 0x9FA5))
"""Of the first Unicode versions only: a name must not depend on which one this Python knows."""

_RESERVED = frozenset(
    ["con", "prn", "aux", "nul", "conin$", "conout$"]
    + [f"{device}{number}" for device in ("com", "lpt") for number in range(10)]
)


@lru_cache(maxsize=4096)
def file_stem(key: str) -> str:
    """The name for a key, without an extension, as `os` functions take it under any locale."""
    pieces = [_piece(char, inner=0 < index < len(key) - 1) for index, char in enumerate(key)]
    if key.split(".")[0].lower() in _RESERVED:
        pieces[0] = _escaped(key[0])
    name = "".join(pieces).encode()
    if len(name) > MAX_STEM:
        name = _shortened(pieces, key)
    return os.fsdecode(name)


def key_of(stem: str) -> str | None:
    """The key that a name stands for; `None` where only the file itself can tell, or where it is no name of ours."""
    try:
        name = os.fsencode(stem).decode()
    except UnicodeDecodeError:
        return None
    if "~" in name:
        return None
    raw = bytearray()
    index = 0
    while index < len(name):
        char = name[index]
        if char == "%":
            try:
                raw.append(int(name[index + 1 : index + 3], 16))
            except ValueError:
                return None
            index += 3
        elif char == "+":
            raw += name[index + 1 : index + 2].upper().encode()
            index += 2
        else:
            raw += (":" if char == "=" else char).encode()
            index += 1
    try:
        key = raw.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return None
    return key if key and file_stem(key) == stem else None


def scope_folder(scope: str) -> str:
    """The folder of a scope below `sessions/` and its like; empty for the default scope."""
    return "" if scope == DEFAULT_SCOPE else "@" + file_stem(scope)


def scope_of(folder: str) -> str | None:
    """The scope that a folder's name stands for; `None` as `key_of`."""
    return key_of(folder[1:]) if folder.startswith("@") else None


def _piece(char: str, *, inner: bool) -> str:
    if char in _PLAIN or (inner and char in _INNER):
        return char
    if char == ":" and inner:
        return "="
    if "A" <= char <= "Z":
        return "+" + char.lower()
    if any(low <= ord(char) <= high for low, high in _IDEOGRAPHS):
        return char
    return _escaped(char)


def _escaped(char: str) -> str:
    return "".join(f"%{byte:02x}" for byte in char.encode("utf-8", "surrogatepass"))


def _shortened(pieces: list[str], key: str) -> bytes:
    digest = sha256(key.encode("utf-8", "surrogatepass")).hexdigest()[:40]
    kept = b""
    for piece in pieces:
        if len(kept) + len(piece.encode()) > MAX_STEM - 41:
            break
        kept += piece.encode()
    return kept + b"~" + digest.encode()
