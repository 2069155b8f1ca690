"""Fixtures for every test: a clock that is turned by hand, and a store of each kind on it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from hypothesis import settings

from turnlane.backends.base import Backend, open_backend
from turnlane.testing import servers
from turnlane.testing.doubles import VirtualClock
from turnlane.testing.servers import Nats, NatsCluster, Postgres

pytest.register_assert_rewrite("turnlane.testing.conformance", "turnlane.testing.agents")

# A machine that is busy with other things has not found a mistake.
settings.register_profile("patient", deadline=None)
settings.load_profile("patient")


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture(params=["memory", "sqlite", "postgres", "nats"])
def backend_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    # Losing power is tested elsewhere, so nothing here waits for the disk.
    match request.param:
        case "memory":
            return f"memory://{tmp_path.name}"
        case "sqlite":
            return f"sqlite:///{tmp_path}/store.db?synchronous=off"
        case "nats":
            return str(request.getfixturevalue("nats"))
        case _:
            # It looks at the clock more often where nobody tells it of a change, and here the clock is turned by hand.
            return f"{request.getfixturevalue('postgres')}?notify=false"


@pytest.fixture
async def backend(backend_url: str, clock: VirtualClock) -> AsyncIterator[Backend]:
    store = open_backend(backend_url, clock)
    await store.open()
    yield store
    await store.close()


@pytest.fixture
def pass_time(clock: VirtualClock) -> Callable[[int], Awaitable[None]]:
    async def advance(ms: int) -> None:
        clock.advance(ms)

    return advance


@pytest.fixture
async def open_again(
    backend: Backend, backend_url: str, clock: VirtualClock
) -> AsyncIterator[Callable[[], Awaitable[Backend]] | None]:
    """Another handle on the same stored data, as another process has it."""
    async with AsyncExitStack() as handles:

        async def opened() -> Backend:
            store = open_backend(backend_url, clock)
            await store.open()
            handles.push_async_callback(store.close)
            return store

        yield opened


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """One for each process of the test run, from the first test that asks, so that a test may break it."""
    with Postgres({"fsync": "off"}) as server:
        yield server


@pytest.fixture
def postgres(postgres_server: Postgres) -> str:
    """The URL of an empty database, whatever the test before has done to the server."""
    postgres_server.start()
    postgres_server.empty()
    return postgres_server.url


@pytest.fixture
def nats_server() -> Iterator[Nats]:
    """A new one for each test: it starts as fast as another could be emptied."""
    with Nats(sync_interval="2m") as server:
        yield server


@pytest.fixture
def nats(nats_server: Nats) -> str:
    """The URL of an empty server."""
    return nats_server.url


@pytest.fixture(scope="session")
def three_nats_servers() -> Iterator[NatsCluster]:
    with NatsCluster(sync_interval="2m") as cluster:
        yield cluster


@pytest.fixture
async def nats_cluster(three_nats_servers: NatsCluster) -> NatsCluster:
    """Three servers without a stream, all well, whatever the test before has done to them."""
    from nats import connect

    three_nats_servers.start()
    client = await connect(three_nats_servers.urls)
    manager = client.jetstream()
    for stream in await manager.streams_info():
        assert stream.config.name is not None
        await manager.delete_stream(stream.config.name)
    await client.close()
    # The leader answers before the followers have heard of it.
    nodes = three_nats_servers.nodes.values()
    assert servers._comes_true(lambda: not any(node.asked("/jsz")["streams"] for node in nodes))
    return three_nats_servers
