"""What every test with real processes starts from: an empty folder and a world around it."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.e2e.browser import Browser
from tests.e2e.site import Site

from turnlane.testing.outside import Outside


@pytest.fixture
async def outside() -> AsyncIterator[Outside]:
    async with Outside() as world:
        yield world


@pytest.fixture
async def site(tmp_path: Path, outside: Outside) -> AsyncIterator[Site]:
    async with AsyncExitStack() as stack:
        yield Site(tmp_path, outside, stack)


@pytest.fixture(params=["sqlite", "postgres", "nats"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of each store that a bot may have."""
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return str(request.getfixturevalue(request.param))


@pytest.fixture
async def browser(tmp_path: Path) -> AsyncIterator[Browser]:
    async with Browser(tmp_path / "profile") as browser:
        yield browser
        assert browser.complaints == []
