"""A target: a wire format, plus what a given server can take.

Legality is a function of history *and target*. Everything that differs between servers is a field here, so
that the rules (`backstory.legality.rules`) and the writers (`backstory.formats`) ask a target and never a name.
The presets are sound defaults; change one with `Target.but`:

    Target.of("vllm").but(reasoning="always", window=32_768)
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from typing import Any, Literal

from backstory.errors import ConfigurationError
from backstory.messages import Origin

Format = Literal["openai_chat", "openai_responses", "anthropic", "gemini"]
FORMATS: tuple[Format, ...] = ("openai_chat", "openai_responses", "anthropic", "gemini")


@dataclass(frozen=True, kw_only=True, slots=True)
class Target:
    """What a server can take. Every field is a capability or a rule; none is a name to be switched on.

    `alternates`: user and assistant must take turns, and the user comes first.
    `user_after_tool`: a user message may follow a tool result directly.
    `user_first`: the first message that is not the system's must be the user's.
    `system_anywhere`: a system message may stand in the middle; else only at the head.
    `one_system`: one system block at most.
    `developer`: the role ``developer`` is known; else it becomes ``system``.
    `tool_content`: what a tool result may hold: a string, text parts, or media as well.
    `media`: kinds of media that a user message may hold.
    `object_arguments`: the arguments of a call must parse to a JSON object.
    `ordered_results`: results must stand in the order of their calls.
    `parallel_calls`: one assistant message may hold several calls.
    `custom_calls`: calls with free text in place of JSON arguments are known.
    `nonblank`: text must hold something other than white space; else it must only not be empty.
    `reasoning`: whether readable reasoning goes back: as given, never, within the turn under way, or always.
    `signed_calls`: the first call of each step of the turn under way must carry a thought signature.
    `name_pattern`, `id_pattern`: what a tool's name and a call's id must match in full; no pattern, no rule.
    `id_length`: the most characters of an id. `unique_ids`: unique within one step, or in the whole request.
    `speaker_pattern`: what the name of a speaker must match; `None` where there is no such field.
    `extensions`: documented extension fields are understood (such as a thought signature in `extra_content`).
    `cache_markers`: most `cache_control` breakpoints; none where the provider caches by itself.
    `origin`: whose opaque items are accepted.
    `window`: tokens of input and output together, where known.
    """

    format: Format
    name: str
    alternates: bool = False
    user_after_tool: bool = True
    user_first: bool = False
    system_anywhere: bool = True
    one_system: bool = False
    developer: bool = True
    tool_content: Literal["string", "text", "media"] = "text"
    media: frozenset[Literal["image", "audio", "file"]] = frozenset({"image", "audio", "file"})
    object_arguments: bool = False
    ordered_results: bool = False
    parallel_calls: bool = True
    custom_calls: bool = True
    nonblank: bool = False
    reasoning: Literal["as_given", "never", "turn", "always"] = "as_given"
    signed_calls: bool = False
    name_pattern: str = r"[A-Za-z0-9_-]{1,64}"
    id_pattern: str | None = None
    id_length: int | None = None
    unique_ids: Literal["step", "request"] = "step"
    speaker_pattern: str | None = None
    extensions: bool = False
    cache_markers: int = 0
    origin: Origin = field(default=Origin())
    window: int | None = None

    def __post_init__(self) -> None:
        if self.format not in FORMATS:
            raise ConfigurationError(f"unknown format {self.format!r}; one of {', '.join(FORMATS)}")

    @staticmethod
    def of(target: Target | str) -> Target:
        """A target by its preset's name, or the target itself.

        Raises `ConfigurationError` for a name that nobody knows.
        """
        if isinstance(target, Target):
            return target
        try:
            return PRESETS[target]
        except (KeyError, TypeError):
            known = ", ".join(PRESETS)
            raise ConfigurationError(f"unknown target {target!r}; one of {known}, or a Target") from None

    def but(self, **changes: Any) -> Target:
        """The same with other fields. Raises `ConfigurationError` for a field that does not exist."""
        try:
            return dataclasses.replace(self, **changes)
        except TypeError as error:
            raise ConfigurationError(f"{error}; see Target") from None


# https://platform.openai.com/docs/api-reference/chat/create: `name` and tool names, `[a-zA-Z0-9_-]`, 64 at most.
_OPENAI_NAME = r"[A-Za-z0-9_-]{1,64}"
# https://docs.anthropic.com/en/api/messages: tool names `^[a-zA-Z0-9_-]{1,128}$`, ids `^[a-zA-Z0-9_-]+$`.
_ANTHROPIC_NAME = r"[A-Za-z0-9_-]{1,128}"
_ANTHROPIC_ID = r"[A-Za-z0-9_-]+"
# https://ai.google.dev/api/caching#FunctionDeclaration: starts with a letter or underscore; letters, digits,
# underscores, colons, dots and dashes; 128 at most.
_GEMINI_NAME = r"[A-Za-z_][A-Za-z0-9_.:-]{0,127}"

_CHAT = Target(
    format="openai_chat",
    name="openai_chat",
    alternates=True,
    user_after_tool=False,
    user_first=True,
    system_anywhere=False,
    one_system=True,
    tool_content="text",
    object_arguments=True,
    ordered_results=True,  # the templates of many open models print no ids, so that results are told by their place
    name_pattern=_OPENAI_NAME,
    speaker_pattern=_OPENAI_NAME,
)
"""A server that speaks Chat Completions and of which nothing else is known: what the strictest chat templates ask."""

_OPEN_MODEL = _CHAT.but(
    developer=False, tool_content="string", media=frozenset({"image"}), custom_calls=False
)

PRESETS: dict[str, Target] = {
    "openai_chat": _CHAT,
    # The official API takes neighbours of one role and late system messages, and has no field for reasoning.
    "openai": _CHAT.but(
        name="openai",
        alternates=False,
        user_after_tool=True,
        user_first=False,
        system_anywhere=True,
        one_system=False,
        object_arguments=False,
        reasoning="never",
        id_length=40,  # "string too long. Expected a string with maximum length 40" for tool_calls[].id
    ),
    "openai_responses": Target(
        format="openai_responses",
        name="openai_responses",
        tool_content="media",
        name_pattern=_OPENAI_NAME,
        id_length=64,  # "Expected a string with maximum length 64" for input[].call_id
        unique_ids="request",
        origin=Origin(provider="openai"),
    ),
    "anthropic": Target(
        format="anthropic",
        name="anthropic",
        user_first=True,
        system_anywhere=False,
        developer=False,
        tool_content="media",
        media=frozenset({"image", "file"}),
        object_arguments=True,
        ordered_results=True,  # ids tell, and yet models read by place
        custom_calls=False,
        nonblank=True,
        name_pattern=_ANTHROPIC_NAME,
        id_pattern=_ANTHROPIC_ID,
        unique_ids="request",
        cache_markers=4,
        origin=Origin(provider="anthropic"),
    ),
    "gemini": Target(
        format="gemini",
        name="gemini",
        user_first=True,
        system_anywhere=False,
        developer=False,
        tool_content="media",
        object_arguments=True,
        custom_calls=False,
        ordered_results=True,
        name_pattern=_GEMINI_NAME,
        origin=Origin(provider="google"),
    ),
    # https://docs.vllm.ai/en/latest/features/reasoning_outputs.html: templates decide; reasoning is ignored or dropped.
    "vllm": _OPEN_MODEL.but(name="vllm", tool_content="text"),
    # https://github.com/ollama/ollama/blob/main/docs/openai.md
    "ollama": _OPEN_MODEL.but(name="ollama", reasoning="never"),
    # https://github.com/ggml-org/llama.cpp/blob/master/docs/function-calling.md: one call at a time by default.
    "llama_cpp": _OPEN_MODEL.but(name="llama_cpp", parallel_calls=False),
    # https://api-docs.deepseek.com/guides/thinking_mode: reasoning_content goes back within a turn that calls tools.
    "deepseek": _OPEN_MODEL.but(name="deepseek", media=frozenset(), reasoning="turn"),
    # https://help.aliyun.com/zh/model-studio/deep-thinking: reasoning_content is not sent back.
    "qwen": _OPEN_MODEL.but(
        name="qwen", media=frozenset({"image", "audio"}), reasoning="never", custom_calls=False
    ),
}
PRESETS["gemini-3"] = PRESETS["gemini"].but(name="gemini-3", signed_calls=True)
"""https://ai.google.dev/gemini-api/docs/thought-signatures: since Gemini 3 a missing signature is refused."""
