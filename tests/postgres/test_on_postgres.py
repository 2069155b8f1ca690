"""What is Postgres's own: listening, schemas, its URL."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import closing, suppress

import asyncpg
import pytest
from tests.postgres.conftest import Opens
from tests.sqlite.arrivals import arrival

from turnlane.backends.base import open_backend
from turnlane.backends.postgres import connection
from turnlane.backends.postgres.believed import Agenda
from turnlane.backends.postgres.connection import BlockingConnection, Target
from turnlane.backends.postgres.store import PostgresStore
from turnlane.backends.sql.codec import StoredLane
from turnlane.clock import SystemClock
from turnlane.errors import BackendUnavailable, InvalidSettings
from turnlane.model.lane import Kind
from turnlane.model.policy import Policy
from turnlane.model.turn import Delivered, Replied, Reply, RetryLater
from turnlane.testing.servers import Postgres

TERM_MS = 60_000


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
        self._connections: set[asyncio.Task[object] | None] = set()

    async def connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(asyncio.current_task())
        server_reader, server_writer = await asyncio.open_connection("127.0.0.1", self._port)
        lost = self._lost
        await asyncio.gather(self._pass_on(reader, server_writer, lost), self._pass_on(server_reader, writer, lost))

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, lost: asyncio.Event) -> None:
        with suppress(ConnectionError):  # a client that gives up does not say goodbye
            while data := await reader.read(65_536):
                if not lost.is_set():
                    writer.write(data)
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()

    def lose_all(self) -> None:
        self._lost.set()
        self._lost = asyncio.Event()

    async def over(self) -> None:
        """Once whoever was connected has gone."""
        await asyncio.gather(*(connection for connection in self._connections if connection is not None))


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
        await relay.over()


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


# What a process remembers


@pytest.mark.parametrize("options", ["", "?notify=false"])
async def test_what_a_platform_told_one_machine_holds_for_the_others_at_once(opens: Opens, options: str) -> None:
    machines = [await opens(options), await opens(options)]
    for machine, worker in zip(machines, ("one", "other"), strict=True):
        await machine.join(worker, TERM_MS)
        await machine.accept([arrival(f"user of {worker}", f"m-{worker}")])
        [lease] = await machine.claim(worker, Kind.TURN)
        await machine.commit(lease, Replied(Reply("hello")))
    [first] = await machines[0].claim("one", Kind.OUT)
    later = RetryLater(at=SystemClock().now() + 3_600_000, cause="429", counts=False, holds_account=True)
    await machines[0].commit(first, later)
    assert await machines[1].claim("other", Kind.OUT) == []


async def test_an_ordinary_turn_is_one_statement_for_each_of_its_steps(
    opens: Opens, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = await opens()
    await backend.join("worker", TERM_MS)
    said: list[str] = []

    async def turn(number: int) -> None:
        await backend.accept([arrival("alice", f"m-{number}")])
        [lease] = await backend.claim("worker", Kind.TURN)
        await backend.commit(lease, Replied(Reply("hello", session="memory")))
        [sending] = await backend.claim("worker", Kind.OUT)
        await backend.commit(sending, Delivered("receipt"))

    await turn(1)
    for name in ("execute", "command", "send"):
        monkeypatch.setattr(BlockingConnection, name, _noting(getattr(BlockingConnection, name), said))
    await turn(2)
    assert [text.split(maxsplit=1)[0] for text in said] == ["WITH"] * 5


def _noting(ask: Callable[..., object], said: list[str]) -> Callable[..., object]:
    def ask_and_note(connection: BlockingConnection, statement: str, *rest: object) -> object:
        said.append(statement)
        return ask(connection, statement, *rest)

    return ask_and_note


async def test_any_text_comes_back_as_it_was(opens: Opens) -> None:
    backend = await opens()
    said = [
        "",
        "null",
        "{}",
        '{"a", b}',
        "back\\slash",
        "\\n",
        'a "quoted" word',
        "two\nlines\r\n",
        "\ttab \x01 \x7f",
        "é 😀 \u2028",
    ]
    await backend.accept([arrival("alice", f"{text} {number}", text) for number, text in enumerate(said)])
    story = await backend.story("desk/alice")
    assert story is not None
    assert [message.text for message in story.messages] == said
    assert [message.origin_id for message in story.messages] == [f"{text} {n}" for n, text in enumerate(said)]


async def test_a_text_that_postgres_cannot_hold_is_refused_and_its_neighbours_are_not(opens: Opens) -> None:
    backend = await opens()
    answers = await asyncio.gather(
        *(backend.accept([arrival("alice", text, text)]) for text in ("before", "nul \x00", "half \ud83d", "after")),
        return_exceptions=True,
    )
    assert [isinstance(answer, ValueError) for answer in answers] == [False, True, True, False]


async def test_what_was_remembered_of_a_server_is_not_believed_of_the_next(
    opens: Opens, postgres_server: Postgres
) -> None:
    """It may be another one behind the same address, that was asked for less."""
    backend = await opens()
    await backend.accept([arrival("alice", "m-1")])
    postgres_server.sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'turnlane'")
    with pytest.raises(BackendUnavailable):
        await backend.accept([arrival("alice", "m-2")])
    [again] = await backend.accept([arrival("alice", "m-2")])
    assert again.seq == 2


def test_an_agenda_tells_who_has_been_due_longest_by_the_last_word_on_each() -> None:
    agenda = Agenda()
    lanes = [StoredLane(Kind.TURN, f"desk/{id_}", Policy(agent="agent"), id=id_) for id_ in range(4)]
    for lane, due_at in zip(lanes, (30, 10, 20, 40), strict=True):
        agenda.put(lane, due_at)
    agenda.put(lanes[1], 50)
    agenda.put(lanes[1], 10)
    agenda.drop(lanes[2])
    for _ in range(2):
        assert agenda.next_due() == 10
        assert [lane.id for lane in agenda.first(10, now=30)] == [1, 0]
        assert [lane.id for lane in agenda.first(1, now=99)] == [1]
    for lane in lanes:
        agenda.drop(lane)
    assert agenda.next_due() is None
    assert agenda.first(10, now=99) == []
