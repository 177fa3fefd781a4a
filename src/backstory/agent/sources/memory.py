"""The section ``memory``: memory/MEMORY.md, what stays true across conversations. A scope's own, and nobody else's.

Where the system is too big, memory gives way last and only above its cap; its first lines stay.
"""

from __future__ import annotations

from backstory.agent.sources.files import FileSection, WorkspaceFiles

MEMORY_FILE = "memory/MEMORY.md"
MEMORY_CAP = 2_000
"""Tokens that stay in any case: some hundred facts of one line."""
MEMORY_LIMIT = 65_536
"""Bytes of the file that are read at all."""


def memory_source(files: WorkspaceFiles, *, cap: int = MEMORY_CAP, limit: int = MEMORY_LIMIT) -> FileSection:
    """memory/MEMORY.md of the scope alone. `cap` is in tokens, `limit` in bytes."""
    return FileSection(
        files,
        name="memory",
        path=MEMORY_FILE,
        title="Long-term memory",
        shared=False,
        limit=limit,
        optional=True,
        least=cap,
    )
