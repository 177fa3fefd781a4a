"""What a server's failure means, by its own words; and how retries wait."""

import pytest

from backstory.errors import ContextTooLong, ModelRefused, ModelUnavailable
from backstory.models.failures import TOO_LONG, Failure, Report, too_long, understand
from backstory.models.retry import Retry
from backstory.models.sdk import report_of

# What servers say, and the limit that they tell.
SAID = [
    (
        "This model's maximum context length is 128000 tokens. However, your messages resulted in 130000 tokens.",
        128_000,
    ),
    ("This model's maximum context length is 4,096 tokens. However, you requested 5000 tokens", 4_096),
    (
        "'max_tokens' is too large: 2000. This model's maximum context length is 4096 tokens and your request",
        4_096,
    ),
    (
        "This endpoint's maximum context length is 131072 tokens. However, you requested about 140000 tokens",
        131_072,
    ),
    ("You passed 5000 input tokens. However, the model's context length is only 4096 tokens", 4_096),
    ("The decoder prompt (length 5000) is longer than the maximum model length of 4096.", 4_096),
    ("The input (5000 tokens) is longer than the model's context length (4096 tokens).", 4_096),
    ("Your input exceeds the context window of this model. Please adjust your input and try again.", 0),
    ("prompt is too long: 210000 tokens > 200000 maximum", 200_000),
    (
        "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000, decrease input length",
        200_000,
    ),
    ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
    ("The input token count exceeds the maximum number of tokens allowed 1048576.", 1_048_576),
    ("request (4390 tokens) exceeds the available context size (4096 tokens), try increasing it", 4_096),
    (
        "the request exceeds the available context size. try increasing the context size or enable context shift",
        0,
    ),
    ("Context size has been exceeded.", 0),
    ("Requested tokens (2285) exceed context window of 2048", 2_048),
    ("prompt too long; exceeded max context length by 12 tokens", 0),
    ("the input length exceeds the context length", 0),
    ("input length exceeds maximum context length", 0),
    ("The number of tokens to keep is greater than the context length (n_keep: 6000>= n_ctx: 4096)", 4_096),
    ("However, the model is loaded with context length of only 4096 tokens", 4_096),
    ("<400> InternalError.Algo.InvalidParameter: Range of input length should be [1, 30720]", 30_720),
    (
        "Prompt contains 40000 tokens and 0 draft tokens, too large for model with 32768 maximum context length",
        32_768,
    ),
    ("This model's maximum prompt length is 131072 but the request contains 537812 tokens.", 131_072),
    ("Invalid request: Your request exceeded model token limit: 8192", 8_192),
    ("prompt token count of 130000 exceeds the limit of 128000", 128_000),
    ("`inputs` tokens + `max_new_tokens` must be <= 4096. Given: 5000 `inputs` tokens", 4_096),
    ("Request too large for gpt-4o on tokens per min (TPM): Limit 30000, Requested 40000.", 30_000),
    ("Input is too long for requested model.", 0),
    ("Please reduce the length of the messages or completion.", 0),
    ("Prompt exceeds max length", 0),
    ("invalid params, context window exceeds limit (2013)", 0),
    ("输入超过了模型的最大长度", 0),
    ("Rate limit reached for requests", None),
    ("Invalid value for 'max_tokens'", None),
    ("The image is too large", None),
    ("string too long. Expected a string with maximum length 40", None),
]


@pytest.mark.parametrize(("message", "limit"), SAID)
def test_too_long(message: str, limit: int | None):
    assert too_long(Report(message=message, status=400)) == limit
    error = understand(Report(message=message, status=400)).error
    if limit is None:
        assert isinstance(error, ModelRefused)
    else:
        assert isinstance(error, ContextTooLong)
        assert error.limit == (limit or None)


def test_every_row_of_the_table_is_met_by_an_example():
    import re

    said = [message for message, limit in SAID if limit is not None]
    assert all(row.source for row in TOO_LONG)
    idle = [
        row.pattern for row in TOO_LONG if not any(re.search(row.pattern, m, re.IGNORECASE) for m in said)
    ]
    assert not idle


def test_codes_and_fields_tell_it_too():
    body = {"n_prompt_tokens": 1407, "n_ctx": 256}
    report = Report(message="no", status=500, kind="exceed_context_size_error", body=body)
    assert too_long(report) == 256
    assert too_long(Report(message="no", status=413)) == 0
    assert too_long(Report(message="no", status=400, code="context_length_exceeded")) == 0


@pytest.mark.parametrize(
    ("report", "cls", "retry"),
    [
        (Report(message="x", status=None), ModelUnavailable, True),
        (Report(message="x", status=200, kind="overloaded_error"), ModelUnavailable, True),
        (Report(message="x", status=200, kind="invalid_request_error"), ModelRefused, False),
        (Report(message="x", code="503"), ModelUnavailable, True),
        (Report(message="x", code="400"), ModelRefused, False),
        (Report(message="x", status=404), ModelRefused, False),
        (Report(message="maximum context length is 5 tokens", status=401), ModelRefused, False),
        (Report(message="x", status=429), ModelUnavailable, True),
        (Report(message="余额不足", status=429), ModelRefused, False),
        (Report(message="x", status=400, headers={"x-should-retry": "true"}), ModelUnavailable, True),
        (Report(message="x" * 5_000, status=500), ModelUnavailable, True),
    ],
)
def test_what_may_be_tried_again(report: Report, cls: type, retry: bool):
    failure = understand(report)
    assert (type(failure.error), failure.retry) == (cls, retry)
    assert len(str(failure.error)) < 2_100


@pytest.mark.parametrize(
    ("headers", "wait"),
    [
        ({"retry-after": "3"}, 3.0),
        ({"retry-after-ms": "250", "retry-after": "9"}, 0.25),
        ({"retry-after": "Wed, 21 Oct 2026 07:28:00 GMT"}, None),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "inf"}, None),
        ({}, None),
    ],
)
def test_retry_after(headers: dict[str, str], wait: float | None):
    assert understand(Report(message="x", status=429, headers=headers)).wait == wait


def test_waits_grow_and_end():
    policy = Retry(retries=4, first=1, most=3)
    failure = Failure(error=ModelUnavailable("x"), retry=True)
    for tried, longest in [(1, 1), (2, 2), (3, 3), (4, 3)]:
        wait = policy.wait(failure, tried)
        assert wait is not None
        assert longest / 2 <= wait <= longest
    assert policy.wait(failure, 5) is None
    assert policy.wait(Failure(error=ModelRefused("x")), 1) is None
    asked = Failure(error=ModelUnavailable("x"), retry=True, wait=10)
    assert 10 <= (policy.wait(asked, 1) or 0) <= 11
    assert Retry(patience=5).wait(asked, 1) is None


class _Error(Exception):
    def __init__(self, body: object, status: object = 400) -> None:
        super().__init__("the SDK's words with sk-secret")
        self.body = body
        self.status_code = status


@pytest.mark.parametrize(
    ("body", "message", "code", "kind"),
    [
        ({"message": "m", "code": "c", "type": "t"}, "m", "c", "t"),
        ({"error": {"message": "m", "code": 400}}, "m", "400", ""),
        ({"error": "m"}, "m", "", ""),
        ({"message": None, "code": None}, "_Error: the SDK's words with ***", "", ""),
        ("text", "_Error: the SDK's words with ***", "", ""),
        (None, "_Error: the SDK's words with ***", "", ""),
    ],
)
def test_errors_of_the_sdks_are_read(body: object, message: str, code: str, kind: str):
    report = report_of(_Error(body), "sk-secret")
    assert (report.message, report.code, report.kind, report.status) == (message, code, kind, 400)
    assert report_of(_Error(body, "odd")).status is None
