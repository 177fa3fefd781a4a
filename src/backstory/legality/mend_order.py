"""Mends of the order of messages: the system's place, empty messages, user and assistant in turn."""

from __future__ import annotations

from backstory.legality.bench import Bench, Entry
from backstory.legality.find import empty_messages
from backstory.legality.steps import head_length
from backstory.messages import Media, Message, Part, Text, assistant, texts, user

NO_ANSWER = "(no answer)"
"""Stands where the assistant's message was empty or is missing between two messages of the user's."""
INTERRUPTED = "(interrupted by a new message)"
"""Stands between a tool result and a user message, where the target lets none follow the other."""
EMPTY = "(empty message)"
BEGINS = "(the conversation begins with the assistant)"


def one_system(bench: Bench) -> None:
    """Merge the leading system messages where the target takes only one."""
    head = head_length(bench.messages)
    if not bench.target.one_system or head < 2:
        return
    leading = bench.entries[:head]
    text = "\n\n".join(filter(None, (texts(entry.message.parts) for entry in leading)))
    for position, _ in leading[1:]:
        bench.report("system.one", position, "merged into the first system message")
    merged = leading[0].message.evolve(parts=(Text(text=text),))
    bench.entries[:head] = [Entry(leading[0].position, merged)]


def late_system(bench: Bench) -> None:
    """Send a system message after the head as a marked user text, at its place."""
    if bench.target.system_anywhere:
        return
    messages = bench.messages
    for number in range(head_length(messages), len(messages)):
        message = messages[number]
        if message.role in ("system", "developer"):
            text = f"<system>\n{texts(message.parts)}\n</system>"
            bench.replace(number, Message(role="user", parts=(Text(text=text),), id=message.id))
            bench.report(
                "system.late", bench.entries[number].position, "late system message sent as a user text"
            )


def empties(bench: Bench) -> None:
    """Drop an empty message where nothing is lost by it, else say in its place that it was empty.

    At the end of the list the assistant's is a residue and goes; in the middle something must stand in its place,
    or the user's messages around it would run together.
    """
    while True:
        empty = set(empty_messages(bench.messages, bench.target))
        last = len(bench.entries) - 1
        if last in empty and bench.entries[last].message.role == "assistant" and last > 0:
            bench.report("content.empty", bench.entries[last].position, "dropped an empty answer at the end")
            start = last
            while start > 0 and bench.entries[start].message.joined and start - 1 in empty:
                start -= 1
            del bench.entries[start:]
            continue
        break
    out: list[Entry] = []
    for number, (position, message) in enumerate(bench.entries):
        if number not in empty:
            out.append(bench.entries[number])
            continue
        # Of a response in several items, one mark stands for all of its empty ones.
        absorbed = message.joined and message.role == "assistant" and number - 1 in empty
        if (
            message.role in ("system", "developer", "tool")
            or absorbed
            or (message.joined and message.role == "user")
        ):
            bench.report("content.empty", position, f"dropped an empty {message.role} message")
            continue
        instead = NO_ANSWER if message.role == "assistant" else _left_out(message.parts) or EMPTY
        out.append(Entry(position, message.evolve(parts=(Text(text=instead),))))
        bench.report("content.empty", position, f"empty {message.role} message: {instead}")
    bench.entries = out


def _left_out(parts: tuple[Part, ...]) -> str:
    kinds = sorted({type(part).__name__.lower() for part in parts if isinstance(part, Media)})
    return f"({' and '.join(kinds)} left out: this model cannot take it)" if kinds else ""


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
    out: list[Entry] = bench.entries[: head_length(bench.messages)]
    for position, message in bench.entries[len(out) :]:
        before = out[-1].message if out else None
        if before is not None and target.alternates and message.role == before.role != "tool":
            if (message.role == "assistant" and message.joined) or message.role in ("system", "developer"):
                out.append(Entry(position, message))
            elif any(out[-1].position < seal <= position for seal in bench.seals) and message.role == "user":
                out += [Entry(position, assistant(NO_ANSWER)), Entry(position, message)]
                bench.report("order.alternation", position, "put an assistant mark between two user messages")
            else:
                out[-1] = Entry(out[-1].position, _merged(before, message))
                bench.report("order.alternation", position, f"merged two {message.role} messages")
            continue
        if (
            before is not None
            and before.role == "tool"
            and message.role == "user"
            and not target.user_after_tool
        ):
            out.append(Entry(position, assistant(INTERRUPTED)))
            bench.report("order.user_after_tool", position, "put an assistant mark before the user's message")
            message = message.evolve(joined=False) if message.joined else message
        out.append(Entry(position, message))
    bench.entries = out


def _merged(first: Message, second: Message) -> Message:
    """Two messages as one. Texts that stand alone are joined by a blank line; speakers' names go into the text."""
    left, right = _spoken(first, second), _spoken(second, first)
    name = first.name if first.name == second.name else None
    parts: tuple[Part, ...]
    if len(left) == len(right) == 1 and isinstance(left[0], Text) and isinstance(right[0], Text):
        parts = (Text(text=f"{left[0].text}\n\n{right[0].text}"),)
    else:
        parts = left + right
    return first.evolve(parts=parts, name=name)


def _spoken(message: Message, other: Message) -> tuple[Part, ...]:
    if message.name is None or message.name == other.name:
        return message.parts
    return _prefixed(message.parts, f"{message.name}: ")


def _prefixed(parts: tuple[Part, ...], prefix: str) -> tuple[Part, ...]:
    if parts and isinstance(parts[0], Text):
        return (Text(text=prefix + parts[0].text), *parts[1:])
    return (Text(text=prefix), *parts)
