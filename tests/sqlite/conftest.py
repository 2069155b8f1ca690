"""A store on a file of its own, and messages to put in it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest

from turnlane.backends.sqlite import SqliteBackend
from turnlane.testing.doubles import VirtualClock

Opens = Callable[[], Awaitable[SqliteBackend]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


@pytest.fixture
async def opens(path: Path, clock: VirtualClock) -> AsyncIterator[Opens]:
    """One more backend on the same file, as another process has it."""
    async with AsyncExitStack() as stack:

        async def opened() -> SqliteBackend:
            backend = SqliteBackend(f"sqlite:///{path}?synchronous=off", clock)
            await backend.open()
            stack.push_async_callback(backend.close)
            return backend

        yield opened


@pytest.fixture
async def store(opens: Opens) -> SqliteBackend:
    return await opens()
