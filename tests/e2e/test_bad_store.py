"""A store that cannot be used: the process stays up or says what to do, and nothing is half stored."""

from __future__ import annotations

import fcntl
import resource
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest
from tests.e2e.site import ANY_PORT, Site

from turnlane.testing.outside import Answer, Outside
from turnlane.testing.processes import Turnlane

EXIT_UNAVAILABLE, EXIT_UNUSABLE = 3, 4

LIKE_ANYBODY = (
    sys.executable,
    "-c",
    # The superuser may write whatever is read-only; without CAP_DAC_OVERRIDE, which exec then cannot give back, not.
    "import ctypes, os, sys\n"
    "if os.geteuid() == 0 and ctypes.CDLL(None).prctl(24, 1, 0, 0, 0):\n    sys.exit('cannot drop the capability')\n"
    "os.execv(sys.argv[1], sys.argv[1:])",
)


def assert_stored_nothing_for_now(answer: Answer) -> None:
    assert (answer.status, answer.headers["content-type"]) == (503, "application/problem+json")
    assert int(answer.headers["retry-after"]) > 0
    assert "nothing was stored" in answer.json["detail"]


async def says_why_it_cannot_start(site: Site, *, exit_code: int, next_step: str) -> None:
    process = await site.begin("run", *ANY_PORT, wrapper=LIKE_ANYBODY)
    assert await process.ended() == exit_code, process.last_words
    (error,) = (line["text"] for line in process.lines if line.get("text", "").startswith("Error: "))
    assert next_step in error
    assert "Traceback" not in process.last_words


# A store that cannot be opened


async def test_a_newer_schema_is_refused_and_left_as_it_is(site: Site) -> None:
    site.configure()
    process = await site.start()
    process.terminate()
    await process.ended()
    site.rows("PRAGMA user_version = 99")
    await says_why_it_cannot_start(site, exit_code=EXIT_UNUSABLE, next_step="install a newer turnlane")
    assert site.rows("PRAGMA user_version") == [(99,)]


async def test_several_processes_with_a_newer_schema_end_together_instead_of_starting_again(site: Site) -> None:
    site.configure()
    process = await site.start()
    process.terminate()
    await process.ended()
    site.rows("PRAGMA user_version = 99")
    pair = await site.begin("run", *ANY_PORT, "--processes", "2")
    assert await pair.ended() == EXIT_UNUSABLE, pair.last_words


async def test_a_file_that_is_no_database_is_refused_and_left_as_it_is(site: Site) -> None:
    site.configure()
    site.file.write_bytes(b"Dear diary, " * 1000)
    await says_why_it_cannot_start(site, exit_code=EXIT_UNUSABLE, next_step="not an SQLite database; name another")
    assert site.file.read_bytes() == b"Dear diary, " * 1000


async def test_a_database_of_another_program_is_refused_and_left_as_it_is(site: Site) -> None:
    site.configure()
    site.rows("CREATE TABLE diary (day TEXT)")
    await says_why_it_cannot_start(site, exit_code=EXIT_UNUSABLE, next_step="of another program; name a file of its")
    assert site.rows("SELECT name FROM sqlite_master") == [("diary",)]


async def test_a_missing_folder_is_named(site: Site) -> None:
    site.configure(top='backend = "sqlite:///nowhere/turnlane.db"')
    await says_why_it_cannot_start(site, exit_code=EXIT_UNAVAILABLE, next_step="check that its folder exists")


async def test_a_read_only_folder_is_named(site: Site) -> None:
    site.configure()
    site.folder.chmod(0o500)
    await says_why_it_cannot_start(site, exit_code=EXIT_UNAVAILABLE, next_step="check that its folder exists and may")
    site.folder.chmod(0o700)
    assert not site.file.exists()


# A store that fails while the process runs


async def test_a_read_only_file_takes_no_messages_and_the_log_names_the_next_step(site: Site) -> None:
    site.configure()
    process = await site.start()
    process.terminate()
    await process.ended()
    site.file.chmod(0o400)
    process = await site.start(wrapper=LIKE_ANYBODY)
    assert_stored_nothing_for_now(await site.try_to_post(process, "m1"))
    for event in ("store.unavailable", "hook.refused"):
        assert "make it and its folder writable" in (await process.said(event))["cause"]
    assert process.is_running
    assert site.rows("SELECT count(*) FROM message") == [(0,)]


async def test_while_another_program_locks_the_file_messages_are_refused_for_now_and_then_taken(
    site: Site, outside: Outside
) -> None:
    site.configure()
    process = await site.start()
    with closing(sqlite3.connect(site.file, isolation_level=None)) as another:
        another.execute("BEGIN EXCLUSIVE")
        assert_stored_nothing_for_now(await site.try_to_post(process, "m1"))
        assert "another program holds the file" in (await process.said("hook.refused"))["cause"]
        await process.said("store.unavailable")
        another.execute("ROLLBACK")
    await process.said("store.available")
    await site.post(process, "m1")
    await outside.until(lambda: bool(outside.replies))
    await site.all_settled()
    assert [reply.text for reply in outside.requests] == ["m1"]


async def test_while_a_process_is_frozen_in_the_middle_of_a_write_the_others_refuse_for_now_and_can_be_stopped(
    site: Site, outside: Outside
) -> None:
    """The frozen one is this test, which holds the lock that a writer holds."""
    site.configure()
    process = await site.start()
    await process.said("worker.joined")
    with (site.folder / "turnlane.db-lock").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert_stored_nothing_for_now(await site.try_to_post(process, "m1"))
        process.terminate()
        await process.said("server.draining")
        process.terminate()
        assert await process.ended() == 0
    await site.post(await site.start(), "m1")
    await outside.until(lambda: [reply.text for reply in outside.replies] == ["m1"])


async def test_while_the_file_cannot_grow_messages_are_refused_for_now_and_then_taken(
    site: Site, outside: Outside
) -> None:
    """A quota: the write fails as on a full disk, and works again once there is room."""
    site.configure()
    process = await site.start()
    await process.said("worker.joined")
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (16_384, resource.RLIM_INFINITY))
    await stays_up_without_room(site, process)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    await works_again(site, process, outside)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "tmpfs", str(disk)], capture_output=True, check=False
    )
    if mounted.returncode != 0:
        pytest.skip(f"a real full disk needs the right to mount: {mounted.stderr.decode().strip()}")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


async def test_while_the_disk_is_full_messages_are_refused_for_now_and_then_taken(
    site: Site, outside: Outside, small_disk: Path
) -> None:
    site.folder = small_disk
    site.configure()
    process = await site.start()
    await process.said("worker.joined")
    ballast = small_disk / "ballast"
    fill_up_with(ballast)
    await stays_up_without_room(site, process)
    ballast.unlink()
    await works_again(site, process, outside)


def fill_up_with(ballast: Path) -> None:
    with ballast.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass


async def stays_up_without_room(site: Site, process: Turnlane) -> None:
    answer = await site.try_to_post(process, "m0")
    for n in range(1, 1000):  # what room is left in the file and its log is used up first
        if answer.status != 202:
            break
        answer = await site.try_to_post(process, f"m{n}")
    assert_stored_nothing_for_now(answer)
    assert process.is_running


async def works_again(site: Site, process: Turnlane, outside: Outside) -> None:
    await site.post(process, "after", conversation="cem")
    await outside.until(lambda: any(reply.conversation == "cem" for reply in outside.replies))
    await site.all_settled()
    assert site.rows("PRAGMA integrity_check") == [("ok",)]
    stored = {each for (each,) in site.rows("SELECT origin_id FROM message")}
    answered = [each for reply in outside.replies for each in reply.in_reply_to]
    assert sorted(answered) == sorted(stored)
