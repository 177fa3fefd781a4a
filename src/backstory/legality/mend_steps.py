"""Mends of calls and results: each result in its place, one for each call, none without a call, ids that hold.

One pass, step by step, over a pairing that was made once: what a step becomes is settled in one place.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from backstory.formats.synthetic import NOT_STARTED_TEXT, OUTCOME_UNKNOWN_TEXT
from backstory.legality.bench import Bench, CallPlace, Entry
from backstory.legality.find import has_id_of, names_its_call, unowned
from backstory.legality.naming import new_id
from backstory.legality.steps import Place, continues, pair
from backstory.legality.values import good_id, has_good_id
from backstory.messages import Media, Message, Part, Text, ToolCall, ToolResult, evolve, texts

Kept = tuple[list[int], Entry]
"""A message of results, and the numbers in their step of the calls that its parts answer."""


def steps(bench: Bench) -> None:
    """Put each step in order: the response, then exactly one result for each of its calls, under the call's id.

    Late results are moved to their call (or, where the model has already seen a synthetic one, told as a note at
    their place), further answers and orphans dropped, missing results made up. Ids that the target refuses are
    replaced, call and result together. Where the target takes one call at a time, a step becomes one of each call.
    """
    _Stepper(bench).run()


class _Stepper:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.target = bench.target
        self.messages = bench.messages
        self.pairs = pair(self.messages)
        self.moves = bench.target.format != "openai_responses"
        self.dropped = set(unowned(self.pairs, self.messages)).union(self.pairs.duplicates)
        self.final: dict[Place, ToolCall] = {}
        self.taken: set[str] = set()
        self.numbers = self._numbers()
        self.notes: dict[Place, Place] = {}
        self.out: list[Entry] = []
        self._settle_sent()

    def _numbers(self) -> dict[Place, int]:
        """Each call's number among the calls of its position in the caller's list."""
        counts: dict[int, int] = {}
        found: dict[Place, int] = {}
        for place in self.pairs.calls:
            position = self.bench.entries[place.message].position
            found[place] = counts.get(position, 0)
            counts[position] = found[place] + 1
        return found

    def _settle_sent(self) -> None:
        """Calls whose synthetic result was sent keep it.

        A real one that came since becomes a note; a synthetic one that came since, in a place that the list had
        not reached, is a further answer.
        """
        synthetic = {place for place, result in self.pairs.results.items() if result.synthetic}
        stand_ins = {call: held for held, call in self.pairs.duplicates.items() if held in synthetic}
        entries = self.bench.entries
        for call, result in list(self.pairs.answer.items()):
            position = entries[call.message].position
            if self.bench.was_sent(position, self.numbers[call]) is None:
                continue
            if result in synthetic:
                if self.bench.sealed(position, entries[result.message].position):
                    self._release(call, result)
                    self.pairs.duplicates[result] = call
                    self.dropped.add(result)
                continue
            self._release(call, result)
            self.notes[result] = call
            held = stand_ins.get(call)
            if held is not None and not self.bench.sealed(position, entries[held.message].position):
                self.pairs.answer[call], self.pairs.question[held] = held, call
                self.dropped.discard(held)

    def _release(self, call: Place, result: Place) -> None:
        del self.pairs.answer[call], self.pairs.question[result]

    def run(self) -> None:
        index = 0
        while index < len(self.messages):
            stop = index + 1
            if self.messages[index].role == "assistant":
                while stop < len(self.messages) and continues(self.messages, stop):
                    stop += 1
                stop = self.step(index, stop)
            elif self.messages[index].role == "tool":
                kept, notes = self.keep(index, {})
                self.out += [entry for _, entry in kept] + notes
            else:
                self.out.append(self.bench.entries[index])
            index = stop
        self.bench.entries = self.out

    # --- one step --------------------------------------------------------------------------

    def step(self, start: int, stop: int) -> int:
        """A response (messages `start` up to `stop`) and its results; returns where the messages go on."""
        calls = {
            Place(index, number): count
            for count, (index, number) in enumerate(
                (index, number)
                for index in range(start, stop)
                for number, part in enumerate(self.messages[index].parts)
                if isinstance(part, ToolCall)
            )
        }
        if not calls:
            self.out += self.bench.entries[start:stop]
            return stop
        response = self.response(start, stop, calls)
        end = stop
        while end < len(self.messages) and self.messages[end].role == "tool":
            end += 1
        results: list[Kept] = []
        notes: list[Entry] = []
        for index in range(stop, end):
            kept, told = self.keep(index, calls)
            results += kept
            notes += told
        if self.target.ordered_results and not _ascends(results):
            position = self.bench.entries[start].position
            self.bench.report("result.order", position, "put the results in the order of their calls")
        for call, number in calls.items():
            answer = self.pairs.answer.get(call)
            if answer is None:
                results.append(([number], self.synthetic(call)))
            elif self.moves and not stop <= answer.message < end:
                results.append(([number], self.moved(answer)))
        if self.target.ordered_results and not _ascends(results):
            results = sorted(_singles(results), key=lambda kept: kept[0])
        if self.target.parallel_calls or len(calls) < 2:
            self.out += response + [entry for _, entry in results]
        else:
            self.out += self.one_by_one(response, results)
        self.out += notes
        return end

    def response(self, start: int, stop: int, calls: Iterable[Place]) -> list[Entry]:
        """The messages of a response, its calls under ids that the target takes."""
        if self.target.unique_ids == "step":
            self.taken = set()
        changed: set[int] = set()
        for place in calls:
            call = self.final[place] = self.named(place)
            self.taken.add(call.id)
            if call is not self.pairs.calls[place]:
                changed.add(place.message)
        found: list[Entry] = []
        for index in range(start, stop):
            position, message = self.bench.entries[index]
            if index in changed:
                parts = tuple(self.final.get(Place(index, n), part) for n, part in enumerate(message.parts))
                message = message.evolve(parts=parts)
            found.append(Entry(position, message))
        return found

    def named(self, place: Place) -> ToolCall:
        call = self.pairs.calls[place]
        twice = bool(call.id) and call.id in self.taken
        if not twice and has_good_id(call, self.target):
            return call
        position = self.bench.entries[place.message].position
        borrowed = not twice and good_id(call.id, self.target)  # an item's own
        call_id = new_id(
            "" if borrowed else call.id,
            self.target,
            position=position,
            number=self.numbers[place],
            taken=self.taken,
        )
        rule = "call.id_twice" if twice else "call.id"
        self.bench.report(rule, position, f"call id {call.id!r} renamed {call_id!r}")
        renamed: ToolCall = evolve(call, id=call_id)
        return renamed

    # --- results ---------------------------------------------------------------------------

    def keep(self, index: int, calls: dict[Place, int]) -> tuple[list[Kept], list[Entry]]:
        """What of a message of results stays where it stands, after the response with these calls; and notes."""
        position, message = self.bench.entries[index]
        parts: list[Part] = []
        numbers: list[int] = []
        notes: list[Entry] = []
        for number, part in enumerate(message.parts):
            place = Place(index, number)
            call = self.pairs.question.get(place)
            if place in self.notes:
                notes.append(self.note(place))
            elif place in self.dropped:
                self.report_dropped(place, position)
            elif call is None:  # it answers a call that the server holds
                parts.append(part)
            elif call in calls or not self.moves:
                parts.append(self.fitted(place))
                numbers.append(calls.get(call, -1))
        if not parts:
            return [], notes
        if len(parts) == len(message.parts) and all(
            a is b for a, b in zip(parts, message.parts, strict=True)
        ):
            return [(numbers, self.bench.entries[index])], notes
        return [(numbers, Entry(position, message.evolve(parts=tuple(parts))))], notes

    def report_dropped(self, place: Place, position: int) -> None:
        call_id = self.pairs.results[place].call_id
        if place in self.pairs.duplicates:
            self.bench.report("result.duplicate", position, f"dropped a further answer to call {call_id!r}")
        else:
            self.bench.report(
                "result.orphan", position, f"dropped a result that answers no call: {call_id!r}"
            )

    def fitted(self, place: Place) -> ToolResult:
        """A result under its call's id, kind and name, as far as the target looks at these."""
        asked = self.pairs.question[place]
        result, call = self.pairs.results[place], self.final[asked]
        position = self.bench.entries[place.message].position
        changes: dict[str, Any] = {}
        gemini = self.target.format == "gemini"
        if not has_id_of(result, call, self.target):
            changes["call_id"] = call.id
            if result.call_id != self.pairs.calls[asked].id:
                self.bench.report(
                    "result.id", position, f"result {result.call_id!r} sent under the id {call.id!r}"
                )
        if result.kind != call.kind and not self.moves:
            changes["kind"] = call.kind
            self.bench.report(
                "result.kind", position, f"result {call.id!r} sent as one of a {call.kind} call"
            )
        if gemini and not names_its_call(result, call):
            changes["name"] = call.name
            self.bench.report(
                "result.name", position, f"result {call.id!r} sent under the name {call.name!r}"
            )
        if not changes:
            return result
        changed: ToolResult = evolve(result, **changes)
        return changed

    def moved(self, place: Place) -> Entry:
        position, message = self.bench.entries[place.message]
        result = self.fitted(place)
        self.bench.report("result.misplaced", position, f"moved the result of call {result.call_id!r} to it")
        if len(message.parts) == 1 and not message.joined and result is message.parts[0]:
            return Entry(position, message)
        return Entry(position, _alone(message, result))

    def synthetic(self, place: Place) -> Entry:
        call, given = self.final[place], self.pairs.calls[place]
        position = self.bench.entries[place.message].position
        kind = self.bench.was_sent(position, self.numbers[place])
        if kind is None:
            kind = "not_started" if given.id in self.bench.not_started else "outcome_unknown"
        self.bench.made.append(CallPlace(position, self.numbers[place]))
        self.bench.report(
            "result.missing", position, f"made up a result for call {call.id!r} of {call.name!r}"
        )
        result = ToolResult(
            call_id=call.id,
            name=call.name,
            content=(Text(text=NOT_STARTED_TEXT if kind == "not_started" else OUTCOME_UNKNOWN_TEXT),),
            is_error=True,
            kind=call.kind,
            synthetic=kind,
        )
        return Entry(position, Message(role="tool", parts=(result,)))

    def note(self, place: Place) -> Entry:
        """A late result as the user's words: its call was answered by a synthetic one, which was sent."""
        call, result = self.final[self.notes[place]], self.pairs.results[place]
        position = self.bench.entries[place.message].position
        self.bench.report("result.late", position, f"told the late result of call {call.id!r} as a note")
        told = f"[The result of {call.name} ({call.id}) came late:]\n{texts(result.content)}"
        media = tuple(part for part in result.content if isinstance(part, Media))
        return Entry(position, Message(role="user", parts=(Text(text=told), *media)))

    def one_by_one(self, response: list[Entry], results: list[Kept]) -> list[Entry]:
        """A step of each call: what of the response comes before a call goes with it, what comes last with the last."""
        chunks = _chunks(response)
        self.bench.report(
            "call.parallel",
            response[0].position,
            f"{len(chunks)} calls of one response sent as {len(chunks)} steps",
        )
        answers = {numbers[0]: entry for numbers, entry in _singles(results)}
        found: list[Entry] = []
        for number, chunk in enumerate(chunks):
            found += chunk
            if number in answers:
                found.append(answers[number])
        return found


def _chunks(response: list[Entry]) -> list[list[Entry]]:
    """The messages of a response, parted before each of its calls but the first."""
    chunks: list[list[Entry]] = [[]]
    count = 0
    for position, message in response:
        held: list[Part] = []
        for part in message.parts:
            if isinstance(part, ToolCall):
                if count:
                    _flush(chunks[-1], position, message, held)
                    chunks.append([])
                    held = []
                count += 1
            held.append(part)
        _flush(chunks[-1], position, message, held)
    return chunks


def _flush(chunk: list[Entry], position: int, message: Message, parts: list[Part]) -> None:
    if len(parts) == len(message.parts) and (chunk or not message.joined):
        chunk.append(Entry(position, message))
    elif parts:
        chunk.append(Entry(position, message.evolve(parts=tuple(parts), joined=bool(chunk))))


def _ascends(results: list[Kept]) -> bool:
    numbers = [number for held, _ in results for number in held]
    return numbers == sorted(numbers)


def _singles(results: list[Kept]) -> list[Kept]:
    """The same with one result a message."""
    found: list[Kept] = []
    for numbers, entry in results:
        if len(numbers) == 1:
            found.append((numbers, entry))
        else:
            position, message = entry
            found += [
                ([number], Entry(position, _alone(message, part)))
                for number, part in zip(numbers, message.parts, strict=True)
            ]
    return found


def _alone(message: Message, part: Part) -> Message:
    return message.evolve(parts=(part,), joined=False)
