"""Legality for plain message lists: what a developer calls who has nothing but the dicts of some API.

Reads, asks `rules` or `repair`, writes. It knows no rule of its own; where a list is in its target's own format, it
adds what only the writer can tell: that an item could not go out as it came.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats import wire_format
from backstory.formats.base import Item, Loss, Written
from backstory.formats.detect import detect
from backstory.formats.request import read_all, request_body
from backstory.legality.bench import Repair
from backstory.legality.repair import mend
from backstory.legality.rules import Problem, is_ready, problems
from backstory.messages import Message, Origin
from backstory.targets import Target


@dataclass(frozen=True, kw_only=True, slots=True)
class Repaired:
    """What `repair` gives: ``messages, repairs = repair(…)`` or its fields by name.

    `messages` is the list in the target's format, unchanged items the very same objects. `body` holds the fields
    of a request, among them the system where the target has it apart. `repairs` says what was changed, `losses`
    what the target's format or server cannot carry; each with the `index` in the list that was given (-1: the
    system).
    """

    messages: list[Item]
    body: dict[str, Any] = field(repr=False)
    repairs: tuple[Repair, ...]
    losses: tuple[Loss, ...]

    def __iter__(self) -> Iterator[Any]:
        return iter((self.messages, self.repairs))


def check(
    messages: Any,
    *,
    target: Target | str = "openai_chat",
    source: str | None = None,
    system: Any = None,
    origin: Origin | None = None,
    ready: bool = False,
) -> list[Problem]:
    """Every problem that the target's API would have with a list of messages, in the list's order.

    `messages` are plain dicts in the format `source`, which is told from them where it is not given. `system` is
    the value of the request's own system field. `target` is a preset's name or a `Target`. `origin` says who made
    opaque items such as signatures, where it was not the format's own provider. With `ready`, the model must
    be the one to speak next. An item that cannot be read at all is a problem too
    (``message.unreadable``). Raises `InvalidInput` where this is no list, `ConfigurationError` for an unknown
    format or target.
    """
    target = Target.of(target)
    source = _source(messages, source)
    found: list[Problem] = []
    read, positions = _read(messages, source, origin, system, found)
    found += [dataclasses.replace(each, index=positions[each.index]) for each in problems(read, target)]
    if source == target.format:
        written = wire_format(source).write(read, target)
        known = {problem.index for problem in found}
        for index, rule, what in _rewritten(messages, read, positions, written, positions, known):
            found.append(Problem(rule=rule, index=index, what=what, mend="write it as the target takes it"))
    if ready and not is_ready(read, target):
        what = "it is not the model's turn: the list ends neither with the user's words nor with a tool's results"
        mend_words = "add the user's next message, or send nothing"
        found.append(Problem(rule="order.not_ready", index=len(messages) - 1, what=what, mend=mend_words))
    return sorted(found, key=lambda problem: problem.index)


def repair(
    messages: Any,
    *,
    target: Target | str = "openai_chat",
    source: str | None = None,
    system: Any = None,
    origin: Origin | None = None,
    not_started: Iterable[str] = (),
) -> Repaired:
    """The list in the target's format, healed by the smallest changes that make it legal there, each reported.

    The arguments are those of `check`; `not_started` are the ids of calls that are known never to have been
    started, so that a missing result can say so. What is legal comes back as it is: the very same objects. Raises
    `InvalidInput` where this is no list, `InvalidMessage` for an item that cannot be read, `ConfigurationError`
    for an unknown format or target.
    """
    target = Target.of(target)
    source = _source(messages, source)
    read, positions = read_all(messages, source, origin, system=system)
    never = [not_started] if isinstance(not_started, str) else list(not_started)
    mended = mend(read, target, positions=positions, not_started=never)
    written = wire_format(target.format).write(mended.messages, target)
    repairs = list(mended.repairs)
    if source == target.format:
        known = {repair.index for repair in repairs}
        for index, rule, what in _rewritten(messages, read, positions, written, mended.positions, known):
            repairs.append(Repair(rule=rule, index=index, what=what))
    losses = tuple(
        Loss(index=mended.positions[loss.index], kind=loss.kind, what=loss.what) for loss in written.losses
    )
    return Repaired(
        messages=written.items, body=request_body(target, written), repairs=tuple(repairs), losses=losses
    )


def _source(messages: Any, source: str | None) -> str:
    if source is not None:
        return source
    return (detect(messages) if isinstance(messages, list | tuple) else None) or "openai_chat"


def _read(
    messages: Any, source: str, origin: Origin | None, system: Any, found: list[Problem]
) -> tuple[list[Message], list[int]]:
    """As `read_all`, but what cannot be read becomes a problem."""
    read, positions = read_all([] if isinstance(messages, list | tuple) else messages, source, system=system)
    form = wire_format(source)
    for index, item in enumerate(messages):
        try:
            new = form.read(item, index=index, origin=form.ORIGIN if origin is None else origin)
        except InvalidMessage as error:
            what, rule = error.what, "message.unreadable"
            found.append(Problem(rule=rule, index=index, what=what, mend="leave it out, or write it anew"))
            continue
        read += new
        positions += [index] * len(new)
    return read, positions


def _rewritten(
    given: Sequence[Any],
    read: Sequence[Message],
    positions: Sequence[int],
    written: Written,
    sources: Sequence[int],
    known: set[int],
) -> Iterator[tuple[int, str, str]]:
    """Items that could not go out as they came, though no rule says why: position, rule, and what it is.

    `sources` are the positions of the messages that were written, `known` the positions of which more is known.
    """
    same = {id(item) for item in written.items}
    changed = {
        index for index, item in enumerate(given) if id(item) not in same and isinstance(item, Mapping)
    }
    if not changed:
        return
    for loss in written.losses:
        index = sources[loss.index]
        if index in changed and index not in known:
            changed.discard(index)
            yield index, f"target.{loss.kind}", loss.what
    crooked = {
        position
        for position, message in zip(positions, read, strict=True)
        if message.native and not message.native.intact
    }
    for index in sorted(changed - known):
        if index in crooked or not known:
            yield index, "message.shape", "not written as its API has it"
