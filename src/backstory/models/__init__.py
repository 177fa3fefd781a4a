"""Models: clients of providers, a scripted one for tests, and one that works without any.

Each name is loaded when it is first asked for, so that nobody pays for a client that is not used.
"""

from importlib import import_module
from typing import TYPE_CHECKING

_EXPORTS: dict[str, str] = {
    "AnthropicModel": "backstory.models.anthropic",
    "Answer": "backstory.models.base",
    "CallDelta": "backstory.models.base",
    "Event": "backstory.models.base",
    "ExtractiveModel": "backstory.models.extractive",
    "Model": "backstory.models.base",
    "OpenAIModel": "backstory.models.openai",
    "Play": "backstory.models.scripted",
    "ReasoningDelta": "backstory.models.base",
    "ScriptedModel": "backstory.models.scripted",
    "TextDelta": "backstory.models.base",
    "Usage": "backstory.models.base",
    "calls": "backstory.models.scripted",
    "from_environment": "backstory.models.environment",
    "learned": "backstory.models.billing",
}

__all__ = [
    "Answer",
    "AnthropicModel",
    "CallDelta",
    "Event",
    "ExtractiveModel",
    "Model",
    "OpenAIModel",
    "Play",
    "ReasoningDelta",
    "ScriptedModel",
    "TextDelta",
    "Usage",
    "calls",
    "from_environment",
    "learned",
]

if TYPE_CHECKING:
    from backstory.models.anthropic import AnthropicModel as AnthropicModel
    from backstory.models.base import Answer as Answer
    from backstory.models.base import CallDelta as CallDelta
    from backstory.models.base import Event as Event
    from backstory.models.base import Model as Model
    from backstory.models.base import ReasoningDelta as ReasoningDelta
    from backstory.models.base import TextDelta as TextDelta
    from backstory.models.base import Usage as Usage
    from backstory.models.billing import learned as learned
    from backstory.models.environment import from_environment as from_environment
    from backstory.models.extractive import ExtractiveModel as ExtractiveModel
    from backstory.models.openai import OpenAIModel as OpenAIModel
    from backstory.models.scripted import Play as Play
    from backstory.models.scripted import ScriptedModel as ScriptedModel
    from backstory.models.scripted import calls as calls
else:

    def __getattr__(name: str) -> object:
        module = _EXPORTS.get(name)
        if module is None:
            raise AttributeError(f"module 'backstory.models' has no attribute {name!r}")
        value = globals()[name] = getattr(import_module(module), name)
        return value


def __dir__() -> list[str]:
    return list(__all__)
