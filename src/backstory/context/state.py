"""What shapes the prefix, carried from one request to the next: explicit, opaque to callers, plain JSON.

A state remembers where replay begins and what was decided on the way (user message kept, results condensed or made
up, places never merged across), and digests of what was sent, so that the next request can show that it extends it.
It holds no text.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstory.errors import InvalidInput

VERSION = 1


@dataclass(frozen=True, kw_only=True, slots=True)
class State:
    """`length` is the caller's list at the last request, `cut` the position where replay begins, `kept` the
    positions (start, stop) of the user message kept before a cut inside its turn. `condensed` maps the place of a
    result ("position.part") to the tokens of its preview. `sent` are places of calls whose synthetic result was sent,
    `seals` positions across which neighbours are not merged. `system`, `tools` and `items` are digests of what was
    sent, `tokens` the tokens of each item; `shape` stands for target and counter, `factor` for their calibration.
    """

    shape: str
    length: int
    cut: int
    kept: tuple[int, int] | None = None
    condensed: Mapping[str, int] = dataclasses.field(default_factory=dict)
    sent: tuple[tuple[int, int], ...] = ()
    seals: tuple[int, ...] = ()
    system: str = ""
    tools: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    tokens: tuple[int, ...] = ()
    fixed: int = 0
    factor: float = 1.0
    epoch: int = 1

    def to_json(self) -> dict[str, Any]:
        values = {f.name: getattr(self, f.name) for f in dataclasses.fields(self)}
        values["sent"] = [list(place) for place in self.sent]
        for name in ("seals", "tools", "items", "tokens"):
            values[name] = list(values[name])
        values["kept"] = list(self.kept) if self.kept else None
        values["condensed"] = dict(self.condensed)
        return {"version": VERSION, **values}

    @staticmethod
    def from_json(value: Any) -> State | str:
        """The state, or in words why it cannot be used. Raises `InvalidInput` for what never was one."""
        if not isinstance(value, Mapping):
            raise InvalidInput(f"state must be the .state of an earlier result, not {type(value).__name__}")
        if value.get("version") != VERSION:
            return f"the state is of version {value.get('version')!r}, not {VERSION}"
        fields = {key: inner for key, inner in value.items() if key != "version"}
        try:
            fields["sent"] = tuple((int(position), int(part)) for position, part in fields["sent"])
            fields["seals"] = tuple(map(int, fields["seals"]))
            fields["tools"] = tuple(map(str, fields["tools"]))
            fields["items"] = tuple(map(str, fields["items"]))
            fields["tokens"] = tuple(map(int, fields["tokens"]))
            fields["condensed"] = {str(key): int(tokens) for key, tokens in fields["condensed"].items()}
            fields["kept"] = (int(fields["kept"][0]), int(fields["kept"][1])) if fields["kept"] else None
            for name in ("length", "cut", "fixed", "epoch"):
                fields[name] = int(fields[name])
            fields["factor"] = float(fields["factor"])
            state = State(**fields)
        except (KeyError, TypeError, ValueError, AttributeError, IndexError) as error:
            return f"the state is damaged ({error!r})"
        if (
            not 0 <= state.cut <= state.length
            or len(state.items) != len(state.tokens)
            or not state.factor > 0
        ):
            return "the state is damaged (its figures contradict each other)"
        return state
