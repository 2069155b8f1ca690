"""A process that is started while its store does not answer: it waits, says for what, and can be stopped meanwhile."""

from __future__ import annotations

import asyncio
import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.e2e.site import ANY_PORT, Site

from turnlane.testing.outside import Outside
from turnlane.testing.processes import Turnlane
from turnlane.testing.servers import Nats, Postgres

EXIT_UNAVAILABLE = 3
AT_ONCE_SECONDS_MAX = 8.0
"""A loaded machine needs some of them to start Python; whoever waits for the store needs more."""


STOPPED_SECONDS_MAX = 25.0
"""Less than the time that a drain may take: nothing is left to be finished."""


@pytest.fixture(params=[Postgres, Nats])
def stopped(request: pytest.FixtureRequest) -> Iterator[Postgres | Nats]:
    with request.param() as server:
        server.stop()
        yield server


def error_of(process: Turnlane) -> str:
    assert "Traceback" not in process.last_words
    (error,) = (line["text"] for line in process.lines if line.get("text", "").startswith("Error: "))
    return str(error)


def said_that_it_waits(process: Turnlane) -> bool:
    return any(line.get("event") == "store.waiting" for line in process.lines)


async def test_a_process_started_before_its_server_works_once_that_is_up(
    site: Site, outside: Outside, stopped: Postgres | Nats
) -> None:
    site.configure(top=f'backend = "{stopped.url}"')
    process = await site.begin("run", *ANY_PORT)
    waiting = await process.said("store.waiting")
    assert "check that the server" in waiting["cause"]
    assert 0 < waiting["seconds"] <= 30
    assert process.url is None  # nobody is told that it is ready
    await asyncio.to_thread(stopped.start)
    assert (await process.said("store.available"))["seconds"] >= 0
    await site.post(process, "m1")
    await outside.until(lambda: [reply.text for reply in outside.replies] == ["m1"])
    process.terminate()
    assert await process.ended() == 0


@pytest.mark.parametrize("verb", ["run", "serve", "worker"])
async def test_one_whose_server_never_comes_gives_up_after_the_time_that_was_set(site: Site, verb: str) -> None:
    site.configure(top='backend = "postgresql://turnlane@127.0.0.1:1/turnlane"\nbackend_wait = "500ms"')
    process = await site.begin(verb, *(ANY_PORT if verb != "worker" else ()))
    assert await process.ended() == EXIT_UNAVAILABLE
    assert said_that_it_waits(process)
    assert "check that the server runs" in error_of(process)


async def test_one_that_shall_not_wait_fails_at_once(site: Site) -> None:
    site.configure(top='backend = "nats://127.0.0.1:1"\nbackend_wait = "0s"')
    process = await site.begin("run", *ANY_PORT)
    assert await process.ended() == EXIT_UNAVAILABLE
    assert not said_that_it_waits(process)
    assert "check that the servers run" in error_of(process)


async def test_what_waiting_cannot_mend_fails_at_once_on_postgres(site: Site, postgres: str) -> None:
    for url, said in {
        postgres.replace("postgres:", "postgres:wrong"): "password authentication failed",
        f"{postgres}-nowhere": 'database "postgres-nowhere" does not exist',
        f"{postgres}?sslmode=perhaps": "sslmode",
    }.items():
        await fails_at_once(site, url, said)


async def test_a_wrong_password_fails_at_once_on_nats(site: Site) -> None:
    with Nats(config='authorization { user: "turnlane", password: "secret" }\n', sync_interval="2m") as server:
        await fails_at_once(site, server.url.replace("//", "//turnlane:wrong@"), "Authorization Violation")


async def fails_at_once(site: Site, url: str, said: str) -> None:
    site.configure(top=f'backend = "{url}"\nbackend_wait = "1h"')
    process = await site.begin("run", *ANY_PORT)
    assert await process.ended() in {2, EXIT_UNAVAILABLE}
    assert not said_that_it_waits(process)
    assert said in error_of(process)
    assert "wrong" not in error_of(process)


async def test_a_signal_ends_the_wait(site: Site) -> None:
    site.configure(top='backend = "postgresql://turnlane@127.0.0.1:1/turnlane"\nbackend_wait = "1h"')
    process = await site.begin("run", *ANY_PORT)
    await process.said("store.waiting")
    process.terminate()
    assert await process.ended(AT_ONCE_SECONDS_MAX) == 0, process.last_words


@pytest.mark.parametrize("scheme", ["postgresql", "nats"])
async def test_a_signal_ends_the_wait_for_a_server_that_lets_one_in_and_says_nothing(site: Site, scheme: str) -> None:
    somebody_came = asyncio.Event()

    async def say_nothing(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        somebody_came.set()
        await reader.read()
        writer.close()

    async with await asyncio.start_server(say_nothing, "127.0.0.1", 0) as silent:
        port = silent.sockets[0].getsockname()[1]
        site.configure(top=f'backend = "{scheme}://127.0.0.1:{port}"')
        process = await site.begin("run", *ANY_PORT)
        await somebody_came.wait()
        process.terminate()
        assert await process.ended(AT_ONCE_SECONDS_MAX / 2) == 0, process.last_words


async def test_a_process_whose_server_is_away_can_be_stopped(site: Site, stopped: Postgres | Nats) -> None:
    await asyncio.to_thread(stopped.start)
    site.configure(top=f'backend = "{stopped.url}"', lease=30)
    process = await site.start()
    await process.said("worker.joined")
    await asyncio.to_thread(stopped.stop)
    process.terminate()
    assert await process.ended(STOPPED_SECONDS_MAX) == 0, process.last_words


async def test_a_process_started_while_another_program_locks_the_file_works_once_it_is_let_go(
    site: Site, outside: Outside
) -> None:
    site.configure()
    with closing(sqlite3.connect(site.file, isolation_level=None)) as another:
        another.execute("BEGIN EXCLUSIVE")
        process = await site.begin("run", *ANY_PORT)
        assert "another program holds the file locked" in (await process.said("store.waiting"))["cause"]
        another.execute("ROLLBACK")
    await site.post(process, "m1")
    await outside.until(lambda: [reply.text for reply in outside.replies] == ["m1"])
