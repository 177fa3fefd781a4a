"""The section ``summary``: what stands for the part of this conversation that is no longer replayed."""

from __future__ import annotations

from backstory.agent.sources.base import Immediate, SourceContext
from backstory.compaction.summary import WHOSE, language_of_summary
from backstory.context.sections import Section

TITLE = {"en": "Summary of the conversation so far", "zh": "此前对话的摘要"}


class SummarySource(Immediate):
    """The session's active summary, as its view holds it."""

    name = "summary"

    async def section(self, context: SourceContext) -> Section | None:
        text = context.summary.strip()
        if not text:
            return None
        language = language_of_summary(text)
        return Section(name=self.name, text=text, title=f"{TITLE[language]} ({WHOSE[language]})")
