"""What a server's failure means: too long, refused, or worth another try. Decided from status, code and words alone.

It knows no client: whoever has one hands over a `Report`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from backstory.errors import ContextTooLong, ModelError, ModelRefused, ModelUnavailable


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """What a client knows of a failure.

    `status` is the HTTP status, `None` where no answer came, or where the failure came inside a stream. `code`
    and `kind` are the body's ``code`` and ``type``. `message` is for people. `body` is the error object.
    """

    message: str
    status: int | None = None
    code: str = ""
    kind: str = ""
    body: Mapping[str, Any] | None = None
    headers: Mapping[str, str] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class Failure:
    """The error to raise, whether the same request may be tried again, and how many seconds the server asks for."""

    error: ModelError
    retry: bool = False
    wait: float | None = None


@dataclass(frozen=True, slots=True)
class TooLong:
    """Words that say a request is longer than the window; the group `limit` where they tell it."""

    pattern: str
    source: str


# The more telling first: the first that matches gives the limit.
TOO_LONG: tuple[TooLong, ...] = (
    # OpenAI: "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens."
    # vLLM, DeepSeek, OpenRouter and many more use the same words.
    TooLong(
        r"maximum context length (?:is|of) (?:only )?(?P<limit>[\d,]+)", "openai, vllm, deepseek, openrouter"
    ),
    # vLLM: "You passed 5000 input tokens … However, the model's context length is only 4096 tokens"
    TooLong(
        r"context length (?:is|of) only (?P<limit>[\d,]+)",
        "https://github.com/vllm-project/vllm/pull/20119; lm studio",
    ),
    # vLLM: "The decoder prompt (length 5000) is longer than the maximum model length of 4096."
    TooLong(r"longer than the maximum model length of (?P<limit>[\d,]+)", "vllm"),
    # SGLang: "The input (5000 tokens) is longer than the model's context length (4096 tokens)."
    TooLong(r"longer than the model's context length \((?P<limit>[\d,]+)", "sglang"),
    # OpenAI Responses: "Your input exceeds the context window of this model."
    TooLong(r"exceeds the context window", "https://platform.openai.com/docs/guides/error-codes"),
    # Anthropic: "prompt is too long: 210000 tokens > 200000 maximum"
    TooLong(
        r"prompt is too long(?:: [\d,]+ tokens > (?P<limit>[\d,]+))?",
        "https://docs.anthropic.com/en/api/errors",
    ),
    # Anthropic: "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease …"
    TooLong(
        r"input length and `max_tokens` exceed context limit: [\d,]+ \+ [\d,]+ > (?P<limit>[\d,]+)",
        "https://docs.anthropic.com/en/docs/build-with-claude/context-windows",
    ),
    # Gemini: "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576)."
    TooLong(
        r"input token count.{0,40}exceeds the maximum number of (?:input )?tokens allowed \(?(?P<limit>[\d,]+)?",
        "https://ai.google.dev/gemini-api/docs/troubleshooting",
    ),
    # llama.cpp: "request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it";
    # older: "the request exceeds the available context size. try increasing the context size or enable context shift"
    TooLong(
        r"exceeds the available context size(?: \((?P<limit>[\d,]+))?",
        "https://github.com/ggml-org/llama.cpp/pull/15780",
    ),
    TooLong(r"context size has been exceeded", "https://github.com/ggml-org/llama.cpp/issues/19774"),
    # llama-cpp-python: "Requested tokens (2285) exceed context window of 2048"
    TooLong(r"exceed context window of (?P<limit>[\d,]+)", "https://github.com/abetlen/llama-cpp-python"),
    # Ollama: "prompt too long; exceeded max context length by 12 tokens", "the input length exceeds the context length"
    TooLong(
        r"prompt too long; exceeded",
        "https://github.com/ollama/ollama/blob/main/runner/ollamarunner/runner.go",
    ),
    TooLong(
        r"input length exceeds (?:the |maximum )*context length",
        "https://github.com/ollama/ollama/issues/8099",
    ),
    # LM Studio: "greater than the context length (n_keep: 6000>= n_ctx: 4096)"
    TooLong(r"greater than the context length(?:.{0,40}n_ctx: (?P<limit>[\d,]+))?", "lm studio"),
    # Qwen on Model Studio: "Range of input length should be [1, 30720]"
    TooLong(
        r"range of input length should be \[\d+, ?(?P<limit>\d+)\]",
        "https://github.com/QwenLM/qwen-code/issues/98",
    ),
    # Mistral: "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length"
    TooLong(r"too large for model with (?P<limit>[\d,]+) maximum context length", "mistral"),
    # xAI: "This model's maximum prompt length is 131072 but the request contains 537812 tokens."
    TooLong(r"maximum prompt length is (?P<limit>[\d,]+)", "xai"),
    # Moonshot: "Invalid request: Your request exceeded model token limit: 8192"
    TooLong(r"exceeded model token limit(?:: (?P<limit>[\d,]+))?", "moonshot"),
    # GitHub Copilot: "prompt token count of 130000 exceeds the limit of 128000"
    TooLong(r"prompt token count of [\d,]+ exceeds the limit of (?P<limit>[\d,]+)", "github copilot"),
    # TGI: "`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens and …"
    TooLong(
        r"`?inputs`? tokens \+ `?max_new_tokens`? must be <= (?P<limit>\d+)",
        "https://github.com/huggingface/text-generation-inference/blob/main/router/src/validation.rs",
    ),
    # OpenAI, per minute: "Request too large for gpt-4o … on tokens per min (TPM): Limit 30000, Requested 40000": more
    # than a minute may hold will never go through, a shorter one will.
    TooLong(r"request too large for .{0,200}limit:? (?P<limit>[\d,]+), requested", "openai rate limits"),
    TooLong(r"input is too long for requested model", "bedrock"),
    TooLong(r"reduce the length of the (?:messages|prompt)", "groq"),
    TooLong(r"prompt exceeds max(?:imum)? (?:context )?length", "zhipu"),
    TooLong(r"context window exceeds limit", "minimax"),
    TooLong(r"超过(?:了)?(?:模型)?(?:的)?最大(?:上下文)?长度", "zhipu, baichuan"),
)
_TOO_LONG = [re.compile(row.pattern, re.IGNORECASE | re.DOTALL) for row in TOO_LONG]
_TOO_LONG_CODES = frozenset(
    {
        "context_length_exceeded",
        "exceed_context_size_error",
        "model_max_prompt_tokens_exceeded",
        "request_too_large",
        "string_above_max_length",
    }
)
_LIMIT_FIELDS = ("n_ctx", "max_model_len", "context_window")

# A status, or what stands for one inside a stream, where the answer's own status was 200.
_RETRY_STATUS = frozenset({408, 409, 425, 429})
_REFUSED_WORDS = frozenset(
    {"invalid_request_error", "authentication_error", "permission_error", "not_found_error", "billing_error"}
)
# 429 for somebody who has not paid is not too many requests: https://platform.openai.com/docs/guides/error-codes.
_HOPELESS = re.compile(
    r"insufficient_quota|exceeded your current quota|billing|credit balance|insufficient balance|余额不足",
    re.IGNORECASE,
)
# A chat template that raises gives status 500, every time: https://github.com/ggml-org/llama.cpp/issues/12279.
_TEMPLATE = re.compile(r"jinja|chat template|conversation roles must alternate", re.IGNORECASE)


def understand(report: Report) -> Failure:
    """What a failure means."""
    words = f"{report.code} {report.kind} {report.message}"
    limit = too_long(report)
    status = report.status if report.status is None or report.status >= 400 else None
    shown = _shown(report, status)
    if limit is not None and status not in (401, 403, 404):
        return Failure(error=ContextTooLong(shown, limit=limit or None))
    if _HOPELESS.search(words) or _TEMPLATE.search(report.message):
        return Failure(error=ModelRefused(shown))
    if _may_retry(report, status):
        return Failure(error=ModelUnavailable(shown), retry=True, wait=_retry_after(report.headers))
    return Failure(error=ModelRefused(shown))


def too_long(report: Report) -> int | None:
    """The limit in tokens, 0 where it is too long and the limit is not told, `None` where this is something else."""
    for pattern in _TOO_LONG:
        found = pattern.search(report.message)
        if found:
            digits = found.groupdict().get("limit")
            return int(digits.replace(",", "")) if digits else _limit_field(report.body)
    if report.status == 413 or _TOO_LONG_CODES & {report.code, report.kind}:
        return _limit_field(report.body)
    return None


def _limit_field(body: Mapping[str, Any] | None) -> int:
    for field in _LIMIT_FIELDS:
        value = body.get(field) if body else None
        if isinstance(value, int) and not isinstance(value, bool):
            return value
    return 0


def _may_retry(report: Report, status: int | None) -> bool:
    asked = (report.headers or {}).get(
        "x-should-retry"
    )  # sent by OpenAI and Anthropic, and heeded by their SDKs
    if asked in ("true", "false"):
        return asked == "true"
    if status is None and report.code.isdigit():
        status = int(report.code)  # many servers put the status into the error inside a stream
    if status is not None:
        return status in _RETRY_STATUS or status >= 500
    # Without a status: no answer came at all, or a stream broke; both pass more often than not.
    return not _REFUSED_WORDS & {report.code, report.kind}


def _retry_after(headers: Mapping[str, str] | None) -> float | None:
    """Seconds; a date is not read, since it needs the server's clock.

    https://www.rfc-editor.org/rfc/rfc9110#field.retry-after; `retry-after-ms` is OpenAI's.
    """
    for name, unit in (("retry-after-ms", 1000.0), ("retry-after", 1.0)):
        try:
            value = float((headers or {}).get(name, "")) / unit
        except ValueError:
            continue
        if 0 <= value < float("inf"):
            return value
    return None


def _shown(report: Report, status: int | None) -> str:
    head = " ".join(str(word) for word in (status, report.code or report.kind) if word)
    message = report.message.strip() or "no message"
    if len(message) > 2_000:
        message = f"{message[:2_000]} …"
    return f"{head}: {message}" if head and not message.startswith(head) else message
