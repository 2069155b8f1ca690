"""The tables of a file, for whoever copies all of them."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from turnlane.backends.sql.copy import PAGE_ROWS
from turnlane.backends.sql.database import Row
from turnlane.backends.sqlite import file, schema


class SqliteTables:
    def __init__(self, location: file.Location) -> None:
        self.name = str(location.path)
        self._location = location
        with self._explained():
            self._connection = file.connect(location, unfinished=True)

    @contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise file.explain(error, self._location.path) from error

    def begin(self, *, writes: bool) -> None:
        with self._explained():
            self._connection.execute(f"PRAGMA query_only = {not writes}")
            self._connection.execute("BEGIN IMMEDIATE" if writes else "BEGIN")

    def commit(self) -> None:
        with self._explained():
            self._connection.execute("COMMIT")

    def columns(self, table: str) -> Sequence[str]:
        with self._explained():
            return sorted(row[1] for row in self._connection.execute(f"PRAGMA table_info({table})"))

    def read(self, table: str, columns: Sequence[str]) -> Iterator[Sequence[Row]]:
        with self._explained():
            cursor = self._connection.execute(f"SELECT {', '.join(columns)} FROM {table}")
            while rows := cursor.fetchmany(PAGE_ROWS):
                yield rows

    def write(self, table: str, columns: Sequence[str], rows: Sequence[Row]) -> None:
        values = ", ".join("?" * len(columns))
        with self._explained():
            self._connection.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({values})", rows)

    def number(self, statement: str) -> int:
        with self._explained():
            found: int = self._connection.execute(statement).fetchone()[0]
            return found

    def mark(self, *, unfinished: bool) -> None:
        with self._explained():
            version = abs(schema.version(self._connection))
            self._connection.execute(f"PRAGMA user_version = {-version if unfinished else version}")

    def go_on_counting(self) -> None:
        """It always counts from the greatest."""

    def close(self) -> None:
        self._connection.close()
