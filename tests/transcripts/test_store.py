"""What is stored is found again: by words, project, time, tool and kind; and prompts without text get theirs."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.transcripts.written import (
    FIRST_AT,
    HOUR_MS,
    SESSION,
    answered,
    append,
    said,
    text,
    tool_result,
    tool_use,
    write,
)

from turnlane.errors import BackendError, BackendRefused, BackendUnavailable, NotFound, SchemaMismatch
from turnlane.model.usage import Usage
from turnlane.transcripts import Transcripts, follow, open_transcripts
from turnlane.transcripts.store import file_beside
from turnlane.transcripts.views import Wanted

OTHER = "5d7c1f1e-0000-4000-8000-000000000002"


@pytest.fixture
async def told(store: Transcripts, path: Path) -> Transcripts:
    write(
        path,
        said("How do I rotate the café's API_KEY in /srv/app/settings.toml?", hour=1)
        + answered(
            text("Run rotate-keys, then restart the café."), tool_use("Bash", "t1", command="rotate-keys"), hour=2
        )
        + said(tool_result("t1", "rotated"), hour=3),
    )
    await follow(store, path)
    other = path.with_name(f"{OTHER}.jsonl")
    write(
        other,
        said("Plant a tree", hour=4, cwd="/home/user/garden", sessionId=OTHER)
        + answered(text("Which tree? An apple tree, or a pear."), model="claude-haiku-5", hour=5),
    )
    await follow(store, other)
    return store


async def found(store: Transcripts, words: str = "", **wanted: object) -> list[str]:
    return [f"{hit.session[-1]}:{hit.kind}" for hit in await store.search(Wanted(words, **wanted))]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("words", "kinds"),
    [
        ("rotate api_key", ["1:user"]),
        ("CAFE restart", ["1:assistant"]),
        ('"apple tree"', ["2:assistant"]),
        ('"tree apple"', []),
        ("plan*", ["2:user"]),
        ("plan", []),
        ("tree -pear", ["2:user"]),
        ('tree -"plant a"', ["2:assistant"]),
        ("settings.toml", ["1:user"]),
        ("/srv/app", ["1:user"]),
        ("--flag", []),
        ("!!!", []),
    ],
)
async def test_entries_are_found_by_words(told: Transcripts, words: str, kinds: list[str]) -> None:
    assert await found(told, words) == kinds


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("안녕하세요 한국", "한국"),
        ("これはがく です", "これはがく"),
        ("Привет, Мир", "мир"),
        ("naïve e\u0301te\u0301", "naive été"),
        ("ΑΘΗΝΑ αθήνα", '"αθηνα αθήνα"'),
        ("日本語のテキスト", "日本*"),
        ("foo_bar.baz(x)", "foo_bar baz"),
        ("v1.25.3-rc2", "v1.25.3 -rc1"),
        ("0x7fff 12abc34", "12abc34 0x7f*"),
        ("I ❤️ trees 👩‍👩‍👧", "i trees"),
    ],
)
async def test_words_of_any_script_are_found(store: Transcripts, path: Path, text: str, words: str) -> None:
    write(path, said(text) + said("something else altogether", hour=1))
    await follow(store, path)
    (hit,) = await store.search(Wanted(words))
    assert "«" in hit.snippet
    assert hit.snippet.replace("«", "").replace("»", "") == text


async def test_entries_are_found_by_where_when_and_what(told: Transcripts) -> None:
    assert await found(told, project="garden") == ["2:assistant", "2:user"]
    assert await found(told, project="/home/user/garden/") == ["2:assistant", "2:user"]
    assert len(await found(told, project="/home/user")) == 6
    assert await found(told, project="gard") == []
    assert await found(told, tool="Bash") == ["1:tool_result", "1:tool_use"]
    assert await found(told, kind="user") == ["2:user", "1:user"]
    assert await found(told, session=OTHER, kind="user") == ["2:user"]
    assert await found(told, since=FIRST_AT + 3 * HOUR_MS, until=FIRST_AT + 5 * HOUR_MS) == ["2:user", "1:tool_result"]
    assert await found(told, "-tree", kind="user") == ["1:user"]


async def test_the_best_fit_comes_first_and_is_marked(told: Transcripts) -> None:
    best, other = await told.search(Wanted("tree"))
    assert best.snippet == "Which «tree»? An apple «tree», or a pear."
    assert other.snippet == "Plant a «tree»"


async def test_a_long_text_is_cut_around_its_first_hit(store: Transcripts, path: Path) -> None:
    write(path, said("hay " * 1_000 + "the needle, " + "straw " * 1_000))
    await follow(store, path)
    (hit,) = await store.search(Wanted("needle"))
    assert hit.snippet.startswith("…")
    assert " the «needle», straw" in hit.snippet
    assert hit.snippet.endswith("…")
    assert len(hit.snippet) < 200


@settings(max_examples=50, suppress_health_check=list(HealthCheck), database=None)
@given(words=st.text(alphabet=st.sampled_from("ab \"*-+()^:{}&|!<>'\\%_.,\0ÄßあNOTAND\u0301")) | st.text())
async def test_nothing_that_is_typed_is_an_error(told: Transcripts, words: str) -> None:
    await told.search(Wanted(words))


async def test_sessions_are_listed_last_first_with_what_they_took(told: Transcripts) -> None:
    last, first = await told.sessions()
    assert (last.session, last.project, last.entries, last.prompt) == (OTHER, "/home/user/garden", 2, "Plant a tree")
    assert (last.began_at, last.ended_at) == (FIRST_AT + 4 * HOUR_MS, FIRST_AT + 5 * HOUR_MS)
    assert last.usage == {"claude-haiku-5": Usage(150, 17, 30)}
    assert [each.session for each in await told.sessions(project="proj")] == [first.session] == [SESSION]
    assert [each.session for each in await told.sessions(since=FIRST_AT + 4 * HOUR_MS)] == [OTHER]
    assert [each.session for each in await told.sessions(until=FIRST_AT + 4 * HOUR_MS)] == [SESSION]
    assert len(await told.sessions(limit=1)) == 1


async def test_a_session_is_known_by_the_beginning_of_its_id(told: Transcripts) -> None:
    assert (await told.session(OTHER)).session == OTHER
    with pytest.raises(NotFound, match="2 or more begin so, write more of it"):
        await told.session("5d7c")
    with pytest.raises(NotFound, match="`turnlane transcripts list` shows them"):
        await told.session("nothing")


async def test_totals_are_added_up_by_project_day_model_and_tool(told: Transcripts) -> None:
    async def totals(by: str, **period: int) -> list[tuple[str, int, int, int]]:
        added = await told.totals(by, **period)  # type: ignore[arg-type]
        return [
            (each.name, each.sessions, each.entries, sum(used.tokens for used in each.usage.values())) for each in added
        ]

    assert await totals("project") == [("/home/user/garden", 1, 1, 167), ("/home/user/proj", 1, 1, 167)]
    assert await totals("day") == [("2026-11-15", 2, 2, 334)]
    assert await totals("model") == [("claude-haiku-5", 1, 1, 167), ("claude-opus-5-5", 1, 1, 167)]
    assert await totals("tool") == [("Bash", 1, 1, 0)]
    assert await totals("model", since=FIRST_AT + 4 * HOUR_MS) == [("claude-haiku-5", 1, 1, 167)]


async def test_a_prompt_without_text_is_filled_in_from_the_entry_with_its_id(store: Transcripts, path: Path) -> None:
    at = FIRST_AT + HOUR_MS
    await store.note_prompt(SESSION, "p1", at, None, project="/home/user/proj")
    write(path, said("something else", promptId="p0"))
    await follow(store, path)
    assert [prompt.text for prompt in await store.prompts(SESSION)] == [None]
    append(path, said("asked", promptId="p1", hour=1.5) + said("asked later", promptId="p2", hour=2))
    await follow(store, path)
    await store.note_prompt(SESSION, "p1", at, "not again")
    assert [(each.prompt_id, each.at, each.text) for each in await store.prompts(SESSION)] == [("p1", at, "asked")]


async def test_without_ids_a_prompt_is_the_latest_message_at_its_time(store: Transcripts, path: Path) -> None:
    for hour in (1, 3):
        await store.note_prompt(SESSION, None, FIRST_AT + hour * HOUR_MS, None)
    write(path, said("first", hour=1) + said("second", hour=2) + answered(text("yes"), hour=2.5))
    await follow(store, path)
    assert [prompt.text for prompt in await store.prompts(SESSION)] == ["first", "second"]
    assert await store.fill_prompts(SESSION) == 0


async def test_a_prompt_with_text_is_known_before_there_is_a_transcript(store: Transcripts) -> None:
    await store.note_prompt(SESSION, "p1", FIRST_AT, "hello", project="/home/user/proj")
    (session,) = await store.sessions()
    assert (session.prompt, session.project, session.entries) == ("hello", "/home/user/proj", 0)


async def test_closing_twice_or_unopened_changes_nothing(open_store: Callable[[], Transcripts]) -> None:
    store = open_store()
    await store.close()
    await store.close()


def test_each_backend_has_its_place_for_transcripts() -> None:
    assert file_beside("sqlite:////srv/bots/turnlane.db?synchronous=off") == Path("/srv/bots/turnlane.transcripts.db")
    assert file_beside("nats://localhost") == file_beside("memory://") == Path("turnlane.transcripts.db")


async def test_a_newer_or_foreign_file_is_refused(tmp_path: Path) -> None:
    newer, foreign = tmp_path / "newer.db", tmp_path / "foreign.db"
    ours = open_transcripts("memory://", newer)
    await ours.open()
    await ours.close()
    with sqlite3.connect(newer) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    with sqlite3.connect(foreign) as connection:
        connection.execute("CREATE TABLE theirs (x)")
    connection.close()
    for file, error in ((newer, SchemaMismatch), (foreign, BackendError)):
        store = open_transcripts("memory://", file)
        with pytest.raises(error):
            await store.open()
        await store.close()
    assert newer.stat().st_mode & 0o077 == 0


async def test_newer_tables_in_postgres_are_refused(postgres: str) -> None:
    import asyncpg

    store = open_transcripts(postgres)
    await store.open()
    connection = await asyncpg.connect(postgres)
    await connection.execute("UPDATE transcript_meta SET version = 99")
    await connection.close()
    await store.close()
    again = open_transcripts(postgres)
    with pytest.raises(SchemaMismatch, match="install a newer turnlane"):
        await again.open()
    await again.close()


async def test_a_connection_that_was_lost_is_made_again(postgres: str) -> None:
    import asyncpg

    store = open_transcripts(postgres)
    await store.note_prompt(SESSION, "p1", FIRST_AT, "hello")
    connection = await asyncpg.connect(postgres)
    others = "SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name ~ 'transcripts'"
    await connection.execute(others)
    await connection.close()
    with suppress(BackendUnavailable):
        await store.prompts(SESSION)
    assert [prompt.text for prompt in await store.prompts(SESSION)] == ["hello"]
    await store.close()


async def test_a_server_that_is_not_there_is_said() -> None:
    store = open_transcripts("postgresql://127.0.0.1:1/nowhere")
    with pytest.raises(BackendUnavailable, match="check that the server runs"):
        await store.open()
    await store.close()


async def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    store = open_transcripts("memory://", tmp_path / "nowhere" / "t.db")
    with pytest.raises(BackendRefused, match="check that its folder exists"):
        await store.open()
    await store.close()
