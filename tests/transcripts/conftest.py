"""Transcripts in each kind of store, and files that grow as Claude Code lets them grow."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from tests.transcripts.written import SESSION

from turnlane.transcripts import Transcripts, open_transcripts


@pytest.fixture(params=["sqlite", "postgres"])
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path}/store.db"
    return f"{request.getfixturevalue('postgres')}?schema=elsewhere&notify=false"


@pytest.fixture
async def open_store(store_url: str) -> AsyncIterator[Callable[[], Transcripts]]:
    """Another handle on the same transcripts, as another process has it."""
    handles: list[Transcripts] = []

    def opened() -> Transcripts:
        handles.append(open_transcripts(store_url))
        return handles[-1]

    yield opened
    for handle in handles:
        await handle.close()


@pytest.fixture
async def store(open_store: Callable[[], Transcripts]) -> Transcripts:
    handle = open_store()
    await handle.open()
    return handle


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where the transcript of SESSION will stand."""
    folder = tmp_path / "projects" / "-home-user-proj"
    folder.mkdir(parents=True)
    return folder / f"{SESSION}.jsonl"
