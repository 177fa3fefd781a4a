"""Prices by the name of a model, from the table in `prices.toml` beside this module, or from the caller's own."""

from __future__ import annotations

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from backstory.cli.reading import read_text
from backstory.context.replay import Price
from backstory.errors import ConfigurationError

_FIELDS = ("input", "cached", "output", "written")


@dataclass(frozen=True, kw_only=True, slots=True)
class Priced:
    """A price and where it comes from: the model's name, the month and page of the table."""

    price: Price
    model: str
    as_of: str = ""
    source: str = ""


class Prices:
    """A table of prices. Raises `ConfigurationError` for a file that is none."""

    def __init__(self, path: str | None = None) -> None:
        self._name = path or "prices.toml"
        if path is None:
            text = resources.files("backstory.cli").joinpath("prices.toml").read_text(encoding="utf-8")
        else:
            text = read_text(path)
        try:
            table = tomllib.loads(text)
        except tomllib.TOMLDecodeError as error:
            raise ConfigurationError(f"{self._name}: no TOML: {error}") from None
        self._found: dict[str, Priced] = {}
        self._defaults: dict[str, str] = {}
        for provider, rows in table.items():
            self._take(provider, rows)

    def _take(self, provider: str, rows: Any) -> None:
        if not isinstance(rows, Mapping) or not isinstance(rows.get("models"), Mapping):
            raise ConfigurationError(f"{self._name}: [{provider}] has no table of models")
        for model, row in rows["models"].items():
            given = row if isinstance(row, Mapping) else {}
            values = {field: given[field] for field in _FIELDS if field in given}
            if not {"input", "cached", "output"} <= set(values):
                raise ConfigurationError(f"{self._name}: {model} needs the prices input, cached and output")
            if any(
                not isinstance(value, int | float) or isinstance(value, bool) for value in values.values()
            ):
                raise ConfigurationError(f"{self._name}: the prices of {model} must be numbers")
            self._found[model] = Priced(
                price=Price(**values),
                model=model,
                as_of=str(rows.get("as_of", "")),
                source=str(rows.get("source", "")),
            )
            if given.get("default"):
                self._defaults.update(dict.fromkeys(map(str, rows.get("formats", ())), model))

    def of(self, name: str | None, format: str) -> Priced | None:
        """The price of a model (the longest name in the table that it begins with), or a format's own; else none."""
        if name is None:
            name = self._defaults.get(format, "")
        wanted = name.lower().rsplit("/", 1)[-1]
        known = [model for model in self._found if wanted == model or wanted.startswith(f"{model}-")]
        return self._found[max(known, key=len)] if known else None

    @property
    def names(self) -> list[str]:
        return list(self._found)


def choose(
    table: Prices, *, preset: str | None, model: str | None, format: str, own: Mapping[str, float | None]
) -> Priced:
    """A preset by name, else that of the model, else that of the format; then what the caller prices himself.

    Raises `ConfigurationError` for an unknown preset, and where a model has no price.
    """
    changes = {field: value for field, value in own.items() if value is not None}
    found = table.of(preset or model, format)
    if found is None and preset is None and {"input", "output"} <= set(changes):
        found = Priced(price=Price(input=0, cached=changes["input"], output=0), model="")
    if found is None:
        known = ", ".join(table.names)
        what = f"no price is known for {preset or model or format!r}"
        raise ConfigurationError(
            f"{what}: give --price with one of {known}, or --price-input and --price-output"
        )
    if not changes:
        return found
    price = dataclasses.replace(found.price, **changes)
    if "input" in changes:  # a premium for writing belongs to the price that it is a premium on
        price = dataclasses.replace(price, written=None)
    return Priced(price=price, model="")
