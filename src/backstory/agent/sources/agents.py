"""The section ``agents``: AGENTS.md, how the agent is to work (https://agents.md). Shared by all scopes."""

from __future__ import annotations

from backstory.agent.sources.files import FileSection, WorkspaceFiles

AGENTS_FILE = "AGENTS.md"


def agents_source(files: WorkspaceFiles) -> FileSection:
    """AGENTS.md of the scope, or of the workspace where the scope has none."""
    return FileSection(files, name="agents", path=AGENTS_FILE, title="Instructions (AGENTS.md)", shared=True)
