"""Mends of calls and results: each result in its place, one for each call, none without a call, ids that hold."""

from __future__ import annotations

from backstory.formats.synthetic import NOT_STARTED_TEXT, OUTCOME_UNKNOWN_TEXT
from backstory.legality.bench import Bench, CallPlace, Entry
from backstory.legality.naming import new_id
from backstory.legality.steps import Pairing, Place, pair
from backstory.legality.values import good_id
from backstory.messages import Message, Part, Text, ToolCall, ToolResult, evolve, texts


def pairing(bench: Bench) -> None:
    """Put each step in order: the response, then exactly one result for each of its calls.

    Late results are moved to their call (or, where the model has already seen a synthetic one, told as a note at
    their place), further answers and orphans dropped, missing results made up.
    """
    _Pairer(bench).run()


class _Pairer:
    def __init__(self, bench: Bench) -> None:
        self.bench = bench
        self.messages = bench.messages
        self.pairs: Pairing = pair(self.messages)
        self.moves = bench.target.format != "openai_responses"
        self.out: list[Entry] = []
        self.parts_before = _parts_before(bench.entries)
        self.notes: dict[Place, ToolCall] = {}
        self.settle_sent()

    def settle_sent(self) -> None:
        """Calls whose synthetic result was sent keep it; a real one that came since becomes a note."""
        if not self.bench.sent:
            return
        for call, result in list(self.pairs.answer.items()):
            if self.call_place(call) in self.bench.sent and not self.pairs.results[result].synthetic:
                del self.pairs.answer[call]
                del self.pairs.question[result]
                self.notes[result] = self.pairs.calls[call]

    def call_place(self, place: Place) -> CallPlace:
        position = self.bench.entries[place.message].position
        return CallPlace(position, self.parts_before[place.message] + place.part)

    def run(self) -> None:
        index = 0
        while index < len(self.messages):
            message = self.messages[index]
            if message.role != "assistant":
                self.keep_result_message(index)
                index += 1
                continue
            stop = index + 1
            while (
                stop < len(self.messages)
                and self.messages[stop].role == "assistant"
                and self.messages[stop].joined
            ):
                stop += 1
            self.out += self.bench.entries[index:stop]
            calls = [
                Place(i, n)
                for i in range(index, stop)
                for n, part in enumerate(self.messages[i].parts)
                if isinstance(part, ToolCall)
            ]
            index = self.results(calls, stop) if calls else stop
        self.bench.entries = self.out

    def results(self, calls: list[Place], start: int) -> int:
        """Emit the results of one step; returns where the messages go on."""
        stop = start
        while stop < len(self.messages) and self.messages[stop].role == "tool":
            stop += 1
        answers = [self.pairs.answer.get(call) for call in calls]
        block = [Place(i, n) for i in range(start, stop) for n in range(len(self.messages[i].parts))]
        ordered = not self.bench.target.ordered_results or block == sorted(
            block, key=lambda p: _rank(p, answers)
        )
        if set(block) == set(answers) and ordered and all(self.messages[i].parts for i in range(start, stop)):
            self.out += self.bench.entries[start:stop]
            return stop
        emitted: list[tuple[Place | None, Entry]] = []
        for index in range(start, stop):
            emitted += self.kept_in_place(index, set(answers) - {None})
        for call, answer in zip(calls, answers, strict=True):
            if answer is None:
                emitted.append((call, self.synthetic(call)))
            elif not start <= answer.message < stop and self.moves:
                position = self.bench.entries[answer.message].position
                emitted.append((answer, self.single(answer)))
                self.bench.report(
                    "result.misplaced", position, f"moved the result of call {self.id_of(call)!r} to it"
                )
        if self.bench.target.ordered_results and not ordered:
            self.bench.report(
                "result.order", self.bench.entries[start].position, "results put in the order of calls"
            )
            emitted = self.in_call_order(emitted, calls, answers)
        self.out += [entry for _, entry in emitted]
        self.out += [self.note(place) for place in block if place in self.notes]
        return stop

    def kept_in_place(self, index: int, wanted: set[Place | None]) -> list[tuple[Place | None, Entry]]:
        """What of a message in the block belongs to its step; the rest goes, or is emitted where it belongs."""
        position, message = self.bench.entries[index]
        kept = [n for n in range(len(message.parts)) if Place(index, n) in wanted]
        for number in range(len(message.parts)):
            self.report_dropped(Place(index, number), position)
        if not kept:
            return []
        if len(kept) == len(message.parts):
            return [(Place(index, kept[0]), self.bench.entries[index])]
        parts = tuple(message.parts[n] for n in kept)
        return [(Place(index, kept[0]), Entry(position, message.evolve(parts=parts)))]

    def in_call_order(
        self, emitted: list[tuple[Place | None, Entry]], calls: list[Place], answers: list[Place | None]
    ) -> list[tuple[Place | None, Entry]]:
        ranked: list[tuple[int, Entry]] = []
        for place, entry in emitted:
            if place in calls:  # a synthetic one, filed under its call
                ranked.append((calls.index(place), entry))
                continue
            for part in entry.message.parts:
                spot = next(
                    (a for a in answers if a is not None and self.messages[a.message].parts[a.part] is part),
                    None,
                )
                alone = entry.message if len(entry.message.parts) == 1 else _alone(entry.message, part)
                ranked.append((answers.index(spot), Entry(entry.position, alone)))
        return [(None, entry) for _, entry in sorted(ranked, key=lambda pair: pair[0])]

    def keep_result_message(self, index: int) -> None:
        """A message that is not the assistant's and stands in no step's block of results."""
        position, message = self.bench.entries[index]
        if message.role != "tool":
            self.out.append(self.bench.entries[index])
            return
        kept: list[Part] = []
        notes: list[Entry] = []
        for number, part in enumerate(message.parts):
            place = Place(index, number)
            if place in self.notes:
                notes.append(self.note(place))
            elif place in self.pairs.question:
                if not self.moves:
                    kept.append(part)
            else:
                self.report_dropped(place, position)
        if kept and len(kept) == len(message.parts):
            self.out.append(self.bench.entries[index])
        elif kept:
            self.out.append(Entry(position, message.evolve(parts=tuple(kept))))
        self.out += notes

    def report_dropped(self, place: Place, position: int) -> None:
        if place in self.pairs.duplicates:
            rule, why = "result.duplicate", "dropped a further answer to call"
        elif place in self.pairs.question or place in self.notes:
            return
        else:
            rule, why = "result.orphan", "dropped a result that answers no call:"
        part = self.messages[place.message].parts[place.part]
        self.bench.report(rule, position, f"{why} {getattr(part, 'call_id', '')!r}")

    def single(self, place: Place) -> Entry:
        position, message = self.bench.entries[place.message]
        if len(message.parts) == 1 and not message.joined:
            return Entry(position, message)
        return Entry(position, _alone(message, message.parts[place.part]))

    def synthetic(self, place: Place) -> Entry:
        call = self.pairs.calls[place]
        position = self.bench.entries[place.message].position
        never = call.id in self.bench.not_started
        self.bench.report(
            "result.missing", position, f"made up a result for call {call.id!r} of {call.name!r}"
        )
        result = ToolResult(
            call_id=call.id,
            name=call.name,
            content=(Text(text=NOT_STARTED_TEXT if never else OUTCOME_UNKNOWN_TEXT),),
            is_error=True,
            kind=call.kind,
            synthetic="not_started" if never else "outcome_unknown",
        )
        return Entry(position, Message(role="tool", parts=(result,)))

    def note(self, place: Place) -> Entry:
        call, result = self.notes[place], self.pairs.results[place]
        position = self.bench.entries[place.message].position
        self.bench.report("result.late", position, f"told the late result of call {call.id!r} as a note")
        told = f"[The result of {call.name} ({call.id}) came late:]\n{texts(result.content)}"
        return Entry(position, Message(role="user", parts=(Text(text=told),)))

    def id_of(self, call: Place) -> str:
        return self.pairs.calls[call].id


def _rank(place: Place, answers: list[Place | None]) -> int:
    return answers.index(place) if place in answers else -1


def _alone(message: Message, part: Part) -> Message:
    return message.evolve(parts=(part,), joined=False)


def _parts_before(entries: list[Entry]) -> list[int]:
    """For each entry how many parts the earlier entries of the same position hold (an item read as two messages)."""
    counts: list[int] = []
    for number, (position, _) in enumerate(entries):
        same = number > 0 and entries[number - 1].position == position
        counts.append(counts[-1] + len(entries[number - 1].message.parts) if same else 0)
    return counts


def parallel(bench: Bench) -> None:
    """Where the target takes one call at a time: a step of each call."""
    if bench.target.parallel_calls:
        return
    messages = bench.messages
    pairs = pair(messages)
    out: list[Entry] = []
    done: set[int] = set()
    for index, (position, message) in enumerate(bench.entries):
        calls = [n for n, part in enumerate(message.parts) if isinstance(part, ToolCall)]
        if index in done:
            continue
        if message.role != "assistant" or len(calls) < 2:
            out.append(bench.entries[index])
            continue
        bench.report(
            "call.parallel", position, f"{len(calls)} calls of one response sent as {len(calls)} steps"
        )
        first = message.parts[: calls[0]]
        for number, part_index in enumerate(calls):
            end = calls[number + 1] if number + 1 < len(calls) else len(message.parts)
            parts = (first if number == 0 else ()) + message.parts[part_index:end]
            out.append(Entry(position, message.evolve(parts=parts, joined=message.joined and number == 0)))
            answer = pairs.answer.get(Place(index, part_index))
            if answer is not None:
                result = messages[answer.message]
                alone = result if len(result.parts) == 1 else _alone(result, result.parts[answer.part])
                out.append(Entry(bench.entries[answer.message].position, alone))
                done.add(answer.message)
    bench.entries = out


def ids(bench: Bench) -> None:
    """Ids that the target takes, unique where it asks for that; a call and its result change together."""
    target = bench.target
    messages = bench.messages
    pairs = pair(messages)
    before = _parts_before(bench.entries)
    taken: set[str] = set()
    step = -1
    renamed: dict[Place, str] = {}
    for place, call in pairs.calls.items():
        if target.unique_ids == "step" and pairs.step[place.message] != step:
            taken, step = set(), pairs.step[place.message]
        call_id = call.id
        if not good_id(call_id, target) or (call_id and call_id in taken):
            rule = "call.id_twice" if call_id and call_id in taken else "call.id"
            position = bench.entries[place.message].position
            call_id = new_id(
                call_id, target, position=position, number=before[place.message] + place.part, taken=taken
            )
            renamed[place] = call_id
            bench.report(rule, position, f"call id {call.id!r} renamed {call_id!r}")
        taken.add(call_id)
        answer = pairs.answer.get(place)
        if answer is not None:
            given = pairs.results[answer].call_id
            if given != call_id and (given or target.format != "gemini"):
                renamed[answer] = call_id
    for index in {place.message for place in renamed}:
        parts = tuple(
            _renamed(part, renamed.get(Place(index, n))) for n, part in enumerate(messages[index].parts)
        )
        bench.replace(index, messages[index].evolve(parts=parts))


def _renamed(part: Part, new: str | None) -> Part:
    if new is None:
        return part
    changed: Part = evolve(part, id=new) if isinstance(part, ToolCall) else evolve(part, call_id=new)
    return changed
