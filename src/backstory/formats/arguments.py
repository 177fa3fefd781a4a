"""A call's arguments between a text, which may be broken, and an object, which some APIs want.

It never raises on writing and mends nothing: `backstory.legality.repair` does that.
"""

from __future__ import annotations

import json
from typing import Any

from backstory.errors import InvalidMessage
from backstory.messages import ToolCall


def arguments_text(value: Any, *, absent: str, index: int | None) -> str:
    """Arguments that were read, as text: an object as compact JSON, a text as it is, `absent` for none.

    Raises `InvalidMessage` for what is not JSON at all.
    """
    if isinstance(value, str):
        return value
    if value is None:
        return absent
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidMessage(f"the arguments of a call are not JSON ({error})", index=index) from None


def arguments_object(call: ToolCall) -> dict[str, Any]:
    """The arguments as an object; what is none goes verbatim into one of a single field."""
    if call.kind == "custom":
        return {"input": call.arguments}
    if not call.arguments.strip():
        return {}
    try:
        value = json.loads(call.arguments, parse_constant=_refuse)
    except (ValueError, RecursionError):
        value = None
    return value if isinstance(value, dict) else {"_arguments": call.arguments}


def _refuse(constant: str) -> Any:
    """https://www.rfc-editor.org/rfc/rfc8259#section-6: NaN and Infinity are no JSON."""
    raise ValueError(f"{constant} is no JSON")
