"""A request that was sent, written again from the log as it was: its replay, its previews. Pure."""

from __future__ import annotations

from backstory.context.budget import LOW_MARK, Budget
from backstory.context.fitting import Fitting
from backstory.context.request import Draft, Request
from backstory.context.state import State
from backstory.context.window import Limits
from backstory.messages import system as system_message
from backstory.sessions.source import ViewSource
from backstory.sessions.view import View
from backstory.targets import Target
from backstory.tokens import Counter


def written_again(
    view: View,
    system: str,
    before: State,
    target: Target,
    counter: Counter,
    *,
    low_mark: float = LOW_MARK,
) -> Draft:
    """What was sent, item by item. `before` is the state of the request, whose own items are not looked at.

    Raises what `backstory.fit` raises.
    """
    source = ViewSource(view, stop=before.length)
    source.system = [(-1, system_message(system))] if system else []
    fitting = Fitting(source, target, counter, Limits(), tools=0, factor=before.factor, low_mark=low_mark)
    return Request(target, counter, Budget(), source).draft(fitting, fitting.resume(before))
