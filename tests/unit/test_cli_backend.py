"""The command that moves a store: what it prints, what it refuses and with which exit code."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.unit.test_cli import URL, call, json_of

from turnlane.backends.copying import TABLES
from turnlane.cli import backend
from turnlane.clock import SystemClock

OTHER = "sqlite:///other.db"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With a store in it that holds one message."""
    monkeypatch.chdir(tmp_path)
    assert call("send", "web/alice", "hello", "--id", "m-1", "--backend", URL).exit_code == 0
    return tmp_path


def test_every_table_of_a_file_is_copied(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "turnlane.db")) as connection:
        names = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    # What processes on one file tell each other of their changes is no content: nobody has the copy open yet.
    assert names == {*TABLES, "policy", "silent"}


def test_a_table_proves_that_both_hold_the_same_and_progress_is_told_apart_from_it() -> None:
    result = call("backend", "copy", URL, OTHER)
    assert result.exit_code == 0
    heading, *rows, end = result.stdout.splitlines()
    assert heading.split() == ["TABLE", "ROWS", "COPIED", "CHECKSUM", "CHECKSUM", "OF", "COPY"]
    cells = {row.split()[0]: row.split()[1:] for row in rows}
    assert list(cells) == list(TABLES)
    assert all(rows == copied and checksum == of_copy for rows, copied, checksum, of_copy in cells.values())
    assert end == "sqlite:///other.db holds the same; set `backend` to it and start again"
    assert result.stderr.splitlines()[0] == "about 4 rows"
    assert {"copying: 4 rows", "verifying: 4 rows"} <= set(result.stderr.splitlines())
    assert json_of("show", "web/alice", "--backend", URL) == json_of("show", "web/alice", "--backend", OTHER)


def test_on_a_terminal_there_is_a_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backend, "_is_terminal", lambda: True)
    result = call("backend", "copy", URL, OTHER)
    assert result.exit_code == 0
    assert "copying: 4 rows" not in result.stderr


def test_as_json_it_says_nothing_else() -> None:
    result = call("backend", "copy", URL, OTHER, "--json")
    assert result.stderr == ""
    told = json_of("backend", "copy", OTHER, "sqlite:///third.db")
    assert (told["source"], told["target"], told["equal"]) == (OTHER, "sqlite:///third.db", True)
    [message] = [table for table in told["tables"] if table["table"] == "message"]
    assert (message["rows"], message["copied"]) == (1, 1)
    assert message["checksum"] == message["checksum_of_copy"]


@pytest.mark.parametrize(
    ("source", "target", "code", "words"),
    [
        (URL, URL, 2, "FROM and TO are the same store"),
        (URL, "sqlite:///full.db", 2, "not empty; name a new one"),
        (URL, "sqlite:///busy.db", 2, "busy.db: a worker is at work; stop every"),
        ("sqlite:///busy.db", OTHER, 2, "busy.db: a worker is at work; stop every"),
        ("sqlite:///missing.db", OTHER, 1, "there is no missing.db to copy from"),
        ("memory://", OTHER, 2, "memory:// cannot be copied"),
        (URL, "memory://", 2, "memory:// cannot be copied"),
        (URL, "mongodb://there", 2, "no backend for 'mongodb'"),
        (URL, "sqlite:///no/folder/other.db", 3, "check that its folder exists"),
        (URL, "postgresql://127.0.0.1:1/there", 3, "check that the server runs"),
    ],
)
def test_what_cannot_be_done_is_refused_and_changes_nothing(
    folder: Path, source: str, target: str, code: int, words: str
) -> None:
    call("send", "web/bob", "hello", "--backend", "sqlite:///full.db")
    call("migrate", "--backend", "sqlite:///busy.db")
    with closing(sqlite3.connect(folder / "busy.db")) as connection:
        connection.execute("INSERT INTO worker VALUES ('w', 1, ?, '')", (SystemClock().now() + 60_000,))
        connection.commit()
    result = call("backend", "copy", source, target)
    assert result.exit_code == code
    assert words in result.stderr
    assert "Traceback" not in result.output
    assert not (folder / "other.db").exists()
    for store in (URL, "sqlite:///full.db", "sqlite:///busy.db"):
        assert call("lanes", "--backend", store).exit_code == 0


def test_nobody_starts_on_a_store_that_is_not_finished(folder: Path) -> None:
    call("backend", "copy", URL, OTHER)
    with closing(sqlite3.connect(folder / "other.db")) as connection:
        [version] = connection.execute("PRAGMA user_version").fetchone()
        connection.execute(f"PRAGMA user_version = {-version}")
    for verb in ("worker", "serve", "run", "lanes", "migrate"):
        result = call(verb, "--backend", OTHER)
        assert result.exit_code == 4, verb
        assert "a copy into this store was not finished; run the same `turnlane backend copy` again" in result.stderr
    assert "not finished" in call("doctor", "--backend", OTHER).output


def test_ctrl_c_says_how_to_start_over(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(backend.Lines, "passed", interrupted)
        result = call("backend", "copy", URL, OTHER)
    assert result.exit_code == 130
    assert "run the same command again, which starts over" in result.stderr
    assert call("lanes", "--backend", OTHER).exit_code == 4
    assert call("backend", "copy", URL, OTHER).exit_code == 0
