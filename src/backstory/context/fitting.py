"""Chooses what of a history one request replays, and makes it legal: the work behind `backstory.fit`.

The order: take up the state of the request before, or fill the window from the newest back; mend; count; where it
does not fit, cut to the low mark and mend again from there; where the newest step alone does not fit, show its big
results as previews. Every decision ends in the state, so that the next request extends this one.
"""

from __future__ import annotations

import math
from collections.abc import Collection

from backstory.context.budget import SOFT_MARK
from backstory.context.history import Source, begins_turn, inside_newest_turn, message_from
from backstory.context.ledger import Condensed
from backstory.context.passes import BULKY, Entries, condense, condense_old, level, numbered
from backstory.context.preview import FAIR, LEAST
from backstory.context.state import Preview, State
from backstory.context.window import Limits, Window, choose, placed
from backstory.errors import IllegalRequest
from backstory.legality.bench import CallPlace
from backstory.legality.repair import mend
from backstory.legality.rules import problems
from backstory.legality.steps import turns
from backstory.messages import Message, Part, Synthetic
from backstory.targets import Target
from backstory.tokens import Counter
from backstory.tokens.messages import PRIMING, PROVIDERS, count_message, count_messages, count_part

_ROUNDS = 8
"""Previews are cut at line ends, so that how much they save is known only once they are made."""


class Fitting:
    """One request in the making. `limits` are of everything in the list, the system included in its tokens.

    `tools` is the tokens of the tools' declarations, which count against the same budget. `governed`: at a new epoch
    over the soft mark old bulky results are condensed; `readable`: the model has a tool to read them again. What was
    decided is in `condensed`, `sent` and `seals`, as `State` has them, and in `factor`.
    """

    def __init__(
        self,
        history: Source,
        target: Target,
        counter: Counter,
        limits: Limits,
        *,
        tools: int,
        factor: float,
        low_mark: float,
        not_started: Collection[str] = (),
        governed: bool = False,
        readable: bool = False,
    ) -> None:
        self.history = history
        self.target = target
        self.counter = counter
        self.limits = limits
        self.factor = factor
        self.low_mark = low_mark
        self.not_started = not_started
        self.governed = governed
        self.readable = readable
        self.condensed: dict[str, Preview] = {}
        self.sent: dict[CallPlace, Synthetic] = {}
        self.seals: set[int] = set()
        self.asked = 0
        self.full = False  # what the request before replayed is over the limits by now
        self._tools = tools

    @property
    def tools(self) -> int:
        """Tokens of the tools, calibrated."""
        return self.scaled(self._tools)

    @property
    def fixed(self) -> int:
        """Tokens of the same budget that are not in the list."""
        return self.tools + PRIMING

    # --- deciding ------------------------------------------------------------------------

    def resume(self, state: State) -> Window:
        """Go on where the request before began; cut to the low mark where that is full.

        Until then counts are calibrated as they were when the epoch began.
        """
        factor, self.factor = self.factor, state.factor
        self.condensed = dict(state.condensed)
        self.sent = {CallPlace(position, number): kind for position, number, kind in state.sent}
        self.seals = set(state.seals)
        if self.seam(state.length):
            self.seals.add(state.length)
        window = self.window(state.cut, state.kept)
        if self.holds(window):
            return self.legal(window)
        self.asked = window.total
        self.factor = factor
        if self.holds(window := self.recounted(window)):
            return self.legal(window)
        return self.renew(window)

    def seam(self, position: int) -> bool:
        """Whether a repair might merge across a position that the list was sent as far as.

        What the assistant says next begins a message of its own in any case.
        """
        after = message_from(self.history, position)
        return position > self.history.head and after is not None and after.role != "assistant"

    def renew(self, window: Window) -> Window:
        """A new epoch, cut to the low mark where that is needed: what only kept the prefix is given up."""
        decided = self.sent, self.seals
        renewed = window
        if self.sent or self.seals:
            self.sent, self.seals = {}, set()
            renewed = self.window(window.cut, window.kept)
        condensed = self.govern(renewed)
        if condensed is not renewed and self.below_soft(condensed):
            self.full = True
            return self.settled(condensed)
        renewed = self.narrow(condensed, low=True, anyway=condensed is not renewed)
        if renewed.cut == window.cut and self.fits(window) and not self.holds(renewed):
            # a step alone has more messages than there may be: nothing is gained by another epoch
            self.sent, self.seals = decided
            return self.legal(window)
        self.full = True
        return self.settled(renewed)

    def forget(self, position: int, *, system: bool) -> bool:
        """Take back what was decided from a position on, since the list is another one there; or, where the
        `system` or the tools changed, all that keeps the prefix. Says whether that was anything."""
        before = (self.condensed, self.sent, self.seals)
        self.condensed = {place: held for place, held in before[0].items() if _position(place) < position}
        if system:
            self.sent, self.seals = {}, set()
        else:
            self.sent = {place: kind for place, kind in before[1].items() if place.position < position}
            self.seals = {seal for seal in before[2] if seal <= position}
        return before != (self.condensed, self.sent, self.seals)

    def fill(self) -> Window:
        """Fill the window from the newest back."""
        self.condensed, self.sent, self.seals = {}, {}, set()
        limits, history = self.limits, self.history
        if limits == Limits():
            return self.settled(self.window(history.head, None))
        system = sum(self.count(message) for _, message in history.system)
        need = math.inf if limits.tokens is None else limits.tokens - self.fixed - system
        cut, kept, read = self.read_back(need)
        self.asked = max(self.asked, read + system)
        window = self.govern(self.narrow(self.window(cut, kept), low=False))
        if window.cut == cut and window.kept is None and window.mended.repairs:
            window = self.further_back(window, need)
        return self.settled(window)

    def further_back(self, window: Window, most: float) -> Window:
        """Mending may have made the window smaller, so that there is room for older turns: one after the other."""
        history = self.history
        while window.cut > history.head:
            position, tokens = window.cut, 0
            while position > history.head and (position == window.cut or not begins_turn(history, position)):
                position -= 1
                tokens += sum(self.count(message) for message in history.at(position))
                if tokens > most:
                    return window
            wider = self.window(position, None)
            if not self.holds(wider):
                return window
            window = wider
        return window

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
            if tokens > need or (limits.messages is not None and messages > limits.messages):
                break
            if begins_turn(history, position):
                begun += 1
                if limits.turns is not None and begun > limits.turns:
                    break
                boundary = position
        else:
            return history.head, None, tokens
        if boundary is not None:
            return boundary, None, tokens
        return (*inside_newest_turn(history, position), tokens)

    def govern(self, window: Window) -> Window:
        """Old bulky results as previews, and all results within their share, where a window is over the soft mark.

        Decided in one batch, at a new epoch: until the next the prefix stays as it is.
        """
        tokens = self.limits.tokens
        if not self.governed or tokens is None or self.below_soft(window):
            return window
        start, stop = window.kept or (window.cut, window.cut)
        entries = self.history.between(start, stop) + self.history.between(window.cut, len(self.history))
        decided = condense_old(self.previewed(entries), self.size)
        sizes = {place: self.size(part) for place, part in numbered(entries) if place in decided}
        fresh = {
            place: Preview(cap, sizes[place], self.readable)
            for place, cap in decided.items()
            if place not in self.condensed
        }
        if not fresh:
            return window
        self.condensed = {**self.condensed, **fresh}
        return self.window(window.cut, window.kept)

    def below_soft(self, window: Window) -> bool:
        tokens = self.limits.tokens
        return tokens is None or window.total + self.fixed <= SOFT_MARK * tokens

    def narrow(self, window: Window, *, low: bool, anyway: bool = False) -> Window:
        """Cut a window until it holds; to the low mark, or just so that it fits. `anyway`: also where it holds.

        Mending can add a few tokens (a mark, a made-up result), so that a cut may have to be tried again later on.
        """
        while anyway or not self.holds(window):
            anyway = False
            outside = self.fixed + sum(window.tokens[: window.head])
            tokens = self.limits.tokens
            high = Limits(
                tokens=None if tokens is None else tokens - outside,
                messages=self.limits.messages,
                turns=self.limits.turns,
            )
            mark = high.low(self.low_mark, fixed=outside) if low else high
            choice = choose(
                window.messages[window.head :],
                window.tokens[window.head :],
                high,
                mark,
                positions=window.positions[window.head :],
            )
            cut, kept = placed(window, choice)
            if cut <= window.cut:
                break
            self.condensed = {
                place: held for place, held in self.condensed.items() if _position(place) >= cut
            }
            window = self.window(cut, kept)
        return window

    def fits(self, window: Window) -> bool:
        """Whether a window is within the budget."""
        return self.limits.tokens is None or window.total + self.fixed <= self.limits.tokens

    def holds(self, window: Window) -> bool:
        """Whether a window is within all limits."""
        if self.limits == Limits():
            return True
        count = len(turns(window.messages)) if self.limits.turns is not None else 0
        messages = len(window.messages) - window.head
        return self.limits.hold(tokens=window.total + self.fixed, messages=messages, turns=count)

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
        return self.recounted(Window(cut=cut, kept=kept, mended=mended, tokens=[]))

    def recounted(self, window: Window) -> Window:
        tokens = count_messages(window.messages, self.counter, self.target.format)
        if self.factor != 1.0:
            tokens = list(map(self.scaled, tokens))
        return Window(cut=window.cut, kept=window.kept, mended=window.mended, tokens=tokens)

    def count(self, message: Message) -> int:
        return self.scaled(count_message(message, self.counter, self.target.format))

    def scaled(self, tokens: int) -> int:
        return tokens if self.factor == 1.0 else math.ceil(tokens * self.factor)

    def settled(self, window: Window) -> Window:
        """The window of this request; it may still be over its tokens, where nothing more can be cut."""
        self.asked = max(self.asked, window.total)
        return self.legal(window if self.fits(window) else self.shrink_results(window))

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
        """Where the newest step is too big, show its biggest results as previews, as large as fits.

        Where the window steps, and that is still a fair size, they leave room for the steps to come.
        """
        if self.limits.tokens is None:
            return window
        goals = [(self.limits.tokens, LEAST)]
        if self.full:
            goals.insert(0, (int(self.limits.tokens * self.low_mark), FAIR))
        return next(filter(self.fits, (self.shrunk(window, *goal) for goal in goals)), window)

    def shrunk(self, window: Window, tokens: int, least: int) -> Window:
        """The window in so many tokens, by previews of `least` tokens and more; the same window where that fails."""
        before = dict(self.condensed)
        sizes = {place: self.size(part) for place, part in self.newest_results(window)}
        room = sum(map(self.scaled, sizes.values())) - (window.total + self.fixed - tokens)
        for _ in range(_ROUNDS):
            cap = level(list(sizes.values()), int(room / self.factor))
            if cap < least or not sizes:
                break
            self.condensed = before | {
                place: Preview(cap, before[place].before if place in before else size, self.readable)
                for place, size in sizes.items()
                if size > cap
            }
            shorter = self.window(window.cut, window.kept)
            still = shorter.total + self.fixed - tokens
            if still <= 0:
                return shorter
            room -= max(still, len(sizes))
        self.condensed = before
        return window

    def newest_results(self, window: Window) -> list[tuple[str, Part]]:
        """The results and calls of the newest step, each with its place in the caller's list."""
        last = max((i for i, m in enumerate(window.messages) if m.calls), default=None)
        if last is None:
            return []
        entries = self.previewed(self.history.between(window.positions[last], len(self.history)))
        return [(place, part) for place, part in numbered(entries) if isinstance(part, BULKY)]

    def previewed(self, entries: Entries) -> Entries:
        if not self.condensed:
            return entries
        caps = {place: held.cap for place, held in self.condensed.items()}
        told = [place for place, held in self.condensed.items() if held.told]
        return condense(entries, caps, self.counter.count, told=told)

    def previews(self, window: Window) -> list[Condensed]:
        """The results that a window shows as previews, with their tokens before and after."""
        if not self.condensed:
            return []
        held = set(window.positions)
        entries = [
            e
            for p in sorted({_position(c) for c in self.condensed} & held)
            for e in self.history.between(p, p + 1)
        ]
        shown = {place: part for place, part in numbered(self.previewed(entries)) if isinstance(part, BULKY)}
        return [
            Condensed(
                index=_position(place),
                before=self.scaled(decided.before),
                after=self.scaled(self.size(shown[place])),
            )
            for place, decided in self.condensed.items()
            if place in shown
        ]

    def size(self, part: Part) -> int:
        """Tokens of a part, as counted."""
        return count_part(part, self.counter, PROVIDERS[self.target.format])


def _position(place: str) -> int:
    return int(place.partition(".")[0])
