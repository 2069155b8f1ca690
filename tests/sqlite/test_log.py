"""Nobody is told before the disk has it, and no process waits for another one's disk."""

from __future__ import annotations

import asyncio
import shutil
import sqlite3
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing
from errno import EIO, EMFILE
from pathlib import Path
from typing import Any, TypeVar

import pytest
from tests.sqlite.arrivals import arrival

from turnlane.backends.sqlite import SqliteBackend, log
from turnlane.errors import BackendUnavailable
from turnlane.model.lane import Kind
from turnlane.testing.doubles import VirtualClock

T = TypeVar("T")

PATIENCE = 10
TERM_MS = 60_000
FULL = 2
HEADER_BYTES = 32
"""Of the log, before its first frame."""


Two = tuple[SqliteBackend, SqliteBackend]


@asynccontextmanager
async def two_on(url: str, clock: VirtualClock) -> AsyncIterator[Two]:
    here, there = SqliteBackend(url, clock), SqliteBackend(url, clock)
    async with AsyncExitStack() as stack:
        for backend in (here, there):
            await backend.open()
            stack.push_async_callback(backend.close)
        yield here, there


@pytest.fixture
async def two(path: Path, clock: VirtualClock) -> AsyncIterator[Two]:
    """Two backends on one file, as two processes have it, with real syncs."""
    async with two_on(f"sqlite:///{path}", clock) as stores:
        for number in range(4):  # they hear of each other
            await stores[number % 2].join(f"{number}", TERM_MS)
        yield stores


class Left:
    """What a power failure would leave: the file and its log, as they were when they were last copied."""

    def __init__(self, path: Path, folder: Path) -> None:
        folder.mkdir()
        self._of = path
        self.file, self.log = folder / path.name, folder / f"{path.name}-wal"

    def copy(self) -> None:
        for copy in (self.file, self.log):
            shutil.copy(self._of.with_name(copy.name), copy)

    def messages(self) -> int:
        with closing(sqlite3.connect(self.file)) as survivor:
            assert survivor.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            [count] = survivor.execute("SELECT count(*) FROM message").fetchone()
            return int(count)


@pytest.fixture
def left(path: Path, tmp_path: Path) -> Left:
    return Left(path, tmp_path / "left")


class SlowDisk:
    """Holds the sync of one call until it may go on; the others are as they are."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._holds_next = False
        self._is_syncing, self._may_end = threading.Event(), threading.Event()
        self.syncs = 0
        self._real = log._sync
        monkeypatch.setattr(log, "_sync", self._sync)

    def _sync(self, file: int) -> None:
        self.syncs += 1
        if self._holds_next:
            self._holds_next = False
            self._is_syncing.set()
            assert self._may_end.wait(PATIENCE)
        self._real(file)

    async def holds(self, call: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """The call, which has written and waits for the disk."""
        self._holds_next = True
        slow = asyncio.create_task(call)
        assert await asyncio.to_thread(self._is_syncing.wait, PATIENCE)
        return slow

    def go_on(self) -> None:
        self._may_end.set()


@pytest.fixture
def disk(two: Two, monkeypatch: pytest.MonkeyPatch) -> Iterator[SlowDisk]:
    assert two
    disk = SlowDisk(monkeypatch)
    yield disk
    disk.go_on()


async def test_a_process_writes_while_another_one_waits_for_the_disk_and_is_not_told(two: Two, disk: SlowDisk) -> None:
    here, there = two
    slow = await disk.holds(here.accept([arrival("alice", "m-1")]))
    async with asyncio.timeout(PATIENCE):
        await there.accept([arrival("bob", "m-2")])
    assert not slow.done()
    disk.go_on()
    [accepted] = await slow
    assert accepted.verdict == "accepted"


async def test_who_writes_nothing_is_told_after_what_it_read_is_durable(two: Two, disk: SlowDisk) -> None:
    """It read what another process has written, and that one may still wait for the disk."""
    here, there = two
    slow = await disk.holds(here.accept([arrival("alice", "m-1")]))
    before = disk.syncs
    assert await there.claim("1", Kind.OUT) == []
    assert disk.syncs == before + 1
    disk.go_on()
    await slow


async def test_what_was_told_is_in_what_a_power_failure_leaves(
    two: Two, left: Left, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = log._sync

    def sync(file: int) -> None:
        real(file)
        left.copy()

    monkeypatch.setattr(log, "_sync", sync)
    for number in range(20):
        store = two[number % 2]
        await asyncio.gather(*(store.accept([arrival(f"user-{user}", f"{number}-{user}")]) for user in range(3)))
        assert left.messages() == 3 * (number + 1)


async def test_the_log_is_found_by_a_link_and_after_the_process_went_to_another_folder(
    tmp_path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "store.db")
    monkeypatch.chdir(tmp_path)
    async with two_on("sqlite:///link.db", clock) as stores:
        monkeypatch.chdir(tmp_path / "elsewhere")
        for number in range(6):
            [accepted] = await stores[number % 2].accept([arrival("alice", f"m-{number}")])
            assert accepted.verdict == "accepted"


async def test_who_is_alone_again_leaves_it_to_sqlite_again(two: Two) -> None:
    here, there = two

    def synced_within_commits() -> bool:
        [mode] = here._store.connection.execute("PRAGMA synchronous").fetchone()
        return bool(mode == FULL)

    assert not synced_within_commits()
    for number in range(log.ALONE_TRANSACTIONS + 1):  # the first one still hears of the other
        await here.accept([arrival("alice", f"m-{number}")])
    assert synced_within_commits()
    await there.accept([arrival("bob", "b-1")])
    await here.accept([arrival("alice", "m-last")])
    assert not synced_within_commits()


async def test_a_log_that_was_made_longer_is_read_to_its_end_and_no_further(
    path: Path, clock: VirtualClock, left: Left
) -> None:
    backend = SqliteBackend(f"sqlite:///{path}", clock)
    await backend.open()
    sizes = set()
    for number in range(30):
        await backend.accept([arrival("alice", f"m-{number}", "x" * 50_000)])
        left.copy()
        sizes.add(left.log.stat().st_size)
        assert left.messages() == number + 1
    await backend.close()
    assert len(sizes) < 5  # most commits found room


async def test_a_log_is_not_made_longer_than_sqlite_will_ever_need(
    path: Path, clock: VirtualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "LONG_ENOUGH_BYTES", 2 * log.AHEAD_BYTES)
    backend = SqliteBackend(f"sqlite:///{path}", clock)
    await backend.open()
    for number in range(80):
        await backend.accept([arrival("alice", f"m-{number}", "x" * 50_000)])
    size = path.with_name(f"{path.name}-wal").stat().st_size
    await backend.close()
    assert size > 2 * log.AHEAD_BYTES
    assert (size - HEADER_BYTES) % log.FRAME_BYTES == 0  # nothing but what SQLite wrote


async def test_where_nobody_wrote_anything_the_disk_is_left_alone(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    here, _ = two
    await here.claim("0", Kind.OUT)
    synced: list[int] = []
    monkeypatch.setattr(log, "_sync", synced.append)
    assert await here.claim("0", Kind.OUT) == []
    assert synced == []


async def test_a_disk_that_fails_is_not_believed_again_before_a_new_start(
    two: Two, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a failed sync the system may have dropped what it failed with, and calls the next one a success."""
    here, _ = two
    with monkeypatch.context() as broken:

        def fail(_: int) -> None:
            raise OSError(EIO, "Input/output error")

        broken.setattr(log, "_sync", fail)
        with pytest.raises(BackendUnavailable, match="check the disk, then start again"):
            await here.accept([arrival("alice", "m-1")])
    with pytest.raises(BackendUnavailable, match="check the disk, then start again"):
        await here.accept([arrival("alice", "m-2")])
    await here.close()
    await here.open()
    [again, new] = await here.accept([arrival("alice", "m-1"), arrival("alice", "m-2")])
    assert (again.verdict, new.verdict) == ("duplicate", "accepted")


async def test_a_log_that_cannot_be_opened_just_now_is_tried_again(two: Two, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing was said of what is on the disk, so the next sync will do for both."""
    here, there = two
    await there.join("another", TERM_MS)
    assert await here.claim("0", Kind.TURN) == []
    here._store._log.close()
    with monkeypatch.context() as broken:

        def refuse(*_: object) -> int:
            raise OSError(EMFILE, "Too many open files")

        broken.setattr("turnlane.backends.sqlite.log.os.open", refuse)
        with pytest.raises(BackendUnavailable, match="how many files"):
            await here.accept([arrival("alice", "m-1")])
    [lease] = await here.claim("0", Kind.TURN)
    assert [message.origin_id for message in lease.messages] == ["m-1"]
