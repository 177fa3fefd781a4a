"""Gemini's contents: reading and writing.

https://ai.google.dev/api/caching#Content, and the types of the SDK (`google.genai.types.Content`). It pairs, moves
and renames nothing, and knows nothing of what is legal where: `backstory.legality` does.
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from backstory.errors import InvalidMessage
from backstory.formats._openai_media import placeholder
from backstory.formats.arguments import arguments_object
from backstory.formats.base import Item, Loss, Written, expect_object, unknown_fields, verbatim
from backstory.formats.gemini_parts import (
    CALL,
    DATA,
    NAME,
    RESPONSE,
    SIGNATURES,
    either,
    read_parts,
    response_content,
)
from backstory.formats.media import describe, inlined, media_type
from backstory.formats.units import accepts, gather, late_system, runs
from backstory.messages import (
    Audio,
    File,
    Image,
    Media,
    Message,
    Native,
    Opaque,
    Origin,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from backstory.targets import Target

ITEMS = "contents"
SYSTEM: str | None = "systemInstruction"
ORIGIN = Origin(provider="google")

# https://ai.google.dev/gemini-api/docs/thought-signatures: stands for a signature where there is none, as in a
# history that another model made; the model's validator lets it pass.
PLACEHOLDER = "skip_thought_signature_validator"

_CONTENT = frozenset({"role", "parts"})
_TEXT = SIGNATURES | {"text", "thought"}
_CALL_PART = SIGNATURES | CALL
_CALL_BODY = frozenset({"id", "name", "args"})
_RESPONSE_PART = SIGNATURES | RESPONSE
_RESPONSE_BODY = frozenset({"id", "name", "response", "parts"})
_MEDIA_PART = SIGNATURES | DATA
_MEDIA_BODY = frozenset({"mimeType", "mime_type", "data", "fileUri", "file_uri"})
_READ: dict[Any, Role] = {"user": "user", "model": "assistant", "function": "user", None: "user"}
_WRITE: dict[Role, str] = {
    "user": "user",
    "tool": "user",
    "assistant": "model",
    "system": "user",
    "developer": "user",
}


# --- reading -------------------------------------------------------------------------------


def read(item: Any, *, index: int, origin: Origin = ORIGIN) -> list[Message]:
    """One content as one message; a user's content of responses and other parts as one for each run, joined.

    A content without a role is the user's (as the API has it); the role ``function`` of older APIs is read too,
    and written as the user's. Raises `InvalidMessage` where it is not an object, its role is unknown, its parts
    are no list, or a part is not an object.
    """
    item = expect_object(item, index)
    given = item.get("role")
    role = _READ.get(given) if given is None or isinstance(given, str) else None
    if role is None:
        raise InvalidMessage(f"unknown role {given!r}; Gemini has user and model", index=index)
    native = Native(format=NAME, value=item, intact=given != "function")
    parts = read_parts(item.get("parts"), index, origin)
    if role != "user" or not any(isinstance(part, ToolResult) for part in parts):
        return [Message(role=role, parts=tuple(parts), native=native)]
    found = runs(parts, lambda part: isinstance(part, ToolResult))
    return [
        Message(role="tool" if results else "user", parts=run, native=native, joined=number > 0)
        for number, (results, run) in enumerate(found)
    ]


def read_system(value: Any) -> list[Message]:
    """The `systemInstruction` of a request: a content, or, as the SDK takes it, a text.

    Raises `InvalidMessage` for anything else.
    """
    if value is None:
        return []
    native = Native(format=NAME, value={"systemInstruction": value})
    if isinstance(value, str):
        return [Message(role="system", parts=(Text(text=value),), native=native)]
    if not isinstance(value, Mapping):
        raise InvalidMessage(f"systemInstruction must be a content or a text, not {type(value).__name__}")
    parts = read_parts(value.get("parts"), None, ORIGIN)
    return [Message(role="system", parts=tuple(parts), native=native)]


# --- writing -------------------------------------------------------------------------------


def write(messages: Sequence[Message], target: Target) -> Written:
    """The messages as Gemini's contents; see `backstory.formats.units` for what shares a content.

    The leading system messages become `systemInstruction`; a later one is the user's text in `<system>` tags.
    Where the target asks for signed calls, the first call of a content gets the documented placeholder if it
    has no signature: in every step, not just in those of the current turn where the API asks for it, for a
    content must not change its bytes when its turn is over. Each is reported.
    """
    writer = _Writer(messages, target)
    begin = 0
    while begin < len(messages) and messages[begin].role in ("system", "developer"):
        begin += 1
    writer.system(messages[:begin])
    units = gather(
        messages, begin, target=target, field="parts", known=_CONTENT, roles=_WRITE, render=writer.message
    )
    written = writer.written
    for unit in units:
        item: Any = unit.native
        if item is None:
            item = {"role": unit.role, "parts": unit.blocks, **unit.extra}
        if target.signed_calls and item.get("role") == "model":
            signed = _signed(item)
            if signed is not item:
                what = "the first call has no thought signature; the documented placeholder stands for it"
                written.losses.append(Loss(index=unit.start, kind="signature", what=what))
            item = signed
        written.starts.append(unit.start)
        written.items.append(item)
    return written


def _signed(item: Item) -> Item:
    """The content, with the placeholder at its first call if that has no signature: a copy then."""
    parts = item.get("parts") or ()
    for position, part in enumerate(parts):
        if not isinstance(part, Mapping) or not isinstance(
            either(part, "functionCall", "function_call"), Mapping
        ):
            continue
        if either(part, "thoughtSignature", "thought_signature"):
            return item
        signed = [*parts]
        signed[position] = {**part, "thoughtSignature": PLACEHOLDER}
        return {**item, "parts": signed}
    return item


class _Writer:
    """What one `write` has at hand: the messages, the target, and where losses go."""

    def __init__(self, messages: Sequence[Message], target: Target) -> None:
        self.messages = messages
        self.target = target
        self.written = Written()
        self.index = 0
        self.role: Role = "user"

    def lose(self, kind: str, what: str) -> list[Item]:
        self.written.losses.append(Loss(index=self.index, kind=kind, what=what))
        return []

    def system(self, messages: Sequence[Message]) -> None:
        """https://ai.google.dev/api/generate-content: `systemInstruction` is a content of text only."""
        if not messages:
            return
        if len(messages) == 1:
            own = verbatim(messages[0].native, NAME)
            if own is not None and "systemInstruction" in own:
                self.written.system = own["systemInstruction"]
                return
        parts: list[Item] = []
        for self.index, message in enumerate(messages):
            for part in message.parts:
                if isinstance(part, Text | Refusal | Opaque):
                    parts += self.part(part)
                else:
                    self.lose(type(part).__name__.lower(), "the system holds nothing but text")
        if parts:
            self.written.system = {"parts": parts}

    def message(self, index: int, message: Message) -> list[Item]:
        self.index, self.role = index, message.role
        native = message.native
        if message.name is not None and (native is None or native.format != NAME):
            self.lose("name", f"Gemini has no field for the speaker's name ({message.name!r})")
        parts: list[Item] = []
        for part in message.parts:
            parts += self.part(part)
        if not message.parts or (not parts and all(type(p) is Text and not p.text for p in message.parts)):
            self.lose("empty", f"a {message.role} message without content has no place in Gemini's list")
        elif message.role in ("system", "developer"):
            return [{"text": late_system("\n".join(part["text"] for part in parts if "text" in part))}]
        return parts

    def part(self, part: Part) -> list[Item]:
        """The part as parts: one, or none where it cannot be carried."""
        if isinstance(part, Reasoning):
            return self._reasoning(part)
        own = verbatim(part.native, NAME)
        if own is not None and not (isinstance(part, Opaque) and not accepts(self.target, part.origin)):
            return [own]  # type: ignore[list-item]  # never changed
        return _PARTS[type(part)](self, part)

    def _built(self, part: Part, fields: Item, known: frozenset[str]) -> list[Item]:
        if part.signature is not None:
            fields["thoughtSignature"] = part.signature
        return [{**fields, **unknown_fields(part.native, NAME, known)}]

    def _text(self, part: Text | Refusal) -> list[Item]:
        if not part.text and part.signature is None:
            return []
        return self._built(part, {"text": part.text}, _TEXT)

    def _reasoning(self, part: Reasoning) -> list[Item]:
        """https://ai.google.dev/gemini-api/docs/thought-signatures: a thought goes back as it came."""
        if self.target.reasoning == "never":
            return self.lose("reasoning", "the target takes no reasoning back")
        if not accepts(self.target, part.origin):
            maker = part.origin.provider or "somebody"
            return self.lose(
                "reasoning", f"reasoning by {maker} (model {part.origin.model}) is refused by others"
            )
        own = verbatim(part.native, NAME)
        if own is not None:
            return [own]  # type: ignore[list-item]  # never changed
        if part.redacted or part.encrypted or not (part.signature or part.origin.provider):
            return self.lose("reasoning", "only a thought of Gemini's own goes back to Gemini")
        return self._built(part, {"text": part.text, "thought": True}, _TEXT)

    def _call(self, part: ToolCall) -> list[Item]:
        if part.kind != "function":
            self.lose("call", f"a call of kind {part.kind!r} becomes a call of a function")
        body: Item = {"id": part.id} if part.id else {}
        body |= {"name": part.name, "args": arguments_object(part)}
        old = self._old(part, "functionCall", "function_call")
        body |= {key: value for key, value in old.items() if key not in _CALL_BODY}
        return self._built(part, {"functionCall": body}, _CALL_PART)

    def _old(self, part: Part, camel: str, snake: str) -> Mapping[str, Any]:
        if part.native is None or part.native.format != NAME:
            return {}
        old = either(part.native.value, camel, snake)
        return old if isinstance(old, Mapping) else {}

    def _result(self, part: ToolResult) -> list[Item]:
        """https://ai.google.dev/gemini-api/docs/function-calling: by name, and by id where the call has one."""
        body: Item = {"id": part.call_id} if part.call_id else {}
        body["name"] = part.name or self._name_of(part)
        old = self._old(part, "functionResponse", "function_response")
        if old and response_content(old, None, ORIGIN) == (part.content, part.is_error):
            body |= {key: old[key] for key in ("response", "parts") if key in old}
        else:
            self._answer(part, body)
        body |= {key: value for key, value in old.items() if key not in _RESPONSE_BODY}
        return self._built(part, {"functionResponse": body}, _RESPONSE_PART)

    def _answer(self, part: ToolResult, body: Item) -> None:
        """https://ai.google.dev/api/caching#FunctionResponse: an object; media stand beside it in `parts`."""
        said: list[str] = []
        media: list[Item] = []
        for inner in part.content:
            text = inner.text if isinstance(inner, Text | Refusal | File) else None
            if text is not None:
                said.append(text)
                continue
            for found in self._media(inner, nested=True) if isinstance(inner, Media) else self.part(inner):
                if "text" in found:
                    said.append(found["text"])
                else:
                    media.append(found)
        body["response"] = {"error" if part.is_error else "output": "\n".join(said)} if said else {}
        if media:
            body["parts"] = media

    def _name_of(self, result: ToolResult) -> str:
        """The name of the call that a result answers: of the nearest such call in the same turn.

        Of several calls with one id (or with none) each result answers the next.
        """
        before = 0
        position = self.index
        while position >= 0:
            message = self.messages[position]
            named = [call.name for call in message.calls if call.id == result.call_id]
            if named:
                return named[min(before, len(named) - 1)]
            if message.role == "user" and not message.joined and position != self.index:
                break
            for other in message.results:
                if other is result:
                    break
                before += other.call_id == result.call_id
            position -= 1
        self.lose("name", f"no call {result.call_id!r} tells the name of the function that answered")
        return "unknown"

    def _media(self, part: Any, *, nested: bool = False) -> list[Item]:
        """https://ai.google.dev/gemini-api/docs/file-input-methods: inline data, or the URI of a file.

        A function's response holds inline data only
        (https://ai.google.dev/gemini-api/docs/function-calling#multimodal).
        """
        own = verbatim(part.native, NAME)
        if own is not None:
            return [own]  # type: ignore[list-item]  # never changed
        kind = type(part).__name__.lower()
        part = inlined(part)
        if isinstance(part, Image) and part.detail not in (None, "auto"):
            self.lose("detail", f"Gemini has no such field for an image's detail ({part.detail!r})")
        fields: Item | None = None
        if part.data is not None:
            fields = {"inlineData": {"mimeType": media_type(part), "data": part.data}}
        elif isinstance(part, File) and part.text is not None:
            data = base64.b64encode(part.text.encode(errors="surrogatepass")).decode()
            fields = {"inlineData": {"mimeType": media_type(part), "data": data}}
        elif part.url is not None and not nested:
            fields = {"fileData": {"mimeType": media_type(part), "fileUri": part.url}}
        taken = self.target.tool_content == "media" if nested else kind in self.target.media
        if fields is None or not taken:
            self.lose(kind, f"the target cannot take this {kind} ({describe(part)})")
            return [{"text": placeholder(part)}]
        old = self._old(part, "inlineData", "inline_data") or self._old(part, "fileData", "file_data")
        (body,) = fields.values()
        body |= {key: value for key, value in old.items() if key not in _MEDIA_BODY}
        if isinstance(part, File) and part.name is not None and not old:
            self.lose("name", f"Gemini has no field for the name of a file ({part.name!r})")
        return self._built(part, fields, _MEDIA_PART)

    def _opaque(self, part: Opaque) -> list[Item]:
        if part.native is not None and part.native.format == NAME and accepts(self.target, part.origin):
            return [{**part.native.value}]
        return self.lose("opaque", f"an item of type {part.kind!r} is for its own provider only")


_PARTS: dict[type[Part], Callable[[_Writer, Any], list[Item]]] = {
    Text: _Writer._text,
    Refusal: _Writer._text,
    ToolCall: _Writer._call,
    ToolResult: _Writer._result,
    Image: _Writer._media,
    File: _Writer._media,
    Audio: _Writer._media,
    Opaque: _Writer._opaque,
}
