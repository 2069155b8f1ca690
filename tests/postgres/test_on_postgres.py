"""What is Postgres's own: listening, schemas, its URL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, closing

import asyncpg
import pytest
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import open_backend
from turnlane.backends.postgres import PostgresBackend, connection
from turnlane.backends.postgres.connection import BlockingConnection, Target
from turnlane.backends.postgres.store import PostgresStore
from turnlane.errors import BackendUnavailable, InvalidSettings
from turnlane.testing.servers import Postgres

TERM_MS = 60_000

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


async def test_a_store_opens_and_listens_again_though_the_connection_is_lost_before_it_listens(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_listener, tried = asyncpg.Connection.add_listener, asyncio.Semaphore(0)

    async def lost_the_first_time(connection: asyncpg.Connection, *arguments: object) -> None:
        tried.release()
        if was_lost.is_set():
            await add_listener(connection, *arguments)
            return
        was_lost.set()
        raise asyncpg.InterfaceError("the connection is closed")

    was_lost = asyncio.Event()
    monkeypatch.setattr(asyncpg.Connection, "add_listener", lost_the_first_time)
    async with asyncio.timeout(10):
        await opens()
        await tried.acquire()
        await tried.acquire()


@pytest.mark.parametrize("steps", range(4))
def test_a_connection_that_the_server_ended_is_lost_whenever_that_is_learned(postgres: str, steps: int) -> None:
    """The driver words it in another way for each step of its loop at which a statement meets the end."""
    ended, other = BlockingConnection(Target(postgres)), BlockingConnection(Target(postgres))
    with closing(ended), closing(other):
        ended.open()
        other.open()
        process = ended.execute("SELECT pg_backend_pid()").fetchone()[0]
        other.execute("SELECT pg_terminate_backend($1, 5000)", (process,))
        loop = ended.run(_running_loop())
        for _ in range(steps):
            loop.call_soon(loop.stop)
            loop.run_forever()
        with pytest.raises(PostgresStore.trouble):
            ended.execute("SELECT 1")


async def _running_loop() -> asyncio.AbstractEventLoop:
    return asyncio.get_running_loop()


async def test_the_tables_may_be_made_by_several_at_once_and_in_a_schema_of_their_own(postgres: str) -> None:
    backends = [open_backend(f"{postgres}?schema=Own%20place") for _ in range(5)]
    await asyncio.gather(*(backend.open() for backend in backends))
    await backends[0].accept([arrival("alice", "m-1")])
    assert [lane.conversation for lane in await backends[1].lanes()] == ["desk/alice"]
    await asyncio.gather(*(backend.close() for backend in backends))


class Relay:
    """A network between a process and its server that loses what is connected, and tells nobody."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._lost = asyncio.Event()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        lost = self._lost
        await asyncio.gather(self._pass_on(reader, server_writer, lost), self._pass_on(server_reader, writer, lost))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        while data := await reader.read(65_536):
            if not lost.is_set():
                writer.write(data)
        writer.close()

    def lose_all(self) -> None:
        self._lost.set()
        self._lost = asyncio.Event()


async def test_a_connection_on_which_nobody_answers_any_more_is_given_up_for_another(
    postgres: str, postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the machine of the server is gone, and another has taken its address."""
    monkeypatch.setattr(connection, "STATEMENT_SECONDS_MAX", 0.5)
    relay = Relay(postgres_server.port)
    async with await asyncio.start_server(relay.connected, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        store = open_backend(f"{postgres.replace(str(postgres_server.port), str(port))}?notify=false")
        await store.open()
        await store.accept([arrival("alice", "m-1")])
        assert len(await store.lanes()) == 1
        relay.lose_all()
        for verb in (store.accept([arrival("bob", "m-2")]), store.lanes()):
            with pytest.raises(BackendUnavailable):
                await verb
        assert [acceptance.verdict for acceptance in await store.accept([arrival("bob", "m-2")])] == ["accepted"]
        assert len(await store.lanes()) == 2
        await store.close()


async def test_a_wrong_url_says_what_to_do(postgres: str) -> None:
    with pytest.raises(BackendUnavailable, match="check that the server runs"):
        await open_backend("postgresql://postgres@127.0.0.1:1/postgres").open()
    with pytest.raises(BackendUnavailable, match="password"):
        await open_backend(postgres.replace("postgres:", "postgres:wrong")).open()
    with pytest.raises(InvalidSettings, match="notify=true or notify=false"):
        open_backend(f"{postgres}?notify=perhaps")
    for wrong in (f"{postgres}?sslmode=perhaps", "postgresql://postgres@127.0.0.1:abc/postgres"):
        with pytest.raises(InvalidSettings, match="the URL cannot be used; change it"):
            await open_backend(wrong).open()
