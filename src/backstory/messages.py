"""What was said: a message and its parts.

This file knows nothing of any API. A part holds what every API means by it in typed fields, and beside them
the provider's own item, verbatim (`native`), so that what came from an API goes back to it byte for byte,
unknown fields included. All values are frozen and keyword-only.

One `Message` is one item of a wire format (one chat message, one Responses item, one Gemini content), with
one exception: a user message of Anthropic's or Gemini's that holds tool results *and* the user's words is
read as two, a ``tool`` message and a ``user`` message that is `joined` to it. `joined` says: in its source
this belongs to one unit with the message before it.

Never change a value that `native` refers to: it may be the caller's own dict.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from backstory.errors import InvalidMessage
from backstory.quick import quick

Role = Literal["system", "developer", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = get_args(Role)

Synthetic = Literal["not_started", "outcome_unknown"]


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Native:
    """A provider's own item, verbatim.

    `intact` is false once a typed field beside it was changed: the writer then takes only the fields of
    `value` that our types do not know.
    """

    format: str
    value: Mapping[str, Any]
    intact: bool = True


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Origin:
    """Who made an opaque blob (signature, encrypted content, compaction): it is refused elsewhere.

    `None` means unknown, and matches anything.
    """

    provider: str | None = None
    platform: str | None = None
    model: str | None = None

    def matches(self, other: Origin) -> bool:
        """Whether no known field of the two differs."""
        pairs = (
            (self.provider, other.provider),
            (self.platform, other.platform),
            (self.model, other.model),
        )
        return all(mine is None or theirs is None or mine == theirs for mine, theirs in pairs)


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Part:
    """What all parts have. `signature` is an opaque thought signature bound to the part (Gemini sets it on any)."""

    native: Native | None = field(default=None, repr=False)
    signature: str | None = field(default=None, repr=False)


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Text(Part):
    text: str


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Media(Part):
    """Bytes from somewhere: exactly one of `url`, `data` (base64) and `file_id` is set, as a rule.

    `media_type` is a MIME type such as ``image/png``.
    """

    url: str | None = None
    data: str | None = field(default=None, repr=False)
    file_id: str | None = None
    media_type: str | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Image(Media):
    """`detail` is OpenAI's ``low``, ``high``, ``auto`` or ``original``."""

    detail: str | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Audio(Media):
    """`file_id` may name an earlier answer of the model's; `transcript` is what was said, where known."""

    transcript: str | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class File(Media):
    """A document. `text` is its text where the document was given as text."""

    name: str | None = None
    text: str | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class ToolCall(Part):
    """The model asks for a tool.

    `id` is empty where the source has none; it is scoped to its step. `arguments` is the very string that the
    model wrote, which may be broken JSON (formats that carry an object: its compact JSON); for a call of kind
    ``custom`` it is free text. `kind` is ``function``, ``custom``, or a provider's own type of call such as
    ``shell_call``, whose arguments are the JSON of its action.
    """

    id: str
    name: str
    arguments: str = "{}"
    kind: str = "function"


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class ToolResult(Part):
    """What a tool answered.

    `name` is the tool's where the source tells. `content` holds text, media or opaque parts. `is_error` is
    `None` where the source has no such flag. `synthetic` marks a result that no tool gave: it stands for one
    that is missing.
    """

    call_id: str
    name: str | None = None
    content: tuple[Part, ...] = ()
    is_error: bool | None = None
    kind: str = "function"
    synthetic: Synthetic | None = None


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Reasoning(Part):
    """The model's thinking: readable text, an opaque `signature` or `encrypted` content, and who made it.

    `redacted` says that the provider withholds the text altogether.
    """

    text: str = ""
    encrypted: str | None = field(default=None, repr=False)
    redacted: bool = False
    origin: Origin = Origin()


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Refusal(Part):
    text: str


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Opaque(Part):
    """A provider's item that we do not interpret; `native` is set. `kind` is its own type name."""

    kind: str
    origin: Origin = Origin()


AnyPart: TypeAlias = Text | Image | Audio | File | ToolCall | ToolResult | Reasoning | Refusal | Opaque
PART_TYPES: dict[str, type[Part]] = {
    "text": Text,
    "image": Image,
    "audio": Audio,
    "file": File,
    "tool_call": ToolCall,
    "tool_result": ToolResult,
    "reasoning": Reasoning,
    "refusal": Refusal,
    "opaque": Opaque,
}
_KIND_OF = {cls: kind for kind, cls in PART_TYPES.items()}


@quick
@dataclass(frozen=True, kw_only=True, slots=True)
class Message:
    """One message: a role and its parts.

    `name` is the speaker's; `id` is the provider's or the client's own id of the message; `joined` says that
    in its source it forms one unit with the message before (see above).
    """

    role: Role
    parts: tuple[Part, ...] = ()
    name: str | None = None
    id: str | None = None
    joined: bool = False
    native: Native | None = field(default=None, repr=False)
    _counts: dict[str, int] = field(default_factory=dict, init=False, repr=False, compare=False)
    """Tokens by counter and target: filled by `backstory.tokens`, so that nothing is counted twice."""
    _passed: list[object] = field(default_factory=list, init=False, repr=False, compare=False)
    """Targets whose rules it passed: filled by `backstory.legality.rules`, so that nothing is looked at twice."""
    _digests: dict[str, tuple[object, str]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )
    """The item last written from it, with its digest: filled by `backstory.context.prefix`, to make none twice."""

    @property
    def text(self) -> str:
        """The text parts, joined by nothing: what a person would read."""
        return "".join(part.text for part in self.parts if isinstance(part, Text))

    @property
    def calls(self) -> tuple[ToolCall, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolCall)])

    @property
    def results(self) -> tuple[ToolResult, ...]:
        return tuple([part for part in self.parts if isinstance(part, ToolResult)])

    def evolve(self, **changes: Any) -> Message:
        """A changed copy; the verbatim item is kept for the fields that we do not know, and no longer intact."""
        if self.native is not None and "native" not in changes:
            changes["native"] = dataclasses.replace(self.native, intact=False)
        return dataclasses.replace(self, **changes)


def evolve(part: Part, **changes: Any) -> Any:
    """A changed copy of a part, as `Message.evolve`."""
    if part.native is not None and "native" not in changes:
        changes["native"] = dataclasses.replace(part.native, intact=False)
    return dataclasses.replace(part, **changes)


def system(text: str) -> Message:
    """A system message of one text."""
    return Message(role="system", parts=(Text(text=text),))


def user(text: str, **fields: Any) -> Message:
    """A user message of one text."""
    return Message(role="user", parts=(Text(text=text),), **fields)


def assistant(text: str = "", *calls: ToolCall, **fields: Any) -> Message:
    """An assistant message: a text (left out when empty) and tool calls."""
    parts: tuple[Part, ...] = (Text(text=text),) if text else ()
    return Message(role="assistant", parts=parts + calls, **fields)


def tool(call_id: str, text: str, **fields: Any) -> Message:
    """The result of one call, as a message of its own; `fields` go to the `ToolResult`."""
    return Message(role="tool", parts=(ToolResult(call_id=call_id, content=(Text(text=text),), **fields),))


# --- JSON, for the log ---------------------------------------------------------------------

_DEFAULTS = {
    cls: {f.name: f.default for f in dataclasses.fields(cls) if f.init}
    for cls in (Message, Native, Origin, *_KIND_OF)
}


def to_json(message: Message) -> dict[str, Any]:
    """The message as JSON values, for the log. `from_json` reads it back equal.

    Fields at their defaults are left out, and a part's verbatim item that lies inside the message's is
    written as the path to it, so that nothing is stored twice for being referred to twice.
    """
    paths: dict[int, list[str | int]] = {}
    if message.native is not None:
        _index(message.native.value, [], paths)
    dumped: dict[str, Any] = _dump(message, paths)
    if message.native is not None:
        dumped["native"] = _dump(message.native, {})
    return dumped


def from_json(value: Mapping[str, Any]) -> Message:
    """Read what `to_json` wrote. Raises `InvalidMessage` for anything else."""
    try:
        fields = dict(value)
        native = Native(**fields["native"]) if fields.get("native") is not None else None
        if fields.get("role") not in ROLES:
            raise InvalidMessage(f"unknown role {fields.get('role')!r}; one of {', '.join(ROLES)}")
        fields["parts"] = tuple(_load_part(part, native) for part in fields.get("parts", ()))
        return Message(**{**fields, "native": native})
    except (TypeError, KeyError, IndexError, AttributeError, ValueError) as error:
        if isinstance(error, InvalidMessage):
            raise
        raise InvalidMessage(f"not a message as Backstory writes it ({error})") from error


def _index(value: Any, path: list[str | int], paths: dict[int, list[str | int]]) -> None:
    """Note where each object inside a verbatim item lies; parts are at most a few levels down."""
    if type(value) is str:  # nearly all of them
        return
    if isinstance(value, Mapping):
        paths[id(value)] = path  # the whole item itself where a part is all of it, as in Responses
        inner: Any = value.items()
    elif isinstance(value, list):
        inner = enumerate(value)
    else:
        return
    if len(path) < _DEPTH:
        for key, child in inner:
            _index(child, [*path, key], paths)


_DEPTH = 5
"""Deep enough for the block inside a tool result inside a message, of every format."""


def _dump(value: Any, paths: Mapping[int, list[str | int]]) -> Any:
    cls = type(value)
    if cls is tuple:
        return [_dump(inner, paths) for inner in value]
    if cls not in _DEFAULTS:
        return value
    if cls is Native and id(value.value) in paths:
        dumped: dict[str, Any] = {"format": value.format, "at": paths[id(value.value)]}
        return dumped if value.intact else {**dumped, "intact": False}
    dumped = {"part": _KIND_OF[cls]} if cls in _KIND_OF else {}
    for name, default in _DEFAULTS[cls].items():
        inner = getattr(value, name)
        if inner is not default and inner != default:
            dumped[name] = inner if type(inner) is str else _dump(inner, paths)
    return dumped


def _load_part(value: Mapping[str, Any], whole: Native | None) -> Part:
    fields = dict(value)
    cls = PART_TYPES[fields.pop("part")]
    native = fields.get("native")
    if native is not None:
        native = dict(native)
        if "at" in native:
            found: Any = whole.value if whole is not None else {}
            for step in native.pop("at"):
                found = found[step]
            native["value"] = found
        fields["native"] = Native(**native)
    if fields.get("origin") is not None:
        fields["origin"] = Origin(**fields["origin"])
    if "content" in fields:
        fields["content"] = tuple(_load_part(part, whole) for part in fields["content"])
    return cls(**fields)


def texts(parts: Sequence[Part]) -> str:
    """All text of parts, one a line: text, refusals, transcripts and text files."""
    found: list[str] = []
    for part in parts:
        match part:
            case Text(text=text) | Refusal(text=text):
                found.append(text)
            case Audio(transcript=str(text)) | File(text=str(text)):
                found.append(text)
            case ToolResult(content=content):
                found.append(texts(content))
    return "\n".join(found)
