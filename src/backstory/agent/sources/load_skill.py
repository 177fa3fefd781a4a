"""The tool `load_skill`: the full text of a skill that the index names."""

from __future__ import annotations

import difflib
from typing import Annotated

from backstory.agent.sources.skills import LOAD_SKILL, Skill, SkillFolder
from backstory.agent.tool_context import ToolContext
from backstory.agent.tools import AnyTool, Tool
from backstory.errors import ToolError


def load_skill_tool(folder: SkillFolder) -> AnyTool:
    """A tool that loads the skills of the scope whose turn it is, and no other file.

    Asynchronous, so that it stays on the event loop's thread with all that reads these files.
    """

    async def load_skill(
        name: Annotated[str, "As the index of skills gives it."], context: ToolContext
    ) -> str:
        """Load a skill: instructions for a kind of task, to be followed for the task at hand."""
        skills = {skill.name: skill for skill in folder.skills(context.scope) if skill.text}
        skill = skills.get(name.strip())
        if skill is None:
            raise ToolError(_unknown(name, skills))
        return f"# Skill: {skill.name} ({skill.path})\n\n{skill.text}"

    return Tool.of(load_skill, name=LOAD_SKILL, parallel=True)


def _unknown(name: str, skills: dict[str, Skill]) -> str:
    if not skills:
        return f"there is no skill {name[:80]!r}, nor any other"
    close = difflib.get_close_matches(name, skills, n=1)
    hint = f" Did you mean {close[0]!r}?" if close else ""
    return f"there is no skill {name[:80]!r}.{hint} There are: {', '.join(skills)}"
