"""Which model and which target, by environment, URL and name; and that no key is ever shown."""

import subprocess
import sys

import pytest

from backstory import errors, models
from backstory.messages import assistant
from backstory.models import (
    Answer,
    AnthropicModel,
    ExtractiveModel,
    Model,
    OpenAIModel,
    ScriptedModel,
    Usage,
    from_environment,
    learned,
)
from backstory.models.servers import target_for
from backstory.models.windows import size_of
from backstory.tokens.calibration import Calibration


@pytest.mark.parametrize(
    ("url", "model", "target"),
    [
        (None, "gpt-5-mini", "openai"),
        ("https://api.openai.com/v1", "gpt-5-mini", "openai"),
        ("https://x.openai.azure.com/openai", "gpt-4o", "openai"),
        ("https://api.deepseek.com", "deepseek-chat", "deepseek"),
        ("https://dashscope.aliyuncs.com/compatible-mode/v1", "qwen-plus", "qwen"),
        ("http://localhost:11434/v1", "llama3", "ollama"),
        ("http://127.0.0.1:8000/v1", "Qwen/Qwen3-8B", "vllm"),
        ("http://[::1]:8080/v1", "any", "llama_cpp"),
        ("https://openrouter.ai/api/v1", "deepseek-chat", "deepseek"),
        ("https://openrouter.ai/api/v1", "mistral-large", "openai_chat"),
        ("http://localhost:1234/v1", "deepseek-r1", "openai_chat"),
        ("https://api.openai.com.evil.example/v1", "gpt-4o", "openai_chat"),
    ],
)
def test_the_target_is_guessed(url: str | None, model: str, target: str):
    assert target_for(url, model, "chat").name == target
    assert target_for(url, model, "responses").name == "openai_responses"


@pytest.mark.parametrize("url", ["localhost:8000", "ftp://x/y", "http://", "http://user:pa55@host:port/v1"])
def test_what_is_no_url_is_refused(url: str):
    with pytest.raises(errors.ConfigurationError, match="base_url") as caught:
        OpenAIModel(base_url=url, api_key="x")
    assert "pa55" not in str(caught.value)


def test_settings_that_make_no_sense_are_refused():
    for wrong in (
        {"api": "soap"},
        {"target": "anthropic"},
        {"timeout": 0},
        {"retries": -1},
        {"target": "nobody"},
    ):
        with pytest.raises(errors.ConfigurationError):
            OpenAIModel(api_key="x", **wrong)
    with pytest.raises(errors.ConfigurationError, match="OPENAI_API_KEY"):
        OpenAIModel()


def test_windows_are_known_for_hosted_models_only():
    assert OpenAIModel(api_key="x").window == 400_000
    assert OpenAIModel("gpt-4o-2024-08-06", api_key="x").max_output == 16_384
    assert OpenAIModel("gpt-4o", api_key="x", window=9).window == 9
    assert OpenAIModel("deepseek-chat", base_url="https://api.deepseek.com", api_key="x").window == 128_000
    assert OpenAIModel("deepseek-chat", base_url="http://localhost:8000/v1").window is None
    assert OpenAIModel("somebody-new", api_key="x").window is None
    for name in (
        "o3",
        "o4-mini",
        "o1-2024-12-17",
        "gpt-4",
        "gpt-4.1-nano",
        "claude-sonnet-4-5",
        "models/gemini-2.5-pro",
    ):
        assert size_of(name).window is not None
    assert size_of("gpt-oss-120b").window is None


def test_max_output_goes_by_the_name_that_the_server_knows():
    assert OpenAIModel(api_key="x", max_output=9).settings == {"max_completion_tokens": 9}
    assert OpenAIModel(base_url="http://localhost:8000/v1", max_output=9).settings == {"max_tokens": 9}
    assert OpenAIModel(api_key="x", max_completion_tokens=7).max_output == 7


def test_no_key_is_shown():
    model = OpenAIModel(base_url="https://user:pa55@host.example/v1?token=t0ken", api_key="sk-secret")
    for text in (
        repr(model),
        str(model),
        str(from_environment(base_url="https://user:pa55@host.example/v1").line),
    ):
        assert not {word for word in ("sk-secret", "pa55", "t0ken") if word in text}


@pytest.mark.parametrize(
    ("environment", "arguments", "cls", "name", "words"),
    [
        ({}, {}, ExtractiveModel, "extractive-no-llm", "no LLM"),
        (
            {"OPENAI_API_KEY": "sk-secret"},
            {"model": "offline"},
            ExtractiveModel,
            "extractive-no-llm",
            "as asked",
        ),
        ({"OPENAI_API_KEY": "sk-secret"}, {}, OpenAIModel, "gpt-5-mini", "at OpenAI"),
        ({"OPENAI_API_KEY": "sk-secret"}, {"model": "gpt-4o"}, OpenAIModel, "gpt-4o", "at OpenAI"),
        (
            {"OPENAI_BASE_URL": "http://h:8000/v1", "OPENAI_MODEL": "q"},
            {},
            OpenAIModel,
            "q",
            "http://h:8000/v1",
        ),
        ({}, {"base_url": "http://h:8000/v1", "model": "q"}, OpenAIModel, "q", "http://h:8000/v1"),
        ({"ANTHROPIC_API_KEY": "sk-secret"}, {}, AnthropicModel, "claude-sonnet-4-5", "Anthropic"),
        (
            {"ANTHROPIC_API_KEY": "sk-secret", "OPENAI_API_KEY": "sk-secret"},
            {"model": "claude-haiku-4-5"},
            AnthropicModel,
            "claude-haiku-4-5",
            "Anthropic",
        ),
        (
            {"ANTHROPIC_API_KEY": "sk-secret", "OPENAI_API_KEY": "sk-secret"},
            {},
            OpenAIModel,
            "gpt-5-mini",
            "OpenAI",
        ),
    ],
)
def test_the_environment_decides(monkeypatch, environment, arguments, cls, name, words):
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    model, line = from_environment(**arguments)
    assert isinstance(model, cls)
    assert isinstance(model, Model)
    assert model.name == name
    assert words in line
    assert "sk-secret" not in line + repr(model)


def test_a_model_without_a_key_is_refused():
    with pytest.raises(errors.ConfigurationError, match="OPENAI_BASE_URL"):
        from_environment("gpt-5-mini")


def test_a_missing_extra_says_what_to_install(monkeypatch):
    monkeypatch.setattr("backstory.models.sdk.find_spec", lambda name: None)
    with pytest.raises(errors.ConfigurationError, match=r"pip install 'backstory\[openai\]'"):
        OpenAIModel(api_key="x")
    with pytest.raises(errors.ConfigurationError, match=r"pip install 'backstory\[anthropic\]'"):
        AnthropicModel(api_key="x")


def test_what_was_billed_is_learned():
    calibration = Calibration()
    for _ in range(3):
        answer = Answer(messages=(assistant("x"),), usage=Usage(input=150, output=1))
        calibration = learned(calibration, estimated=100, answer=answer)
    assert calibration.factor == pytest.approx(1.5)
    for usage in (None, Usage(input=0, output=0)):
        assert learned(calibration, estimated=100, answer=Answer(messages=(), usage=usage)) is calibration


def test_names_are_those_that_are_exported():
    assert models.__all__ == sorted(models.__all__)
    assert set(models.__all__) == set(models._EXPORTS)
    assert all(getattr(models, name) is not None for name in models.__all__)
    with pytest.raises(AttributeError):
        models.nobody  # type: ignore[attr-defined]  # noqa: B018
    assert ScriptedModel.__module__ == "backstory.models.scripted"


def test_no_sdk_is_imported_before_it_is_used():
    program = (
        "import sys, backstory.models as m\n"
        "m.OpenAIModel(api_key='x'), m.AnthropicModel(api_key='x'), m.from_environment('offline')\n"
        "print(sorted({'openai', 'anthropic', 'httpx', 'httpx2', 'pydantic'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
