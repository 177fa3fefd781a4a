"""Which model to use when nobody says: from the environment, else the stand-in that needs nothing.

A key is read here and handed on; it is never logged, printed or put into a `repr`.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from backstory.errors import ConfigurationError
from backstory.models.anthropic import AnthropicModel
from backstory.models.base import Model
from backstory.models.extractive import ExtractiveModel
from backstory.models.openai import OpenAIModel
from backstory.models.servers import shown

OFFLINE = ("offline", "extractive")
"""What `model` may be to ask for the stand-in whatever the environment says."""


class Chosen(NamedTuple):
    """A model, and a line for people that says which and why."""

    model: Model
    line: str


def from_environment(model: str | None = None, base_url: str | None = None, **settings: Any) -> Chosen:
    """The model that the environment asks for.

    ``OPENAI_API_KEY`` or ``OPENAI_BASE_URL`` (or `base_url`): OpenAI's protocol; else ``ANTHROPIC_API_KEY``; else
    the offline stand-in. `model` names the model (else ``OPENAI_MODEL``, or the default of its client); a name that
    begins with ``claude`` goes to Anthropic where its key is set. `settings` go to the client as they are.
    Raises `ConfigurationError` where a model is named and there is neither key nor server for it.
    """
    openai_key, anthropic_key = os.environ.get("OPENAI_API_KEY"), os.environ.get("ANTHROPIC_API_KEY")
    url = base_url or os.environ.get("OPENAI_BASE_URL") or None
    if model in OFFLINE:
        return Chosen(ExtractiveModel(), _offline("as asked"))
    claude = model is not None and model.lower().startswith("claude") and base_url is None
    if anthropic_key and (claude or not (openai_key or url)):
        named: dict[str, Any] = {} if model is None else {"model": model}
        found = AnthropicModel(**named, **settings)
        return Chosen(found, f"Model: {found.name} at Anthropic (ANTHROPIC_API_KEY).")
    if openai_key or url:
        name = model or os.environ.get("OPENAI_MODEL")
        if name:
            settings["model"] = name
        talker = OpenAIModel(base_url=base_url, **settings)
        where = "OpenAI (OPENAI_API_KEY)" if url is None else shown(url)
        return Chosen(talker, f"Model: {talker.name} at {where}.")
    if model is not None:
        raise ConfigurationError(
            f"no key and no server for the model {model!r}: set OPENAI_API_KEY, OPENAI_BASE_URL or ANTHROPIC_API_KEY"
        )
    return Chosen(
        ExtractiveModel(), _offline("neither OPENAI_API_KEY, OPENAI_BASE_URL nor ANTHROPIC_API_KEY is set")
    )


def _offline(why: str) -> str:
    return (
        f"Model: none ({why}). An offline stand-in answers with sentences of its own context; it is no LLM."
    )
