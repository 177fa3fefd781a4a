"""The section ``pinned_skills``: skills that the model shall always have before it, in full."""

from __future__ import annotations

from backstory.agent.sources.base import Immediate, SourceContext
from backstory.agent.sources.skills import SkillFolder
from backstory.context.sections import Section


class PinnedSkillsSource(Immediate):
    """Skills whose front matter says ``pinned: true``."""

    name = "pinned_skills"

    def __init__(self, folder: SkillFolder) -> None:
        self.folder = folder

    async def section(self, context: SourceContext) -> Section | None:
        pinned = [skill for skill in self.folder.skills(context.scope) if skill.pinned and skill.text]
        if not pinned:
            return None
        text = "\n\n".join(f"### {skill.name}\n\n{skill.text}" for skill in pinned)
        return Section(name=self.name, text=text, title="Skills always at hand")
