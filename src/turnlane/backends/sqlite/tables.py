"""The tables of a file, for whoever copies all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from turnlane.backends.sql.contents import PAGE_ROWS
from turnlane.backends.sql.database import Row
from turnlane.backends.sqlite import file, schema
from turnlane.backends.sqlite.queries import SQL

CACHE_KIBIBYTES = 16384
"""Of the file, and of each of the two things that are sorted."""


class SqliteTables:
    sql = SQL

    def __init__(self, location: file.Location) -> None:
        self.name = str(location.path)
        self._location = location
        with self._explained():
            self.connection = file.connect(location, unfinished=True)
            # What has to be sorted may be much.
            self.connection.execute("PRAGMA temp_store = FILE")
            self.connection.execute(f"PRAGMA cache_size = -{CACHE_KIBIBYTES}")

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise file.explain(error, self._location.path) from error

    def begin(self, *, writes: bool) -> None:
        with self._explained():
            self.connection.execute(f"PRAGMA query_only = {not writes}")
            self.connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def commit(self) -> None:
        with self._explained():
            self.connection.execute("COMMIT")

    def pages(self, name: str, statement: str) -> Iterator[Sequence[Row]]:
        with self._explained():
            cursor = self.connection.execute(statement)
            while rows := cursor.fetchmany(PAGE_ROWS):
                yield rows

    def find(self, statement: str) -> Sequence[Row]:
        with self._explained():
            return self.connection.execute(statement).fetchall()

    def insert(self, table: str, columns: str, rows: Sequence[Row]) -> None:
        values = ", ".join("?" * len(rows[0]))
        with self._explained():
            self.connection.executemany(f"INSERT INTO {table} ({columns}) VALUES ({values})", rows)

    def mark(self, *, unfinished: bool) -> None:
        with self._explained():
            version = abs(schema.version(self.connection))
            self.connection.execute(f"PRAGMA user_version = {-version if unfinished else version}")

    def go_on_counting(self) -> None:
        """It always counts from the greatest."""

    def close(self) -> None:
        self.connection.close()
