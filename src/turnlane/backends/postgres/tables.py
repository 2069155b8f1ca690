"""The tables of a database, for whoever copies all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import asyncpg

from turnlane.backends.postgres import schema
from turnlane.backends.postgres.connection import BlockingConnection, Target
from turnlane.backends.postgres.queries import SQL
from turnlane.backends.postgres.rows import LANES_PER_BLOCK
from turnlane.backends.postgres.store import TROUBLE, explain
from turnlane.backends.sql.copy import PAGE_ROWS
from turnlane.backends.sql.database import Row
from turnlane.errors import BackendError, BackendUnavailable


class PostgresTables:
    def __init__(self, target: Target) -> None:
        self.name = target.name if target.schema is None else f"{target.name}, schema {target.schema}"
        self._target = target
        self._known: dict[str, dict[str, str]] = {}
        """The types of each table's columns."""
        self._connection = BlockingConnection(target)
        try:
            with self._explained():
                self._connection.open()
        except BaseException:  # whatever it was, its loop must not stay open; it is raised again
            self._connection.close()
            raise

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except TROUBLE as error:
            raise explain(error, self._target) from error
        except asyncpg.PostgresError as error:
            raise BackendError(f"{self.name}: {error}") from error

    def begin(self, *, writes: bool) -> None:
        with self._explained():
            self._connection.command("BEGIN" if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if writes and not self._connection.execute(SQL["try_lock"], ("copy",)).fetchone()[0]:
                raise BackendUnavailable(f"{self.name}: another copy into it is under way; wait for its end")

    def commit(self) -> None:
        with self._explained():
            self._connection.command("COMMIT")

    def columns(self, table: str) -> Sequence[str]:
        return sorted(self._types(table))

    def _types(self, table: str) -> dict[str, str]:
        if table not in self._known:
            with self._explained():
                self._known[table] = dict(self._connection.execute(SQL["columns"], (table,)).fetchall())
        return self._known[table]

    def read(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Row]]:
        types = self._types(table)
        chosen = ", ".join(f"{name}::int" if types[name] == "boolean" else name for name in columns)
        # The driver remembers the columns of a statement by its text: each table has a cursor with a name of its own.
        cursor = f"all_of_{table}"
        with self._explained():
            self._connection.command(f"DECLARE {cursor} NO SCROLL CURSOR FOR SELECT {chosen} FROM {table}")
            while rows := self._connection.execute(f"FETCH {PAGE_ROWS} FROM {cursor}").fetchall():
                yield [tuple(row) for row in rows]
            self._connection.command(f"CLOSE {cursor}")

    def write(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        types = self._types(table)
        flags = [place for place, name in enumerate(columns) if types[name] == "boolean"]
        with self._explained():
            self._connection.copy_in(table, columns, [_with_booleans(row, flags) for row in rows] if flags else rows)

    def number(self, statement: str) -> int:
        with self._explained():
            found: int = self._connection.execute(statement).fetchone()[0]
            return found

    def mark(self, *, unfinished: bool) -> None:
        with self._explained():
            self._connection.command(f"UPDATE meta SET version = {'-' if unfinished else ''}abs(version)")

    def go_on_counting(self) -> None:
        with self._explained():
            self._connection.execute(SQL["skip_policies"])
            self._connection.execute(SQL["skip_lane_blocks"], (LANES_PER_BLOCK * 2,))
            schema.let_the_journal_grow(self._connection)

    def close(self) -> None:
        self._connection.close()


def _with_booleans(row: Row, flags: Sequence[int]) -> Row:
    values = list(row)
    for place in flags:
        values[place] = bool(values[place])
    return values
