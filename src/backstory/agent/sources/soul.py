"""The section ``soul``: SOUL.md, the agent's character and tone. Shared by all scopes."""

from __future__ import annotations

from backstory.agent.sources.files import FileSection, WorkspaceFiles

SOUL_FILE = "SOUL.md"


def soul_source(files: WorkspaceFiles) -> FileSection:
    """SOUL.md of the scope, or of the workspace where the scope has none."""
    return FileSection(files, name="soul", path=SOUL_FILE, title="Character (SOUL.md)", shared=True)
