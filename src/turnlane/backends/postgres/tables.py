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
from turnlane.backends.sql.contents import PAGE_ROWS
from turnlane.backends.sql.database import Row
from turnlane.errors import BackendError, BackendUnavailable


class PostgresTables:
    sql = SQL

    def __init__(self, target: Target) -> None:
        self.name = target.name if target.schema is None else f"{target.name}, schema {target.schema}"
        self._target = target
        self.connection = BlockingConnection(target)
        try:
            with self._explained():
                self.connection.open()
        except BaseException:  # whatever it was, its loop must not stay open; it is raised again
            self.connection.close()
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
            self.connection.command("BEGIN" if writes else "BEGIN ISOLATION LEVEL REPEATABLE READ, READ ONLY")
            if writes and not self.connection.execute(SQL["try_lock"], ("copy",)).fetchone()[0]:
                raise BackendUnavailable(f"{self.name}: another copy into it is under way; wait for its end")

    def commit(self) -> None:
        with self._explained():
            self.connection.command("COMMIT")

    def pages(self, name: str, statement: str) -> Iterator[Sequence[Row]]:
        # The driver remembers the columns of a statement by its text: each cursor has a name of its own.
        cursor = f"all_{name}"
        with self._explained():
            self.connection.command(f"DECLARE {cursor} NO SCROLL CURSOR FOR {statement}")
            while rows := self.connection.execute(f"FETCH {PAGE_ROWS} FROM {cursor}").fetchall():
                yield rows
            self.connection.command(f"CLOSE {cursor}")

    def find(self, statement: str) -> Sequence[Row]:
        with self._explained():
            return self.connection.execute(statement).fetchall()

    def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        with self._explained():
            self.connection.copy_in(table, columns.split(", "), rows)

    def mark(self, *, unfinished: bool) -> None:
        with self._explained():
            self.connection.command(f"UPDATE meta SET version = {'-' if unfinished else ''}abs(version)")

    def go_on_counting(self) -> None:
        with self._explained():
            self.connection.execute(SQL["learn_handles"])
            self.connection.execute(SQL["skip_lane_blocks"], (LANES_PER_BLOCK * 2,))
            schema.let_the_journal_grow(self.connection)

    def close(self) -> None:
        self.connection.close()
