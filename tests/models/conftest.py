"""A fake server, and no keys or URLs from the environment of whoever runs the tests."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from tests.models.server import Server, serving


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (
        "OPENAI_API_KEY",
        "OPENAI_BASE_URL",
        "ANTHROPIC_API_KEY",
        "ANTHROPIC_BASE_URL",
        "OPENAI_MODEL",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async with serving() as found:
        yield found
