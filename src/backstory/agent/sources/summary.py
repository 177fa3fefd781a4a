"""The section ``summary``: what stands for the part of this conversation that is no longer replayed."""

from __future__ import annotations

from backstory.agent.sources.base import Immediate, SourceContext
from backstory.context.sections import Section


class SummarySource(Immediate):
    """The session's active summary, as its view holds it."""

    name = "summary"

    async def section(self, context: SourceContext) -> Section | None:
        text = context.summary.strip()
        return (
            Section(name=self.name, text=text, title="Summary of the conversation so far") if text else None
        )
