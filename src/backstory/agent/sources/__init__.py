"""Sources of context: the sections of the system block, passages that are looked up, and the runtime block."""

from backstory.agent.sources.base import (
    Gathered,
    Retriever,
    SectionSource,
    SourceContext,
    arrange,
    as_source,
    gather,
    retrieve,
)
from backstory.agent.sources.files import WorkspaceFiles
from backstory.agent.sources.load_skill import load_skill_tool
from backstory.agent.sources.runtime import runtime_facts, without_runtime
from backstory.agent.sources.skills import Skill, SkillFolder
from backstory.agent.sources.standard import default_sources

__all__ = [
    "Gathered",
    "Retriever",
    "SectionSource",
    "Skill",
    "SkillFolder",
    "SourceContext",
    "WorkspaceFiles",
    "arrange",
    "as_source",
    "default_sources",
    "gather",
    "load_skill_tool",
    "retrieve",
    "runtime_facts",
    "without_runtime",
]
