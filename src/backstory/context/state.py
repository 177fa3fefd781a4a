"""What shapes the prefix, carried from one request to the next: explicit, opaque to callers, plain JSON.

A state remembers where replay begins and what was decided on the way (user message kept, results condensed or made
up, places never merged across), and digests of what was sent, so that the next request can show that it extends it.
It holds no text.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from backstory.errors import InvalidInput
from backstory.messages import Synthetic

VERSION = 1


class Preview(NamedTuple):
    """A result that is shown as a preview: its most tokens, and how many the result has. Neither is calibrated.

    `told`: the preview says how the whole can be read again.
    """

    cap: int
    before: int
    told: bool = False

    @staticmethod
    def from_json(value: Sequence[Any]) -> Preview:
        cap, before, *told = value
        return Preview(_whole(cap), _whole(before), bool(told and told[0]))


class Claim(NamedTuple):
    """Stands for the items of a state that were not kept: so many, of them the system's, and the digest of them all."""

    items: int
    head: int
    digest: str


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """`length` is the caller's list at the last request, `cut` the position where replay begins, `kept` the
    positions (start, stop) of the user message kept before a cut inside its turn. `condensed` maps the place of a
    result ("position.part") to its preview. `sent` are calls whose synthetic result was sent (position, number among
    that position's calls, kind), `seals` positions across which neighbours are not merged. `system`, `tools` and
    `items` are digests of what was sent, `tokens` the tokens of each item; the first `head` items are the system's.
    `loose` is the item that bears passages for this once. `shape` stands for target and counter, `factor` for their
    calibration.
    """

    shape: str
    length: int
    cut: int
    kept: tuple[int, int] | None = None
    condensed: Mapping[str, Preview] = dataclasses.field(default_factory=dict)
    sent: tuple[tuple[int, int, Synthetic], ...] = ()
    seals: tuple[int, ...] = ()
    system: str = ""
    tools: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    head: int = 0
    loose: int | None = None
    factor: float = 1.0
    epoch: int = 1

    def to_json(self) -> dict[str, Any]:
        values = {name: _plain(getattr(self, name)) for name in _FIELDS}
        return {"version": VERSION, **values}

    @staticmethod
    def from_json(value: Any) -> State | str:
        """The state, or in words why it cannot be used. Raises `InvalidInput` for what never was one."""
        if not isinstance(value, Mapping):
            raise InvalidInput(f"state must be the .state of an earlier result, not {type(value).__name__}")
        if value.get("version") != VERSION:
            return f"the state is of version {value.get('version')!r}, not {VERSION}"
        try:
            state = _read({name: value[name] for name in _FIELDS})
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError) as error:
            return f"the state is damaged ({error!r})"
        return state if _agrees(state) else "the state is damaged (its figures contradict each other)"


_FIELDS = tuple(f.name for f in dataclasses.fields(State))


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(inner) if isinstance(inner, tuple) else inner for inner in value]
    return {key: _plain(inner) for key, inner in value.items()} if isinstance(value, Mapping) else value


def _read(fields: dict[str, Any]) -> State:
    for name in ("seals", "tokens"):
        fields[name] = tuple(map(_whole, fields[name]))
    for name in ("tools", "items"):
        fields[name] = tuple(map(str, fields[name]))
    for name in ("length", "cut", "head", "epoch"):
        fields[name] = _whole(fields[name])
    fields["sent"] = tuple(
        (_whole(position), _whole(part), str(kind)) for position, part, kind in fields["sent"]
    )
    fields["condensed"] = {
        _place(place): Preview.from_json(shown) for place, shown in fields["condensed"].items()
    }
    start_stop = fields["kept"]
    fields["kept"] = (_whole(start_stop[0]), _whole(start_stop[1])) if start_stop is not None else None
    fields["loose"] = _whole(fields["loose"]) if fields["loose"] is not None else None
    fields["factor"] = float(fields["factor"])
    return State(**fields)


def _whole(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"no whole number: {value!r}")
    return value


def _place(text: Any) -> str:
    position, _, number = str(text).partition(".")
    return f"{int(position)}.{int(number)}"


def _agrees(state: State) -> bool:
    return (
        0 <= state.cut <= state.length
        and (state.kept is None or 0 <= state.kept[0] < state.kept[1] <= state.cut)
        and len(state.items) == len(state.tokens)
        and 0 <= state.head <= len(state.items)
        and all(kind in get_args(Synthetic) for _, _, kind in state.sent)
        and 0 < state.factor < math.inf
    )
