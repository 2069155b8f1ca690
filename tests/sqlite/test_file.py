"""The file: who may read it, which versions are known, and what is not ours."""

from __future__ import annotations

import asyncio
import sqlite3
import stat
from pathlib import Path

import pytest
from tests.sqlite.arrivals import arrival
from tests.sqlite.conftest import Opens

from turnlane.backends.base import open_backend
from turnlane.backends.sqlite import SqliteBackend, schema
from turnlane.errors import BackendError, BackendUnavailable, InvalidSettings, SchemaMismatch
from turnlane.testing.doubles import VirtualClock


def backend_on(path: Path) -> SqliteBackend:
    return SqliteBackend(f"sqlite:///{path}", VirtualClock())


def execute(path: Path, *statements: str) -> list[tuple[object, ...]]:
    connection = sqlite3.connect(path)
    try:
        rows = [connection.execute(statement).fetchall() for statement in statements]
        connection.commit()
        return rows[-1]
    finally:
        connection.close()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


def contents(folder: Path) -> dict[str, bytes]:
    """Everything in it but the lock, which is empty for ever."""
    return {file.name: file.read_bytes() for file in folder.iterdir() if not file.name.endswith("-lock")}


async def test_a_new_file_and_its_companions_are_for_their_owner_alone(path: Path, store: SqliteBackend) -> None:
    await store.accept([arrival("alice", "m-1")])
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in path.parent.glob("store.db*")}
    assert {"store.db", "store.db-wal", "store.db-lock"} <= set(modes)
    assert set(modes.values()) == {0o600}


async def test_an_empty_file_becomes_current_and_says_whose_it_is(path: Path) -> None:
    execute(path, "VACUUM")
    backend = backend_on(path)
    assert await backend.schema_version() == 0
    await backend.open()
    assert await backend.schema_version() == schema.VERSION
    await backend.close()
    assert execute(path, "PRAGMA application_id") == [(schema.APPLICATION_ID,)]
    assert execute(path, "PRAGMA integrity_check") == [("ok",)]


async def test_no_file_is_version_zero_and_asking_makes_none(path: Path) -> None:
    assert await backend_on(path).schema_version() == 0
    assert contents(path.parent) == {}


async def test_several_processes_may_create_the_file_at_once(path: Path) -> None:
    backends = [backend_on(path) for _ in range(8)]
    await asyncio.gather(*(backend.open() for backend in backends))
    for number, backend in enumerate(backends):
        await backend.accept([arrival("alice", f"m-{number}")])
    (lane,) = await backends[0].lanes()
    assert lane.pending == 8
    for backend in backends:
        await backend.close()


async def test_a_newer_file_is_refused_and_left_as_it_is(path: Path, opens: Opens) -> None:
    await (await opens()).close()
    execute(path, f"PRAGMA user_version = {schema.VERSION + 1}")
    before = contents(path.parent)
    with pytest.raises(SchemaMismatch, match="install a newer turnlane"):
        await backend_on(path).open()
    assert contents(path.parent) == before


async def test_a_database_of_another_program_is_refused_and_left_as_it_is(path: Path) -> None:
    execute(path, "CREATE TABLE theirs (text)", "INSERT INTO theirs VALUES ('precious')")
    before = contents(path.parent)
    with pytest.raises(BackendError, match="another program"):
        await backend_on(path).open()
    assert contents(path.parent) == before


async def test_an_empty_database_that_another_program_marked_as_its_own_is_refused(path: Path) -> None:
    execute(path, "PRAGMA application_id = 42")
    with pytest.raises(BackendError, match="another program"):
        await backend_on(path).open()


async def test_what_is_no_database_is_refused_with_what_to_do(path: Path) -> None:
    write(path, b"Dear diary, " * 1000)
    with pytest.raises(BackendError, match="not an SQLite database; name another one") as refused:
        await backend_on(path).open()
    assert not refused.value.retry
    assert contents(path.parent) == {"store.db": b"Dear diary, " * 1000}


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(BackendUnavailable, match="check that its folder exists"):
        await backend_on(tmp_path / "nowhere" / "store.db").open()


async def test_close_may_be_called_twice_or_before_open_and_then_nothing_is_stored(path: Path) -> None:
    backend = backend_on(path)
    await backend.close()
    with pytest.raises(BackendUnavailable, match=r"call open\(\) first"):
        await backend.accept([arrival("alice", "m-1")])
    await backend.open()
    await backend.open()
    await backend.close()
    await backend.close()
    with pytest.raises(BackendUnavailable, match=r"call open\(\) first"):
        await backend.counts()
    await backend.open()
    assert (await backend.counts()).messages_waiting == 0
    await backend.close()


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///", "sqlite://host/file.db", "sqlite:///a.db?sync=off"])
def test_a_url_that_names_no_file_or_an_unknown_option_says_what_to_write(url: str) -> None:
    with pytest.raises(InvalidSettings, match=r"sqlite:///file.db|the only option"):
        open_backend(url)


def test_relative_absolute_and_encoded_paths_are_understood() -> None:
    assert SqliteBackend("sqlite:///a%20b.db", VirtualClock()).location.path == Path("a b.db")
    assert SqliteBackend("sqlite:////tmp/c.db?synchronous=NORMAL", VirtualClock()).location.path == Path("/tmp/c.db")


async def test_what_returned_is_synced_to_the_disk(path: Path) -> None:
    """Durable means durable: WAL with synchronous=FULL unless told otherwise. (With other processes: test_log.)"""
    backend = backend_on(path)
    await backend.open()
    await backend.accept([arrival("alice", "m-1")])
    assert backend._writer is not None
    pragma = backend._store.connection.execute
    assert pragma("PRAGMA journal_mode").fetchone() == ("wal",)
    assert pragma("PRAGMA synchronous").fetchone() == (2,)
    await backend.close()
