"""A folder of projects is taken in whole, in little memory, and goes on where it was killed."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.transcripts.written import SESSION, answered, append, said, text, write

import turnlane
from turnlane.model.usage import Usage
from turnlane.testing.transcripts import make_projects
from turnlane.transcripts import Transcripts, follow, importing, open_transcripts
from turnlane.transcripts.importing import Progress, import_folder
from turnlane.transcripts.views import TranscriptView, altogether

IMPORT = [sys.executable, "-c", "from turnlane.cli.main import main; main()", "transcripts", "import"]


async def test_every_file_is_taken_in_once(store: Transcripts, tmp_path: Path) -> None:
    made = make_projects(tmp_path / "projects", files=40, bytes_each=5_000)
    first = await import_folder(store, tmp_path / "projects")
    assert (first.files, first.files_done, first.new.counts.bytes) == (40, 40, made)
    assert first.new.counts.bad == first.new.counts.unknown == 0
    sessions = await store.sessions(limit=1_000)
    assert sum(session.entries for session in sessions) == first.new.entries
    assert _spent(sessions) == altogether(first.new.usage)
    second = await import_folder(store, tmp_path / "projects")
    assert second == Progress(40, 40)
    assert await store.sessions(limit=1_000) == sessions


async def test_what_has_grown_is_taken_in(store: Transcripts, path: Path) -> None:
    write(path, said("hello"))
    await follow(store, path)
    append(path, answered(text("hi"), hour=1).removesuffix(b"\n"))
    assert (await import_folder(store, path.parent)).new.entries == 1


async def test_an_import_tells_how_far_it_is(
    store: Transcripts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "GROUP_BYTES", 1)
    monkeypatch.setattr(importing, "PAGE_FILES", 3)
    make_projects(tmp_path / "projects", files=8, bytes_each=1_000)
    told: list[Progress] = []
    done = await import_folder(store, tmp_path / "projects", told.append)
    places = [progress.files_done for progress in told]
    assert places == sorted(places)
    assert told[-1] == done
    assert done.files_done == 8


async def test_a_file_that_cannot_be_read_stops_nothing(store: Transcripts, path: Path) -> None:
    write(path, said("hello"))
    path.with_name("broken.jsonl").symlink_to("nowhere")
    gone = path.with_name("zoo.jsonl")
    os.mkfifo(gone)
    done = await import_folder(store, path.parent)
    assert (done.files, done.new.entries, done.new.problems) == (1, 1, ())


async def test_two_imports_at_once_store_and_count_everything_once(
    open_store: Callable[[], Transcripts], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importing, "GROUP_BYTES", 10_000)
    make_projects(tmp_path / "projects", files=30, bytes_each=5_000)
    both = await asyncio.gather(*(import_folder(open_store(), tmp_path / "projects") for _ in range(2)))
    sessions = await open_store().sessions(limit=1_000)
    assert sum(each.new.entries for each in both) == sum(session.entries for session in sessions)
    assert altogether((both[0].new + both[1].new).usage) == _spent(sessions)


def test_killed_in_the_middle_it_goes_on_from_there(tmp_path: Path) -> None:
    make_projects(tmp_path / "projects", files=200, bytes_each=100_000)
    killed = subprocess.Popen([*IMPORT, "projects"], cwd=tmp_path, stderr=subprocess.PIPE, env=_environment())
    assert killed.stderr is not None
    with killed.stderr:
        assert b" of 200 files" in killed.stderr.readline()
        killed.send_signal(signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    before = asyncio.run(_listed(tmp_path / "turnlane.transcripts.db"))
    again = subprocess.run([*IMPORT, "projects"], cwd=tmp_path, capture_output=True, check=True, env=_environment())
    after = asyncio.run(_listed(tmp_path / "turnlane.transcripts.db"))
    assert 0 < len(before) < len(after)
    assert b"200 files, " in again.stdout
    assert after == asyncio.run(_listed(tmp_path / "clean.db", tmp_path / "projects"))


async def _listed(file: Path, folder: Path | None = None) -> list[TranscriptView]:
    """All sessions in the file, after an import of the folder."""
    store = open_transcripts("memory://", file)
    try:
        if folder is not None:
            await import_folder(store, folder)
        return await store.sessions(limit=100_000)
    finally:
        await store.close()


def _spent(sessions: list[TranscriptView]) -> Usage:
    return altogether({session.session: altogether(session.usage) for session in sessions})


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("TURNLANE_", "CLAUDE"))}
    return {**kept, "PYTHONPATH": str(Path(turnlane.__file__).parents[1])}


async def test_subagents_of_a_folder_belong_to_their_session(store: Transcripts, path: Path) -> None:
    write(path, said("do it"))
    write(path.with_suffix("") / "subagents" / "agent-a1.jsonl", answered(text("done"), hour=1))
    await import_folder(store, path.parent.parent)
    (session,) = await store.sessions()
    assert (session.session, session.entries) == (SESSION, 2)
