"""A backend on the server that tests start."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack

import pytest

from turnlane.backends.base import open_backend
from turnlane.backends.postgres import PostgresBackend

Opens = Callable[..., Awaitable[PostgresBackend]]


@pytest.fixture
async def opens(postgres: str) -> AsyncIterator[Opens]:
    async with AsyncExitStack() as stack:

        async def opened(options: str = "") -> PostgresBackend:
            backend = open_backend(postgres + options)
            assert isinstance(backend, PostgresBackend)
            await backend.open()
            stack.push_async_callback(backend.close)
            return backend

        yield opened
