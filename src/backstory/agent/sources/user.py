"""The section ``user``: USER.md, who the user is. A scope's own, and nobody else's."""

from __future__ import annotations

from backstory.agent.sources.files import FileSection, WorkspaceFiles

USER_FILE = "USER.md"


def user_source(files: WorkspaceFiles) -> FileSection:
    """USER.md of the scope alone."""
    return FileSection(files, name="user", path=USER_FILE, title="The user (USER.md)", shared=False)
