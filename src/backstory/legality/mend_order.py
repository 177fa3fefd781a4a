"""Mends of the order of messages: the system's place, empty messages, user and assistant in turn."""

from __future__ import annotations

from collections.abc import Sequence

from backstory.formats.synthetic import NO_ANSWER_TEXT
from backstory.formats.units import late_system as system_text
from backstory.legality.arguments import clean_text
from backstory.legality.bench import Bench, Entry
from backstory.legality.find import empty_messages, trailing_text
from backstory.legality.steps import head_length
from backstory.legality.values import is_blank, is_empty
from backstory.messages import Media, Message, Part, Reasoning, Refusal, Text, assistant, evolve, texts, user

INTERRUPTED = "[interrupted by a new message]"
"""Stands between a tool result and a user message, where the target lets none follow the other."""
EMPTY = "[empty message]"
BEGINS = "[the conversation begins with the assistant]"
NOTHING_YET = "[the conversation begins]"


def one_system(bench: Bench) -> None:
    """Merge the leading system messages where the target takes only one."""
    head = head_length(bench.messages)
    if not bench.target.one_system or head < 2:
        return
    leading = bench.entries[:head]
    for position, _ in leading[1:]:
        bench.report("system.one", position, "merged into the first system message")
    parts = tuple(part for entry in leading for part in entry.message.parts)
    bench.entries[:head] = [Entry(leading[0].position, leading[0].message.evolve(parts=parts))]


def late_system(bench: Bench) -> None:
    """Send a system message after the head as a marked user text, at its place."""
    if bench.target.system_anywhere:
        return
    messages = bench.messages
    for number in range(head_length(messages), len(messages)):
        message = messages[number]
        if message.role in ("system", "developer"):
            text = Text(text=system_text(texts(message.parts)))
            media = tuple(part for part in message.parts if isinstance(part, Media))
            bench.replace(number, Message(role="user", parts=(text, *media), id=message.id))
            bench.report(
                "system.late", bench.entries[number].position, "late system message sent as a user text"
            )


def empties(bench: Bench) -> None:
    """Drop an empty message where nothing is lost by it, else say in its place that it was empty.

    The assistant's is dropped beside another message of the assistant's, and at the end of the list, where it is a
    residue. Elsewhere something must stand in its place: the messages around it were sent as two.
    """
    empty = set(empty_messages(bench.messages, bench.target))
    if not empty:
        return
    entries, bench.entries = bench.entries, []
    start = 0
    while start < len(entries):
        stop = start + 1
        if entries[start].message.role == "assistant":
            while stop < len(entries) and entries[stop].message.role == "assistant":
                stop += 1
        _settle_empty(bench, entries, range(start, stop), empty)
        start = stop


def _settle_empty(bench: Bench, entries: list[Entry], run: range, empty: set[int]) -> None:
    """One message, or neighbours that are all the assistant's."""
    out, message = bench.entries, entries[run.start].message
    assistants = message.role == "assistant"
    residue = run.stop == len(entries) and any(e.message.role not in ("system", "developer") for e in out)
    words = None
    if empty.issuperset(run) and (
        not residue if assistants else message.role == "user" and not message.joined
    ):
        words = NO_ANSWER_TEXT if assistants else EMPTY
    for number in run:
        position, held = entries[number]
        if number not in empty:
            out.append(entries[number])
        elif words is not None:
            kept = tuple(part for part in held.parts if isinstance(part, Reasoning))
            out.append(Entry(position, held.evolve(parts=(*kept, Text(text=words)))))
            bench.report("content.empty", position, f"empty {held.role} message: {words}")
            words = None  # one stands for all of the run
        else:
            bench.report("content.empty", position, f"dropped an empty {held.role} message")


def user_first(bench: Bench) -> None:
    """Put a user mark before a conversation that the assistant begins."""
    head = head_length(bench.messages)
    if not bench.target.user_first or head >= len(bench.entries):
        return
    position, message = bench.entries[head]
    if message.role == "assistant":
        bench.entries.insert(head, Entry(position, user(BEGINS)))
        bench.report("order.user_first", position, "put a user mark before the assistant's first message")


def alternation(bench: Bench) -> None:
    """User and assistant in turn: neighbours of one role are merged, a mark parts a result from the user's words.

    Neighbours are not merged across a seal: what was sent stays as it was sent, and a mark parts them.
    """
    target = bench.target
    if not target.alternates and target.user_after_tool:
        return
    out: list[Entry] = []
    for position, message in bench.entries:
        last = out[-1] if out else None
        before = last.message.role if last is not None else None
        if message.role == "user" and before == "tool" and not target.user_after_tool:
            out.append(Entry(position, assistant(INTERRUPTED)))
            bench.report("order.user_after_tool", position, "put an assistant mark before the user's message")
            message = message.evolve(joined=False) if message.joined else message
        elif last is not None and target.alternates and message.role == before and _may_merge(message):
            if message.role == "assistant" or not bench.sealed(last.position, position):
                out[-1] = Entry(last.position, _merged(last.message, message))
                bench.report("order.alternation", position, f"merged two {message.role} messages")
                continue
            out.append(Entry(position, assistant(NO_ANSWER_TEXT)))
            bench.report("order.alternation", position, "put an assistant mark between two user messages")
        out.append(Entry(position, message))
    bench.entries = out


def _may_merge(message: Message) -> bool:
    """Results stand alone, and what is joined is of one message already."""
    return message.role == "user" or (message.role == "assistant" and not message.joined)


def _merged(first: Message, second: Message) -> Message:
    """Two messages as one. Texts that meet are joined by a blank line; speakers' names go into the text."""
    left, right = _spoken(first, second), _spoken(second, first)
    name = first.name if first.name == second.name else None
    if _is_plain(left[-1:]) and _is_plain(right[:1]):
        text = Text(text=f"{texts(left[-1:])}\n\n{texts(right[:1])}")
        return first.evolve(parts=(*left[:-1], text, *right[1:]), name=name)
    return first.evolve(parts=left + right, name=name)


def _is_plain(parts: tuple[Part, ...]) -> bool:
    return (
        len(parts) == 1 and type(parts[0]) is Text and parts[0].native is None and parts[0].signature is None
    )


def _spoken(message: Message, other: Message) -> tuple[Part, ...]:
    if message.name is None or message.name == other.name:
        return message.parts
    parts, said = message.parts, f"{message.name}: "
    if parts and isinstance(parts[0], Text):
        return (evolve(parts[0], text=said + parts[0].text), *parts[1:])
    return (Text(text=said), *parts)


def joins(bench: Bench) -> None:
    """The user's words whose item lost its results are joined to nothing: they would change another item."""
    for number, (_, message) in enumerate(bench.entries):
        if message.joined and message.role == "user":
            before = bench.entries[number - 1].message if number else None
            if before is None or (before.role == "user" and not _same_item(before, message)):
                bench.replace(number, message.evolve(joined=False))


def _same_item(before: Message, message: Message) -> bool:
    """Read back from a log, the two hold equal values, not the same."""
    if before.native is None or message.native is None:
        return False
    return before.native.value is message.native.value or before.native.value == message.native.value


def trailing_space(bench: Bench) -> None:
    """Strip the white space at the end of a final assistant message, where the target would refuse it."""
    if bench.target.format != "anthropic" or not bench.entries:
        return
    position, message = bench.entries[-1]
    number = trailing_text(message, bench.target)
    if number is not None:
        last = message.parts[number]
        assert isinstance(last, (Text, Refusal))
        parts = (*message.parts[:number], evolve(last, text=last.text.rstrip()), *message.parts[number + 1 :])
        bench.replace(-1, message.evolve(parts=parts))
        bench.report("content.trailing_space", position, "stripped the white space at the end")


def something_said(bench: Bench, given: Sequence[Message]) -> None:
    """Never an empty history: what the user or a tool said is kept as a note where nothing else is left of it."""
    said = (message for message in bench.messages if message.role not in ("system", "developer"))
    if not given or any(not is_empty(message, bench.target) for message in said):
        return
    lost = [message for message in given if message.role not in ("system", "developer")]
    apart = bench.target.format in ("anthropic", "gemini")
    if not lost and bench.entries and not apart:
        return
    told = clean_text("\n\n".join(filter(None, (texts(message.parts) for message in lost))))
    words = NOTHING_YET
    if lost:
        words = (
            EMPTY if is_blank(told.strip(), bench.target) else f"[From earlier in this conversation:]\n{told}"
        )
    position = bench.entries[-1].position if bench.entries else 0
    bench.entries.append(Entry(position, user(words)))
    bench.report(
        "content.empty" if lost else "order.nothing_said", position, f"put in a user message: {words[:60]}"
    )
