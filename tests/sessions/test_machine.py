"""A rule-based machine: operations on one session, with crashes and a second process, against plain lists."""

import asyncio

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import backstory
from backstory.errors import SessionError
from backstory.models.scripted import ScriptedModel, calls
from backstory.sessions import operations
from backstory.sessions.view import fold
from backstory.stores import SessionId
from backstory.stores.in_memory import InMemoryStore
from backstory.upkeep.summarise import Compaction
from tests.sessions.support import Dying, S, check_log, expire, extends, killed, legal, view_of

words = st.sampled_from(["alpha", "beta", "gamma", "长一点的话 " * 40, "delta " * 60])
steps = st.sampled_from(["answer", "call", "two calls", "fails"])


@backstory.tool
async def look(what: str) -> str:
    """Look at something."""
    return f"saw {what}"


class Plain:
    """What one session is, told simply: turns as (user's text, answered, hidden), and where it was begun anew."""

    def __init__(self) -> None:
        self.turns: list[list] = []  # [text, hidden by undo number or None, anew number]
        self.undos: list[list[int]] = []
        self.anew = 0

    def shown(self) -> list[int]:
        return [i for i, (_, hidden, anew) in enumerate(self.turns) if hidden is None and anew == self.anew]


class SessionMachine(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.store = InMemoryStore()
        self.plain = Plain()
        self.number = 0
        self.bodies: list = []
        self.process = [self.open(), self.open()]
        self.open_turn: tuple[str, str] | None = None
        self.forks = 0
        self.late = 0

    def open(self, at: int | None = None, after: bool = False) -> backstory.Backstory:
        model = ScriptedModel([], name="m")
        store = Dying(self.store, at, after=after)
        compaction = Compaction(extract=True)
        return backstory.open(
            store, model=model, tools=[look], budget=2600, max_turns=6, compaction=compaction
        )

    def run(self, work):
        return self.loop.run_until_complete(work)

    def script(self, bs: backstory.Backstory, step: str) -> None:
        model = bs.model
        assert isinstance(model, ScriptedModel)
        model._steps.clear()
        number = self.number
        if step == "fails":
            model.then(ConnectionError)
        if step == "call":
            model.then(calls(("look", {"what": number})))
        if step == "two calls":
            model.then(calls(("look", {"what": number}), ("look", {"what": "x"})))
        model.then(f"answer {number}", f"answer {number} again")

    def took(self, bs: backstory.Backstory) -> None:
        """Every request is legal, and within an epoch extends the one before (law 4), whichever process made that."""
        assert isinstance(bs.model, ScriptedModel)
        legal(bs.model)
        bodies, bs.model.requests = bs.model.requests, []
        logged = [r for r in self.run(self.store.read(S)) if r.kind == "request"]
        known = (
            self.bodies
            if len(self.bodies) == len(logged) - len(bodies)
            else [None] * (len(logged) - len(bodies))
        )
        self.bodies = [*known, *bodies]
        for place in range(len(known), len(logged)):
            before, after = (
                (logged[n].data["state"]["epoch"] for n in (place - 1, place)) if place else (0, 1)
            )
            if before == after and self.bodies[place - 1] is not None:
                assert extends(self.bodies[place], self.bodies[place - 1])

    def ended(self) -> None:
        """Another message ends what a crash left open; it stays in the view as interrupted."""
        self.open_turn = None

    # --- rules -------------------------------------------------------------------------------

    @rule(text=words, step=steps.filter(lambda s: s != "fails"), who=st.integers(0, 1))
    def say(self, text, step, who) -> None:
        self.number += 1
        bs = self.process[who]
        self.script(bs, step)
        reply = self.run(bs.say("s", text, message_id=f"m{self.number}"))
        assert reply.text == f"answer {self.number}"
        assert not reply.before
        self.plain.turns.append([text, None, self.plain.anew])
        self.ended()
        self.took(bs)
        again = self.run(bs.say("s", text, message_id=f"m{self.number}"))
        assert again.before
        assert again.text == reply.text

    @rule(
        text=words,
        step=steps.filter(lambda s: "call" in s),
        at=st.integers(1, 8),
        after=st.booleans(),
        taken_up=st.sampled_from(["same", "resume", "no"]),
    )
    def crash(self, text, step, at, after, taken_up) -> None:
        """A process dies somewhere in a turn; perhaps the same message comes again."""
        self.number += 1
        dying = self.open(at, after)
        self.script(dying, step)
        name = f"m{self.number}"
        died = self.run(killed(dying.say("s", text, message_id=name)))
        self.run(expire(self.store))
        view = self.run(view_of(self.store))
        logged = name in view.known
        if logged:
            self.plain.turns.append([text, None, self.plain.anew])
            self.ended()
        if not died:
            assert view.turn is None
            return
        fresh = self.process[0]
        self.script(fresh, "answer")
        if taken_up == "same":
            reply = self.run(fresh.say("s", text, message_id=name))
            if not logged:
                self.plain.turns.append([text, None, self.plain.anew])
            assert reply.text.startswith("answer")
            assert self.run(view_of(self.store)).turn is None
            self.ended()
        elif taken_up == "resume" and view.turn is not None:
            reply = self.run(fresh.resume("s"))
            assert reply.text.startswith("answer")
            self.ended()
        elif view.turn is not None:
            self.open_turn = (name, text)
        self.took(fresh)

    @precondition(lambda self: self.open_turn is not None)
    @rule(at=st.integers(1, 5), after=st.booleans(), step=steps.filter(lambda s: s != "fails"))
    def crash_while_taking_it_up(self, at, after, step) -> None:
        """A process that recovers dies itself: the next one recovers from both."""
        assert self.open_turn is not None
        name, text = self.open_turn
        dying = self.open(at, after)
        self.script(dying, step)
        self.run(killed(dying.say("s", text, message_id=name)))
        self.run(expire(self.store))
        if self.run(view_of(self.store)).turn is None:
            self.ended()

    @rule(who=st.integers(0, 1), count=st.integers(1, 3))
    def undo(self, who, count) -> None:
        session, _ = self.process[who].sessions.peek(S)
        shown = self.plain.shown()
        if self.open_turn is not None or len(shown) < count:
            try:
                self.run(operations.undo(session, count))
            except SessionError:
                return
            raise AssertionError("undone what cannot be undone")
        undone = self.run(operations.undo(session, count))
        assert undone.message is not None
        assert undone.message.parts[0].text == self.plain.turns[shown[-count]][0]
        self.hide(shown[-count:])

    def hide(self, chosen: list[int]) -> None:
        self.plain.undos.append([*chosen, -len(self.plain.turns), -self.plain.anew])
        for index in chosen:
            self.plain.turns[index][1] = len(self.plain.undos)

    @rule(who=st.integers(0, 1))
    def redo(self, who) -> None:
        session, _ = self.process[who].sessions.peek(S)
        undos = self.plain.undos
        can = (
            undos and undos[-1][-2:] == [-len(self.plain.turns), -self.plain.anew] and self.open_turn is None
        )
        if not can:
            try:
                self.run(operations.redo(session))
            except SessionError:
                return
            raise AssertionError("redone what cannot be redone")
        self.run(operations.redo(session))
        for index in undos.pop()[:-2]:
            self.plain.turns[index][1] = None

    @precondition(lambda self: self.open_turn is None and self.plain.shown())
    @rule(data=st.data(), text=words)
    def edit(self, data, text) -> None:
        shown = self.plain.shown()
        place = data.draw(st.integers(0, len(shown) - 1))
        session, _ = self.process[0].sessions.peek(S)
        turns = operations.shown_turns(self.run(session.refresh()))
        undone = self.run(operations.edit(session, turns[place]))
        assert list(undone.turns) == turns[place:]
        self.hide(shown[place:])
        self.say(text, "answer", 0)

    @precondition(lambda self: self.open_turn is None)
    @rule(who=st.integers(0, 1))
    def begin_anew(self, who) -> None:
        session, _ = self.process[who].sessions.peek(S)
        self.run(operations.begin_anew(session))
        if self.plain.turns:
            self.plain.anew += 1

    @precondition(lambda self: self.open_turn is None)
    @rule(who=st.integers(0, 1))
    def compact(self, who) -> None:
        self.run(self.process[who].compact("s"))

    @precondition(lambda self: self.open_turn is None)
    @rule(who=st.integers(0, 1))
    def undo_a_compaction_and_redo(self, who) -> None:
        session, _ = self.process[who].sessions.peek(S)
        before = self.run(session.refresh())
        if not before.active:
            return
        state = before.cut, before.active, before.summary
        assert self.run(operations.lift(session)) == state[1]
        assert session.view.active != state[1]
        check_log(self.run(self.store.read(S)))
        self.run(operations.redo(session))
        after = session.view
        assert (after.cut, after.active, after.summary) == state

    @rule(who=st.integers(0, 1))
    def late_result(self, who) -> None:
        """For whichever call; it waits in the inbox until the next turn."""
        view = self.run(view_of(self.store))
        ids = [call.id for record in view.live() for call in record.message.calls]
        self.late += 1
        self.run(self.process[who].late_result("s", ids[-1] if ids else "gone", f"late {self.late}"))

    @rule(who=st.integers(0, 1))
    def fork(self, who) -> None:
        session, _ = self.process[who].sessions.peek(S)
        if not self.run(session.refresh()).head:
            return
        self.forks += 1
        to = SessionId(key=f"fork {self.forks}")
        copied = self.run(operations.fork(session, to))
        mine, theirs = self.run(view_of(self.store)), self.run(view_of(self.store, to))
        open_number = mine.turn.number if mine.turn else None
        assert [r.message for r in theirs.live()] == [r.message for r in mine.live() if r.turn != open_number]
        assert copied == len(theirs.live())
        check_log(self.run(self.store.read(to)), dense=False)

    @rule(who=st.integers(0, 1))
    def reopen(self, who) -> None:
        self.process[who] = self.open()

    # --- invariants --------------------------------------------------------------------------

    @invariant()
    def laws(self) -> None:
        records = self.run(self.store.read(S))
        check_log(records)
        view = fold(records)
        texts = [
            r.message.parts[0].text
            for r in records
            if r.kind == "message"
            and r.message.role == "user"
            and r.message_id
            and r.message_id.startswith("m")
        ]
        assert len(texts) == len(self.plain.turns)
        assert texts == [text for text, _, _ in self.plain.turns]
        hidden = {
            r.message_id
            for r in records
            if r.kind == "message"
            and r.message_id
            and view.is_hidden(r.seq)
            and r.message.role == "user"
            and r.message_id.startswith("m")
        }
        assert len(hidden) == sum(h is not None for _, h, _ in self.plain.turns)
        fresh = backstory.open(self.store).sessions.peek(S)[0]
        opened = self.run(fresh.refresh())
        assert opened.to_json() | {"before": 0} == view.to_json() | {"before": 0}
        assert (opened.turn is not None) == (self.open_turn is not None)

    def teardown(self) -> None:
        if hasattr(self, "loop"):
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.run(asyncio.sleep(0))
            self.loop.close()


SessionMachine.TestCase.settings = settings(max_examples=40, stateful_step_count=20, deadline=None)
TestSessionMachine = SessionMachine.TestCase
