"""Sessions of Claude Code in the API, beside the conversations of other channels."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path

import pytest
from tests.http.conftest import SmallBot, in_process
from tests.transcripts.written import FIRST_AT, SESSION, answered, said, text, write

from turnlane.transcripts import follow, open_transcripts


@pytest.fixture
async def file(tmp_path: Path) -> Path:
    path = tmp_path / f"{SESSION}.jsonl"
    write(path, said("Plant a tree") + answered(text("Which one?"), hour=1) + said("An oak", hour=2))
    store = open_transcripts("memory://", tmp_path / "t.db")
    await follow(store, path)
    await store.note_prompt(SESSION, "p1", FIRST_AT, "Plant a tree")
    await store.close()
    return tmp_path / "t.db"


async def test_sessions_are_listed_read_page_by_page_and_searched(bot: SmallBot, file: Path) -> None:
    async with in_process(bot, transcripts=partial(open_transcripts, "memory://", file)) as client:
        (session,) = (await client.get("/api/transcripts?project=proj&since=2026-11-15")).json()["sessions"]
        assert (session["session"], session["entries"], session["prompt"]) == (SESSION, 3, "Plant a tree")
        first = (await client.get(f"/api/transcripts/{SESSION[:6]}?limit=2")).json()
        assert [entry["text"] for entry in first["entries"]] == ["Plant a tree", "Which one?"]
        assert [prompt["text"] for prompt in first["prompts"]] == ["Plant a tree"]
        rest = (await client.get(f"/api/transcripts/{SESSION}?limit=2&after={first['next']}")).json()
        assert ([entry["text"] for entry in rest["entries"]], rest["next"]) == (["An oak"], None)
        (hit,) = (await client.get("/api/transcripts/search?q=tree&kind=user")).json()["hits"]
        assert hit["snippet"] == "Plant a «tree»"
        assert (await client.get(f"/api/transcripts/{SESSION}?after=x")).status_code == 400
        assert (await client.get("/api/transcripts/unknown")).status_code == 404


async def test_where_nobody_keeps_any_there_are_none(
    bot: SmallBot, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    async with in_process(bot) as client:
        assert (await client.get("/api/transcripts")).json() == {"sessions": []}
        assert (await client.get("/api/transcripts/search?q=tree")).json() == {"hits": []}
        assert (await client.get("/api/transcripts/x")).status_code == 404
        assert os.listdir() == []
