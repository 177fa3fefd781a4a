"""Which server speaks OpenAI's protocol behind a base URL: the target to use when nobody names one.

It reads the URL and the model's name, and asks nobody. What it does not know is taken for the strictest.
"""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit

from backstory.errors import ConfigurationError
from backstory.targets import Target

# By the end of the host's name. Each provider's own page on its OpenAI-compatible endpoint names the host.
_HOSTS: tuple[tuple[str, str], ...] = (
    ("api.openai.com", "openai"),
    ("openai.azure.com", "openai"),
    ("deepseek.com", "deepseek"),
    ("dashscope.aliyuncs.com", "qwen"),
    ("dashscope-intl.aliyuncs.com", "qwen"),
)
# The ports that these programs listen on unless told otherwise, on a machine of one's own.
_PORTS = {11434: "ollama", 8000: "vllm", 8080: "llama_cpp", 30000: "vllm"}
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0", "host.docker.internal")


def target_for(base_url: str | None, model: str, api: str) -> Target:
    """The target of an endpoint. Raises `ConfigurationError` for what is no URL, or an `api` that is not known."""
    if api not in ("chat", "responses"):
        raise ConfigurationError(f"api must be 'chat' or 'responses', not {api!r}")
    if api == "responses":
        return Target.of("openai_responses")
    if base_url is None:
        return Target.of("openai")
    parts = urlsplit(base_url)
    try:
        host, port = parts.hostname or "", parts.port
    except ValueError as error:
        raise ConfigurationError(f"base_url {shown(base_url)!r} is no URL: {error}") from None
    if parts.scheme not in ("http", "https") or not host:
        raise ConfigurationError(
            f"base_url {shown(base_url)!r} must begin with http:// or https:// and name a host"
        )
    for end, preset in _HOSTS:
        if host == end or host.endswith(f".{end}"):
            return Target.of(preset)
    if host in _LOCAL and port in _PORTS:
        return Target.of(_PORTS[port])
    if host == "generativelanguage.googleapis.com":
        # https://ai.google.dev/gemini-api/docs/openai: signatures travel in `extra_content`.
        return Target.of("openai_chat").but(extensions=True)
    if host not in _LOCAL and model.lower().startswith("deepseek-"):
        return Target.of("deepseek")
    return Target.of("openai_chat")


def is_official(base_url: str | None) -> bool:
    """Whether this is OpenAI's own API, or Azure's."""
    return base_url is None or target_for(base_url, "", "chat").name == "openai"


def shown(url: str) -> str:
    """A URL without what may be secret in it: user, password, query."""
    parts = urlsplit(url)
    return urlunsplit((parts.scheme, parts.netloc.rpartition("@")[2], parts.path, "", ""))
