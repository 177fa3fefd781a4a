"""Random histories in every wire format: legal ones, and broken ones with everything that is seen in the wild.

A history is made of events that no format knows (a system text, the user's words, a step's response, a result, an
answer), which are broken by `FAULTS`, rendered for a format, and broken again as items. All draws come from the
`random.Random` that is passed in, so that a seed gives a history back, and hypothesis (`tests.strategies`) shrinks it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from random import Random
from typing import Any

Event = dict[str, Any]
Item = dict[str, Any]

FORMATS = ("openai_chat", "openai_responses", "anthropic", "gemini")

WORDS = (
    "Where is my order?", "两个茶罐在哪里？", "Thanks!", "请把昨天的会议纪要发给我，谢谢。", "ok", "0", "naïve café ☕️",
    "<|endoftext|> is only text", "Line one\nline two", "第一步：打开设置。\n第二步：保存。",
    "👩‍👩‍👧 says hi", "a" * 300,
)  # fmt: skip
ODD_WORDS = ("", " ", "\n\t", "half a pair \ud83d", "\udc00", "tail  ", "\u3000", "\x00\x07")
NAMES = ("lookup_stock", "search", "get_weather", "run-code", "f")
ODD_NAMES = ("", "look up stock", "查询库存", "a" * 200, "mcp:server.tool/v2", "9lives", "x.y", "na\ud800me")
ARGUMENTS = (
    "{}",
    '{"item":"tea"}',
    '{"城市": "北京", "n": [1, 2, {"x": null}]}',
    '{"text":"a \\"quoted\\" word"}',
)
ODD_ARGUMENTS = (
    "", " ", "null", "[]", '"text"', '{"item": "te', "{'item': 'tea', 'n': None}", '{"a": NaN}', '{"a": 1e999}',
    '```json\n{"a": 1}\n```', '{"a": "\\ud800"}', '{"a": "raw\nline"}', "{" * 5, "not json at all", '{"a":1}{"b":2}',
    '"{\\"a\\": 1}"', "[" * 1200, '{"k":' * 400 + "1" + "}" * 400, '{"a": 1,}', '{"a": tru',
)  # fmt: skip
ODD_IDS = ("", "call:1", "toolu 01", "x" * 80, "调用", "a.b", "a_b", "call\ud800", "0")
PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNgYAAAAAMAASsJTYQAAAAASUVORK5CYII="


class Maker:
    """One history under way: the random numbers, and counters that keep texts and ids apart."""

    def __init__(self, rng: Random, format: str, *, legal: bool) -> None:
        self.rng = rng
        self.format = format
        self.legal = legal
        self.results = 0
        self.ids = 0
        self.items = 0
        self.numbered = rng.random() < 0.15 and not (legal and format in ("anthropic", "openai_responses"))

    def chance(self, share: float) -> bool:
        return self.rng.random() < share

    def odd(self, share: float = 0.06) -> bool:
        return not self.legal and self.rng.random() < share

    def pick(self, values: Any) -> Any:
        return values[self.rng.randrange(len(values))]

    def item_id(self, prefix: str) -> str:
        self.items += 1
        return f"{prefix}_{self.rng.randrange(self.items) if self.odd(0.03) else self.items}"

    def words(self) -> str:
        return str(self.pick(ODD_WORDS) if self.odd(0.08) else self.pick(WORDS))

    # --- events ----------------------------------------------------------------------------

    def events(self) -> list[Event]:
        found: list[Event] = [
            self.system() for _ in range(self.pick((0, 1, 1, 1) if self.legal else (0, 1, 1, 2, 3)))
        ]
        if self.legal and self.format != "openai_responses":
            found = found[:1]
        turns = self.pick((1, 1, 2, 2, 3, 4))
        for number in range(turns):
            found.append(self.user())
            for _ in range(self.pick((0, 0, 1, 1, 2, 3))):
                found += self.step(number)
            if number < turns - 1 or self.chance(0.5):
                found.append({"kind": "answer", "text": self.words(), "reasoning": self.reasoning()})
        return found

    def system(self) -> Event:
        role = "developer" if self.chance(0.2) and self.format.startswith("openai") else "system"
        return {"kind": "system", "role": role, "text": self.words(), "parts": self.chance(0.3)}

    def user(self) -> Event:
        media = [
            self.pick(("image", "image_url", "audio", "file")) for _ in range(self.pick((0, 0, 0, 0, 1, 2)))
        ]
        name = None
        if self.format == "openai_chat" and self.chance(0.1):
            name = (
                self.pick(("alice", "Bob_2"))
                if not self.odd(0.5)
                else self.pick(("Tea Keeper", "茶", "x" * 90, ""))
            )
        parts = bool(media) or self.chance(0.3)
        return {"kind": "user", "text": self.words(), "media": media, "parts": parts, "name": name}

    def reasoning(self) -> Event | None:
        if self.chance(0.7):
            return None
        kinds = (
            ("signed", "redacted")
            if self.legal
            else ("signed", "redacted", "unsigned", "encrypted", "foreign")
        )
        return {
            "kind": self.pick(kinds),
            "text": self.words() or "hm",
            "signature": f"SIG{self.rng.randrange(99)}",
        }

    def step(self, turn: int) -> list[Event]:
        calls = [self.call(number) for number in range(self.pick((1, 1, 1, 2, 2, 3)))]
        text = self.words() if self.chance(0.3) else ""
        response = {"kind": "step", "calls": calls, "text": text, "reasoning": self.reasoning()}
        return [response, *(self.result(call) for call in calls)]

    def call(self, number: int) -> Event:
        self.ids += 1
        call_id = f"call_{number}" if self.numbered else f"call_{self.ids}"
        if self.odd():
            call_id = self.pick(ODD_IDS)
        elif self.odd(0.05):
            call_id = f"call_{self.rng.randrange(1, self.ids + 1)}"
        kind = "custom" if self.format.startswith("openai") and self.chance(0.12) else "function"
        if self.format == "openai_responses" and self.chance(0.08):
            kind = self.pick(("shell_call", "local_shell_call", "apply_patch_call", "computer_call"))
        name = self.pick(ODD_NAMES) if self.odd() else self.pick(NAMES)
        arguments = self.pick(ODD_ARGUMENTS) if self.odd(0.12) else self.pick(ARGUMENTS)
        return {"id": call_id, "name": name, "arguments": arguments, "kind": kind}

    def result(self, call: Event) -> Event:
        self.results += 1
        text = f"{self.words()} <r{self.results}>"
        if self.odd():
            text = self.pick(ODD_WORDS)
        media = self.chance(0.08) and self.format != "openai_chat"
        parts = media or self.chance(0.2)
        return {
            "kind": "result",
            "call": call,
            "text": text,
            "media": media,
            "parts": parts,
            "error": self.chance(0.1),
        }


# --- faults of order and pairing -----------------------------------------------------------


def _drop(maker: Maker, events: list[Event]) -> None:
    if events:
        del events[maker.rng.randrange(len(events))]


def _drop_result(maker: Maker, events: list[Event]) -> None:
    places = [i for i, event in enumerate(events) if event["kind"] == "result"]
    if places:
        del events[maker.pick(places)]


def _late(maker: Maker, events: list[Event]) -> None:
    """A result somewhere after its place, or (an orphan then) before it."""
    places = [i for i, event in enumerate(events) if event["kind"] == "result"]
    if places:
        event = events.pop(maker.pick(places))
        events.insert(maker.rng.randrange(len(events) + 1), event)


def _swap(maker: Maker, events: list[Event]) -> None:
    if len(events) > 1:
        index = maker.rng.randrange(len(events) - 1)
        events[index], events[index + 1] = events[index + 1], events[index]


def _duplicate(maker: Maker, events: list[Event]) -> None:
    places = [i for i, event in enumerate(events) if event["kind"] == "result"]
    if places:
        event = dict(events[maker.pick(places)])
        if maker.chance(0.7):
            maker.results += 1
            event["text"] = f"again <r{maker.results}>"
        if maker.chance(0.3):
            event |= {
                "text": "[This call was interrupted; its outcome is unknown: it may or may not have taken effect.]"
            }
        events.insert(maker.rng.randrange(len(events) + 1), event)


def _orphan(maker: Maker, events: list[Event]) -> None:
    call = {"id": f"gone_{maker.rng.randrange(9)}", "name": "gone", "arguments": "{}", "kind": "function"}
    events.insert(maker.rng.randrange(len(events) + 1), maker.result(call))


def _interject(maker: Maker, events: list[Event]) -> None:
    made = maker.pick(
        (maker.user, maker.system, lambda: {"kind": "answer", "text": maker.words(), "reasoning": None})
    )
    events.insert(maker.rng.randrange(len(events) + 1), made())


def _other_id(maker: Maker, events: list[Event]) -> None:
    results = [event for event in events if event["kind"] == "result"]
    if results:
        event = maker.pick(results)
        event["call"] = {**event["call"], "id": maker.pick((*ODD_IDS, "call_1", "call_0"))}


def _only_results(maker: Maker, events: list[Event]) -> None:
    if maker.chance(0.1):
        events[:] = [event for event in events if event["kind"] in ("result", "system")]


def _cut(maker: Maker, events: list[Event]) -> None:
    del events[: maker.rng.randrange(len(events) + 1)]


FAULTS: tuple[Callable[[Maker, list[Event]], None], ...] = (
    _drop, _drop_result, _late, _late, _swap, _duplicate, _orphan, _interject, _other_id, _only_results, _cut,
)  # fmt: skip


# --- rendering -----------------------------------------------------------------------------


def _chat(maker: Maker, events: list[Event]) -> list[Item]:
    items: list[Item] = []
    for event in events:
        kind = event["kind"]
        if kind == "system":
            content: Any = [{"type": "text", "text": event["text"]}] if event["parts"] else event["text"]
            items.append({"role": event["role"], "content": content})
        elif kind == "user":
            content = event["text"]
            if event["parts"]:
                content = [{"type": "text", "text": event["text"]}, *map(_chat_media, event["media"])]
            item = {"role": "user", "content": content}
            items.append(item if event["name"] is None else {**item, "name": event["name"]})
        elif kind == "result":
            content = [{"type": "text", "text": event["text"]}] if event["parts"] else event["text"]
            items.append({"role": "tool", "tool_call_id": event["call"]["id"], "content": content})
        else:
            item = {"role": "assistant", "content": event["text"]}
            if kind == "step":
                item["content"] = event["text"] or maker.pick((None, None, "")) or None
                item["tool_calls"] = [_chat_call(call) for call in event["calls"]]
            elif maker.chance(0.08):
                item |= {"content": None, "refusal": event["text"] or "no"}
            if event["reasoning"]:
                item["reasoning_content"] = event["reasoning"]["text"]
            items.append(item)
    return items


def _chat_call(call: Event) -> Item:
    if call["kind"] == "custom":
        return {
            "id": call["id"],
            "type": "custom",
            "custom": {"name": call["name"], "input": call["arguments"]},
        }
    function = {"name": call["name"], "arguments": call["arguments"]}
    return {"id": call["id"], "type": "function", "function": function}


def _chat_media(kind: str) -> Item:
    if kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
    if kind == "file":
        return {
            "type": "file",
            "file": {"file_data": f"data:application/pdf;base64,{PNG}", "filename": "a.pdf"},
        }
    url = "https://example.com/a.png" if kind == "image_url" else f"data:image/png;base64,{PNG}"
    return {"type": "image_url", "image_url": {"url": url}}


def _responses(maker: Maker, events: list[Event]) -> list[Item]:
    items: list[Item] = []
    for event in events:
        kind = event["kind"]
        if kind in ("system", "user"):
            role = event["role"] if kind == "system" else "user"
            content: Any = event["text"]
            if event["parts"]:
                content = [{"type": "input_text", "text": event["text"]}]
                content += [_responses_media(each) for each in event.get("media", ())]
            items.append({"type": "message", "role": role, "content": content})
        elif kind == "result":
            items.append(_responses_output(event))
        else:
            reasoning = event["reasoning"]
            if reasoning:
                items.append(_responses_reasoning(maker, reasoning))
            if event["text"] or kind == "answer":
                part = {"type": "output_text", "text": event["text"], "annotations": []}
                item = {"type": "message", "role": "assistant", "content": [part], "status": "completed"}
                items.append({**item, "id": maker.item_id("msg")})
            items += [_responses_call(maker, call) for call in event.get("calls", ())]
    return items


def _responses_reasoning(maker: Maker, reasoning: Event) -> Item:
    item: Item = {"type": "reasoning", "id": maker.item_id("rs"), "summary": []}
    if reasoning["kind"] == "unsigned":
        item["summary"] = [{"type": "summary_text", "text": reasoning["text"]}]
    else:
        item["encrypted_content"] = "OPAQUE"
    return item


def _responses_call(maker: Maker, call: Event) -> Item:
    kind, call_id = call["kind"], call["id"]
    item_id = {"id": maker.item_id("fc")} if maker.chance(0.5) else {}
    if kind == "function":
        return {
            "type": "function_call",
            **item_id,
            "call_id": call_id,
            "name": call["name"],
            "arguments": call["arguments"],
        }
    if kind == "custom":
        return {
            "type": "custom_tool_call",
            "call_id": call_id,
            "name": call["name"],
            "input": call["arguments"],
        }
    action = {"type": "exec", "command": ["ls"]}
    field = "operation" if kind == "apply_patch_call" else "action"
    return {
        "type": kind,
        "id": maker.item_id("sh"),
        "call_id": call_id,
        "status": "completed",
        field: action,
    }


def _responses_output(event: Event) -> Item:
    kind, call_id = event["call"]["kind"], event["call"]["id"]
    if kind in ("function", "custom"):
        output: Any = event["text"]
        if event["parts"]:
            output = [{"type": "input_text", "text": event["text"]}]
            output += [_responses_media("image")] if event["media"] else []
        type_name = "function_call_output" if kind == "function" else "custom_tool_call_output"
        return {"type": type_name, "call_id": call_id, "output": output}
    if kind == "shell_call":
        chunk = {"stdout": event["text"], "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}
        return {"type": "shell_call_output", "call_id": call_id, "output": [chunk]}
    if kind == "local_shell_call":
        return {"type": "local_shell_call_output", "id": call_id, "output": event["text"]}
    if kind == "apply_patch_call":
        return {
            "type": "apply_patch_call_output",
            "call_id": call_id,
            "status": "completed",
            "output": event["text"],
        }
    screenshot = {"type": "computer_screenshot", "image_url": f"data:image/png;base64,{PNG}"}
    return {"type": "computer_call_output", "call_id": call_id, "output": screenshot}


def _responses_media(kind: str) -> Item:
    if kind == "file":
        return {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"}
    if kind == "audio":
        return {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}}
    return {"type": "input_image", "image_url": f"data:image/png;base64,{PNG}", "detail": "auto"}


def _anthropic(maker: Maker, events: list[Event]) -> list[Item]:
    items: list[Item] = []
    for event in events:
        kind = event["kind"]
        if kind == "system":
            if maker.legal:
                continue
            items.append({"role": "system", "content": event["text"]})
        elif kind == "user":
            content: Any = event["text"]
            if event["parts"]:
                content = [*map(_anthropic_media, event["media"]), {"type": "text", "text": event["text"]}]
            if items and _holds_results(items[-1]) and maker.chance(0.5):
                items[-1]["content"] += (
                    content if isinstance(content, list) else [{"type": "text", "text": content}]
                )
            else:
                items.append({"role": "user", "content": content})
        elif kind == "result":
            block = {"type": "tool_result", "tool_use_id": event["call"]["id"], "content": event["text"]}
            if event["parts"]:
                block["content"] = [{"type": "text", "text": event["text"]}]
                block["content"] += [_anthropic_media("image")] if event["media"] else []
            if event["error"]:
                block["is_error"] = True
            if items and _holds_results(items[-1]) and (maker.legal or maker.chance(0.7)):
                items[-1]["content"].append(block)
            else:
                items.append({"role": "user", "content": [block]})
        else:
            blocks = _anthropic_thinking(event["reasoning"])
            if event["text"]:
                blocks.append({"type": "text", "text": event["text"]})
            blocks += [_anthropic_call(maker, call) for call in event.get("calls", ())]
            items.append({"role": "assistant", "content": blocks})
    if maker.chance(0.3):
        held = [block for item in items if isinstance(item["content"], list) for block in item["content"]]
        for block in maker.rng.sample(held, min(len(held), 3 if maker.legal else 7)):
            if not (maker.legal and block["type"] in ("thinking", "redacted_thinking")):
                block["cache_control"] = {"type": "ephemeral"}
    return items


def _holds_results(item: Item) -> bool:
    content = item["content"]
    return isinstance(content, list) and any(block.get("type") == "tool_result" for block in content)


def _anthropic_thinking(reasoning: Event | None) -> list[Item]:
    if not reasoning:
        return []
    if reasoning["kind"] == "redacted":
        return [{"type": "redacted_thinking", "data": "BLOB"}]
    block = {"type": "thinking", "thinking": reasoning["text"]}
    return [block if reasoning["kind"] == "unsigned" else {**block, "signature": reasoning["signature"]}]


def _anthropic_call(maker: Maker, call: Event) -> Item:
    return {"type": "tool_use", "id": call["id"], "name": call["name"], "input": _object(call["arguments"])}


def _object(arguments: str) -> Any:
    """What a format that holds objects has for such arguments; broken ones are sometimes text."""
    try:
        return json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments


def _anthropic_media(kind: str) -> Item:
    if kind == "file":
        return {
            "type": "document",
            "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
        }
    if kind == "image_url":
        return {"type": "image", "source": {"type": "url", "url": "https://example.com/a.png"}}
    return {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}


def _gemini(maker: Maker, events: list[Event]) -> list[Item]:
    items: list[Item] = []
    with_ids = maker.chance(0.5)
    for event in events:
        kind = event["kind"]
        if kind == "system":
            if not maker.legal:
                items.append({"role": "user", "parts": [{"text": event["text"]}]})
        elif kind == "user":
            parts = [{"text": event["text"]}, *map(_gemini_media, event["media"])]
            items.append({"role": "user", "parts": parts})
        elif kind == "result":
            call = event["call"]
            body: Item = {"id": call["id"]} if with_ids else {}
            body |= {
                "name": call["name"],
                "response": {"error" if event["error"] else "output": event["text"]},
            }
            if event["media"]:
                body["parts"] = [{"inlineData": {"mimeType": "image/png", "data": PNG}}]
            if items and _has_responses(items[-1]) and (maker.legal or maker.chance(0.8)):
                items[-1]["parts"].append({"functionResponse": body})
            else:
                items.append({"role": "user", "parts": [{"functionResponse": body}]})
        else:
            items.append({"role": "model", "parts": _gemini_parts(maker, event, with_ids)})
    return items


def _gemini_parts(maker: Maker, event: Event, with_ids: bool) -> list[Item]:
    parts: list[Item] = []
    reasoning = event["reasoning"]
    signature = {"thoughtSignature": reasoning["signature"]} if reasoning else {}
    if reasoning and reasoning["kind"] != "encrypted":
        parts.append({"text": reasoning["text"], "thought": True})
    if event["text"]:
        parts.append({"text": event["text"]})
    for number, call in enumerate(event.get("calls", ())):
        body = {"id": call["id"]} if with_ids else {}
        body |= {"name": call["name"], "args": _object(call["arguments"])}
        parts.append({"functionCall": body, **(signature if number == 0 else {})})
    return parts


def _has_responses(item: Item) -> bool:
    return any("functionResponse" in part for part in item["parts"])


def _gemini_media(kind: str) -> Item:
    mime = {"audio": "audio/wav", "file": "application/pdf"}.get(kind, "image/png")
    if kind == "image_url":
        return {"fileData": {"mimeType": mime, "fileUri": "https://example.com/a.png"}}
    return {"inlineData": {"mimeType": mime, "data": PNG}}


_RENDER: dict[str, Callable[[Maker, list[Event]], list[Item]]] = {
    "openai_chat": _chat,
    "openai_responses": _responses,
    "anthropic": _anthropic,
    "gemini": _gemini,
}


# --- faults of single items ----------------------------------------------------------------


def _break_item(maker: Maker, item: Item) -> None:
    """Something that a lenient reader takes, and the API does not, or not always."""
    fault = maker.rng.randrange(9)
    field = "parts" if maker.format == "gemini" else "content"
    if fault == 0:
        item["x_unknown"] = maker.pick((float("nan"), "\ud800", {"deep": [1, float("inf")]}, None, 7))
    elif fault == 1 and field in item:
        item[field] = maker.pick(([], None, "", []) if field == "content" else ([], None))
    elif fault == 2 and isinstance(item.get(field), list) and item[field]:
        item[field].append(
            maker.pick(({"type": "mystery", "x": 1}, {"type": "text", "text": ""}, {"type": "text"}))
        )
    elif fault == 3 and item.get("role") == "assistant" and maker.format == "openai_chat":
        item.update(
            maker.pick(
                ({"tool_calls": None}, {"tool_calls": []}, {"refusal": None, "audio": None}, {"refusal": ""})
            )
        )
    elif fault == 4 and isinstance(item.get("tool_calls"), list) and item["tool_calls"]:
        maker.pick(item["tool_calls"]).update(
            maker.pick(({"type": None}, {"id": None}, {"id": 7}, {"type": "mystery"}))
        )
    elif fault == 5 and isinstance(item.get("tool_calls"), list) and len(item["tool_calls"]) == 1:
        call = item.pop("tool_calls")[0]
        item["function_call"] = call.get("function", {"name": "f", "arguments": "{}"})
    elif fault == 6 and item.get("role") == "tool":
        item.update(
            maker.pick(({"role": "function", "name": "search"}, {"tool_call_id": None}, {"name": "look up"}))
        )
    elif fault == 7 and isinstance(item.get(field), list):
        item[field].reverse()
    elif fault == 8 and item.get("role") in ("user", "assistant", "model"):
        other = {"user": "model" if field == "parts" else "assistant"}.get(item["role"], "user")
        item["role"] = other


def history(rng: Random, format: str, *, legal: bool = False) -> list[Item]:
    """A list of messages in a wire format. A legal one is so for that format's own preset."""
    maker = Maker(rng, format, legal=legal)
    events = maker.events()
    if legal:
        return _RENDER[format](maker, _legal_for(format, events))
    for _ in range(maker.pick((0, 1, 1, 2, 2, 3, 4))):
        maker.pick(FAULTS)(maker, events)
    items = copy.deepcopy(_RENDER[format](maker, events))
    for item in items:
        if maker.chance(0.06):
            _break_item(maker, item)
    return items


def _legal_for(format: str, events: list[Event]) -> list[Event]:
    """A strict chat server takes no user message after a result: in legal histories each is answered first."""
    found: list[Event] = []
    for event in events:
        if event["kind"] == "user" and found and found[-1]["kind"] in ("result", "user"):
            found.append({"kind": "answer", "text": "Done.", "reasoning": None})
        found.append(event)
    if (
        format == "openai_chat"
    ):  # an assistant message follows a step's results, never another assistant message
        return [e for i, e in enumerate(found) if not (i and e["kind"] == "answer" == found[i - 1]["kind"])]
    return found
