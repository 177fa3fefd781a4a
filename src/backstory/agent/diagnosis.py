"""What can be wrong with a request, as a table: the symptom, a test for its cause, and the remedy. Pure.

``docs/troubleshooting.md`` has the same rows for people who search before they ask; a test compares the two.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from backstory.agent import symptoms
from backstory.agent.symptoms import Case


@dataclass(frozen=True, kw_only=True, slots=True)
class Symptom:
    """A row of the table. `test` gives the cause in words, or an empty string where the request does not have it."""

    name: str
    symptom: str
    cause: str
    remedy: str
    test: Callable[[Case], str]


@dataclass(frozen=True, kw_only=True, slots=True)
class Finding:
    """A symptom that a request has, and the cause with its figures."""

    name: str
    said: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.said}. {self.remedy}"


def diagnose(case: Case) -> tuple[Finding, ...]:
    """Every symptom of a request, in the order of the table."""
    found = ((row, row.test(case)) for row in SYMPTOMS)
    return tuple(Finding(name=row.name, said=said, remedy=row.remedy) for row, said in found if said)


SYMPTOMS: tuple[Symptom, ...] = (
    Symptom(
        name="no_history",
        symptom="The second turn knows nothing of the first",
        cause="no history was sent: /new, an undo, or a window without room for it",
        remedy="Take back the undo with /redo; give a larger window; after /new, tell it again",
        test=symptoms.no_history,
    ),
    Symptom(
        name="first_turn",
        symptom="It knows nothing of yesterday",
        cause="the message came under another session key, or in another workspace or scope",
        remedy="Use the same key for the same conversation: `backstory sessions list` shows those there are",
        test=symptoms.first_turn,
    ),
    Symptom(
        name="window_full",
        symptom="Answers repeat, or forget what was just said",
        cause="the window is nearly full, so that little history is left",
        remedy="Give a larger window or budget, a smaller reserve, or /compact",
        test=symptoms.window_full,
    ),
    Symptom(
        name="left_out",
        symptom="It forgot an early fact",
        cause="the fact lies before the cut where replay begins",
        remedy="Pin it with /pin, or put it into memory/MEMORY.md or AGENTS.md; give a larger window",
        test=symptoms.left_out,
    ),
    Symptom(
        name="cut_in_turn",
        symptom="It forgets in the middle of one long task",
        cause="one turn alone is too big for the window, so its older steps are left out",
        remedy="Give a larger window, let tools answer shorter, or split the task",
        test=symptoms.cut_in_turn,
    ),
    Symptom(
        name="cache_missed",
        symptom="A request costs much more than the one before",
        cause="something at its beginning changed, so that the provider's cache could not serve it",
        remedy="Change instructions, tools and model between conversations, not in them",
        test=symptoms.cache_missed,
    ),
    Symptom(
        name="volatile",
        symptom="Every request costs the full price",
        cause="a section or the tools change with each turn: a time, a counter, an unstable order",
        remedy="Put what changes into the runtime block (`runtime=` of `backstory.open`), which stands last",
        test=symptoms.volatile,
    ),
    Symptom(
        name="not_cached",
        symptom="Nothing is cached though nothing changed",
        cause="the provider's cache went cold: it keeps a prefix for some minutes",
        remedy="Go on within its time to live, or pay for a longer one where the provider sells it",
        test=symptoms.not_cached,
    ),
    Symptom(
        name="big_result",
        symptom="One tool call fills the window",
        cause="a tool result takes a large part of the request",
        remedy="Let the tool take a range or a filter, or return less",
        test=symptoms.big_result,
    ),
    Symptom(
        name="condensed",
        symptom="It has not read the whole file",
        cause="a tool result was sent as a preview, since it was too big",
        remedy="Ask for the part that matters, or give a larger window",
        test=symptoms.condensed,
    ),
    Symptom(
        name="system_big",
        symptom="Little fits besides the instructions",
        cause="the system block takes a large part of the window",
        remedy="Shorten the file that is named; move what is rarely needed into a skill",
        test=symptoms.system_big,
    ),
    Symptom(
        name="shrunk",
        symptom="It ignores a part of its memory or a skill",
        cause="optional sections of the system block were shortened to make room",
        remedy="Shorten what is no longer true, or give a larger window",
        test=symptoms.shrunk,
    ),
    Symptom(
        name="tools_big",
        symptom="Short questions cost thousands of tokens",
        cause="the declarations of tools are long",
        remedy="Give fewer tools, or shorter descriptions",
        test=symptoms.tools_big,
    ),
    Symptom(
        name="passages",
        symptom="It does not use a document that was found",
        cause="passages that were looked up did not fit",
        remedy="Let the retriever return fewer or shorter passages, or use preset='rag'",
        test=symptoms.passages,
    ),
    Symptom(
        name="closed",
        symptom="It says that a tool did not run, or may have",
        cause="a crash or a stop came before the result, and recovery closed the call",
        remedy="Look whether it had its effect, then ask for it again",
        test=symptoms.closed,
    ),
    Symptom(
        name="healed",
        symptom="The request differs from what was said",
        cause="the history breaks a rule of the model's API and was healed for it",
        remedy="Nothing need be done; `backstory check` explains each rule",
        test=symptoms.healed,
    ),
    Symptom(
        name="unanswered",
        symptom="It mentions an interrupted answer",
        cause="an earlier turn ended without an answer and left its mark",
        remedy="/undo takes such a turn back",
        test=symptoms.unanswered,
    ),
    Symptom(
        name="length",
        symptom="The answer stops in mid-sentence",
        cause="the model reached the most that it may write",
        remedy="Raise max_tokens and the reserve, or ask it to go on",
        test=symptoms.ended("length"),
    ),
    Symptom(
        name="limit",
        symptom="The turn ends before the task is done",
        cause="a limit of the loop was reached",
        remedy="Raise the guard's limits or turn_timeout, or ask for a smaller step",
        test=symptoms.ended("limit"),
    ),
    Symptom(
        name="empty",
        symptom="The answer is “(no answer)”",
        cause="the model said nothing, twice",
        remedy="Ask again; if it stays so, try another model or fewer tools",
        test=symptoms.ended("empty"),
    ),
    Symptom(
        name="failed",
        symptom="There is no answer at all",
        cause="the model's server failed or could not be reached",
        remedy="The same message with the same id takes the turn up again",
        test=symptoms.ended("failed"),
    ),
    Symptom(
        name="loop",
        symptom="It calls the same tool again and again",
        cause="the model repeats a call with the same arguments",
        remedy="Look whether the result answers the question; the guard ends it in time",
        test=symptoms.loop,
    ),
    Symptom(
        name="miscounted",
        symptom="The bill and the ledger differ",
        cause="this model's tokenizer is not public, or the server adds a template of its own",
        remedy="Name the model exactly; counts are calibrated by what is billed",
        test=symptoms.miscounted,
    ),
    Symptom(
        name="unproven",
        symptom="explain says that a request is not shown to the byte",
        cause="passages sent for once are not in the log, the target is no preset, or the log was changed",
        remedy="Switch on a request trace to keep the very bytes; `backstory doctor` checks the log",
        test=symptoms.unproven,
    ),
)
