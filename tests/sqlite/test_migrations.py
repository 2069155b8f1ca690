"""A file of an older version becomes current, and goes on where it was."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from turnlane.backends.sqlite import SqliteBackend, schema
from turnlane.clock import SystemClock
from turnlane.model.lane import Kind
from turnlane.model.policy import Policy
from turnlane.model.turn import Replied, Reply

POLICY = '{"agent": "support", "tenant": "site", "debounce_ms": 0}'
LANE = (
    "INSERT INTO lane (id, kind, key, next_seq, done_seq, claim_seq, number, attempt, first_at, ready_at, due_at, "
    "epoch, policy, failures, paused, parked) VALUES (2, 0, 'site/alice', 3, 1, 1, 1, 0, 20, 20, 20, 1, 1, 0, 0, 0)"
)
MESSAGE = (
    "INSERT INTO message (lane, seq, accepted_at, origin_id, sender, text) "
    "VALUES (2, ?1, ?1 * 10, 'm-' || ?1, 'alice', 'hi')"
)


def file_of_version_1(path: Path) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        schema.MIGRATIONS[0](connection)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 1")
        connection.execute("INSERT INTO policy VALUES (1, ?)", (POLICY,))
        connection.execute(LANE)
        connection.executemany(MESSAGE, [(1,), (2,), (3,)])


async def test_what_waited_in_a_file_of_the_first_version_is_answered(tmp_path: Path) -> None:
    file_of_version_1(tmp_path / "old.db")
    backend = SqliteBackend(f"sqlite:///{tmp_path / 'old.db'}", SystemClock())
    await backend.open()
    assert await backend.schema_version() == schema.VERSION
    await backend.join("worker", 60_000)
    [lease] = await backend.claim("worker", Kind.TURN)
    assert [message.origin_id for message in lease.messages] == ["m-2", "m-3"]
    assert (lease.number, lease.policy) == (2, Policy(agent="support", tenant="site", debounce_ms=0))
    assert (await backend.commit(lease, Replied(Reply("at last")))).verdict == "answered"
    [delivery] = await backend.deliveries("site/alice")
    assert delivery.in_reply_to == ("m-2", "m-3")
    await backend.close()


async def test_the_index_of_an_older_file_serves_its_lanes_queue_by_queue(tmp_path: Path) -> None:
    file_of_version_1(tmp_path / "old.db")
    backend = SqliteBackend(f"sqlite:///{tmp_path / 'old.db'}", SystemClock())
    await backend.open()
    await backend.close()
    with closing(sqlite3.connect(tmp_path / "old.db")) as connection:
        queue = connection.execute("SELECT queue FROM lane").fetchone()[0]
    assert queue == Policy(agent="support", tenant="site").queue


LONG = ("message", "turn", "delivery")
TURN = (2, 1, 1, 1, "dead_letter", 3, 3, "w", "support", 10, 20, "broken", None, 1, 2, 0, 0, 5)
DELIVERY = (3, 1, "d-1", "reply", 1, 1, 1, "late", "[]", 10, "failed", 20, 1, 1, None, "gone", None)


def test_rows_that_were_kept_by_conversation_are_kept_as_they_come_and_stay_the_same(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "old.db", isolation_level=None)) as connection:
        for migration in schema.MIGRATIONS[:5]:
            migration(connection)
        connection.execute(f"PRAGMA application_id = {schema.APPLICATION_ID}")
        connection.execute("PRAGMA user_version = 5")
        connection.executemany(MESSAGE, [(1,), (2,), (3,)])
        connection.execute("UPDATE message SET role = 'operator', outcome = 'heard' WHERE seq = 2")
        connection.execute(f"INSERT INTO turn VALUES ({', '.join('?' * len(TURN))})", TURN)
        connection.execute(f"INSERT INTO delivery VALUES ({', '.join('?' * len(DELIVERY))})", DELIVERY)
        before, schema_before = _rows(connection), _names(connection)
        schema.migrate(connection)
        assert _rows(connection) == before
        assert all(_is_kept_as_it_comes(connection, table) for table in LONG)
        assert schema_before <= _names(connection), "an index was left behind"
        plan = connection.execute("EXPLAIN QUERY PLAN SELECT * FROM message WHERE lane = 2 AND seq = 1").fetchall()
        assert "USING INDEX sqlite_autoindex_message_1 (lane=? AND seq=?)" in plan[0][3]


def _rows(connection: sqlite3.Connection) -> dict[str, list[object]]:
    return {table: connection.execute(f"SELECT * FROM {table} ORDER BY 1, 2").fetchall() for table in LONG}


def _names(connection: sqlite3.Connection) -> set[str]:
    return {name for [name] in connection.execute("SELECT name FROM sqlite_master")}


def _is_kept_as_it_comes(connection: sqlite3.Connection, table: str) -> bool:
    [without_rowid] = connection.execute("SELECT wr FROM pragma_table_list WHERE name = ?", (table,)).fetchone()
    return not without_rowid
