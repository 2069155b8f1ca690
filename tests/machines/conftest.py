"""Two empty stores, of one kind or another, and processes on them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.machines.copies import Opens

from turnlane.backends.base import Backend, open_backend
from turnlane.testing.doubles import VirtualClock


@pytest.fixture
async def opens(clock: VirtualClock) -> AsyncIterator[Opens]:
    async with AsyncExitStack() as stack:

        async def opened(url: str) -> Backend:
            backend = open_backend(url, clock)
            await backend.open()
            stack.push_async_callback(backend.close)
            return backend

        yield opened


@pytest.fixture
def sqlite(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/store.db?synchronous=off"


@pytest.fixture(params=["sqlite to postgres", "postgres to nats", "nats to sqlite", "nats to nats"])
def both(request: pytest.FixtureRequest) -> tuple[str, str]:
    """Each kind is a source here, and a target."""
    source, _, target = request.param.partition(" to ")
    there = str(request.getfixturevalue(target))
    others = {
        "sqlite": there.replace("store.db", "other.db"),
        "postgres": f"{there}?schema=other",
        "nats": f"{there}?stream=other",
    }
    return request.getfixturevalue(source), others[target]
