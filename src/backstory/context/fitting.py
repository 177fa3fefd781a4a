"""Chooses what of a history one request replays, and makes it legal: the work behind `backstory.fit`.

The order: take up the state of the request before, or fill the window from the newest back; mend; count; where it
does not fit, cut to the low mark and mend again from there; where the newest step alone does not fit, show its big
results as previews. Every decision ends in the state, so that the next request extends this one.
"""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass, field

from backstory.context.history import Source
from backstory.context.ledger import Condensed
from backstory.context.passes import Entries, condense, level, numbered
from backstory.context.preview import LEAST
from backstory.context.state import State
from backstory.context.window import Choice, Limits, choose
from backstory.errors import IllegalRequest
from backstory.legality.bench import CallPlace
from backstory.legality.repair import Mended, mend
from backstory.legality.rules import problems
from backstory.legality.steps import head_length, turns
from backstory.messages import Message, Part, ToolResult
from backstory.targets import Target
from backstory.tokens import Counter
from backstory.tokens.messages import count_message, count_part

_ROUNDS = 8
"""Mending can add a few tokens (a mark, a made-up result), so that a cut is tried again a little later."""


@dataclass(kw_only=True)
class Window:
    """What is replayed: from position `cut` on, and before it the user message at `kept`; mended, and counted."""

    cut: int
    kept: tuple[int, int] | None
    mended: Mended
    tokens: list[int]
    head: int = field(init=False)

    def __post_init__(self) -> None:
        self.head = head_length(self.mended.messages)

    @property
    def total(self) -> int:
        return sum(self.tokens)

    @property
    def messages(self) -> list[Message]:
        return self.mended.messages


class Fitting:
    """One request in the making. `limits` are of everything in the list, the system included in its tokens."""

    def __init__(
        self,
        history: Source,
        target: Target,
        counter: Counter,
        limits: Limits,
        *,
        fixed: int,
        factor: float,
        low_mark: float,
        not_started: Collection[str] = (),
    ) -> None:
        self.history = history
        self.target = target
        self.counter = counter
        self.limits = limits
        self.fixed = fixed  # tokens of the same budget that are not in the list: tools, the reply's priming
        self.factor = factor
        self.low_mark = low_mark
        self.not_started = not_started
        self.condensed: dict[str, int] = {}
        self.previews: list[Condensed] = []
        self.sent: set[CallPlace] = set()
        self.seals: set[int] = set()
        self.asked = 0

    # --- deciding ------------------------------------------------------------------------

    def run(self, state: State | None) -> Window:
        """The window of this request; it may still be over its tokens, where nothing more can be cut."""
        window = self.resume(state) if state is not None else self.fill()
        self.asked = max(self.asked, window.total)
        if not self.holds(window):
            window = self.shrink_results(window)
        return self.legal(window)

    def resume(self, state: State) -> Window:
        """Go on where the request before began; cut to the low mark where that is full."""
        factor, self.factor = self.factor, state.factor
        self.condensed = dict(state.condensed)
        self.sent = {CallPlace(*place) for place in state.sent}
        self.seals = set(state.seals)
        if self.two_users_meet(state.length):
            self.seals.add(state.length)
        window = self.window(state.cut, state.kept)
        if self.holds(window):
            return window
        self.asked = window.total
        self.factor = factor
        window = self.window(state.cut, state.kept)
        return self.narrow(window, low=True)

    def two_users_meet(self, position: int) -> bool:
        """Whether the list was sent as far as a position, and a user's message goes on from a user's there."""
        if not self.history.head < position < len(self.history):
            return False
        before, after = self.history.at(position - 1), self.history.at(position)
        return bool(before and after and before[-1].role == after[0].role == "user")

    def fill(self) -> Window:
        """Fill the window from the newest back."""
        limits, history = self.limits, self.history
        if limits == Limits():
            return self.window(history.head, None)
        need = math.inf if limits.tokens is None else limits.tokens - self.fixed - self.system_tokens()
        while True:
            cut, kept, read = self.read_back(need)
            self.asked = max(self.asked, read + self.system_tokens())
            window = self.narrow(self.window(cut, kept), low=False)
            spare = -1 if limits.tokens is None else limits.tokens - self.fixed - window.total
            whole = window.cut <= history.head or window.cut > cut or window.kept is not None
            if whole or spare <= 0 or not window.mended.repairs or need > 4 * (limits.tokens or 0):
                return window
            need += spare + 1  # mending made the window smaller: there is room for more

    def read_back(self, need: float) -> tuple[int, tuple[int, int] | None, int]:
        """Where to begin so that what follows is about as much as fits: (cut, kept user message, tokens read)."""
        history, limits = self.history, self.limits
        position = len(history)
        boundary: int | None = None
        tokens = messages = begun = 0
        while position > history.head:
            position -= 1
            found = history.at(position)
            tokens += sum(self.count(message) for message in found)
            messages += len(found)
            over = tokens > need or (limits.messages is not None and messages > limits.messages)
            if over:
                break
            if history.begins_turn(position):
                begun += 1
                if limits.turns is not None and begun > limits.turns:
                    over = True
                    break
                boundary = position
        else:
            return history.head, None, tokens
        if boundary is not None:
            return boundary, None, tokens
        return (*self.inside_newest_turn(position), tokens)

    def inside_newest_turn(self, position: int) -> tuple[int, tuple[int, int] | None]:
        """The newest turn alone is too big: its user message, and a step of it at or after a position."""
        history = self.history
        start = position
        while not history.begins_turn(start):
            start -= 1
        first = start
        while first < len(history) and all(message.role != "assistant" for message in history.at(first)):
            first += 1
        if position <= first:
            return start, None
        step = next((p for p in range(position, len(history)) if self.begins_step(p)), None)
        if step is None:
            step = position
            while step > first and not self.begins_step(step):
                step -= 1
        return (step, (start, first)) if step > first and first > start else (min(step, start), None)

    def begins_step(self, position: int) -> bool:
        found = self.history.at(position)
        return bool(found) and found[0].role == "assistant" and not found[0].joined

    def narrow(self, window: Window, *, low: bool) -> Window:
        """Cut a window until it holds; to the low mark, or just so that it fits."""
        for _ in range(_ROUNDS):
            if self.holds(window):
                break
            outside = self.fixed + sum(window.tokens[: window.head])
            tokens = self.limits.tokens
            high = Limits(
                tokens=None if tokens is None else tokens - outside,
                messages=self.limits.messages,
                turns=self.limits.turns,
            )
            mark = high.low(self.low_mark, fixed=outside) if low else high
            choice = choose(window.messages[window.head :], window.tokens[window.head :], high, mark)
            cut, kept = self.place(window, choice)
            if (cut, kept) == (window.cut, window.kept):
                break
            self.condensed = {
                key: cap for key, cap in self.condensed.items() if int(key.split(".")[0]) >= cut
            }
            window = self.window(cut, kept)
        return window

    def place(self, window: Window, choice: Choice) -> tuple[int, tuple[int, int] | None]:
        """A choice among the mended messages as positions in the caller's list."""
        positions = window.mended.positions[window.head :]
        if not positions:
            return window.cut, window.kept
        kept = None
        if choice.kept is not None:
            kept = (positions[choice.kept[0]], positions[choice.kept[1] - 1] + 1)
        elif choice.start == 0:
            return window.cut, window.kept
        return positions[choice.start], kept

    def holds(self, window: Window) -> bool:
        """Whether a window is within all limits."""
        if self.limits == Limits():
            return True
        after = window.messages[window.head :]
        count = len(turns(window.messages)) if self.limits.turns is not None else 0
        return self.limits.hold(tokens=window.total + self.fixed, messages=len(after), turns=count)

    # --- making --------------------------------------------------------------------------

    def window(self, cut: int, kept: tuple[int, int] | None) -> Window:
        """The system, the kept user message and everything from a position on: mended, and counted."""
        entries: Entries = list(self.history.system)
        if kept is not None:
            entries += self.history.between(*kept)
        entries += self.history.between(cut, len(self.history))
        entries = self.previewed(entries)
        mended = mend(
            [message for _, message in entries],
            self.target,
            positions=[position for position, _ in entries],
            seals=self.seals,
            sent=self.sent,
            not_started=self.not_started,
        )
        return Window(cut=cut, kept=kept, mended=mended, tokens=[self.count(m) for m in mended.messages])

    def count(self, message: Message) -> int:
        return math.ceil(count_message(message, self.counter, self.target.format) * self.factor)

    def system_tokens(self) -> int:
        return sum(self.count(message) for _, message in self.history.system)

    def legal(self, window: Window) -> Window:
        """The last look: what was mended must be legal. Anything else is our bug, and is never sent in silence."""
        if window.mended.repairs:
            left = list(problems(window.messages, self.target))
            if left:
                what = f"{left[0].rule} at message {left[0].index}: {left[0].what}"
                raise IllegalRequest(
                    f"a mended history still breaks a rule ({what}); please report it", problems=left
                )
        return window

    # --- previews of big results -----------------------------------------------------------

    def shrink_results(self, window: Window) -> Window:
        """Where the newest step is too big, show its biggest results as previews, as large as fits."""
        if self.limits.tokens is None:
            return window
        places = self.newest_results(window)
        sizes = {place: self.tokens_of(part) for place, part in places}
        over = window.total + self.fixed - self.limits.tokens
        if over <= 0 or not sizes:
            return window
        before = dict(self.condensed)
        room = sum(sizes.values()) - over
        for _ in range(_ROUNDS):
            cap = level(list(sizes.values()), room)
            if cap < LEAST:
                break
            self.condensed = before | {place: cap for place, size in sizes.items() if size > cap}
            shrunk = self.window(window.cut, window.kept)
            still = shrunk.total + self.fixed - self.limits.tokens
            if still <= 0:
                after = dict(self.newest_results(shrunk))
                self.previews = [
                    Condensed(index=int(place.split(".")[0]), before=size, after=self.tokens_of(after[place]))
                    for place, size in sizes.items()
                    if size > cap and place in after
                ]
                return shrunk
            room -= max(still, len(sizes))
        self.condensed = before
        return window

    def newest_results(self, window: Window) -> list[tuple[str, ToolResult]]:
        """The results of the newest step, each with its place in the caller's list."""
        last = max((i for i, m in enumerate(window.messages) if m.calls), default=None)
        if last is None:
            return []
        start = window.mended.positions[last]
        entries = self.previewed(self.history.between(start, len(self.history)))
        return [(place, part) for place, part in numbered(entries) if isinstance(part, ToolResult)]

    def previewed(self, entries: Entries) -> Entries:
        return condense(entries, self.condensed, self.counter.count, factor=self.factor)

    def tokens_of(self, part: Part) -> int:
        provider = "openai" if self.target.format.startswith("openai") else self.target.format
        return math.ceil(count_part(part, self.counter, provider) * self.factor)
