"""The section ``pinned``: instructions and facts that the user pinned, and pinned messages that left the replay."""

from __future__ import annotations

from backstory.agent.sources.base import Immediate, SourceContext
from backstory.context.sections import Section


class PinnedSource(Immediate):
    """What is pinned in the session, as its view holds it."""

    name = "pinned"

    async def section(self, context: SourceContext) -> Section | None:
        if not context.pinned:
            return None
        text = "\n".join(f"- {text}" for text in context.pinned)
        return Section(name=self.name, text=text, title="Pinned")
