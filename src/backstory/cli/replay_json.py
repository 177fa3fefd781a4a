"""A replay as JSON: for programs, and stable. Every position is one of the list, counted from 0; -1 is the system."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from backstory.cli.options import Limits
from backstory.cli.prices import Priced
from backstory.context.history import History
from backstory.context.replay import Call, Price, Walk


def report(
    name: str, source: str, history: History, walks: Sequence[Walk], limits: Limits, priced: Priced
) -> dict[str, Any]:
    """Everything that a replay knows, but for the requests themselves."""
    return {
        "file": name,
        "source": source,
        "target": limits.target.name,
        "messages": len(history),
        "counter": {
            "name": limits.counter.name,
            "exact": limits.counter.exact,
            "margin": limits.counter.margin,
        },
        "limits": {
            "budget": limits.budget.tokens,
            "reserve": limits.budget.reserve,
            "max_turns": limits.max_turns,
            "max_messages": limits.max_messages,
        },
        "price": {
            "model": priced.model or None,
            "as_of": priced.as_of or None,
            **dataclasses.asdict(priced.price),
        },
        "strategies": [_walk(walk, limits.budget.tokens, priced.price) for walk in walks],
    }


def _walk(walk: Walk, budget: int | None, price: Price) -> dict[str, Any]:
    return {
        "strategy": walk.strategy,
        "totals": {
            "calls": len(walk.calls),
            "input": walk.input,
            "cached": walk.cached,
            "output": walk.output,
            "largest": walk.largest,
            "cuts": walk.cuts,
            "healed": walk.healed,
            "over_budget": walk.over(budget),
            "failed": walk.failed,
            "cost": round(walk.cost(price), 9),
        },
        "calls": [_call(call, price) for call in walk.calls],
        "skipped": [dataclasses.asdict(skipped) for skipped in walk.skipped],
    }


def _call(call: Call, price: Price) -> dict[str, Any]:
    ledger = call.ledger
    return {
        "call": call.number,
        "turn": call.turn,
        "at": call.at,
        "sent": [list(span) for span in call.sent],
        "items": call.items,
        "input": call.input,
        "cached": call.cached,
        "output": call.output,
        "cost": round(call.cost(price), 9),
        "epoch": ledger.epoch,
        "why": ledger.why,
        "cut": call.cut,
        "sections": {line.section: line.used for line in ledger.lines},
        "dropped": [dataclasses.asdict(span) for span in ledger.dropped],
        "condensed": [dataclasses.asdict(result) for result in ledger.condensed],
        "repairs": [dataclasses.asdict(repair) for repair in call.repairs],
        "losses": [dataclasses.asdict(loss) for loss in call.losses],
        "error": call.error,
    }


def request_report(strategy: str, call: Call) -> dict[str, Any]:
    """One request, whole."""
    assert call.fitted is not None
    return {
        "call": call.number,
        "strategy": strategy,
        "body": call.fitted.body,
        "ledger": call.fitted.ledger.to_json(),
        "repairs": [dataclasses.asdict(repair) for repair in call.fitted.repairs],
        "losses": [dataclasses.asdict(loss) for loss in call.fitted.losses],
    }
