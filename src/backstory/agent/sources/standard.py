"""The sources of the system block in DESIGN's order, for a workspace folder or without one."""

from __future__ import annotations

import os

from backstory.agent.sources.agents import agents_source
from backstory.agent.sources.base import SectionSource
from backstory.agent.sources.entries import EntriesSource
from backstory.agent.sources.files import WorkspaceFiles
from backstory.agent.sources.identity import IDENTITY, IdentitySource
from backstory.agent.sources.memory import memory_source
from backstory.agent.sources.pinned import PinnedSource
from backstory.agent.sources.pinned_skills import PinnedSkillsSource
from backstory.agent.sources.skills import SkillFolder, SkillsSource
from backstory.agent.sources.soul import soul_source
from backstory.agent.sources.summary import SummarySource
from backstory.agent.sources.tool_contract import ToolContractSource
from backstory.agent.sources.user import user_source


def default_sources(
    workspace: str | os.PathLike[str] | WorkspaceFiles | None = None, *, identity: str = IDENTITY
) -> list[SectionSource]:
    """The ten parts of the system prompt, most stable first; those that are files only with a workspace."""
    if workspace is None:
        return [
            IdentitySource(identity),
            ToolContractSource(),
            PinnedSource(),
            EntriesSource(),
            SummarySource(),
        ]
    files = workspace if isinstance(workspace, WorkspaceFiles) else WorkspaceFiles(workspace)
    skills = SkillFolder(files)
    return [
        IdentitySource(identity),
        agents_source(files),
        soul_source(files),
        user_source(files),
        ToolContractSource(),
        memory_source(files),
        PinnedSkillsSource(skills),
        SkillsSource(skills),
        PinnedSource(),
        EntriesSource(files),
        SummarySource(),
    ]
